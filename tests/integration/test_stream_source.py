"""Streams out of tables on real Spark: each committed row once, in the order of commits, or a clear failure.

What comes next is decided in protocol/feed.py, which has unit tests; killed processes are in test_streams_killed.py.
Rules: PROTOCOL.md 8.4.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import dbio_commit as dbio
from dbio_commit.spark import feed as streaming
from tests.conftest import Root
from tests.later import vacuum_later
from tests.servers import S3Server
from tests.spark_tables import SPARK_ERRORS, ids, numbers, rows
from tests.streams import ALL, finish, needs_source, run
from vacuum import VacuumOptions

pytestmark = needs_source

FEED = ["_change_type", "_commit_tid", "_commit_timestamp"]


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> Iterator[None]:
    dbio.enable(spark)
    yield
    for query in spark.streams.active:
        query.stop()


class Reader:
    """A stream from a table whose checkpoint is beside it; each run takes all that is new."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path
        self.checkpoint = f"{path}-checkpoint"
        self.numbers: list[int] = []

    def stream(self, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("dbio").options(**options)
        return (reader.schema(schema) if schema else reader).load(self.path)

    def each(self, do: Callable[[DataFrame], None], **options: Any) -> None:
        """What `do` is called with is one batch."""
        writer = self.stream(**options).writeStream.foreachBatch(lambda batch, number: do(batch))
        run(writer.option("checkpointLocation", self.checkpoint))

    def batches(self, **options: Any) -> list[list[int]]:
        found: list[list[int]] = []
        self.each(lambda batch: found.append(ids(batch)), **options)
        return found

    def fork(self, name: str) -> "Reader":
        """Another stream of the same table."""
        other = Reader(self.spark, self.path)
        other.checkpoint += f"-{name}"
        return other


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path) -> Reader:
    return Reader(spark, str(tmp_path / "table"))


def write(reader: Reader, start: int, end: int, mode: Any = "append", *, tasks: int = 1, **options: Any) -> dbio.Commit:
    frame = numbers(reader.spark, start, end, tasks=tasks)
    return dbio.write(frame, reader.path, mode, storage_options=None, **options)


def stage(transaction: dbio.Transaction, table: dbio.Table, start: int, end: int) -> None:
    """One file of the transaction, written in Python."""
    found = range(start, end)
    data: dict[str, Any] = {
        "id": pa.array(found, pa.int64()),
        "day": pa.array([f"d{id % 2}" for id in found], pa.string()),
    }
    pq.write_table(pa.table(data), transaction.new_file())


def compact(table: dbio.Table) -> dbio.Commit:
    """All live files into one, and says that no row is another."""
    transaction = table.begin("rewrite")
    found = table.snapshot().to_arrow()
    transaction.remove(file.path for file in table.snapshot().files)
    pq.write_table(found, transaction.new_file())
    return transaction.commit()


def test_the_state_comes_first_in_pieces_then_each_commit_once_whenever_it_began(reader: Reader) -> None:
    for start in (0, 10, 20):
        write(reader, start, start + 10, tasks=2)
    found = reader.batches(maxFilesPerTrigger=4)
    assert [len(batch) for batch in found] == [20, 10]
    assert sorted(id for batch in found for id in batch) == list(range(30))
    assert reader.batches(maxFilesPerTrigger=4) == []
    table = dbio.Table(reader.path)
    late = table.begin()  # its tid is older than those that the stream will have had
    stage(late, table, 30, 33)
    write(reader, 40, 41)
    write(reader, 41, 42)
    assert reader.batches(maxFilesPerTrigger=1) == [[40], [41]]
    late.commit()
    write(reader, 50, 54, tasks=4)
    assert reader.batches(maxBytesPerTrigger=1) == [[30, 31, 32], [50], [51], [52], [53]]
    assert reader.batches() == []


def test_commits_that_take_rows_away_end_the_stream_unless_it_is_told_what_becomes_of_them(reader: Reader) -> None:
    write(reader, 0, 2, partition_by="day")
    assert reader.batches() == [[0, 1]]
    write(reader, 2, 3)
    removed = write(reader, 10, 12, "overwrite")
    write(reader, 20, 21)
    forks = {name: reader.fork(name) for name in ("skip", "ignore", "feed")}
    for fork in forks.values():
        shutil.copytree(reader.checkpoint, fork.checkpoint)
    with pytest.raises(StreamingQueryException, match=rf"ChangedRowsError.*{removed.tid}.*skipChangeCommits=true"):
        reader.batches()
    assert forks["skip"].batches(skipChangeCommits=True) == [[2, 20]]
    assert forks["ignore"].batches(ignoreChanges=True) == [[2, 10, 11, 20]]
    told: list[Any] = []
    forks["feed"].each(lambda batch: told.extend(batch.collect()), readChangeFeed=True)
    assert sorted((row._change_type, row.id) for row in told) == [
        *(("delete", id) for id in (0, 1, 2)),
        *(("insert", id) for id in (2, 10, 11, 20)),
    ]
    tids = {row._commit_tid for row in told if row.id in (0, 1, 10, 11) or row._change_type == "delete"}
    assert tids == {removed.tid}
    assert {row._commit_timestamp.tzinfo for row in told} == {None}


@pytest.mark.long
def test_a_stream_can_begin_with_a_commit_or_a_time_and_passes_over_a_commit_that_only_moves_rows(
    reader: Reader,
) -> None:
    write(reader, 0, 2)
    second = write(reader, 2, 4)
    table = dbio.Table(reader.path)
    at = table.history()[0].timestamp  # by the store's clock, as the stream has it
    compacted = compact(table)
    path = Path(reader.path, f"_committed_{compacted.tid}")
    body = json.loads(path.read_bytes())
    assert body["dbio_commit"]["operation"] == "rewrite"
    body["dbio_commit"]["data_change"] = False
    path.write_bytes(json.dumps(body).encode())
    write(reader, 4, 5)
    assert reader.fork("tid").batches(startingTid=second.tid) == [[2, 3, 4]]
    assert reader.fork("time").batches(startingTime=at.isoformat()) == [[2, 3, 4]]
    assert reader.fork("later").batches(startingTime="2999-01-01T00:00:00Z") == [[]]  # Spark's own first batch
    assert reader.batches() == [[0, 1, 2, 3, 4]]
    with pytest.raises(SPARK_ERRORS, match="has no commit '12' to begin with"):
        reader.fork("none").batches(startingTid="12")


def test_an_option_that_a_stream_does_not_know_is_refused_by_name(reader: Reader) -> None:
    write(reader, 0, 1)
    for option in ("maxFiles", "endingTid"):
        with pytest.raises(SPARK_ERRORS, match=f"no option {option.lower()} here; it knows failondataloss"):
            reader.batches(**{option: "1"})


def test_a_stream_goes_on_under_checkpoints_and_vacuum_or_fails_and_never_skips_in_silence(reader: Reader) -> None:
    table = dbio.Table(reader.path)
    write(reader, 0, 2)
    assert reader.batches() == [[0, 1]]
    forks = {name: reader.fork(name) for name in ("feed", "quiet")}
    for fork in forks.values():
        shutil.copytree(reader.checkpoint, fork.checkpoint)
    write(reader, 2, 3)
    table.checkpoint()
    write(reader, 3, 4)
    options = VacuumOptions(retention_hours=1, checkpoint_after=0)
    assert vacuum_later(table, options, by=timedelta(days=2)).ok
    assert reader.batches() == [[2, 3]]
    write(reader, 10, 11, "overwrite")
    assert vacuum_later(table, options, by=timedelta(days=4)).ok
    write(reader, 11, 12)
    with pytest.raises(StreamingQueryException, match=r"HistoryLostError.*vacuumed.*failOnDataLoss=false"):
        forks["feed"].batches(readChangeFeed=True)
    assert forks["quiet"].batches(ignoreChanges=True, failOnDataLoss=False) == [[10, 11]]
    assert reader.batches(skipChangeCommits=True) == [[11]]
    write(reader, 12, 13)
    assert reader.batches(skipChangeCommits=True) == [[12]]


@pytest.mark.long
def test_a_table_made_anew_at_the_same_place_is_noticed(reader: Reader) -> None:
    write(reader, 0, 2)
    assert reader.batches() == [[0, 1]]
    shutil.rmtree(reader.path)
    write(reader, 0, 2)
    with pytest.raises(StreamingQueryException, match=r"HistoryLostError.*is another table than the one"):
        reader.batches()


def wait_for(found: Callable[[], object], query: StreamingQuery) -> None:
    until = time.monotonic() + 60
    while not found():
        assert query.isActive, query.exception()
        assert time.monotonic() < until
        time.sleep(0.05)


def test_columns_that_change_under_a_stream_end_it_and_a_restart_has_them(reader: Reader) -> None:
    write(reader, 0, 2)
    seen: list[int] = []
    writer = reader.stream().writeStream.foreachBatch(lambda batch, number: seen.extend(ids(batch)))
    writer = writer.option("checkpointLocation", reader.checkpoint)
    query = writer.trigger(processingTime="100 milliseconds").start()
    wait_for(lambda: seen == [0, 1], query)
    write(reader, 2, 3)
    wait_for(lambda: seen == [0, 1, 2], query)
    wider = numbers(reader.spark, 3, 4).selectExpr("*", "7 AS new")
    dbio.write(wider, reader.path, merge_schema=True)
    with pytest.raises(StreamingQueryException, match=r"columns of .* have changed since this stream was planned"):
        query.awaitTermination(60)
    told: list[Any] = []
    reader.each(lambda batch: told.extend(batch.collect()))
    assert [tuple(row) for row in told] == [(3, "d1", 7)]


@pytest.mark.long
def test_columns_of_the_users_are_read_whatever_the_table_has(reader: Reader) -> None:
    write(reader, 0, 2)
    told: list[Any] = []
    reader.each(lambda batch: told.extend(batch.collect()), schema="absent int, id bigint")
    assert sorted(map(tuple, told)) == [(None, 0), (None, 1)]
    dbio.write(numbers(reader.spark, 2, 3).selectExpr("*", "7 AS new"), reader.path, merge_schema=True)
    reader.each(lambda batch: told.extend(batch.collect()), schema="absent int, id bigint")
    assert sorted(map(tuple, told))[2:] == [(None, 2)]


ODD = (
    "id",
    "CASE id % 4 WHEN 0 THEN 'a b+c' WHEN 1 THEN '100%=/x' WHEN 2 THEN 'übergröße 雪' END AS `the day`",
    "timestamp'2026-03-29 01:30:00' AS at",
    "decimal(id) / 4 AS `a.b c`",
    "IF(id = 0, NULL, array(named_struct('x', timestamp'2026-01-01 01:00:00', 'y', map('k', id)))) AS nested",
)


@pytest.mark.long
def test_all_columns_and_partitions_come_through_every_way_of_reading(spark: SparkSession, tmp_path: Path) -> None:
    reader = Reader(spark, str(tmp_path / "a table+ %41 ü"))
    for start in (0, 4):
        dbio.write(spark.range(start, start + 4, 1, 2).selectExpr(*ODD), reader.path, partition_by=["the day", "at"])
    expected = rows(dbio.read(spark, reader.path))
    assert len(expected) == 8
    streamed: list[str] = []
    reader.each(lambda batch: streamed.extend(rows(batch)))
    assert sorted(streamed) == expected
    fed: list[str] = []
    reader.fork("feed").each(lambda batch: fed.extend(rows(batch.drop(*FEED))), readChangeFeed=True)
    assert sorted(fed) == expected
    native: list[str] = []
    native_fed: list[str] = []

    def keep(batch: DataFrame, number: int) -> None:
        assert "parquet" in batch._jdf.queryExecution().toString().lower()  # Spark's own reader
        native.extend(rows(batch))

    def keep_fed(batch: DataFrame, number: int) -> None:
        native_fed.extend(rows(batch.drop(*FEED)))
        assert batch.columns[-3:] == FEED

    finish(dbio.for_each_batch(spark, reader.path, keep, tmp_path / "each", trigger=ALL))
    finish(dbio.for_each_batch(spark, reader.path, keep_fed, tmp_path / "each fed", changes=True, trigger=ALL))
    assert sorted(native) == sorted(native_fed) == expected
    assert rows(dbio.changes(spark, reader.path, "2020-01-01T00:00:00Z").drop(*FEED)) == expected


def test_for_each_batch_calls_again_with_the_same_rows_and_number_what_has_failed(reader: Reader) -> None:
    spark, target = reader.spark, f"{reader.path}-target"
    for start in (0, 2, 4):
        write(reader, start, start + 2)
    calls: list[tuple[int, list[int]]] = []

    def copy(batch: DataFrame, number: int) -> None:
        calls.append((number, ids(batch)))
        dbio.write(batch, target, app=("copy", number))
        if len(calls) == 2:
            raise RuntimeError("lost after it was written")

    def copying() -> StreamingQuery:
        return dbio.for_each_batch(spark, reader.path, copy, reader.checkpoint, max_files=1, name="copy", trigger=ALL)

    with pytest.raises(StreamingQueryException, match="lost after it was written"):
        finish(copying())
    finish(copying())
    assert calls == [(0, [0, 1]), (1, [2, 3]), (1, [2, 3]), (2, [4, 5])]
    assert ids(dbio.read(spark, target)) == list(range(6))


@pytest.mark.long
def test_for_each_batch_takes_the_options_of_the_stream(reader: Reader) -> None:
    first = write(reader, 0, 2)
    at = dbio.Table(reader.path).history()[0].timestamp
    write(reader, 2, 4, "overwrite")
    write(reader, 4, 5)
    seen: dict[str, list[tuple[Any, ...]]] = {}

    def follow(name: str, **options: Any) -> StreamingQuery:
        seen[name] = []
        return finish(
            dbio.for_each_batch(
                reader.spark,
                reader.path,
                lambda batch, number: seen[name].extend(map(tuple, batch.select("id", *batch.columns[2:3]).collect())),
                f"{reader.checkpoint}-{name}",
                trigger=ALL,
                **options,
            )
        )

    follow("skip", starting_tid=first.tid, skip_change_commits=True)
    assert sorted(seen["skip"]) == [(0,), (1,), (4,)]
    follow("ignore", starting_time=at, ignore_changes=True)
    assert sorted(seen["ignore"]) == [(0,), (1,), (2,), (3,), (4,)]
    follow("changes", starting_time=at.isoformat(), changes=True, max_bytes=1)
    kinds = sorted(seen["changes"])
    assert kinds == [
        *((id, kind) for id in (0, 1) for kind in ("delete", "insert")),
        *((i, "insert") for i in (2, 3, 4)),
    ]
    with pytest.raises(StreamingQueryException, match="ChangedRowsError"):
        follow("fails", starting_tid=first.tid)
    with pytest.raises(dbio.TableNotFoundError):
        dbio.for_each_batch(reader.spark, f"{reader.path}-none", lambda batch, number: None, reader.checkpoint)


def test_a_trigger_that_finds_nothing_new_costs_one_list(
    spark: SparkSession, s3_server: S3Server, s3_root: Root, tmp_path: Path
) -> None:
    url, options = s3_root
    dbio.write(numbers(spark, 0, 2), url, storage_options=options)
    seen: list[int] = []
    stream = spark.readStream.format("dbio").option("secretStorageOptions", json.dumps(options)).load(url)
    writer = stream.writeStream.foreachBatch(lambda batch, number: seen.extend(ids(batch)))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 second").start()
    wait_for(lambda: sorted(seen) == [0, 1] and not query.status["isTriggerActive"], query)
    time.sleep(1)
    s3_server.reset()
    time.sleep(4)
    asked = s3_server.requests()
    query.stop()
    assert {(it.method, "list-type" in it.query) for it in asked} == {("GET", True)}
    assert {it.query["prefix"].rpartition("/")[2] for it in asked} == {"_"}  # up to the descriptor and the tombstone
    assert 2 <= len(asked) <= 5


def test_spark_before_4_2_is_told_so_before_a_query_starts(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    write(reader, 0, 1)
    monkeypatch.setattr(streaming, "HAS_STREAM_SOURCES", False)
    with pytest.raises(
        dbio.UnsupportedStoreError,
        match=r"4\.2 or later.*readStream\.table .* dbio, or read its changes with dbio\.changes",
    ):
        dbio.for_each_batch(reader.spark, reader.path, lambda batch, number: None, reader.checkpoint)
    assert not Path(reader.checkpoint).exists()
