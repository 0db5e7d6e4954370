"""`dbio.enable(spark, parquet=True)`: what `df.write.parquet`, INSERT and CREATE TABLE AS commit, and what they refuse.

Other sessions, threads and clusters are in test_committer_sessions.py, killed jobs in test_processes_killed.py.
"""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.spark.committer import writes
from tests.spark_tables import SPARK_ERRORS, configured, data_files, ids, numbers, objects


@pytest.fixture
def lake(enabled: SparkSession, tmp_path: Path) -> str:
    """A directory in which everything that is written as Parquet is a table."""
    root = tmp_path / "lake"
    dbio.enable(enabled, parquet=True, roots=[root])
    return str(root)


@pytest.fixture
def path(lake: str) -> str:
    return f"{lake}/table"


@pytest.fixture
def catalog(spark: SparkSession, path: str) -> Iterator[str]:
    """A table of the catalog over a table of ours with the columns id and day, partitioned by day; without rows."""
    dbio.write(numbers(spark, 0, 0), path, partition_by="day")
    spark.sql(f"CREATE TABLE over_ours (id bigint, day string) USING parquet PARTITIONED BY (day) LOCATION '{path}'")
    yield "over_ours"
    spark.sql("DROP TABLE over_ours")


def operations(path: str) -> list[str]:
    """Oldest first."""
    return [commit.operation for commit in reversed(dbio.Table(path).history())]


def days(spark: SparkSession, path: str) -> list[tuple[str | None, int]]:
    return sorted(((row.day, row.id) for row in dbio.read(spark, path).collect()), key=str)


# --- df.write.parquet ---------------------------------------------------------------------------------------------


def test_a_first_write_makes_a_table_and_leaves_nothing_but_its_files_and_markers(
    spark: SparkSession, path: str
) -> None:
    numbers(spark, 0, 4).write.partitionBy("day").parquet(path)
    (commit,) = dbio.Table(path).history()
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]
    assert {file for file in objects(path) if not file.endswith(".crc")} == {
        *commit.added,
        names.DESCRIPTOR,
        names.started(commit.tid),
        names.committed(commit.tid),
        names.turn(1),  # that nobody else makes the table meanwhile
    }


def test_what_executors_wrote_to_a_disk_of_their_own_is_not_committed(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files go as soon as the tasks have told of them, from all but the executors' view."""
    dbio.write(numbers(spark, 0, 4), path)
    take = writes._file_info

    def lose(line: str, write: writes.Write) -> FileInfo:
        file = take(line, write)
        os.unlink(f"{path}/{file.path}")
        return file

    monkeypatch.setattr(writes, "_file_info", lose)
    with pytest.raises(dbio.UnsupportedStoreError, match="the executors' disk is not the driver's"):
        numbers(spark, 4, 8).write.mode("append").parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]
    assert not dbio.Table(path).check().pending


def test_files_have_the_names_that_our_own_tasks_give(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 4).write.parquet(path)
    commit = dbio.Table(path).history()[0]
    job = commit.added[0].split(f"tid-{commit.tid}-")[1][:36]
    for number, file in enumerate(sorted(commit.added)):
        attempt = int(file.removesuffix("-0-c000.snappy.parquet").rpartition("-")[2])
        assert file == names.format_data_file(
            tid=commit.tid, job=job, task=number, attempt=attempt, number=0, suffix=".snappy.parquet"
        )


def test_what_is_recorded_is_what_our_own_write_records(spark: SparkSession, path: str, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT id, concat('d', id % 2) AS day, CAST(id AS decimal(9,2)) AS price, DATE'2026-11-20' + int(id) AS date,"
        " timestamp_micros(id) AS at, IF(id = 3, NULL, 'x') AS text, id > 2 AS big FROM range(8)"
    ).coalesce(1)
    frame.write.partitionBy("day").parquet(path)
    dbio.write(frame, tmp_path / "other", partition_by="day")
    native, ours = (dbio.Table(it).history()[0].marker.dbio_commit for it in (path, tmp_path / "other"))
    assert native is not None
    assert ours is not None
    assert native.files is not None
    assert ours.files is not None
    assert (native.operation, native.table_schema) == (ours.operation, ours.table_schema)
    assert {**native.metrics, "numOutputBytes": 0, "jobCommitTime": 0} == {
        **ours.metrics, "numOutputBytes": 0, "jobCommitTime": 0,
    }  # fmt: skip
    assert native.files.partition == ours.files.partition
    assert native.files.statistics == ours.files.statistics


def test_append_adds_and_overwrite_replaces(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 2).write.parquet(path)
    numbers(spark, 2, 4).write.mode("append").parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]
    first = set(data_files(path))
    numbers(spark, 9, 10).write.mode("overwrite").parquet(path)
    assert ids(dbio.read(spark, path)) == [9]
    assert first <= data_files(path), "an overwrite deletes nothing"
    assert operations(path) == ["append", "append", "overwrite"]


def test_the_default_mode_refuses_what_is_there_and_ignore_leaves_it(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 2).write.parquet(path)
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        numbers(spark, 2, 4).write.parquet(path)
    numbers(spark, 2, 4).write.mode("ignore").parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1]
    assert operations(path) == ["append"]


def test_an_overwrite_may_read_what_it_replaces(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 6).write.parquet(path)
    dbio.read(spark, path).where("id > 3").write.mode("overwrite").parquet(path)
    assert ids(dbio.read(spark, path)) == [4, 5]


@pytest.mark.parametrize("partitions", [[], ["day"]])
def test_an_overwrite_that_reads_what_it_replaces_undoes_no_commit_of_others(
    spark: SparkSession, path: str, partitions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 4), path, partition_by=partitions)
    inner = writes.commit

    def commit(write: writes.Write, lines: Any) -> None:
        dbio.Table(path).write(pa.table({"id": [9], "day": ["d1"]}))
        inner(write, lines)

    monkeypatch.setattr(writes, "commit", commit)
    with pytest.raises(dbio.CommitConflictError, match="make the DataFrame again"):
        dbio.read(spark, path).where("id > 1").write.mode("overwrite").partitionBy(*partitions).parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3, 9]


def test_a_dynamic_overwrite_replaces_the_partitions_that_it_writes_to(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 4).write.partitionBy("day").parquet(path)
    writer = numbers(spark, 11, 12).write.mode("overwrite").partitionBy("day")
    writer.option("partitionOverwriteMode", "dynamic").parquet(path)
    assert days(spark, path) == [("d0", 0), ("d0", 2), ("d1", 11)]
    assert operations(path) == ["append", "overwrite_partitions"]


def test_nothing_to_write_commits_no_file(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 0).write.parquet(path)
    assert dbio.Table(path).snapshot().files == ()
    assert dbio.read(spark, path).columns == ["id", "day"]
    assert {file for file in data_files(path) if not file.endswith(".crc")} == set()


def test_options_of_the_writer_hold(spark: SparkSession, path: str) -> None:
    frame = spark.range(0, 100, 1, 1)
    frame.write.option("maxRecordsPerFile", 30).option("compression", "zstd").parquet(path)
    files = [file.path for file in dbio.Table(path).snapshot().files]
    assert len(files) == 4
    assert all(file.endswith("-c000.zstd.parquet") for file in files)
    assert pq.read_metadata(f"{path}/{files[0]}").row_group(0).column(0).compression == "ZSTD"


def test_null_and_odd_partition_values_are_read_back(spark: SparkSession, path: str) -> None:
    texts = ["a b", "a%b", "ä/ö", "x=y", "2026-11-20 10:00:00", None]
    frame = spark.createDataFrame(list(enumerate(texts)), "id bigint, day string")
    frame.write.partitionBy("day").parquet(path)
    assert {row.day for row in dbio.read(spark, path).collect()} == set(texts)
    assert len(dbio.Table(path).snapshot().files) == len(texts)


def test_new_columns_come_with_merge_schema(spark: SparkSession, path: str) -> None:
    spark.range(2).write.parquet(path)
    wider = spark.range(2, 4).selectExpr("id", "'x' AS text")
    with pytest.raises(dbio.SchemaMismatchError, match="text"):
        wider.write.mode("append").parquet(path)
    wider.write.mode("append").option("mergeSchema", "true").parquet(path)
    assert sorted((row.id, row.text) for row in dbio.read(spark, path).collect()) == [
        (0, None), (1, None), (2, "x"), (3, "x"),
    ]  # fmt: skip


def test_a_version_of_an_application_is_committed_once(spark: SparkSession, path: str) -> None:
    for _ in range(2):
        writer = spark.range(3).write.mode("append")
        writer.option("txnAppId", "nightly").option("txnVersion", 7).parquet(path)
    with configured(spark, {"spark.dbio.app": "nightly:7"}):
        spark.range(3).write.mode("append").parquet(path)
    for number, app in enumerate(
        ("nightly:8", "by:day:2026-11-20", "by:day:2026-11-19", "by:hour:2026-11-19T13:00:00", "of 2026-11-19:7")
    ):
        with configured(spark, {"spark.dbio.app": app}):
            spark.range(8 + number, 9 + number).write.mode("append").parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 8, 9, 10, 11, 12]
    apps = [("nightly", 7), ("nightly", 8), ("by:day", 20261120), ("by:day", 20261119), ("by:hour", 20261119130000)]
    apps.append(("of 2026-11-19", 7))
    assert [commit.app for commit in reversed(dbio.Table(path).history())] == apps
    assert not dbio.Table(path).check().pending


def test_statistics_prune_as_those_of_our_own_write(spark: SparkSession, path: str) -> None:
    spark.range(0, 100, 1, 4).write.parquet(path)
    assert len(dbio.Table(path).snapshot().where("id < 10").files) == 1


def test_timestamps_have_the_type_that_readers_can_skip_by(spark: SparkSession, path: str) -> None:
    spark.sql("SELECT TIMESTAMP'2026-11-20 10:00:00' AS at").write.parquet(path)
    (file,) = dbio.Table(path).snapshot().files
    assert pq.read_schema(f"{path}/{file.path}").field("at").type.unit == "us"
    assert dbio.Table(path).snapshot().to_pandas()["at"][0].replace(tzinfo=None) == datetime(2026, 11, 20, 10)


# --- SQL and the catalog ------------------------------------------------------------------------------------------


def test_insert_into_appends(spark: SparkSession, path: str, catalog: str) -> None:
    spark.sql(f"INSERT INTO {catalog} VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"INSERT INTO {catalog} PARTITION (day = 'c') SELECT 3")
    numbers(spark, 4, 5).write.insertInto(catalog)
    assert days(spark, path) == [("a", 1), ("b", 2), ("c", 3), ("d0", 4)]
    assert operations(path) == ["append"] * 4


def test_insert_overwrite_replaces_all_or_the_partition_that_is_named(
    spark: SparkSession, path: str, catalog: str
) -> None:
    spark.sql(f"INSERT INTO {catalog} VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"INSERT OVERWRITE {catalog} PARTITION (day = 'a') SELECT 9")
    assert days(spark, path) == [("a", 9), ("b", 2)]
    spark.sql(f"INSERT OVERWRITE {catalog} PARTITION (day = 'b') SELECT id FROM range(0)")
    assert days(spark, path) == [("a", 9)]
    spark.sql(f"INSERT OVERWRITE {catalog} VALUES (3, 'c')")
    assert days(spark, path) == [("c", 3)]
    assert operations(path) == ["append", "append", "overwrite_partitions", "overwrite_partitions", "overwrite"]


def test_insert_overwrite_with_dynamic_partitions_replaces_those_that_it_writes_to(
    spark: SparkSession, path: str, catalog: str
) -> None:
    spark.sql(f"INSERT INTO {catalog} VALUES (1, 'a'), (2, 'b')")
    with configured(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        spark.sql(f"INSERT OVERWRITE {catalog} VALUES (3, 'b'), (4, 'c')")
    assert days(spark, path) == [("a", 1), ("b", 3), ("c", 4)]


def test_a_static_and_a_dynamic_partition_column_replace_what_both_name(spark: SparkSession, path: str) -> None:
    columns = "id bigint, year int, day string"
    rows = [(1, 2025, "a"), (2, 2026, "a"), (3, 2026, "b")]
    spark.createDataFrame(rows, columns).write.partitionBy("year", "day").parquet(path)
    spark.sql(f"CREATE TABLE two ({columns}) USING parquet PARTITIONED BY (year, day) LOCATION '{path}'")
    try:
        with configured(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
            spark.sql("INSERT OVERWRITE two PARTITION (year = 2026, day) VALUES (7, 'b')")
        assert ids(dbio.read(spark, path)) == [1, 2, 7]
        spark.sql("INSERT OVERWRITE two PARTITION (year = 2026, day) VALUES (8, 'c')")
        assert ids(dbio.read(spark, path)) == [1, 8]
    finally:
        spark.sql("DROP TABLE two")


def test_create_table_as_select_is_a_transaction(spark: SparkSession, path: str) -> None:
    spark.sql(
        f"CREATE TABLE made USING parquet PARTITIONED BY (day) LOCATION '{path}' AS SELECT id, 'x' AS day FROM range(3)"
    )
    try:
        assert days(spark, path) == [("x", 0), ("x", 1), ("x", 2)]
        assert operations(path) == ["overwrite"], "as Spark plans it"
    finally:
        spark.sql("DROP TABLE made")


def test_save_as_table_is_a_transaction_on_an_external_table(spark: SparkSession, path: str) -> None:
    writer = numbers(spark, 0, 2).write.partitionBy("day").option("path", path)
    try:
        writer.saveAsTable("saved")
        numbers(spark, 2, 4).write.mode("append").partitionBy("day").saveAsTable("saved")
        assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]
        assert operations(path) == ["overwrite", "append"]
    finally:
        spark.sql("DROP TABLE IF EXISTS saved")


def test_buckets_are_in_the_names_where_spark_looks_for_them(spark: SparkSession, path: str) -> None:
    try:
        spark.range(0, 20, 1, 1).write.bucketBy(3, "id").option("path", path).saveAsTable("bucketed")
        found = {file.path.rpartition("-c000")[2] for file in dbio.Table(path).snapshot().files}
        assert found == {f"_0000{i}.snappy.parquet" for i in range(3)}
        assert ids(dbio.read(spark, path)) == list(range(20))
    finally:
        spark.sql("DROP TABLE IF EXISTS bucketed")


# --- what is refused ----------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[DataFrame, str], Any], type[dbio.DbioError], str]] = {
    "without the partition columns": (
        lambda frame, path: frame.write.mode("append").parquet(path), dbio.SchemaMismatchError, r"partitionBy\('day'\)",
    ),
    "by other partition columns": (
        lambda frame, path: frame.write.mode("append").partitionBy("id").parquet(path),
        dbio.SchemaMismatchError, "partitioned by .* write with these columns, in this order",
    ),
    "with a narrower type": (
        lambda frame, path: frame.selectExpr("int(id) AS id", "day")
        .write.mode("append").partitionBy("day").parquet(path),
        dbio.SchemaMismatchError, "id bigint",
    ),
    "with another spelling": (
        lambda frame, path: frame.toDF("ID", "day").write.mode("append").partitionBy("day").parquet(path),
        dbio.SchemaMismatchError, "Rename",
    ),
    "with another type": (
        lambda frame, path: frame.selectExpr("'x' AS id", "day").write.mode("append").partitionBy("day").parquet(path),
        dbio.SchemaMismatchError, "id",
    ),
    "a variant": (
        lambda frame, path: frame.selectExpr("parse_json('1') AS v", "day")
        .write.mode("overwrite").partitionBy("day").parquet(path),
        dbio.InvalidInputError, "has a variant",
    ),
    "as CSV": (
        lambda frame, path: frame.write.mode("append").partitionBy("day").csv(path), dbio.InvalidInputError, "csv",
    ),
    "as JSON": (
        lambda frame, path: frame.write.mode("append").json(path), dbio.InvalidInputError, "json",
    ),
    "into a partition": (
        lambda frame, path: frame.select("id").write.mode("append").parquet(f"{path}/day=d1"),
        dbio.InvalidInputError, "partition of the table",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_write_is_refused(spark: SparkSession, path: str, what: str) -> None:
    numbers(spark, 0, 2).write.partitionBy("day").parquet(path)
    before = objects(path)
    write, error, words = REFUSED[what]
    with pytest.raises(error, match=words):
        write(numbers(spark, 2, 4), path)
    assert objects(path) == before, "a refused write leaves nothing"


def test_timestamps_as_partitions_are_refused_in_a_session_of_another_zone(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT 1 AS id, TIMESTAMP'2026-11-20 10:00:00' AS at")
    with (
        configured(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}),
        pytest.raises(dbio.InvalidInputError, match=r"timeZone to UTC"),
    ):
        frame.write.partitionBy("at").parquet(path)
    frame.write.partitionBy("at").parquet(path)
    assert os.listdir(path).count("at=2026-11-20 10%3A00%3A00") == 1


def test_legacy_dates_are_refused(spark: SparkSession, path: str) -> None:
    with (
        configured(spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}),
        pytest.raises(dbio.InvalidInputError, match="LEGACY"),
    ):
        spark.range(1).write.parquet(path)


@pytest.mark.parametrize("setting", ["nightly", "nightly:x", "nightly:-1", "nightly:2026-11-31", "nightly:2026-11-20T"])
def test_an_impossible_application_is_refused(spark: SparkSession, path: str, setting: str) -> None:
    with configured(spark, {"spark.dbio.app": setting}), pytest.raises(dbio.InvalidInputError, match="nightly"):
        spark.range(1).write.parquet(path)


def test_a_directory_without_a_descriptor_is_not_written_to_unasked(spark: SparkSession, path: str) -> None:
    Path(path).mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([0, 1], pa.int64())}), f"{path}/part-0.parquet")
    with pytest.raises(dbio.UnsupportedTableError, match="dbio adopt"):
        spark.range(2, 4).write.mode("append").parquet(path)
    dbio.Table(path).adopt()
    spark.range(2, 4).write.mode("append").parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]


# --- what is not ours ---------------------------------------------------------------------------------------------


def test_writes_elsewhere_are_spark_own(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    for number, kind in enumerate(("parquet", "csv", "json", "orc")):
        place = tmp_path / f"elsewhere{number}"
        modes = ("append", "overwrite", "append") if kind == "parquet" else ("append",)
        for mode in modes:
            numbers(spark, 0, 4).write.mode(mode).partitionBy("day").format(kind).save(str(place))
        assert "_SUCCESS" in os.listdir(place)
        assert not any("tid" in file or "_committed" in file for file in objects(place))
        assert spark.read.format(kind).load(str(place)).count() == (8 if kind == "parquet" else 4)


def test_a_table_outside_of_the_roots_is_ours(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    dbio.write(spark.range(2), tmp_path / "table")
    spark.range(2, 4).write.mode("append").parquet(str(tmp_path / "table"))
    assert ids(dbio.read(spark, tmp_path / "table")) == [0, 1, 2, 3]


def test_a_place_whose_name_begins_like_a_root_is_not_below_it(spark: SparkSession, lake: str) -> None:
    spark.range(2).write.parquet(f"{lake}side/table")
    assert names.DESCRIPTOR not in os.listdir(f"{lake}side/table")


def test_a_jvm_that_nobody_answers_refuses_tables_and_lets_all_else_be(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    spark.range(2).write.parquet(path)
    assert spark._jvm is not None
    properties: Any = spark._jvm.java.lang.System.getProperties()
    handler = properties.remove("dbio_commit.handler")
    try:
        with pytest.raises(dbio.UnsupportedStoreError, match="no Python of this driver"):
            spark.range(2).write.mode("append").parquet(path)
        spark.range(2).write.parquet(str(tmp_path / "elsewhere"))
    finally:
        properties.put("dbio_commit.handler", handler)
    assert ids(dbio.read(spark, path)) == [0, 1]


# --- failures -----------------------------------------------------------------------------------------------------


def failing_with(error: Exception) -> Callable[..., None]:
    def failing(*args: object, **kwargs: object) -> None:
        raise error

    return failing


def test_a_job_that_fails_commits_nothing_and_leaves_nothing_pending(spark: SparkSession, path: str) -> None:
    spark.range(2).write.parquet(path)
    with pytest.raises(SPARK_ERRORS):
        spark.sql("SELECT assert_true(id < 9) IS NULL AS a, id FROM range(0, 10, 1, 2)").write.mode(
            "overwrite"
        ).parquet(path)
    assert ids(dbio.read(spark, path)) == [0, 1]
    assert not dbio.Table(path).check().pending


def test_a_commit_that_fails_raises_our_error_and_commits_nothing(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(2).write.parquet(path)
    lost = dbio.CommitConflictError("somebody else won; begin again")
    monkeypatch.setattr("dbio_commit.commit.transaction.Transaction.commit", failing_with(lost))
    with pytest.raises(dbio.CommitConflictError, match="somebody else won"):
        spark.range(2, 4).write.mode("append").parquet(path)
    monkeypatch.undo()
    assert ids(dbio.read(spark, path)) == [0, 1]
    assert not dbio.Table(path).check().pending


def test_where_neither_commit_nor_abort_is_answered_the_error_of_the_commit_is_raised(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(2).write.parquet(path)
    unknown = dbio.CommitStateUnknownError("look for the tid first")
    monkeypatch.setattr("dbio_commit.commit.transaction.Transaction.commit", failing_with(unknown))
    monkeypatch.setattr("dbio_commit.commit.transaction.Transaction.abort", failing_with(dbio.StoreError("away")))
    with pytest.raises(dbio.CommitStateUnknownError, match="look for the tid"):
        spark.range(2, 4).write.mode("append").parquet(path)


def test_an_error_that_is_none_of_ours_is_said_with_its_kind(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.spark.committer.writes.begin", failing_with(KeyError("lost")))
    with pytest.raises(SPARK_ERRORS, match="KeyError"):
        spark.range(2).write.parquet(path)
