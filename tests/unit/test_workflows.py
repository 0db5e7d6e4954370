"""Workflows for a forge run targets of make alone, with few rights; hooks run the linters; the site has all pages."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.site import pages, with_links_to

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda it: it.stem)
def test_a_workflow_runs_targets_of_make_with_no_more_rights_than_it_names(workflow: Path) -> None:
    content = load(workflow)
    assert content["permissions"] == {}
    for job in content["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
        assert {*matrix} <= TARGETS
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
            else:
                made = re.fullmatch(r'make ([a-z-]+|"\$TARGET")( TAG="\$TAG")?', step["run"])
                assert made
                assert matrix if "TARGET" in made[1] else made[1] in TARGETS


def test_the_hooks_are_the_linters_of_make_lint() -> None:
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook["entry"].replace(".venv/bin", "$(BIN)") for hook in repository["hooks"]]
    (recipe,) = re.findall(r"^lint: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert hooks == [line.strip() for line in recipe.splitlines() if "echo" not in line]


def test_each_page_is_in_the_menu_of_the_site_but_for_single_decisions() -> None:
    menu = set(re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "docs/mkdocs.yml").read_text(), re.MULTILINE))
    names = {page.relative_to(ROOT).as_posix() for page in pages()}
    assert menu == {name for name in names if not re.match(r"docs/adr/\d", name)}


def test_a_link_of_the_site_to_what_is_no_page_becomes_its_text(tmp_path: Path) -> None:
    page, other = tmp_path / "a.md", tmp_path / "b.md"
    page.write_text("[b](b.md#x), [`c`](../c.py), [d](https://d), ![e](e.png)\n```json kind\n{}\n```\n")
    found = with_links_to({page, other}, page)
    assert found == "[b](b.md#x), `c`, [d](https://d), ![e](e.png)\n```json\n{}\n```\n"


def test_a_link_of_the_site_to_what_a_page_is_made_of_becomes_a_link_to_the_page() -> None:
    assert "[API](docs/API.md)" in with_links_to(set(), ROOT / "README.md")
    assert "[Tests](RULES.md)" in with_links_to(set(), ROOT / "docs/PROTOCOL.md")
