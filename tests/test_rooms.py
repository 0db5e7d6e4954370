"""The rooms of the code: who imports whom, what each is for, and where each module is tested."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
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


def test_the_package_has_at_most_a_dozen_rooms_and_modules_at_its_top() -> None:
    inside = {path.name for path in (ROOT / "dbio_commit").iterdir() if path.suffix == ".py" or list(path.glob("*.py"))}
    assert len(inside - {"__init__.py"}) <= 12


def test_the_architecture_has_a_line_for_each_room() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `(?:dbio_commit/)?([a-z/]+)/` \|", text, re.MULTILINE))
    rooms = {
        path.parent.relative_to("dbio_commit").as_posix() for path in module_map.modules() if path.parts[0] != "vacuum"
    }
    assert named == (rooms | {"vacuum"}) - {".", "spark/session/hadoop"}


def test_the_map_of_modules_is_up_to_date() -> None:
    assert module_map.PAGE.read_text() == module_map.page(), "run python -m tests.module_map"


def test_each_module_says_in_a_line_what_it_holds() -> None:
    assert [it for it in module_map.modules() if not module_map.first_line(it) and it.name != "__main__.py"] == []


def test_each_module_has_a_test_of_its_name_or_a_line_that_says_where_it_is_tested() -> None:
    inside = [path for path in module_map.modules() if path.name != "__init__.py"]
    assert [path for path in inside if not module_map.tests_of(path)] == []


@pytest.mark.parametrize("pattern", module_map.ELSEWHERE)
def test_what_is_tested_elsewhere_exists_and_so_do_its_tests(pattern: str) -> None:
    assert list(ROOT.glob(pattern))
    assert all((ROOT / test).exists() for test in module_map.ELSEWHERE[pattern])


MOST_LINES = 400

LARGE = {
    "cli/commands.py": "the commands",
    "commit/table_root.py": "the decisions about a table",
    "commit/transaction.py": "a transaction",
    "data/mapping.py": "the columns of new rows",
    "data/pruning.py": "the files that a condition leaves out",
    "log/listing.py": "the objects of a log",
    "log/parts/files.py": "the live files of a large table",
    "log/parts/parquet.py": "the Parquet files of parts",
    "log/parts/rows.py": "transactions as rows",
    "log/snapshot.py": "a snapshot",
    "protocol/checkpoint.py": "checkpoints",
    "protocol/expressions.py": "one grammar",
    "protocol/names.py": "names",
    "spark/api.py": "the functions for Spark",
    "spark/rewrite/merge.py": "one statement",
    "store/local.py": "one store",
    "store/s3.py": "one store",
    "table.py": "the methods of a table",
    "upkeep/check.py": "one report",
    "upkeep/publish/delta_log.py": "the form of one log",
    "upkeep/publish/iceberg/publication.py": "one version",
    "upkeep/report/health.py": "one report",
    "upkeep/vacuum/table.py": "the order of one vacuum",
}
"""Modules with more lines, and their one subject."""


def test_a_large_module_has_one_subject() -> None:
    """One that has become large falls into its subjects, or gets a line in `LARGE`."""
    lines = {str(path): len((ROOT / path).read_text().splitlines()) for path in module_map.modules()}
    large = {path.removeprefix("dbio_commit/") for path, count in lines.items() if count > MOST_LINES}
    assert large == {*LARGE}


IMPORTED_IN = {
    "fastavro": "dbio_commit/upkeep/publish/iceberg/",
    "jinja2": "dbio_commit/upkeep/report/",
    "pydantic": "vacuum/",
    "pyspark": "dbio_commit/spark/",
    "rich": "dbio_commit/cli/",
    "sqlglot": "dbio_commit/data/ dbio_commit/spark/sql/",
    "typer": "dbio_commit/cli/ vacuum/",
}
"""The rooms that import a package, as docs/ARCHITECTURE.md says. Imports for type checkers alone do not count."""


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text())


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
    imports.visit(tree_of(module))
    return imports.packages


@pytest.mark.parametrize("package", IMPORTED_IN)
def test_a_package_is_imported_in_its_rooms_only(package: str) -> None:
    found = [module.as_posix() for module in module_map.modules() if package in imported_by(module)]
    assert found
    assert [path for path in found if not path.startswith(tuple(IMPORTED_IN[package].split()))] == []


TWINS = {
    "FileSystem": "of the client of each service",
    "Key": "of the rows of commits, and of those of files",
    "Changes": "of rows, and of parts",
    "Rewrite": "the same with Spark and without it",
    "WritePlan": "the same with Spark and without it",
}
"""Names of classes and types that two modules have, and why."""


def classes_and_types(module: Path) -> Iterator[str]:
    """The names that the module defines. A type is an assignment to a name such as `Labels`."""
    for node in tree_of(module).body:
        match node:
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                if re.match(r"[A-Z]\w*[a-z]", name):
                    yield name


@pytest.mark.parametrize("package", ["dbio_commit", "vacuum"])
def test_a_name_of_a_class_or_type_means_one_thing(package: str) -> None:
    """Names that begin with an underscore do not count."""
    homes: dict[str, list[Path]] = {}
    for module in module_map.modules():
        if module.parts[0] == package:
            for name in classes_and_types(module):
                homes.setdefault(name, []).append(module)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1 and name not in TWINS} == {}


@pytest.mark.parametrize("name", TWINS)
def test_a_name_that_may_mean_two_things_does(name: str) -> None:
    assert sum(name in classes_and_types(module) for module in module_map.modules()) > 1


def test_a_folder_of_unit_tests_is_a_room() -> None:
    rooms = {module.parent.as_posix().removeprefix("dbio_commit/") for module in module_map.modules()}
    folders = {
        path.parent.relative_to(ROOT / "tests/unit").as_posix() for path in ROOT.glob("tests/unit/*/**/test_*.py")
    }
    assert folders - rooms == set()
