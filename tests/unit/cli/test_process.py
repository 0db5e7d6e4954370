"""The command as a process: pipes that close, what it imports, and that it is installed."""

import subprocess
import sys
from pathlib import Path

import dbio_commit
from dbio_commit import FileInfo, Table
from tests.command_line import append, dbio


def test_version_is_printed() -> None:
    assert dbio("--version").stdout == f"dbio-commit {dbio_commit.__version__}\n"


def test_a_reader_that_closes_the_pipe_early_gets_no_traceback(table: Table) -> None:
    with table.begin() as transaction:
        names = [f"{number}-tid-{transaction.tid}-x" for number in range(20_000)]
        for name in names:
            Path(table.url, name).touch()
        transaction.add((FileInfo(path=name, size=0) for name in names), looked_at=True)
    for options in ([], ["--json"]):
        command = [sys.executable, "-m", "dbio_commit.cli", "files", table.url, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.readline()
            child.stdout.close()
            assert child.stderr.read() == ""


def test_spark_and_the_clients_of_stores_are_not_loaded_for_a_local_table(table: Table) -> None:
    append(table, {"1": 1})
    code = (
        "import sys, dbio_commit.cli\n"
        "try: dbio_commit.cli.main()\n"
        "finally: print(sorted({'pyspark', 'pyarrow', 's3fs', 'adlfs'} & sys.modules.keys()), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code, "check", table.url], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "[]\n")


def test_the_installed_command_is_this_one() -> None:
    command = Path(sys.executable).with_name("dbio")
    result = subprocess.run([command, "--help"], capture_output=True, text=True)
    assert result.returncode == 0
    for name in ("files", "log", "show", "check", "abort"):
        assert f" {name} " in result.stdout
