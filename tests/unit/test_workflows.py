"""Workflows for a forge run targets of make alone, with few rights; and the hooks run the linters of `make lint`."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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
