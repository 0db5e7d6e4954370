"""The command line on local tables: what it prints for people, pipes and programs, and how it exits.

On S3 and Azure: `tests/integration/test_cli_stores`.
"""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import dbio_commit
from dbio_commit import Bounds, FileInfo, Table, Transaction, TransactionAbortedError
from dbio_commit.cli import app
from dbio_commit.clock import Clock
from dbio_commit.protocol import names
from dbio_commit.render import _age, _time

GOLDEN = sorted(path for path in (Path(__file__).parents[1] / "golden").iterdir() if path.is_dir())
TID = "1234567890123456789"
ESCAPE = "\x1b"


def dbio(*args: object) -> Result:
    """In this process, into a pipe."""
    return CliRunner().invoke(app, [str(arg) for arg in args])


def dbio_json(*args: object) -> Any:
    result = dbio(*args, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


def process(*args: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dbio_commit.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | (env or {}))


def in_terminal(columns: int, *args: object, answer: str = "") -> tuple[int, list[str]]:
    """The exit code, and the lines as a terminal of that width shows them, without colours; `answer` is typed in."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(
        [sys.executable, "-m", "dbio_commit.cli", *map(str, args)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env | {"TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    output = b""
    while chunk := _read(ours):
        output += chunk
    os.close(ours)
    text = output.decode()
    for style in ("1", "2", "1;2", "0"):  # bold and dim are no colours
        text = text.replace(f"{ESCAPE}[{style}m", "")
    return child.wait(), text.splitlines()


def lines(text: str) -> list[list[str]]:
    """What a pipe gets, in its fields."""
    return [line.split("\t") for line in text.splitlines()]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def new_files(transaction: Transaction, sizes: Mapping[str, int], **known: Any) -> list[FileInfo]:
    """Writes a file of each size in the partition day=..., and stages it."""
    staged = []
    for number, (day, size) in enumerate(sizes.items()):
        partition = {"day": day}
        name = names.format_data_file(
            tid=transaction.tid, job="job", task=number, attempt=0, number=0, suffix=".parquet"
        )
        path = names.join(names.format_partition(partition), name)
        file = Path(transaction._store.url, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
        staged.append(FileInfo(path=path, size=size, partition=partition, **known))
    transaction.add(staged)
    return staged


def append(table: Table, sizes: Mapping[str, int], **known: Any) -> str:
    with table.begin(partition_by=["day"]) as transaction:
        new_files(transaction, sizes, **known)
    return transaction.tid


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A directory that no transaction ever wrote to."""
    root = tmp_path / "plain"
    root.mkdir()
    (root / "old.parquet").write_bytes(b"x" * 7)
    return root


def data_file(tid: str = TID) -> str:
    return f"part-00000-tid-{tid}-job-0-0-c000.parquet"


# --- files --------------------------------------------------------------------------------------------------------


def test_files_in_a_pipe_is_a_line_for_each_live_file(table: Table) -> None:
    tid = append(table, {"1": 10, "2": 2000})
    new_files(table.begin(), {"3": 1})  # pending

    result = dbio("files", table.url)

    assert result.exit_code == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        [f"day=1/part-00000-tid-{tid}-job-0-0-c000.parquet", "10", tid, "day=1"],
        [f"day=2/part-00001-tid-{tid}-job-0-0-c000.parquet", "2000", tid, "day=2"],
    ]


def test_files_as_json_has_all_that_the_snapshot_has(table: Table) -> None:
    tid = append(table, {"1": 10})
    path = f"day=1/part-00000-tid-{tid}-job-0-0-c000.parquet"

    assert dbio_json("files", table.url) == {
        "url": table.url,
        "scope": "table",
        "partition_columns": ["day"],
        "total": {"files": 1, "size": 10},
        "files": [{"path": path, "url": f"{table.url}/{path}", "size": 10, "tid": tid, "partition": {"day": "1"}}],
    }


def test_files_as_of_a_tid_or_the_time_in_the_log_includes_that_commit_and_none_after(table: Table) -> None:
    tids = [append(table, {str(day): day}) for day in (1, 2, 3)]
    second = dbio_json("log", table.url)["commits"][1]
    assert second["tid"] == tids[1]

    for as_of in (second["tid"], second["time"]):
        shown = dbio_json("files", table.url, "--as-of", as_of)
        assert [file["tid"] for file in shown["files"]] == tids[:2]


@pytest.mark.parametrize("as_of", ["2026-11-20T10:00:00", "yesterday", TID])
def test_files_as_of_no_moment_of_the_table_is_a_usage_error(table: Table, as_of: str) -> None:
    append(table, {"1": 1})
    result = dbio("files", table.url, "--as-of", as_of)
    assert result.exit_code == 2
    assert "as_of" in result.stderr


def test_a_directory_without_markers_is_listed_as_it_is(plain: Path) -> None:
    assert dbio("files", plain).stdout == "old.parquet\t7\t\t\n"
    assert dbio("log", plain).stdout == ""
    assert dbio_json("files", plain)["files"][0]["tid"] is None


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_files_in_a_terminal_fits_it_and_cuts_no_path(table: Table, columns: int) -> None:
    append(table, {"1": 10, "2": 2000})

    code, lines = in_terminal(columns, "files", table.url)

    assert code == 0
    assert max(map(len, lines)) <= columns
    assert [line.endswith(("10 bytes", " 2.0 kB")) for line in lines].count(True) == 2
    unfolded = "".join(line.removesuffix("10 bytes").removesuffix("2.0 kB").strip() for line in lines)
    for file in table.snapshot().files:
        assert file.path in unfolded
    assert lines[-1] == "2 files, 2.0 kB in 2 partitions"


def test_a_terminal_too_narrow_for_any_table_is_left_to_wrap_the_lines(table: Table) -> None:
    append(table, {"1": 10})
    assert in_terminal(10, "files", table.url) == in_terminal(40, "files", table.url)


def test_a_wide_terminal_shows_tid_and_partition_too(table: Table) -> None:
    tid = append(table, {"1": 10})
    _, lines = in_terminal(200, "files", table.url)
    assert lines[0].split() == ["path", "size", "tid", "partition"]
    assert lines[1].split()[-2:] == [tid, "day=1"]


def test_a_terminal_is_shown_all_of_many_files(plain: Path) -> None:
    names_of_many = {f"{number:04}.parquet" for number in range(2001)}  # more than two pages
    for name in names_of_many:
        (plain / name).touch()
    _, lines = in_terminal(80, "files", plain)
    assert {line.split()[0] for line in lines} >= names_of_many
    assert lines[-1] == "2,002 files, 7 bytes"


# --- log ----------------------------------------------------------------------------------------------------------


def test_log_has_the_newest_commit_first(table: Table) -> None:
    first = append(table, {"1": 10, "2": 20}, rows=5)
    with table.begin("overwrite", app=("nightly", 4)) as second:
        new_files(second, {"1": 3}, rows=7)

    newest, oldest = dbio_json("log", table.url)["commits"]

    assert datetime.fromisoformat(newest.pop("time")) >= datetime.fromisoformat(oldest.pop("time"))
    assert newest == {
        "tid": second.tid,
        "operation": "overwrite",
        "added_files": 1,
        "removed_files": 2,
        "rows": 7,
        "size": 3,
        "app": {"id": "nightly", "version": 4},
    }
    assert oldest == {
        "tid": first,
        "operation": "append",
        "added_files": 2,
        "removed_files": 0,
        "rows": 10,
        "size": 30,
        "app": None,
    }
    lines = [line.split("\t") for line in dbio("log", table.url).stdout.splitlines()]
    assert [[line[0], *line[2:]] for line in lines] == [
        [second.tid, "overwrite", "1", "2", "7", "3", "nightly:4"],
        [first, "append", "2", "0", "10", "30", ""],
    ]


def test_log_leaves_columns_out_before_it_cuts_one(table: Table) -> None:
    with table.begin("replace_partitions", ["day"], ("nightly", 4)) as transaction:
        new_files(transaction, {"1": 3}, rows=1_000_000)

    _, narrow = in_terminal(80, "log", table.url)
    _, wide = in_terminal(140, "log", table.url)

    assert max(map(len, narrow)) <= 80
    assert narrow[0].split() == ["tid", "age", "operation", "added", "rows", "size"] or "removed" in narrow[0]
    assert transaction.tid in narrow[1]
    assert "1,000,000" in narrow[1]
    assert "time" in wide[0]
    assert "nightly:4" in wide[1]


@pytest.mark.parametrize("columns", [30, 60])
def test_a_tid_that_is_too_long_for_the_terminal_folds(plain: Path, columns: int) -> None:
    tid = "0123456789" * 8
    (plain / names.started(tid)).touch()
    (plain / names.committed(tid)).write_text(json.dumps({"added": [], "removed": []}))
    _, lines = in_terminal(columns, "log", plain)
    assert tid in "".join(line.split()[0] for line in lines[1:])


# --- show ---------------------------------------------------------------------------------------------------------


def test_show_tells_what_a_commit_added_and_removed(table: Table) -> None:
    append(table, {"1": 10})
    removed = table.snapshot().files[0].path
    with table.begin("overwrite", app=("nightly", 4)) as transaction:
        (added,) = new_files(transaction, {"2": 3}, rows=7, statistics={"id": Bounds(1, 9, 0)})

    shown = dbio_json("show", table.url, transaction.tid)

    assert shown["state"] == "committed"
    assert shown["operation"] == "overwrite"
    assert shown["app"] == {"id": "nightly", "version": 4}
    assert shown["metrics"]["numOutputRows"] == 7
    assert shown["total"] == {"files": 1, "size": 3}
    assert shown["removed"] == [removed]
    assert shown["files"] == [
        {
            "path": added.path,
            "size": 3,
            "rows": 7,
            "partition": {"day": "2"},
            "statistics": {"id": {"min": 1, "max": 9, "nulls": 0}},
        }
    ]
    text = dbio("show", table.url, transaction.tid).stdout
    for fact in ("committed", "overwrite", "nightly, version 4", "1 file, 3 bytes, 7 rows", added.path, removed):
        assert fact in text


def test_show_tells_what_a_pending_transaction_has_written(table: Table) -> None:
    append(table, {"1": 10})
    transaction = table.begin()
    new_files(transaction, {"1": 5})

    shown = dbio_json("show", table.url, transaction.tid)

    assert (shown["state"], shown["decided"], shown["operation"]) == ("pending", None, None)
    assert shown["total"] == {"files": 1, "size": 5}
    assert "pending" in dbio("show", table.url, transaction.tid).stdout


def test_show_tells_that_a_transaction_was_aborted(table: Table) -> None:
    transaction = table.begin()
    transaction.abort()
    assert dbio_json("show", table.url, transaction.tid)["state"] == "aborted"
    assert "aborted" in dbio("show", table.url, transaction.tid).stdout


def test_show_tells_in_which_directories_a_transaction_is_not_decided(plain: Path) -> None:
    for partition in ("p=1", "p=2"):
        (plain / partition).mkdir()
        (plain / partition / names.started(TID)).touch()
        (plain / partition / data_file()).write_bytes(b"xyz")
    (plain / "p=1" / names.committed(TID)).write_text(json.dumps({"added": [data_file()], "removed": []}))

    shown = dbio_json("show", plain, TID)

    assert shown["state"] == "committed"
    assert shown["undecided_directories"] == ["p=2"]
    assert [(file["path"], file["size"], file["partition"]) for file in shown["files"]] == [
        (f"p=1/{data_file()}", 3, {"p": "1"})
    ]
    assert "p=2" in dbio("show", plain, TID).stdout


def test_a_transaction_committed_in_one_directory_and_aborted_in_another_is_committed(plain: Path) -> None:
    for partition in ("p=1", "p=2"):
        (plain / partition).mkdir()
        (plain / partition / names.started(TID)).touch()
        (plain / partition / data_file()).write_bytes(b"xyz")
    (plain / "p=2" / names.committed(TID)).write_text(json.dumps({"added": [data_file()], "removed": []}))

    assert dbio("abort", plain, TID).exit_code == 0

    shown = dbio_json("show", plain, TID)
    assert (shown["state"], shown["undecided_directories"], shown["total"]["files"]) == ("committed", [], 1)
    assert dbio("files", plain).stdout.splitlines()[-1].startswith(f"p=2/{data_file()}")


def test_show_summarises_the_statistics_of_all_files_by_the_type_of_the_column(table: Table) -> None:
    kinds = {"price": "decimal(10,2)", "known": "long", "half": "long", "empty": "string"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    with table.begin(partition_by=["day"]) as transaction:
        new_files(
            transaction,
            {"1": 1},
            rows=4,
            statistics={
                "price": Bounds("9.50", "9.75", 1),
                "known": Bounds(5, 6, 0),
                "half": Bounds(1, 2, 0),
                "empty": Bounds(None, None, 4),
            },
        )
        new_files(
            transaction,
            {"2": 1},
            rows=4,
            statistics={
                "price": Bounds("10.00", "11.25", 2),
                "known": Bounds(None, None, 4),  # nothing but nulls: bounds nothing
                "half": Bounds(None, None, 1),  # has values, but says nothing about them
                "empty": Bounds(None, None, 4),
            },
        )
        transaction.commit({"type": "struct", "fields": fields})

    lines = dbio("show", table.url, transaction.tid).stdout.splitlines()
    rows = {words[0]: words[1:] for line in lines if (words := line.split()) and words[0] in kinds}

    assert rows == {
        "price": ["decimal(10,2)", "9.50", "11.25", "3"],
        "known": ["long", "5", "6", "4"],
        "half": ["long", "1"],
        "empty": ["string", "8"],
    }


def test_a_terminal_is_shown_the_first_of_many_removed_files_and_a_pipe_all(table: Table) -> None:
    append(table, {f"{day:02}": 1 for day in range(30)})
    with table.begin("overwrite") as transaction:
        pass
    _, lines = in_terminal(120, "show", table.url, transaction.tid)
    assert sum("day=" in line for line in lines) == 20
    assert lines[-1].strip() == "and 10 more: --json lists all"
    assert dbio("show", table.url, transaction.tid).stdout.count("day=") == 30


# --- check --------------------------------------------------------------------------------------------------------


def last_line(result: Result) -> str:
    return result.stdout.splitlines()[-1]


def test_check_of_a_sound_table_says_that_there_is_nothing_to_do(table: Table) -> None:
    append(table, {"1": 10})
    result = dbio("check", table.url)
    assert result.exit_code == 0
    assert last_line(result) == "Nothing is wrong, and there is nothing to do."


def test_check_finds_missing_files_and_files_of_another_size(table: Table) -> None:
    append(table, {"1": 10, "2": 20, "3": 30})
    gone, cut, _ = (file.path for file in table.snapshot().files)
    Path(table.url, gone).unlink()
    Path(table.url, cut).write_bytes(b"x")

    result = dbio("check", table.url)
    report = dbio_json("check", table.url)

    assert result.exit_code == 1
    assert "backup" in last_line(result)
    assert report["ok"] is False
    assert report["missing"] == {"files": 1, "size": 10, "paths": [gone]}
    assert report["wrong_size"] == [{"path": cut, "expected": 20, "found": 1}]
    assert dbio("check", table.url, "--json").exit_code == 1


def test_check_finds_corrupt_markers(table: Table) -> None:
    tid = append(table, {"1": 10})
    marker = Path(table.url, names.committed(tid))
    marker.write_text("{")

    result = dbio("check", table.url)

    assert result.exit_code == 1
    assert str(marker) in result.stdout
    assert "inspect 1 corrupt marker" in last_line(result)
    assert [corrupt["path"] for corrupt in dbio_json("check", table.url)["corrupt"]] == [names.committed(tid)]


def test_check_counts_pending_transactions_and_garbage_by_kind(table: Table) -> None:
    append(table, {"1": 10})
    append_removed = table.begin("overwrite")
    append_removed.commit()
    pending = table.begin()
    new_files(pending, {"1": 5})
    Path(table.url, data_file()).write_bytes(b"xy")
    Path(table.url, "stranger.parquet").write_bytes(b"xyz")

    result = dbio("check", table.url)
    report = dbio_json("check", table.url)

    assert result.exit_code == 0
    assert f"dbio abort {table.url} TID" in last_line(result)
    assert [(found["tid"], found["files"], found["size"]) for found in report["pending"]] == [(pending.tid, 1, 5)]
    assert report["garbage"] == {
        "removed": {"files": 1, "size": 10},
        "failed_attempt": {"files": 0, "size": 0},
        "aborted": {"files": 0, "size": 0},
        "pending": {"files": 1, "size": 5},
        "unknown": {"files": 1, "size": 2},
        "untracked": {"files": 1, "size": 3},
    }


def test_check_says_which_transactions_can_commit_no_more(table: Table) -> None:
    pending = table.begin()
    ten_days_ago = (datetime.now(UTC) - timedelta(days=10)).timestamp()
    os.utime(Path(table.url, names.started(pending.tid)), (ten_days_ago, ten_days_ago))
    assert "1 transaction can commit no more" in last_line(dbio("check", table.url))
    assert "10 days" in dbio("check", table.url).stdout


# --- abort --------------------------------------------------------------------------------------------------------


def test_abort_decides_a_pending_transaction_against_its_writer(table: Table) -> None:
    transaction = table.begin(partition_by=["day"])
    new_files(transaction, {"1": 5})

    result = dbio("abort", table.url, transaction.tid)

    assert result.exit_code == 0
    assert result.stdout == f"aborted {transaction.tid}; what it wrote is garbage now: 1 file, 5 bytes\n"
    with pytest.raises(TransactionAbortedError):
        transaction.commit()


def test_abort_of_an_aborted_transaction_is_fine(table: Table) -> None:
    transaction = table.begin()
    transaction.abort()
    result = dbio("abort", table.url, transaction.tid)
    assert (result.exit_code, result.stdout) == (0, f"{transaction.tid} was aborted already\n")


def test_abort_of_a_committed_transaction_is_refused_and_changes_nothing(table: Table) -> None:
    tid = append(table, {"1": 10})
    result = dbio("abort", table.url, tid)
    assert result.exit_code == 1
    assert "committed" in result.stderr
    assert table.snapshot().tids == (tid,)


# --- errors -------------------------------------------------------------------------------------------------------

COMMANDS = [("files",), ("log",), ("check",), ("show", TID), ("abort", TID)]


def words(command: tuple[str, ...], path: object) -> list[str]:
    return [command[0], str(path), *command[1:]]


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


def as_nobody(*args: str) -> subprocess.CompletedProcess[str]:
    """As a user whom permissions hold back. Root gives itself up once all is imported, which nobody may read."""
    drop = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else "pass"
    code = f"import os, dbio_commit.store.local; from dbio_commit.cli import main; {drop}; main()"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd="/")


# --- hostile names ------------------------------------------------------------------------------------------------

HOSTILE = f"[red]x[/red]{ESCAPE}[2J\r\n\t\u202e:smile:\udc80"


def test_names_steer_no_terminal_and_are_no_markup(table: Table) -> None:
    with table.begin(app=(HOSTILE.removesuffix("\udc80"), 1)) as transaction:
        pass
    safe = r"[red]x[/red]\x1b[2J\r\n\t\u202e:smile:"
    assert dbio("log", table.url).stdout.rstrip("\n").split("\t")[-1] == f"{safe}:1"
    for args in (["log", table.url], ["show", table.url, transaction.tid]):
        _, lines = in_terminal(200, *args)
        assert any(safe in line for line in lines)
        assert all(line.isprintable() for line in lines)
    assert dbio_json("log", table.url)["commits"][0]["app"]["id"] == HOSTILE.removesuffix("\udc80")


def test_a_file_with_a_hostile_name_is_one_printable_line(plain: Path) -> None:
    (plain / (HOSTILE.replace("/", "|") + ".parquet")).touch()
    result = process("files", plain)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 2
    assert r"[red]x[|red]\x1b[2J\r\n\t\u202e:smile:\udc80" in result.stdout
    paths = [file["path"] for file in json.loads(process("files", plain, "--json").stdout)["files"]]
    assert HOSTILE.replace("/", "|") + ".parquet" in paths


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_error_message_is_one_printable_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = dbio(*words(command, tmp_path / f"a{ESCAPE}[2J\nb"))
    assert result.exit_code == 1
    assert result.stderr.rstrip("\n").isprintable()


def test_a_name_that_the_output_cannot_encode_is_no_error(tmp_path: Path) -> None:
    table = Table(tmp_path / "été")
    with table.begin():
        pass
    result = process("check", table.url, env={"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")
    assert r"\xe9t\xe9" in result.stdout


def test_a_strangers_schema_and_statistics_are_shown_as_they_are_and_as_json_that_is_valid(table: Table) -> None:
    tid = append(table, {"1": 1}, rows=1, statistics={"a": Bounds(1, 2, 0)})
    marker = Path(table.url, names.committed(tid))
    body = json.loads(marker.read_text())
    body["dbio_commit"]["schema"] = {"fields": [1, {"name": None}, {"name": "n", "type": [float("nan")]}]}
    body["dbio_commit"]["files"]["statistics"]["a"] = {"min": ["x"], "max": [{}], "nulls": [0]}
    marker.write_text(json.dumps(body))

    result = dbio("show", table.url, tid)

    assert result.exit_code == 0
    assert "[NaN]" in result.stdout
    document = json.loads(dbio("show", table.url, tid, "--json").stdout, parse_constant=pytest.fail)
    assert document["schema"]["fields"][2]["type"] == ["NaN"]


# --- processes ----------------------------------------------------------------------------------------------------


def test_a_reader_that_closes_the_pipe_early_gets_no_traceback(table: Table) -> None:
    with table.begin() as transaction:
        transaction.add(FileInfo(path=f"{number}-tid-{transaction.tid}-x", size=1) for number in range(20_000))
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


# --- ages and times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=-3), "0 s"),
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(minutes=3, seconds=20), "3 min"),
        (timedelta(hours=47, minutes=59), "47 h"),
        (timedelta(days=2), "2 days"),
    ],
)
def test_ages_are_in_the_largest_unit_that_says_enough(age: timedelta, text: str) -> None:
    assert _age(age) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC), "2026-11-20 10:00:00Z"),
        (datetime(2026, 11, 20, 10, 59, 59, 1, tzinfo=UTC), "2026-11-20 11:00:00Z"),
    ],
)
def test_a_time_that_is_shown_is_never_before_what_happened_at_it(at: datetime, text: str) -> None:
    assert _time(at) == text
    assert datetime.fromisoformat(text) >= at


# --- drop ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "sleep", lambda self, duration_s: None)


def test_a_table_without_commits_is_removed(table: Table, no_waits: None) -> None:
    table.begin(partition_by=["day"]).abort()
    result = dbio("drop", table.url, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"removed {table.url}: 3 objects, ")
    assert list(Path(table.url).iterdir()) == []


def test_drop_without_everything_leaves_commits_and_says_how_to_remove_them(table: Table, no_waits: None) -> None:
    append(table, {"1": 1})
    result = dbio("drop", table.url, "--yes")
    assert result.exit_code == 2
    assert "dbio drop --everything" in result.stderr
    assert len(table.snapshot().files) == 1


def test_drop_tells_programs_what_it_did(table: Table, no_waits: None) -> None:
    append(table, {"1": 1})
    pending = table.begin()
    (Path(table.url) / "day=1" / f"mine{ESCAPE}").write_bytes(b"x")
    document = dbio_json("drop", table.url, "--everything", "--yes")
    assert document["aborted"] == [pending.tid]
    assert document["left"] == [f"day=1/mine{ESCAPE}"]
    assert document["deleted"]["objects"] >= 5


def test_drop_names_what_is_left_without_steering_the_terminal(table: Table, no_waits: None) -> None:
    append(table, {"1": 1})
    (Path(table.url) / "day=1" / f"mine{ESCAPE}").write_bytes(b"x")
    shown = dbio("drop", table.url, "--everything", "--yes").stdout
    assert r"day=1/mine\x1b" in shown
    assert ESCAPE not in shown


def test_drop_asks_and_takes_no_for_an_answer(table: Table) -> None:
    append(table, {"1": 1})
    result = dbio("drop", table.url, "--everything")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    code, shown = in_terminal(200, "drop", table.url, "--everything", answer="n\n")
    assert code == 1
    assert any(f"Remove the table {table.url}, with all of its rows? [y/N]" in line for line in shown)
    assert len(table.snapshot().files) == 1


def test_drop_refuses_a_plain_directory(plain: Path, no_waits: None) -> None:
    result = dbio("drop", plain, "--everything", "--yes")
    assert result.exit_code == 2
    assert "plain directory" in result.stderr
    assert (plain / "old.parquet").exists()


# --- version, columns, narrow terminals, wrong URLs ---------------------------------------------------------------


def test_version_is_printed() -> None:
    assert dbio("--version").stdout == f"dbio-commit {dbio_commit.__version__}\n"


def test_schema_lists_columns_types_and_partition_columns(table: Table) -> None:
    fields = {"id": "long", "tags": {"type": "array", "elementType": "string"}, f"x{ESCAPE}": "date", "day": "string"}
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    table.begin(partition_by=["day"]).commit(schema={"type": "struct", "fields": described})
    assert lines(dbio("schema", table.url).stdout) == [
        ["id", "long", ""], ["tags", "array<string>", ""], [r"x\x1b", "date", ""], ["day", "string", "partition"],
    ]  # fmt: skip
    document = dbio_json("schema", table.url)
    assert document["schema"]["fields"] == described
    assert (document["recorded"], document["partition_columns"]) == (True, ["day"])
    shown = " ".join(in_terminal(80, "schema", table.url)[1])
    assert "day" in shown
    assert "partition" in shown


def test_schema_of_a_plain_directory_is_that_of_its_newest_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    assert lines(dbio("schema", tmp_path).stdout) == [["id", "long", ""]]
    assert dbio_json("schema", tmp_path)["recorded"] is False


def test_a_narrow_terminal_names_the_columns_that_it_has_no_room_for(table: Table) -> None:
    append(table, {"1": 10})
    narrow = " ".join(in_terminal(60, "log", table.url)[1])
    assert "(too narrow for time, age, size: widen the terminal, or use --json)" in " ".join(narrow.split())
    assert "too narrow" not in " ".join(in_terminal(200, "log", table.url)[1])


@pytest.mark.parametrize("command", ["files", "log", "check", "schema", "vacuum"])
def test_an_unknown_scheme_is_wrong_usage(command: str) -> None:
    result = dbio(command, "gs://bucket/table")
    assert result.exit_code == 2
    assert "no store is known for gs: URLs" in result.stderr


def test_a_directory_without_parquet_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_bytes(b"root")
    (tmp_path / "README.txt").write_bytes(b"read me")
    result = dbio("files", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no table at" in result.stderr


def test_check_and_adopt_name_what_is_no_parquet(plain: Path) -> None:
    (plain / f"notes{ESCAPE}.txt").write_bytes(b"read me")
    assert dbio_json("check", plain)["foreign"] == [f"notes{ESCAPE}.txt"]
    assert r"notes\x1b.txt" in dbio("check", plain).stdout
    shown = dbio("adopt", plain).stdout
    assert "left alone, since they are no Parquet" in shown
    assert r"notes\x1b.txt" in shown


def test_an_application_and_a_column_steer_no_terminal(table: Table) -> None:
    name = f"x{ESCAPE}[2J"
    with table.begin(partition_by=["day"], app=(name, 1)) as transaction:
        new_files(transaction, {"1": 1}, statistics={name: Bounds(name, name, 0)})
    for command in (["log"], ["check"], ["show", transaction.tid]):
        piped = dbio(command[0], table.url, *command[1:])
        shown = "".join(in_terminal(160, command[0], table.url, *command[1:])[1])
        for text in (piped.stdout, shown):
            assert r"x\x1b[2J" in text
            assert ESCAPE not in text
