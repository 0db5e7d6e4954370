"""`dbio vacuum`, `checkpoint` and `adopt` on local tables: for people, pipes and programs, and how they exit."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table, TransactionAbortedError
from dbio_commit.protocol import names
from tests.command_line import (
    ESCAPE,
    HOSTILE,
    PARQUET,
    TID,
    append,
    as_nobody,
    data_file,
    dbio,
    dbio_json,
    in_terminal,
    new_files,
    process,
)
from vacuum import Reason

DAYS_OLD = timedelta(days=3)


def make_older(root: Path, by: timedelta = DAYS_OLD) -> None:
    for path in root.rglob("*"):
        then = path.stat().st_mtime - by.total_seconds()
        os.utime(path, (then, then))


def overwrite(table: Table, sizes: dict[str, int]) -> str:
    with table.begin("overwrite") as transaction:
        new_files(transaction, sizes)
    return transaction.tid


def with_garbage(root: Path) -> Table:
    """Three days old: a live file, two that were removed, one of a writer that died, one that nobody wrote."""
    table = Table(root)
    append(table, {"1": 10, "2": 2000})
    overwrite(table, {"1": 3})
    new_files(table.begin(), {"1": 500})
    (root / "day=1" / "export.csv").write_bytes(b"x" * 7)
    make_older(root)
    return table


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def table(root: Path) -> Table:
    return with_garbage(root)


@pytest.fixture
def removed(table: Table) -> dict[str, int]:
    """Path and size of what a commit has removed."""
    return {file.path: file.size for file in table.history()[1].files}


@pytest.fixture
def pending(table: Table) -> str:
    return table.check().pending[0].tid


def tree(root: Path) -> dict[Path, bytes | None]:
    """All that is there, directories too."""
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def errors(stderr: str) -> list[str]:
    """What went wrong; in a pipe, a line that says what was done comes before."""
    summary, *errors = stderr.splitlines()
    assert re.fullmatch(r"dbio: .*: (dry run, nothing was changed: would be )?deleted .*", summary)
    return errors


def lines(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


# --- vacuum -------------------------------------------------------------------------------------------------------


def test_a_dry_run_in_a_pipe_is_a_line_for_each_object_and_changes_nothing(
    table: Table, root: Path, removed: dict[str, int], pending: str
) -> None:
    before = tree(root)

    result = dbio("vacuum", root, "--dry-run")

    assert (result.exit_code, errors(result.stderr)) == (0, [])
    assert "dry run, nothing was changed: would be deleted 4 objects" in result.stderr
    assert tree(root) == before
    shown = lines(result.stdout)
    assert {(path, int(size)) for path, size, _, reason in shown if reason == Reason.REMOVED} == set(removed.items())
    assert [(path, size) for path, size, _, reason in shown if reason == Reason.ABORTED] == [
        (f"day=1/part-00000-tid-{pending}-job-0-0-c000.parquet", "500")
    ]
    assert [path for path, size, _, reason in shown if reason == Reason.DIRECTORY] == ["day=2"]
    assert len(shown) == 4
    for _, _, age_s, reason in shown:
        least_s = 0 if reason == Reason.DIRECTORY else DAYS_OLD.total_seconds()
        assert least_s <= int(age_s) < least_s + 600


def test_a_vacuum_deletes_exactly_what_its_dry_run_said(table: Table, root: Path) -> None:
    before, files = set(tree(root)), table.snapshot().files
    dry = dbio("vacuum", root, "--dry-run")

    real = dbio("vacuum", root)

    assert (real.exit_code, errors(real.stderr)) == (0, [])
    assert f"dbio: {root}: deleted 4 objects" in real.stderr
    said, done = ([[path, size, reason] for path, size, _, reason in lines(it.stdout)] for it in (dry, real))
    assert done == said
    assert before - set(tree(root)) == {root / path for path, _, _ in done}
    assert table.snapshot().files == files
    assert table.check().ok
    again = dbio("vacuum", root)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "deleted 0 objects" in again.stderr


def test_as_json_a_vacuum_is_one_document_with_all_that_the_report_has(
    table: Table, root: Path, removed: dict[str, int], pending: str
) -> None:
    dry = dbio_json("vacuum", root, "--dry-run")
    real = dbio_json("vacuum", root)

    assert (dry.pop("dry_run"), real.pop("dry_run")) == (True, False)
    for document in (dry, real):
        for it in (*document["deleted"], *document["kept"]):
            assert int(it.pop("age_s")) >= 0
    assert dry == real
    assert {it["path"]: it["size"] for it in real.pop("deleted") if it["reason"] == Reason.REMOVED} == removed
    assert real == {
        "url": table.url,
        "scope": "table",
        "retention_hours": 48.0,
        "ok": True,
        "stopped": False,
        "failed": [],
        "aborted": [pending],
        "postponed": [],
        "warnings": [],
        "keeps_versions": False,
        "checkpoint": None,
        "queued": [],
        "kept": [{"path": "day=1/export.csv", "size": 7, "reason": Reason.UNTRACKED}],
    }


def test_untracked_files_go_when_they_are_asked_for(table: Table, root: Path) -> None:
    assert dbio("vacuum", root).exit_code == 0
    assert (root / "day=1" / "export.csv").exists()
    assert lines(dbio("vacuum", root, "--untracked").stdout)[0][0] == "day=1/export.csv"
    assert not (root / "day=1" / "export.csv").exists()


def test_the_retention_is_the_users_choice(table: Table, root: Path) -> None:
    kept = {it["reason"] for it in dbio_json("vacuum", root, "--retention-hours", "100")["kept"]}
    assert kept == {Reason.REMOVED, Reason.PENDING, Reason.UNTRACKED}
    assert len(dbio_json("vacuum", root, "--retention-hours", "71.5")["deleted"]) == 4


def test_a_writer_that_vacuum_gave_up_cannot_commit(root: Path) -> None:  # I5
    table = Table(root)
    append(table, {"1": 1})
    transaction = table.begin()
    new_files(transaction, {"1": 5})
    make_older(root)
    assert dbio_json("vacuum", root)["aborted"] == [transaction.tid]
    with pytest.raises(TransactionAbortedError):
        transaction.commit()


@pytest.mark.parametrize("hours", ["0.5", "0", "-1", "nan", "inf", "1e300", "soon"])
@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--json"]], ids=["real", "dry", "json"])
def test_a_retention_that_could_hurt_is_a_usage_error(table: Table, root: Path, hours: str, options: list[str]) -> None:
    before = tree(root)
    result = dbio("vacuum", root, "--retention-hours", hours, *options)
    assert result.exit_code == 2
    assert tree(root) == before
    if "--json" in options and hours != "soon":
        assert json.loads(result.stdout)["error"] == "RetentionError"
    else:
        assert "retention" in result.stderr


def test_a_retention_below_an_hour_can_be_forced(root: Path) -> None:
    table = Table(root)
    append(table, {"1": 10})
    overwrite(table, {"1": 3})
    assert not dbio_json("vacuum", root, "--retention-hours", "1")["deleted"]
    refused = dbio("vacuum", root, "--retention-hours", "0")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "force" in refused.stderr
    assert len(dbio_json("vacuum", root, "--retention-hours", "0", "--force")["deleted"]) == 1
    assert table.check().ok


def test_how_many_commits_make_a_checkpoint_due_is_the_users_choice(root: Path) -> None:
    for _ in range(2):
        append(Table(root), {"1": 1})
    assert dbio_json("vacuum", root, "--checkpoint-after", "3")["checkpoint"] is None
    assert dbio_json("vacuum", root, "--checkpoint-after", "2")["checkpoint"] == names.checkpoint(1)


@pytest.mark.parametrize(("option", "value"), [("--history-days", "29"), ("--checkpoint-after", "-1")])
def test_a_history_that_could_hurt_is_a_usage_error(table: Table, root: Path, option: str, value: str) -> None:
    before = tree(root)
    result = dbio("vacuum", root, option, value)
    assert result.exit_code == 2
    assert option.removeprefix("--").replace("-", "_") in result.stderr
    assert tree(root) == before


def test_of_many_aborted_transactions_a_few_are_named_and_the_rest_counted(root: Path) -> None:
    append(Table(root), {"1": 1})
    for number in range(12):
        (root / f"_started_{number:02d}").touch()
    make_older(root)
    shown = dbio("vacuum", root)
    assert "aborted 00, 01, 02, 03, 04 and 7 more" in shown.stderr
    assert len(dbio_json("vacuum", root)["aborted"]) == 0


def test_what_vacuum_warns_of_is_on_stderr(root: Path) -> None:
    append(Table(root), {"1": 1})
    (root / "_committed_vacuum7").write_text('{"added": [], "removed": []}')
    done = process("vacuum", root)
    assert (done.returncode, done.stdout) == (0, "")
    assert "another tool's vacuum has run here" in done.stderr
    report = dbio_json("vacuum", root)
    assert [warning for warning in report["warnings"] if "_committed_vacuum7" in warning]


# --- vacuum in a terminal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_dry_run_in_a_terminal_fits_it_and_cuts_no_path(
    table: Table, root: Path, removed: dict[str, int], columns: int
) -> None:
    before = tree(root)
    code, raw = in_terminal(columns, "vacuum", root, "--dry-run")
    shown = screen(raw)
    assert code == 0
    assert max(map(len, shown)) <= columns
    assert all(path in unfolded(shown) for path in removed)
    text = " ".join(" ".join(shown).split())
    assert "would be deleted" in text
    assert "would be aborted" in text
    assert tree(root) == before


@pytest.mark.parametrize("columns", [40, 120])
def test_a_vacuum_in_a_terminal_sums_up_what_it_did_by_reason(
    table: Table, root: Path, pending: str, columns: int
) -> None:
    code, raw = in_terminal(columns, "vacuum", root)
    shown = screen(raw)
    assert code == 0
    assert max(map(len, shown)) <= columns
    text = " ".join(" ".join(shown).split())
    assert "deleted 4 objects, 2.5 kB" in text
    assert f"aborted {pending}" in text
    assert "would" not in text
    if columns == 120:
        assert [line.split()[-4:] for line in shown if line.strip().startswith(Reason.REMOVED)] == [
            ["2.0", "kB", "3", "days"]
        ]
        assert any(line.strip().startswith(Reason.UNTRACKED) for line in shown)


def screen(shown: list[str]) -> list[str]:
    """What is left once the progress bar is gone; it takes no other ways to steer a terminal."""
    text = "\n".join(shown)
    for code in ("[?25l", "[?25h", "[2K", "[1A"):
        text = text.replace(f"{ESCAPE}{code}", "")
    return [line for line in text.splitlines() if not line.startswith(("listing ", "deleting "))]


def unfolded(shown: list[str]) -> str:
    """The first column."""
    return "".join(line.split(" ")[0] for line in shown)


def test_a_vacuum_with_nothing_to_do_says_so_in_a_terminal(root: Path) -> None:
    append(Table(root), {"1": 1})
    code, shown = in_terminal(120, "vacuum", root)
    assert code == 0
    assert any(line.split() == ["deleted", "0", "objects,", "0", "bytes"] for line in shown)


def test_a_terminal_sees_how_far_it_is(table: Table, root: Path) -> None:
    _, raw = in_terminal(120, "vacuum", root)
    bars = [line for line in "\n".join(raw).replace(f"{ESCAPE}[2K", "").splitlines() if "\u2501" in line]
    assert any("listing" in line for line in bars)
    assert any(line.startswith("deleting") and " 3/3 " in line for line in bars)


def test_a_pipe_sees_no_progress_bar_and_no_colours(table: Table, root: Path) -> None:
    result = process("vacuum", root, env={"TERM": "xterm-256color"})
    assert (result.returncode, errors(result.stderr)) == (0, [])
    assert ESCAPE not in result.stdout
    assert len(lines(result.stdout)) == 4


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.fixture
def locked() -> Iterator[Path]:
    """A table with garbage in two partitions, one of which only its owner, and root, may change."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        root = Path(directory) / "table"
        with_garbage(root)
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                os.chmod(path, 0o777)
        os.chmod(root / "day=2", 0o555)
        yield root
        for path in root.rglob("*"):
            os.chmod(path, 0o755)


def test_what_cannot_be_deleted_is_reported_stops_nothing_and_the_next_run_finishes(locked: Path) -> None:
    table = Table(locked)
    (stuck,) = [file.path for file in table.history()[1].files if file.path.startswith("day=2/")]

    result = as_nobody("vacuum", str(locked))

    assert result.returncode == 1
    assert {reason for _, _, _, reason in lines(result.stdout)} == {Reason.REMOVED, Reason.ABORTED}
    (message,) = errors(result.stderr)
    assert message.startswith(f"dbio: {stuck}: cannot delete {locked}/{stuck}")
    assert (locked / stuck).exists()
    assert table.check().ok

    document = json.loads(as_nobody("vacuum", str(locked), "--json").stdout)
    assert (document["ok"], [it["path"] for it in document["failed"]]) == (False, [stuck])

    os.chmod(locked / "day=2", 0o777)
    again = as_nobody("vacuum", str(locked))
    assert (again.returncode, errors(again.stderr)) == (0, [])
    assert [path for path, *_ in lines(again.stdout)] == [stuck, "day=2"]


def test_a_dry_run_needs_no_right_to_change_anything(locked: Path) -> None:
    for path in (locked, *locked.rglob("*")):
        if path.is_dir():
            os.chmod(path, 0o555)
    before = tree(locked)
    result = as_nobody("vacuum", str(locked), "--dry-run")
    assert (result.returncode, errors(result.stderr)) == (0, [])
    assert len(lines(result.stdout)) == 4
    assert tree(locked) == before
    os.chmod(locked, 0o755)


COMMANDS = ["vacuum", "checkpoint", "adopt"]
every_command = pytest.mark.parametrize("command", COMMANDS)


@every_command
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_path_that_is_not_there_is_one_message_and_creates_nothing(
    tmp_path: Path, command: str, options: list[str]
) -> None:
    missing = tmp_path / "missing"
    result = dbio(command, missing, *options)
    assert result.exit_code == 1
    assert not missing.exists()
    if options:
        assert json.loads(result.stdout)["error"] == "TableNotFoundError"
        assert result.stderr == ""
    else:
        assert result.stderr.startswith(f"dbio: there is no table at {missing}")
        assert len(result.stderr.splitlines()) == 1


@every_command
def test_a_partition_is_not_taken_for_a_table(table: Table, root: Path, command: str) -> None:
    before = tree(root)
    result = dbio(command, root / "day=1")
    assert result.exit_code == 2
    assert "is a partition of the table" in result.stderr
    assert tree(root) == before


@every_command
@pytest.mark.parametrize("args", [[], ["here", "there"], ["here", "--frobnicate"]])
def test_wrong_usage_exits_with_2(command: str, args: list[str]) -> None:
    assert dbio(command, *args).exit_code == 2


@pytest.mark.parametrize("command", ["vacuum", "checkpoint"])
def test_a_table_of_a_later_version_is_not_touched(table: Table, root: Path, command: str) -> None:
    (root / names.DESCRIPTOR).write_text('{"version": 2, "id": "x", "created": "2026-11-20T00:00:00Z"}')
    before = tree(root)
    result = dbio(command, root)
    assert result.exit_code == 1
    assert "upgrade" in result.stderr
    assert tree(root) == before


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["real", "dry"])
def test_a_corrupt_marker_is_one_message_and_nothing_is_deleted(table: Table, root: Path, options: list[str]) -> None:
    bad = root / names.committed(append(table, {"1": 1}))
    bad.write_text("{")
    before = tree(root)
    result = dbio("vacuum", root, *options)
    assert result.exit_code == 1
    assert str(bad) in result.stderr
    assert tree(root) == before


def test_names_steer_no_terminal(table: Table, root: Path) -> None:
    hostile = HOSTILE.replace("/", "|")
    (root / "day=1" / hostile).touch()
    os.utime(root / "day=1" / hostile, (0, 0))
    safe = r"day=1/[red]x[|red]\x1b[2J\r\n\t\u202e:smile:\udc80"
    piped = process("vacuum", root, "--untracked", "--dry-run")
    assert (piped.returncode, errors(piped.stderr)) == (0, [])
    assert [path for path, *_ in lines(piped.stdout) if "smile" in path] == [safe]
    shown = screen(in_terminal(200, "vacuum", root, "--untracked", "--dry-run")[1])
    assert any(safe in line for line in shown)
    assert all(line.isprintable() for line in shown)
    document = json.loads(process("vacuum", root, "--untracked", "--json").stdout)
    assert f"day=1/{hostile}" in {it["path"] for it in document["deleted"]}
    assert not (root / "day=1" / hostile).exists()


# --- checkpoint ---------------------------------------------------------------------------------------------------


def test_checkpoint_writes_one_where_there_is_something_new(root: Path) -> None:
    table = Table(root)
    append(table, {"1": 10})
    overwrite(table, {"1": 3})
    files, history = table.snapshot().files, [commit.tid for commit in table.history()]

    result = dbio("checkpoint", root)

    assert (result.exit_code, result.output) == (0, f"wrote {names.checkpoint(1)}\n")
    assert (root / names.checkpoint(1)).exists()
    assert table.snapshot().files == files
    assert [line[0] for line in lines(dbio("log", root).stdout)] == history
    again = dbio("checkpoint", root)
    assert (again.exit_code, again.output) == (0, "nothing is new since the last checkpoint\n")
    assert dbio_json("checkpoint", root) == {"url": table.url, "checkpoint": None}
    append(table, {"2": 1})
    assert dbio_json("checkpoint", root) == {"url": table.url, "checkpoint": names.checkpoint(2)}


def test_log_and_show_go_on_telling_what_a_checkpoint_and_vacuum_have_purged(table: Table, root: Path) -> None:
    tid = table.history()[1].tid
    before = dbio_json("log", root)
    dbio("checkpoint", root)
    make_older(root)
    assert not dbio_json("vacuum", root)["failed"]
    assert not (root / names.committed(tid)).exists()
    assert [{**it, "time": ""} for it in dbio_json("log", root)["commits"]] == [
        {**it, "time": ""} for it in before["commits"]
    ]
    assert dbio_json("show", root, tid)["state"] == "committed"
    assert dbio("abort", root, tid).exit_code == 1
    assert dbio("check", root).exit_code == 0


def test_a_directory_that_is_no_table_of_ours_has_no_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").touch()
    result = dbio("checkpoint", tmp_path)
    assert result.exit_code == 2
    assert "dbio adopt" in result.stderr
    assert len(tree(tmp_path)) == 1


# --- adopt --------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Two files of plain Parquet, one of a failed task attempt of Databricks, and its markers."""
    root = tmp_path / "plain"
    for day, name in (("1", "old.parquet"), ("2", data_file()), ("2", data_file().replace("-0-c000", "-1-c000"))):
        (root / f"day={day}").mkdir(parents=True, exist_ok=True)
        (root / f"day={day}" / name).write_bytes(PARQUET)
    (root / "day=2" / names.started(TID)).touch()
    (root / "day=2" / names.committed(TID)).write_text(json.dumps({"added": [data_file()], "removed": []}))
    return root


def visible(root: Path) -> dict[str, tuple[int, dict[str, Any]]]:
    return {it["path"]: (it["size"], it["partition"]) for it in dbio_json("files", root)["files"]}


def test_adopt_makes_a_table_of_a_directory_and_moves_nothing(plain: Path) -> None:
    before, seen = tree(plain), visible(plain)
    assert len(seen) == 2

    result = dbio("adopt", plain)

    assert result.exit_code == 0
    assert (
        result.output == f"{plain} is a table now: 2 files, {2 * len(PARQUET)} bytes; 1 hidden ones count as removed\n"
    )
    after = tree(plain)
    assert {path: after[path] for path in before} == before
    assert {path.name for path in after.keys() - before.keys()} == {names.DESCRIPTOR, names.checkpoint(1)}
    assert visible(plain) == seen
    assert dbio_json("check", plain)["scope"] == "table"
    table = Table(plain)
    with table.begin("overwrite_partitions") as transaction:
        new_files(transaction, {"2": 1})
    assert {path.split("/")[0] for path in visible(plain)} == {"day=1", "day=2"}


def test_adopt_as_json_describes_the_commit(plain: Path) -> None:
    commit = dbio_json("adopt", plain)["commit"]
    told = (commit["operation"], commit["added_files"], commit["removed_files"], commit["size"])
    assert told == ("adopt", 2, 1, 2 * len(PARQUET))


def test_adopt_names_files_to_compact_and_refuses_those_that_nobody_reads(plain: Path) -> None:
    pq.write_table(pa.table({"ID": [1]}), plain / "day=1" / "other.parquet")
    (plain / "day=1" / "empty.parquet").touch()
    refused = dbio("adopt", plain)
    assert (refused.exit_code, "empty.parquet is no Parquet file: it is empty" in refused.stderr) == (2, True)
    (plain / "day=1" / "empty.parquet").unlink()
    (note,) = dbio_json("adopt", plain)["notes"]
    assert "other.parquet" in note


def test_a_vacuum_after_adopt_deletes_what_was_hidden_and_nothing_else(plain: Path) -> None:
    seen = visible(plain)
    make_older(plain)
    assert dbio("adopt", plain).exit_code == 0
    document = dbio_json("vacuum", plain, "--untracked")
    assert [it["path"] for it in document["deleted"]] == ["day=2/" + data_file().replace("-0-c000", "-1-c000")]
    assert visible(plain) == seen
    assert dbio("check", plain).exit_code == 0


def test_adopt_of_a_table_is_refused(table: Table, root: Path) -> None:
    before = tree(root)
    result = dbio("adopt", root)
    assert result.exit_code == 1
    assert "is a dbio table already" in result.stderr
    assert tree(root) == before


def test_adopt_waits_for_nobody_and_is_refused_while_a_transaction_is_pending(plain: Path) -> None:
    (plain / "day=1" / names.started("77")).touch()
    before = tree(plain)
    result = dbio("adopt", plain)
    assert result.exit_code == 1
    assert "77" in result.stderr
    assert tree(plain) == before
    assert dbio_json("adopt", plain)["error"] == "TransactionStateError"


def test_adopt_of_files_in_different_partition_columns_is_a_usage_error(plain: Path) -> None:
    (plain / "stray.parquet").touch()
    before = tree(plain)
    result = dbio("adopt", plain)
    assert result.exit_code == 2
    assert "partition columns" in result.stderr
    assert tree(plain) == before


# --- the directory scope ------------------------------------------------------------------------------------------


def test_a_directory_of_databricks_is_vacuumed_by_its_own_rules(plain: Path) -> None:
    make_older(plain)
    failed = "day=2/" + data_file().replace("-0-c000", "-1-c000")
    seen, before = visible(plain), tree(plain)
    dry = dbio_json("vacuum", plain, "--dry-run")
    assert tree(plain) == before
    real = dbio_json("vacuum", plain)
    assert (dry["scope"], real["scope"]) == ("directory", "directory")
    assert {it["path"] for it in real["deleted"]} == {failed, "day=2/" + names.started(TID)}
    assert [it["path"] for it in dry["deleted"]] == [it["path"] for it in real["deleted"]]
    assert dry["queued"] == real["queued"] == ["day=2/" + names.committed(TID)]
    assert visible(plain) == seen


def test_the_installed_command_knows_these_commands() -> None:
    result = dbio("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in result.stdout
