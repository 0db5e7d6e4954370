"""Streams into tables on real Spark: what the sink and `write_stream` rest on, and what users see.

In which order the sink may be called is in tests/unit/spark/feed/test_sink.py, kills in test_streams_killed.py.
Rules: PROTOCOL.md 9.1.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.spark import feed as streaming
from tests.conftest import Root
from tests.spark_tables import SPARK_ERRORS, configured, data_files, ids, numbers, objects, rows
from tests.streams import ALL, Files, finish, needs_sink, needs_source, run, sink

pytestmark = needs_sink

_BYTES, _RECORDS = (f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Bytes", "Records"))


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> Iterator[None]:
    dbio.enable(spark)
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path / "source")
    for start in (0, 10, 20):
        found.add(range(start, start + 10))
    return found


def apps(path: str) -> list[tuple[str, int]]:
    """Those of the commits, oldest first."""
    return [commit.app for commit in reversed(dbio.Table(path).history()) if commit.app]


def test_each_batch_is_a_transaction_of_its_query_also_after_a_restart(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    query = run(sink(files.stream(spark), path, tmp_path / "checkpoint", partitionBy="day", compression="zstd"))
    assert query.lastProgress
    assert apps(path) == [(str(query.id), batch) for batch in range(3)]
    assert ids(dbio.read(spark, path)) == list(range(30))
    assert dbio.Table(path).snapshot().partition_columns == ("day",)
    assert all(name.endswith(".zstd.parquet") for name in data_files(path))
    files.add([])  # an empty batch leaves nothing
    files.add([30, 31])
    before = len(objects(path))
    again = run(sink(files.stream(spark), path, tmp_path / "checkpoint", partitionBy="DAY"))
    assert again.id == query.id
    assert apps(path)[3:] == [(str(query.id), 4)]
    assert len(objects(path)) == before + 5  # start marker, turn, commit marker, a file in each partition
    assert ids(dbio.read(spark, path)) == list(range(32))
    report = dbio.Table(path).check()
    assert report.ok
    assert not report.pending


@pytest.mark.long
def test_a_failed_task_ends_the_query_and_a_restart_makes_the_batch_again(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.touch()

    @f.udf("bigint")
    def fragile(id):  # type: ignore[no-untyped-def]  # Spark takes hints for orders
        if id == 19 and broken.exists():
            raise ValueError("no further")
        return id

    def stream() -> DataFrame:
        return files.stream(spark).repartition(2).withColumn("id", fragile("id"))

    with pytest.raises(StreamingQueryException, match="no further"):
        run(sink(stream(), path, tmp_path / "checkpoint"))
    assert ids(dbio.read(spark, path)) == list(range(10))
    broken.unlink()
    query = run(sink(stream(), path, tmp_path / "checkpoint"))
    assert ids(dbio.read(spark, path)) == list(range(30))
    assert apps(path) == [(str(query.id), batch) for batch in range(3)]
    assert not dbio.Table(path).check().pending


def test_complete_mode_replaces_the_table_with_each_batch_and_update_mode_is_refused(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    counts = files.stream(spark).groupBy("day").count()
    query = run(sink(counts, path, tmp_path / "checkpoint", "complete"))
    assert rows(dbio.read(spark, path)) == ["Row(day='d0', count=15)", "Row(day='d1', count=15)"]
    history = dbio.Table(path).history()
    assert {commit.operation for commit in history} == {"overwrite"}
    assert apps(path) == [(str(query.id), batch) for batch in range(3)]
    finish(dbio.write_stream(counts, path, tmp_path / "other", "complete", app_id="counts", trigger=ALL))
    assert rows(dbio.read(spark, path)) == ["Row(day='d0', count=15)", "Row(day='d1', count=15)"]
    with pytest.raises(SPARK_ERRORS, match=r"(?i)update"):
        run(sink(counts, path, tmp_path / "update", "update"))


@pytest.mark.long
def test_a_copied_and_a_deleted_checkpoint_do_what_the_documents_say(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    """A copy is the same query, which finds its batches there. Without its checkpoint a query is another, unless
    `txnAppId` says that it is the same: then the batches are those that have the same numbers."""

    def write(checkpoint: str, **options: str) -> None:
        run(sink(files.stream(spark), path, tmp_path / checkpoint, **options))

    write("first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    files.add([30])
    write("first")
    write("copy")
    assert ids(dbio.read(spark, path)) == list(range(31))
    write("deleted")
    assert Counter(ids(dbio.read(spark, path))) == Counter([*range(31), *range(31)])
    path = f"{path}-named"
    write("one", txnAppId="mine")
    write("two", txnAppId="mine")
    assert ids(dbio.read(spark, path)) == list(range(31))
    assert apps(path) == [("mine", batch) for batch in range(4)]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"compresion": "zstd"}, "no option compresion here; it knows checkpointlocation, compression"),
        ({"mergeSchema": "yes"}, "option mergeSchema is 'yes'"),
        ({"partitionBy": "hour"}, "partition column 'hour' is none of the columns"),
    ],
)
def test_an_option_that_means_nothing_ends_the_query_and_nothing_is_written(
    spark: SparkSession, files: Files, path: str, tmp_path: Path, options: dict[str, str], named: str
) -> None:
    with pytest.raises(SPARK_ERRORS, match=named):
        run(sink(files.stream(spark), path, tmp_path / "checkpoint", **options))
    assert not Path(path).exists()


@pytest.mark.long
def test_columns_that_come_later_need_merge_schema(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    run(sink(files.stream(spark), path, tmp_path / "checkpoint"))
    files.add([30])
    wider = files.stream(spark).withColumn("new", f.lit(1))
    with pytest.raises(StreamingQueryException, match="new is not in the table"):
        run(sink(wider, path, tmp_path / "checkpoint"))
    assert ids(dbio.read(spark, path)) == list(range(30))
    run(sink(wider, path, tmp_path / "checkpoint", mergeSchema="true"))
    assert ids(dbio.read(spark, path).where("new = 1")) == [30]


ODD = "CASE id % 4 WHEN 0 THEN 'a b+c' WHEN 1 THEN '100%=/x' WHEN 2 THEN 'übergröße 雪' END"

WIDE = (
    "id",
    f"{ODD} AS `odd day`",
    "CAST(id AS decimal(18, 2)) / 4 AS amount",
    "CAST(id AS decimal(38, 10)) AS large",
    "IF(id % 3 = 0, NULL, array(named_struct('x', timestamp'2026-01-01 01:00:00', 'y', map('k', id)))) AS nested",
    "repeat('wide', CAST(id % 7 AS int) * 100000) AS `a.b c`",
)


def test_write_stream_writes_all_that_write_writes_and_gives_the_settings_back(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    """Wide rows, decimals and nested columns go the way that is fast, which must not be seen."""
    expected = numbers(spark, 0, 30).selectExpr(*WIDE)
    with configured(spark, {_RECORDS: "777"}):
        before = spark.conf.get(_BYTES)
        query = dbio.write_stream(
            files.stream(spark).selectExpr(*WIDE),
            path,
            tmp_path / "checkpoint",
            app_id="wide",
            trigger=ALL,
            name="wide",
            max_records_per_file=5,
            message="hourly",
            labels={"team": "sales"},
        )
        assert (spark.conf.get(_BYTES), spark.conf.get(_RECORDS)) == (before, "777")
        assert query.name == "wide"
        finish(query)
    read = dbio.read(spark, path)
    assert read.schema.simpleString() == expected.schema.simpleString()
    assert rows(read) == rows(expected)
    assert apps(path) == [("wide", batch) for batch in range(3)]
    history = dbio.Table(path).history()
    assert all(file.rows and file.rows <= 5 for commit in history for file in commit.files)
    said = {(it.message, it.labels["team"], it.provenance and it.provenance.spark_application) for it in history}
    assert said == {("hourly", "sales", spark.sparkContext.applicationId)}


@pytest.mark.long
def test_odd_partitions_come_back(spark: SparkSession, files: Files, path: str, tmp_path: Path) -> None:
    columns = "id", f"{ODD} AS `the day`", "timestamp'2026-03-29 01:30:00' AS at", "decimal(id % 2) AS half"
    partitions = ["the day", "at", "half"]
    finish(
        dbio.write_stream(
            files.stream(spark).selectExpr(*columns),
            f"{path} x=1 %41+ü",
            tmp_path / "checkpoint",
            partition_by=partitions,
            trigger=ALL,
        )
    )
    run(sink(files.stream(spark).selectExpr(*columns), path, tmp_path / "plain", partitionBy="the day, at,half"))
    expected = rows(numbers(spark, 0, 30).selectExpr(*columns))
    for written in (f"{path} x=1 %41+ü", path):
        assert rows(dbio.read(spark, written)) == expected
        assert dbio.Table(written).snapshot().partition_columns == tuple(partitions)


def test_batch_writer_commits_each_batch_of_foreach_batch_once(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    write = dbio.batch_writer(path, "each", partition_by="day", compression="zstd")

    def twice(batch: DataFrame, number: int) -> None:
        write(batch, number)
        write(batch, number)  # as after a crash before Spark's own commit

    writer = files.stream(spark).writeStream.foreachBatch(twice)
    run(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    assert ids(dbio.read(spark, path)) == list(range(30))
    assert apps(path) == [("each", batch) for batch in range(3)]
    assert {name.partition("/")[0] for name in data_files(path)} == {"day=d0", "day=d1"}


@pytest.mark.long
def test_two_queries_with_checkpoints_of_their_own_write_to_one_table_at_once(
    spark: SparkSession, files: Files, path: str, tmp_path: Path
) -> None:
    others = Files(tmp_path / "others")
    for start in (100, 110, 120):
        others.add(range(start, start + 10))
    dbio.Table(path).begin(partition_by=["day"]).abort()  # both would create it
    queries = [
        dbio.write_stream(files.stream(spark), path, tmp_path / "1", trigger=ALL),
        sink(others.stream(spark), path, tmp_path / "2").trigger(**ALL).start(),
    ]
    for query in queries:
        finish(query)
    assert ids(dbio.read(spark, path)) == [*range(30), *range(100, 130)]
    assert Counter(id for id, _ in apps(path)) == {str(query.id): 3 for query in queries}


@pytest.mark.long
@needs_source
@pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")
def test_a_stream_goes_to_a_bucket_and_from_it(
    spark: SparkSession, files: Files, s3_root: Root, tmp_path: Path
) -> None:
    url, options = s3_root
    finish(
        dbio.write_stream(
            files.stream(spark), url, tmp_path / "sink", partition_by="day", trigger=ALL, storage_options=options
        )
    )
    assert ids(dbio.read(spark, url, storage_options=options)) == list(range(30))
    seen: list[tuple[int, list[int]]] = []
    finish(
        dbio.for_each_batch(
            spark,
            url,
            lambda batch, number: seen.append((number, ids(batch))),
            tmp_path / "source",
            max_files=2,
            trigger=ALL,
            storage_options=options,
        )
    )
    assert sorted(id for _, found in seen for id in found) == list(range(30))
    assert [number for number, _ in seen] == [0, 1, 2]
    assert len(rows(dbio.changes(spark, url, "2020-01-01T00:00:00Z", storage_options=options))) == 30


def test_spark_before_4_1_is_told_so_before_a_query_starts(
    spark: SparkSession, files: Files, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "HAS_STREAM_SINKS", False)
    with pytest.raises(dbio.UnsupportedStoreError, match=r"4\.1 or later.*foreachBatch\(dbio\.batch_writer"):
        dbio.write_stream(files.stream(spark), path, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()
