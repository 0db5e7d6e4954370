"""`dbio changes` and `dbio lag`: what they say, in a pipe and to programs."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import HistoryLostError, InvalidInputError, Table
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Start
from tests.builders import QUERY, columns, stream_checkpoint
from tests.command_line import dbio, dbio_json


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "table")
    for rows in (1, 2):
        _commit(table, "append", rows)
    return table


def test_changes_counts_what_came_and_went_with_each_commit(table: Table) -> None:
    third = _commit(table, "overwrite", 3)
    first, second, _ = reversed([commit.tid for commit in table.history()])
    lines = [line.split("\t") for line in dbio("changes", table.url, "--from", first).stdout.splitlines()]
    assert [[tid, *rest] for tid, _, *rest in lines] == [
        [first, "append", "1", "1", "0", "0", "0"],
        [second, "append", "1", "2", "0", "0", "0"],
        [third, "overwrite", "1", "3", "2", "3", "0"],
    ]
    (told,) = dbio_json("changes", table.url, "--from", second, "--to", second)["changes"]
    assert told | {"time": ""} == {
        "tid": second,
        "time": "",
        "operation": "append",
        "inserted": {"files": 1, "rows": 2},
        "deleted": {"files": 0, "rows": 0},
        "updated": {"rows": 0},
        "recorded": {"files": 0},
    }


@pytest.mark.parametrize(
    ("start", "why"), [("yesterday", "dbio log"), ("2026-11-20", "no time zone"), ("last week", "dbio log")]
)
def test_changes_wants_a_time_or_the_tid_of_a_commit(start: str, why: str, table: Table) -> None:
    result = dbio("changes", table.url, "--from", start)
    assert result.exit_code == 2
    assert why in result.stderr


def test_lag_counts_what_a_stream_has_not_read(table: Table, tmp_path: Path) -> None:
    checkpoint = stream_checkpoint(tmp_path / "checkpoint", table)
    assert table.lag(checkpoint).commits == 0
    _commit(table, "append", 5)
    newest = table.history()[0]
    said = dbio_json("lag", table.url, str(checkpoint))["streams"]
    size = newest.files[0].size
    assert [{**it, "oldest": ""} for it in said] == [
        {"query": QUERY, "batch": 7, "behind": {"commits": 1, "files": 1, "size": size}, "oldest": ""}
    ]
    line = dbio("lag", table.url, str(checkpoint)).stdout.rstrip("\n").split("\t")
    assert line[:-1] == [QUERY, "7", "1", "1", str(size)]


def test_a_stream_that_has_done_nothing_is_behind_the_whole_table(table: Table, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    lag = table.lag(checkpoint)
    assert (lag.batch, lag.commits, lag.files) == (None, 2, 2)


def test_lag_refuses_what_is_no_checkpoint_of_a_stream_of_the_table(table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no checkpoint of a query"):
        table.lag(tmp_path / "nothing")
    other = Table(tmp_path / "other")
    _commit(other, "append", 1)
    with pytest.raises(InvalidInputError, match="another stream"):
        other.lag(stream_checkpoint(tmp_path / "checkpoint", table))


def test_changes_fail_where_vacuum_has_deleted_what_they_take(table: Table) -> None:
    first = table.history()[-1]
    _commit(table, "overwrite", 3)
    for path in first.added:
        Path(table.url, path).unlink()
    changes = table.changes(first.tid)  # counts need no files
    assert [it.inserted_rows for it in changes] == [1, 2, 3]
    follower = Follower(table.store, table.clock)
    feed = Feed(follower.history(), FeedOptions(changes=True))
    found = [change for _, changes in feed.span(Start(begin="tid", tid=first.tid), None) for change in changes]
    with pytest.raises(HistoryLostError, match="vacuumed"):
        follower.without_deleted(feed, found)


def _commit(table: Table, operation: str, rows: int) -> str:
    transaction = table.begin(operation)  # type: ignore[arg-type]
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), transaction.new_file())
    return transaction.commit(columns("id")).tid
