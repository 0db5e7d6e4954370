"""A job may have modules of its own, of any name: `dbio_commit` needs nothing that the wheel installs beside it."""

import ast
import json
import os
import pickle
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

import dbio_commit as dbio
from dbio_commit.maintenance.vacuum import workers
from dbio_commit.spark.transfer.items import ForItems

ROOT = Path(__file__).parents[3]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
OTHERS = {*WHEEL["packages"], "tests", "bench", "docker", "report"} - {"dbio_commit"}
MODULES = sorted((ROOT / "dbio_commit").rglob("*.py"))


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with a table, and with modules that no code of ours may import."""
    dbio.Table(tmp_path / "lake").begin().commit()
    for name in OTHERS:
        (tmp_path / f"{name}.py").write_text(f"raise AssertionError('the module {name} of the job was imported')")
    return tmp_path


def run(beside: Path, *arguments: str) -> str:
    """Python in that folder, whose modules it finds first."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], cwd=beside, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_vacuums_beside_a_module_vacuum_of_its_own(beside: Path) -> None:
    (beside / "job.py").write_text("import dbio_commit as dbio\nprint(dbio.vacuum('lake', dry_run=True).ok)")
    assert run(beside, "job.py") == "True\n"


def test_it_can_import_its_own_before_and_after(beside: Path) -> None:
    (beside / "vacuum.py").write_text("def clean(): return 'mine'")
    (beside / "job.py").write_text(
        "import dbio_commit as dbio, vacuum\n"
        "dbio.vacuum('lake', dry_run=True)\n"
        "import vacuum as again\n"
        "print(vacuum.clean(), again is vacuum)"
    )
    assert run(beside, "job.py") == "mine True\n"


@pytest.mark.parametrize("command", ["vacuum lake --dry-run", "check lake", "report lake -o page.html"])
def test_so_do_commands(beside: Path, command: str) -> None:
    assert json.loads(run(beside, "-m", "dbio_commit.cli", *command.split(), "--json"))


def test_what_goes_to_executors_names_only_modules_of_dbio_commit() -> None:
    """There, what lies where the worker happens to run comes first."""
    table = dbio.Table("lake")
    for function in (workers.list_below, workers.delete):
        text = pickle.dumps(ForItems(partial(function, table.store)), protocol=0)
        assert b"cdbio_commit.maintenance.vacuum.workers" in text
        assert b"cvacuum" not in text


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_in_dbio_commit_imports_what_stands_beside_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    assert not {name.partition(".")[0] for name in named} & OTHERS


PROCESS = """
import os, sys
from threading import Event

sys.path.insert(0, sys.argv[1])
from vacuum import VacuumOptions
from vacuum.process import Job, Processes

os.chdir(sys.argv[2])
options = VacuumOptions()
job = Job(url="lake", storage_options={}, options=options, dry_run=True, memory_mb=4096, deadline_s=60, secrets=())
workers = Processes()
print(workers.vacuum(job, stop=Event()).failed)
workers.rest()
"""


def test_the_process_of_a_table_finds_the_service_where_the_service_was_found(beside: Path, tmp_path: Path) -> None:
    assert run(beside, "-P", "-c", PROCESS, str(ROOT), str(beside)) == "0\n"
