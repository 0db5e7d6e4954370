"""The rooms of the code: who imports whom, and where each module is tested."""

import re
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
MODULES = [path for folder in ("dbio_commit", "vacuum") for path in sorted((ROOT / folder).rglob("*.py"))]
ELSEWHERE = ROOT / "tests/ELSEWHERE.md"


def test_rooms_import_only_from_rooms_below_them(capfd: pytest.CaptureFixture[str]) -> None:
    """The contracts are in pyproject.toml, under `tool.importlinter`."""
    broken = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert broken == 0, capfd.readouterr().out


def test_the_package_has_at_most_a_dozen_rooms_and_modules() -> None:
    inside = {path.name for path in (ROOT / "dbio_commit").iterdir() if path.suffix == ".py" or list(path.glob("*.py"))}
    assert len(inside - {"__init__.py"}) <= 12


def namesakes(module: Path) -> list[Path]:
    """The test files of a module: `tests/unit/<room>/test_<module>*.py`."""
    room, *rooms = module.relative_to(ROOT).parent.parts
    folder = ROOT.joinpath("tests/unit", *([room] if room == "vacuum" else []), *rooms)
    name = module.stem if module.stem != "__init__" else module.parent.name
    return [
        path
        for path in folder.glob("test_*.py")
        if path.stem == f"test_{name}" or path.stem.startswith(f"test_{name}_")
    ]


def elsewhere() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", ELSEWHERE.read_text(), re.MULTILINE)
    return {module: re.findall(r"`([^`]+)`", tests) for module, tests in rows}


def test_each_module_has_a_test_of_its_name_or_a_line_that_says_where_it_is_tested() -> None:
    missing = [
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        if not namesakes(path) and path.name != "__init__.py" and path.relative_to(ROOT).as_posix() not in elsewhere()
    ]
    assert missing == []


@pytest.mark.parametrize("module", elsewhere())
def test_what_is_tested_elsewhere_is_there_and_so_are_its_tests(module: str) -> None:
    assert (ROOT / module).is_file()
    assert not namesakes(ROOT / module)
    for test in elsewhere()[module]:
        assert (ROOT / "tests" / test).exists(), test
