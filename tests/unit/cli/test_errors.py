"""What any command says, and how it exits, when something is wrong with its arguments, the table or its store."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbio_commit import Table
from dbio_commit.protocol import names
from tests.command_line import COMMANDS, append, as_nobody, dbio, process, words

GOLDEN = sorted(path for path in (Path(__file__).parents[2] / "golden").iterdir() if path.is_dir())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_path_that_is_not_there_is_one_message_and_creates_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    missing = tmp_path / "missing"

    result = process(*words(command, missing))

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"dbio: there is no table at {missing}")
    assert len(result.stderr.splitlines()) == 1
    assert not missing.exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_error_as_json_is_one_document_with_the_same_exit_code(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = dbio(*words(command, tmp_path / "missing"), "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (1, "")
    assert document["error"] == "TableNotFoundError"
    assert str(tmp_path / "missing") in document["message"]


@pytest.mark.parametrize("command", [("show",), ("abort",)])
def test_a_tid_that_the_table_does_not_know_is_a_usage_error(table: Table, command: tuple[str]) -> None:
    append(table, {"1": 1})
    result = dbio(*command, table.url, "../../etc")
    assert result.exit_code == 2
    assert "has no marker of a transaction '../../etc'" in result.stderr


@pytest.mark.parametrize("args", [[], ["files"], ["show", "here"], ["files", "here", "--frobnicate"], ["vanish", "x"]])
def test_wrong_usage_exits_with_2(args: list[str]) -> None:
    assert dbio(*args).exit_code == 2


@pytest.mark.parametrize("path", ["", "s3://", "s3://key:secret@bucket/table"])
def test_a_path_that_cannot_be_one_is_a_usage_error_that_shows_no_secret(path: str) -> None:
    result = dbio("files", path)
    assert result.exit_code == 2
    assert "secret@" not in result.output


@pytest.mark.parametrize("command", ["files", "log", "check", "schema", "vacuum"])
def test_an_unknown_scheme_is_wrong_usage(command: str) -> None:
    result = dbio(command, "oss://bucket/table")
    assert result.exit_code == 2
    assert "no store is known for oss: URLs" in result.stderr


def test_a_directory_without_parquet_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_bytes(b"root")
    (tmp_path / "README.txt").write_bytes(b"read me")
    result = dbio("files", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no table at" in result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_partition_is_not_taken_for_a_table(table: Table, command: tuple[str, ...]) -> None:
    append(table, {"1": 1})
    result = dbio(*words(command, f"{table.url}/day=1"))
    assert result.exit_code == 2
    assert "is a partition of the table" in result.stderr


def test_a_table_of_a_later_version_is_not_touched(table: Table) -> None:
    transaction = table.begin()
    Path(table.url, names.DESCRIPTOR).write_text('{"version": 2}')
    result = dbio("abort", table.url, transaction.tid)
    assert result.exit_code == 1
    assert "upgrade" in result.stderr
    assert not Path(table.url, names.committed(transaction.tid)).exists()


def test_a_corrupt_marker_is_an_error_unless_it_is_to_be_ignored(table: Table) -> None:
    good = append(table, {"1": 1})
    bad = append(table, {"1": 1})
    Path(table.url, names.committed(bad)).write_text('{"added": ["../../etc/passwd"], "removed": []}')

    refused = dbio("files", table.url)
    ignored = dbio("files", table.url, "--ignore-corrupt-markers")

    assert refused.exit_code == 1
    assert names.committed(bad) in refused.stderr
    assert ignored.exit_code == 0
    assert [line.split("\t")[2] for line in ignored.stdout.splitlines()] == [good]


@pytest.mark.long_for("abort", "log", "show")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_golden_directory_gets_a_traceback_out_of_a_command(command: tuple[str, ...]) -> None:
    assert len(GOLDEN) >= 20
    for directory in GOLDEN:
        for options in ([], ["--json"]):
            result = dbio(*words(command, directory / "table"), *options)
            assert result.exit_code in (0, 1, 2), directory.name
            assert result.exception is None or isinstance(result.exception, SystemExit), directory.name
            if options:
                json.loads(result.stdout)


@pytest.fixture
def closed_table() -> Iterator[Table]:
    """A table whose directory its reader may not list; the directories above it are open to everybody."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        table = Table(Path(directory) / "table")
        append(table, {"1": 1})
        os.chmod(table.url, 0)
        yield table
        os.chmod(table.url, 0o755)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_directory_without_permission_is_one_message(closed_table: Table, command: tuple[str, ...]) -> None:
    result = as_nobody(*words(command, closed_table.url))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"dbio: cannot list {closed_table.url}")
    assert len(result.stderr.splitlines()) == 1


def test_abort_without_the_permission_to_write_is_one_message() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        table = Table(Path(directory) / "table")
        transaction = table.begin()
        os.chmod(table.url, 0o555)
        result = as_nobody("abort", table.url, transaction.tid)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith("dbio: cannot ")
        assert "Permission denied" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        os.chmod(table.url, 0o755)
