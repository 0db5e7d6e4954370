"""What the stream sink does in the order in which Spark calls it, and in others: without Spark, on a disk.

With Spark: tests/integration/test_stream_sink.py; where processes are killed: test_streams_killed.py there.
Rules: PROTOCOL.md 9.1.
"""

import logging
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.types import BooleanType, LongType, StructType

from dbio_commit import InvalidInputError, Table, UnsupportedStoreError
from dbio_commit.spark import feed as streaming
from dbio_commit.spark.datasource import DbioDataSource
from dbio_commit.spark.feed.sink import DbioStreamWriter

SCHEMA = StructType().add("id", LongType()).add("even", BooleanType())

Messages = Sequence[WriterCommitMessage | None]


@dataclass
class Task:
    """What a worker knows of the task that it runs."""

    number: int
    attempt: int
    batch: int
    query: str = "query"

    def partitionId(self) -> int:
        return self.number

    def taskAttemptId(self) -> int:
        return self.attempt

    def getLocalProperty(self, name: str) -> str:
        return {"sql.streaming.queryId": self.query, "streaming.sql.batchId": str(self.batch)}[name]


class Broken(Exception):
    pass


class Query:
    """Calls the sink as Spark does: each step with a writer that knows what Spark hands it, and no more."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *, complete: bool = False, **options: str) -> None:
        self.path, self.patch, self.complete, self.options = path, monkeypatch, complete, options
        self.attempts = 0

    def writer(self) -> DbioStreamWriter:
        source = DbioDataSource(CaseInsensitiveDict({"path": str(self.path), **self.options}))
        writer = source.streamWriter(SCHEMA, self.complete)
        assert isinstance(writer, DbioStreamWriter)
        return writer

    def plan(self) -> list[bytes]:
        """It is pickled twice, and must be the same batch in both."""
        writer = self.writer()
        return [pickle.dumps(writer), pickle.dumps(writer)]

    def task(self, planned: bytes, batch: int, rows: Sequence[int], *, fails: bool = False) -> WriterCommitMessage:
        def batches() -> Iterator[pa.RecordBatch]:
            even = [id % 2 == 0 for id in rows]
            yield pa.record_batch([pa.array(rows, pa.int64()), pa.array(even, pa.bool_())], names=["id", "even"])
            if fails:
                raise Broken

        self.attempts += 1
        task = Task(self.attempts % 2, self.attempts, batch)
        self.patch.setattr(TaskContext, "get", staticmethod(lambda: task))
        message: WriterCommitMessage = pickle.loads(pickle.dumps(pickle.loads(planned).write(batches())))
        return message

    def write(self, batch: int, *tasks: Sequence[int]) -> Messages:
        planned = self.plan()
        return [self.task(planned[-1], batch, rows) for rows in tasks]

    def run(self, batch: int, *tasks: Sequence[int]) -> Messages:
        messages = self.write(batch, *tasks)
        self.writer().commit(messages, batch)
        return messages


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(tmp_path / "table", monkeypatch)


def rows(query: Query) -> list[int]:
    found = Table(query.path).snapshot().to_arrow()["id"].to_pylist()
    return sorted(id for id in found if id is not None)


def markers(query: Query, kind: str) -> list[str]:
    return sorted(name for name in os.listdir(query.path) if name.startswith(f"_{kind}_"))


def data(query: Query) -> list[str]:
    return sorted(name for name in os.listdir(query.path) if name.endswith(".parquet"))


def test_each_batch_is_one_transaction_of_its_query(query: Query) -> None:
    query.run(0, [1, 2], [3])
    query.run(1, [4], [5])
    assert rows(query) == [1, 2, 3, 4, 5]
    assert [commit.app for commit in Table(query.path).history()] == [("query", 1), ("query", 0)]
    assert len(markers(query, "started")) == len(markers(query, "committed")) == 2  # one begin for each
    assert Table(query.path).check().ok


def test_a_batch_without_rows_leaves_nothing(query: Query) -> None:
    query.run(0, [1], [])
    before = sorted(os.listdir(query.path))
    query.run(1, [], [])
    query.run(2)
    assert sorted(os.listdir(query.path)) == before
    query.run(3, [2])
    assert rows(query) == [1, 2]


def test_a_batch_that_is_made_again_is_committed_once(query: Query) -> None:  # I8
    query.run(0, [1], [2])
    query.run(0, [1, 2])  # Spark had not noted it: a crash between our marker and its commit log
    assert rows(query) == [1, 2]
    assert len(data(query)) == 2  # what was written again is gone
    assert not Table(query.path).check().pending


def test_an_abort_after_a_commit_that_landed_is_quiet_and_changes_nothing(query: Query) -> None:
    messages = query.run(0, [1], [2])
    query.writer().abort(messages, 0)
    assert rows(query) == [1, 2]
    assert len(data(query)) == 2


def test_a_commit_that_comes_twice_commits_once(query: Query) -> None:
    messages = query.run(0, [1], [2])
    query.writer().commit(messages, 0)
    assert rows(query) == [1, 2]
    assert len(Table(query.path).history()) == 1


def test_where_one_task_fails_what_the_others_wrote_is_aborted_and_deleted(query: Query) -> None:
    query.run(0, [1])
    planned = query.plan()[0]
    messages = [query.task(planned, 1, [2]), None]
    with pytest.raises(Broken):
        query.task(planned, 1, [3], fails=True)
    query.writer().abort(messages, 1)
    assert len(data(query)) == 1
    assert not Table(query.path).check().pending
    query.run(1, [2], [3])
    assert rows(query) == [1, 2, 3]


def test_what_tasks_leave_that_all_failed_is_aborted_by_the_next_attempt(query: Query) -> None:
    """And not by that of another query, which cannot know that nobody works on it."""
    query.options["maxRecordsPerFile"] = "1"
    query.run(0, [1])
    planned = query.plan()[0]
    lost = [query.task(planned, 1, [2]), query.task(planned, 1, [3])]  # the answers of these never come
    del lost
    query.writer().abort([None, None], 1)
    table = Table(query.path)
    assert len(table.check().pending) == 1
    other = Query(query.path, query.patch, txnAppId="other")
    other.run(1, [10])
    assert len(table.check().pending) == 1
    query.run(1, [2, 3])
    assert not table.check().pending
    assert rows(query) == [1, 2, 3, 10]


def test_of_two_drivers_with_one_batch_one_commits_and_the_other_is_skipped(query: Query) -> None:  # I3, I8
    one, other = query.write(0, [1], [2]), query.write(0, [1, 2])
    assert len(markers(query, "started")) == 2
    query.writer().commit(other, 0)
    query.writer().commit(one, 0)  # whose transaction the other has aborted: no error
    assert rows(query) == [1, 2]
    assert len(Table(query.path).history()) == 1
    assert not Table(query.path).check().pending
    late = query.write(0, [1, 2])
    query.run(1, [3])
    query.writer().commit(late, 0)
    assert rows(query) == [1, 2, 3]


def test_a_late_driver_that_was_aborted_for_another_reason_is_told(query: Query) -> None:
    messages = query.write(0, [1])
    table = Table(query.path)
    (pending,) = table.check().pending
    table.abort(pending.tid)
    with pytest.raises(Exception, match="aborted"):
        query.writer().commit(messages, 0)
    query.run(0, [1])
    assert rows(query) == [1]


def test_complete_mode_replaces_all_rows_also_by_none(query: Query) -> None:
    query.complete = True
    query.run(0, [1], [2])
    query.run(1, [3], [])
    assert rows(query) == [3]
    query.run(2, [], [])
    assert rows(query) == []
    assert {commit.operation for commit in Table(query.path).history()} == {"overwrite"}
    query.run(2, [9])
    assert rows(query) == []  # made again


def test_two_names_of_applications_do_not_meet(query: Query) -> None:
    query.run(0, [1])
    named = Query(query.path, query.patch, txnAppId="mine")
    named.run(0, [2])
    named.run(0, [2])
    assert rows(query) == [1, 2]
    assert {commit.app for commit in Table(query.path).history()} == {("query", 0), ("mine", 0)}


def test_a_new_table_without_partitions_is_a_warning_as_spark_passes_over_partition_by(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        query.run(0, [1])
        assert "does not pass on writeStream.partitionBy" in caplog.text
        caplog.clear()
        query.run(1, [2])
        Query(query.path.with_name("days"), query.patch, partitionBy="even").run(0, [3])
    assert "partitionBy" not in caplog.text
    assert Table(query.path.with_name("days")).snapshot().partition_columns == ("even",)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"txnVersion": "1"}, "no option txnversion here"),
        ({"partitionOverwriteMode": "dynamic"}, "no option partitionoverwritemode here"),
        ({"compresion": "zstd"}, "no option compresion here"),
    ],
)
def test_options_that_a_stream_cannot_have_are_refused(query: Query, options: dict[str, str], named: str) -> None:
    query.options = options
    with pytest.raises(InvalidInputError, match=named):
        query.writer()
    assert not query.path.exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"compression": "lzo"}, "lzo"),
        ({"maxRecordsPerFile": "-1"}, "maxRecordsPerFile"),
        ({"mergeSchema": "yes"}, "mergeSchema"),
        ({"partitionBy": "hour"}, "hour"),
    ],
)
def test_options_that_mean_nothing_leave_no_table(query: Query, options: dict[str, str], named: str) -> None:
    query.options = options
    with pytest.raises(InvalidInputError, match=named):
        query.plan()
    assert not query.path.exists()


def test_spark_before_4_1_is_pointed_to_foreach_batch(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HAS_STREAM_SINKS", False)
    with pytest.raises(UnsupportedStoreError, match=r"needs Spark 4.1 or later.*foreachBatch\(dbio.batch_writer"):
        query.writer()


def test_a_directory_without_a_descriptor_is_no_place_for_a_stream(query: Query) -> None:
    """Its markers do not record which batches are committed."""
    query.path.mkdir()
    pa.parquet.write_table(pa.table({"id": [1], "even": [False]}), query.path / "part-0.parquet")
    with pytest.raises(InvalidInputError, match="do not record which versions of an application"):
        query.plan()
    assert os.listdir(query.path) == ["part-0.parquet"]
