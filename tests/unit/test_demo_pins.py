"""What `make demo` installs is locked: the versions that are tested, each by its hashes."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXTRAS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
LOCK = (ROOT / ".ci/demo.txt").read_text()


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def pins(text: str) -> dict[str, str]:
    return {name_of(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)}


def named_by(extra: str) -> set[str]:
    """The packages of an extra, and of the extras of this package that it names."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        if own := re.match(r"dbio-commit\[(.*)\]", requirement):
            found |= set().union(*map(named_by, own[1].split(",")))
        else:
            found.add(name_of(requirement))
    return found


def test_the_lock_of_the_demo_has_all_that_its_extra_names() -> None:
    assert named_by("demo") <= pins(LOCK).keys(), "run `make demo-pins`"


def test_the_demo_runs_on_the_versions_that_are_tested() -> None:
    tested, locked = pins((ROOT / ".ci/constraints.txt").read_text()), pins(LOCK)
    assert {name: locked[name] for name in locked.keys() & tested.keys()} == {
        name: tested[name] for name in locked.keys() & tested.keys()
    }, "run `make demo-pins`"


def test_each_version_of_the_lock_has_its_hashes_and_no_host() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.partition("\n")[2].rstrip())
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in LOCK
