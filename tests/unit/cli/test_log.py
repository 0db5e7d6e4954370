"""`dbio log`."""

import json
import os
import socket
from datetime import datetime
from pathlib import Path

import pytest

from dbio_commit import Table, __version__
from dbio_commit.base.figures import time_text
from dbio_commit.commit import provenance
from dbio_commit.protocol import names
from tests.command_line import append, dbio, dbio_json, in_terminal, lines, new_files


def test_log_has_the_newest_commit_first(table: Table) -> None:
    first = append(table, {"1": 10, "2": 20}, rows=5)
    with table.begin("overwrite", app=("nightly", 4)) as second:
        new_files(second, {"1": 3}, rows=7)

    newest, oldest = dbio_json("log", table.url)["commits"]

    assert datetime.fromisoformat(newest.pop("time")) >= datetime.fromisoformat(oldest.pop("time"))
    who = {
        "host": socket.gethostname(),
        "user": provenance._user(),
        "process": os.getpid(),
        "software": f"dbio-commit {__version__}",
        "spark_application": None,
        "spark_job": None,
        "message": None,
        "labels": None,
    }
    assert newest == {
        "tid": second.tid,
        "operation": "overwrite",
        "kind": None,
        "data_change": True,
        "added_files": 1,
        "removed_files": 2,
        "rows": 7,
        "size": 3,
        "app": {"id": "nightly", "version": 4},
        "joint": [],
        "provenance": who,
    }
    assert oldest == {
        "tid": first,
        "operation": "append",
        "kind": None,
        "data_change": True,
        "added_files": 2,
        "removed_files": 0,
        "rows": 10,
        "size": 30,
        "app": None,
        "joint": [],
        "provenance": who,
    }
    by = f"{who['user']}@{who['host']}"
    assert [[line[0], *line[2:]] for line in lines(dbio("log", table.url).stdout)] == [
        [second.tid, "overwrite", "1", "2", "7", "3", "nightly:4", "", by],
        [first, "append", "2", "0", "10", "30", "", "", by],
    ]


def test_log_keeps_the_time_at_80_columns_and_leaves_others_out(table: Table) -> None:
    with table.begin("overwrite_partitions", ["day"], app=("nightly", 4), message="as asked") as transaction:
        new_files(transaction, {"1": 3}, rows=1_000_000)

    _, narrow = in_terminal(80, "log", table.url)
    _, wide = in_terminal(180, "log", table.url)

    assert max(map(len, narrow)) <= 80
    assert narrow[0].split() == ["tid", "time", "operation", "added", "removed"]
    assert narrow[1].split()[0] == transaction.tid
    assert narrow[1].split()[3] == "overwrite_partitions"
    for text in ("1,000,000", "nightly:4", "as asked", f"@{socket.gethostname()}"):
        assert text not in narrow[1]
        assert text in wide[1]


@pytest.mark.parametrize("columns", [30, 60])
def test_a_tid_that_is_too_long_for_the_terminal_folds(plain: Path, columns: int) -> None:
    tid = "0123456789" * 8
    (plain / names.started(tid)).touch()
    (plain / names.committed(tid)).write_text(json.dumps({"added": [], "removed": []}))
    _, lines = in_terminal(columns, "log", plain)
    assert tid in "".join(line.split()[0] for line in lines[1:])


def test_a_narrow_terminal_names_the_columns_that_it_has_no_room_for(table: Table) -> None:
    append(table, {"1": 10})
    narrow = " ".join(in_terminal(60, "log", table.url)[1])
    assert "(too narrow for age, added, removed, size, by: widen the terminal, or use --json)" in " ".join(
        narrow.split()
    )
    assert "too narrow" not in " ".join(in_terminal(200, "log", table.url)[1])


# --- which commits ------------------------------------------------------------------------------------------------


@pytest.fixture
def tids(table: Table) -> list[str]:
    """The tids of three appends and of a restore, oldest first."""
    for number, days in enumerate(("ab", "b", "c")):
        with table.begin(partition_by=["day"], app=("nightly" if number else "first", number)) as transaction:
            new_files(transaction, dict.fromkeys(days, 10))
    table.restore(table.history()[1].tid)
    return [commit.tid for commit in reversed(table.history())]


def listed(*args: object) -> list[str]:
    return [line[0] for line in lines(dbio("log", *args).stdout)]


def test_the_commits_are_chosen_by_number_time_application_and_operation(table: Table, tids: list[str]) -> None:
    first, second, third, restored = tids
    times = {commit.tid: commit.timestamp.isoformat() for commit in table.history()}
    assert listed(table.url, "--limit", "2") == [restored, third]
    assert listed(table.url, "--since", times[third]) == [restored, third]
    shown = f"{time_text(table.history()[0].timestamp)}"
    assert restored in listed(table.url, "--since", shown)
    assert restored in listed(table.url, "--until", shown)
    assert listed(table.url, "--until", second) == [second, first]
    assert listed(table.url, "--app", "nightly") == [third, second]
    assert listed(table.url, "--operation", "restore") == [restored]
    assert listed(table.url, "--operation", "rewrite (restore)") == [restored]
    assert listed(table.url, "--operation", "append", "-n", "1") == [third]
    assert dbio("log", table.url, "--since", "yesterday").exit_code == 2


def test_the_first_lines_alone_are_those_of_the_whole_log(table: Table, tids: list[str]) -> None:
    for _ in range(2):
        table.checkpoint()
        whole = lines(dbio("log", table.url).stdout)
        assert [lines(dbio("log", table.url, "-n", str(count)).stdout) for count in (1, 3, 9)] == [
            whole[:1], whole[:3], whole
        ]  # fmt: skip
        append(table, {"1": 10})
    assert dbio_json("log", table.url, "-n", "2")["commits"] == dbio_json("log", table.url)["commits"][:2]
    assert dbio("log", f"{table.url}/day=1", "-n", "1").exit_code == dbio("log", f"{table.url}/day=1").exit_code != 0


@pytest.mark.parametrize("operation", ["foo", "restored", "restore (rewrite", "rewrite (foo)", ""])
def test_an_operation_that_no_commit_can_have_is_refused(table: Table, tids: list[str], operation: str) -> None:
    result = dbio("log", table.url, "--operation", operation)
    assert result.exit_code == 2
    assert "is none of append, overwrite, overwrite_partitions, rewrite, adopt, compact, restore" in result.stderr
    assert listed(table.url, "--operation", "adopt") == []


def test_what_json_and_the_repr_say_is_what_the_text_says(table: Table, tids: list[str]) -> None:
    newest = table.history()[0]
    assert dbio_json("log", table.url, "-n", "1")["commits"][0]["kind"] == "restore"
    assert dbio_json("show", table.url, newest.tid)["kind"] == "restore"
    assert "rewrite (restore)" in repr(newest)
    assert "rewrite (restore)" in dbio("log", table.url, "-n", "1").stdout


def test_the_commits_of_a_partition_are_those_that_added_or_removed_files_there(table: Table, tids: list[str]) -> None:
    first, second, third, restored = tids
    assert listed(table.url, "--partition", "day=b") == [second, first]
    assert listed(table.url, "--partition", "day=c") == [restored, third]
    assert listed(table.url, "--partition", "day=z") == []
    assert dbio("log", table.url, "--partition", "country=de").exit_code == 2


def test_a_file_has_the_commit_that_added_it_and_the_one_that_removed_it(table: Table, tids: list[str]) -> None:
    _, _, third, restored = tids
    gone = next(commit for commit in table.history() if commit.tid == third).added[0]
    for name in (gone, f"{table.url}/{gone}"):
        told = lines(dbio("log", table.url, "--file", name).stdout)
        assert [line[:2] for line in told] == [["removed by", restored], ["added by", third]]
    found = dbio_json("log", table.url, "--file", gone)
    assert (found["live"], found["added"]["tid"], found["removed"]["tid"]) == (False, third, restored)
    live = table.snapshot().files[0].path
    assert dbio_json("log", table.url, "--file", live)["removed"] is None
    _, shown = in_terminal(100, "log", table.url, "--file", live)
    assert "it is live" in shown
    assert dbio("log", table.url, "--file", "other.parquet").exit_code == 2
    assert dbio("log", table.url, "--file", live, "-n", "1").exit_code == 2
