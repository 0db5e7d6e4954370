"""The rooms of the code: who imports whom, what each is for, and where each module is tested."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import module_map
from tests.module_map import ROOT


def test_rooms_import_only_from_rooms_below_them() -> None:
    """The contracts are in pyproject.toml, under `tool.importlinter`. In a process: it sets up logging."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_architecture_has_a_line_for_each_room() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `(?:dbio_commit/)?([a-z/]+)/` \|", text, re.MULTILINE))
    rooms = {
        path.parent.relative_to("dbio_commit").as_posix() for path in module_map.modules() if path.parts[0] != "vacuum"
    }
    assert named == (rooms | {"vacuum"}) - {".", "spark/session/hadoop"}


def test_each_module_says_in_a_line_what_it_holds() -> None:
    assert [it for it in module_map.modules() if not module_map.first_line(it) and it.name != "__main__.py"] == []


def test_each_module_has_a_test_of_its_name_or_a_line_that_says_where_it_is_tested() -> None:
    inside = [path for path in module_map.modules() if path.name != "__init__.py"]
    assert [path for path in inside if not module_map.tests_of(path)] == []


@pytest.mark.parametrize("pattern", module_map.ELSEWHERE)
def test_what_is_tested_elsewhere_exists_and_so_do_its_tests(pattern: str) -> None:
    assert list(ROOT.glob(pattern))
    assert all((ROOT / test).exists() for test in module_map.ELSEWHERE[pattern])


IMPORTED_IN = {
    "fastavro": "dbio_commit/maintenance/publish/iceberg/",
    "jinja2": "dbio_commit/maintenance/report/",
    "pydantic": "vacuum/",
    "pyspark": "dbio_commit/spark/",
    "rich": "dbio_commit/cli/",
    "sqlglot": "dbio_commit/data/conditions/ dbio_commit/spark/sql/",
    "typer": "dbio_commit/cli/ vacuum/",
}
"""The rooms that import a package, as docs/ARCHITECTURE.md says. Imports for type checkers alone do not count."""


class Imports(ast.NodeVisitor):
    """The packages that a module imports, also inside of functions."""

    def __init__(self) -> None:
        self.packages = set[str]()

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.packages |= {alias.name.partition(".")[0] for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.packages.add((node.module or "").partition(".")[0])


@cache
def imported_by(module: Path) -> set[str]:
    imports = Imports()
    imports.visit(ast.parse((ROOT / module).read_text()))
    return imports.packages


@pytest.mark.parametrize("package", IMPORTED_IN)
def test_a_package_is_imported_in_its_rooms_only(package: str) -> None:
    found = [module.as_posix() for module in module_map.modules() if package in imported_by(module)]
    assert found
    assert [path for path in found if not path.startswith(tuple(IMPORTED_IN[package].split()))] == []


def test_a_folder_of_unit_tests_is_a_room() -> None:
    rooms = {module.parent.as_posix().removeprefix("dbio_commit/") for module in module_map.modules()}
    folders = {
        path.parent.relative_to(ROOT / "tests/unit").as_posix() for path in ROOT.glob("tests/unit/*/**/test_*.py")
    }
    assert folders - rooms == set()
