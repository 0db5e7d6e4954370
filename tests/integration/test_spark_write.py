"""`dbio.write` on a local disk: its modes and options, what a commit records, writers at once, DBIO's directories.

Columns and types are in test_spark_schema.py, failures in test_spark_failures.py.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.commit.transaction import Transaction
from dbio_commit.store import open_store
from tests.spark_tables import data_files, ids, numbers, objects

BYTES, RECORDS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def assert_nothing_committed(path: str) -> None:
    """Other tasks' files may lie there for vacuum, but their transaction is decided and no reader sees them."""
    assert dbio.Table(path).snapshot().files == ()
    assert not dbio.Table(path).check().pending


# --- modes --------------------------------------------------------------------------------------------------------


def test_append_adds_to_what_is_there(spark: SparkSession, path: str) -> None:
    first = dbio.write(numbers(spark, 0, 4), path)
    second = dbio.write(numbers(spark, 4, 6), path, mode="append")
    assert ids(dbio.read(spark, path)) == list(range(6))
    assert dbio.Table(path).snapshot().tids == (first.tid, second.tid)
    assert (second.operation, second.removed, second.skipped) == ("append", [], False)


@pytest.mark.parametrize("kind", ["write", "update", "merge", "delete"])
def test_on_the_driver_a_write_opens_one_store_and_builds_one_transaction(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:  # those of tasks: tests/unit/spark/write/test_plan.py
    dbio.write(numbers(spark, 0, 4), path)
    calls: list[str] = []
    begin = Transaction.__init__

    def count_open(*args: Any) -> Any:
        calls.append("store")
        return open_store(*args)

    def count_begin(*args: Any, **options: Any) -> None:
        calls.append("transaction")
        begin(*args, **options)

    monkeypatch.setattr("dbio_commit.table.open_store", count_open)
    monkeypatch.setattr(Transaction, "__init__", count_begin)
    {
        "write": lambda: dbio.write(numbers(spark, 4, 6), path),
        "update": lambda: dbio.update(spark, path, {"day": "'d3'"}, "id = 1"),
        "merge": lambda: dbio.merge(spark, path, numbers(spark, 3, 6), ["id"]),
        "delete": lambda: dbio.delete(spark, path, "id = 1"),
    }[kind]()
    assert calls == ["store", "transaction"]


def test_overwrite_replaces_everything_and_deletes_nothing(spark: SparkSession, path: str) -> None:
    first = dbio.write(numbers(spark, 0, 4), path)
    second = dbio.write(numbers(spark, 10, 12), path, mode="overwrite")
    assert ids(dbio.read(spark, path)) == [10, 11]
    assert set(second.removed) == set(first.added) <= data_files(path)


def test_overwrite_of_partitions_replaces_those_that_the_data_falls_into(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 6), path, partition_by="day")
    commit = dbio.write(numbers(spark, 10, 20).where("day = 'd1'"), path, mode="overwrite_partitions")
    assert ids(dbio.read(spark, path)) == [0, 2, 4, 11, 13, 15, 17, 19]
    assert commit.operation == "overwrite_partitions"
    assert all(removed.startswith("day=d1/") for removed in commit.removed)


def test_overwrite_of_partitions_without_rows_replaces_nothing(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 6), path, partition_by="day")
    dbio.write(numbers(spark, 0, 0), path, mode="overwrite_partitions")
    assert ids(dbio.read(spark, path)) == list(range(6))


def test_mode_error_writes_a_new_table_and_refuses_one_that_is_there(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2), path, mode="error")
    before = objects(path)
    with pytest.raises(dbio.TableExistsError, match="table"):
        dbio.write(numbers(spark, 2, 4), path, mode="error")
    assert objects(path) == before
    assert ids(dbio.read(spark, path)) == [0, 1]


def test_mode_ignore_writes_a_new_table_and_leaves_one_that_is_there(spark: SparkSession, path: str) -> None:
    first = dbio.write(numbers(spark, 0, 2), path, mode="ignore")
    before = objects(path)
    second = dbio.write(numbers(spark, 2, 4), path, mode="ignore")
    assert (first.skipped, second.skipped, second.tid) == (False, True, first.tid)
    assert objects(path) == before


def test_modes_error_and_ignore_take_plain_parquet_for_a_table(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 2).write.parquet(path)
    before = objects(path)
    with pytest.raises(dbio.TableExistsError):
        dbio.write(numbers(spark, 2, 4), path, mode="error")
    assert dbio.write(numbers(spark, 2, 4), path, mode="ignore").skipped
    assert objects(path) == before


def test_a_table_can_be_overwritten_with_what_is_read_from_it(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 6), path, partition_by="day")
    dbio.write(dbio.read(spark, path).where("id > 2"), path, mode="overwrite")
    assert ids(dbio.read(spark, path)) == [3, 4, 5]


def test_a_version_of_an_application_is_committed_at_most_once(spark: SparkSession, path: str) -> None:  # I8
    first = dbio.write(numbers(spark, 0, 2), path, app=("job", 7))
    again = dbio.write(numbers(spark, 2, 4), path, app=("job", 7))
    with pytest.raises(dbio.AppVersionError, match="never committed"):
        dbio.write(numbers(spark, 2, 4), path, mode="overwrite", app=("job", 6))
    other = dbio.write(numbers(spark, 4, 6), path, app=("other", 7))
    assert (first.skipped, again.skipped, other.skipped) == (False, True, False)
    assert (again.tid, again.app) == (first.tid, ("job", 7))
    assert ids(dbio.read(spark, path)) == [0, 1, 4, 5]
    assert dbio.write(numbers(spark, 6, 8), path, app=("job", 8)).skipped is False


def test_a_day_that_was_missed_is_committed_after_later_ones_and_once(spark: SparkSession, path: str) -> None:  # I8
    for number, day in enumerate((18, 20, 19, 18, 19)):
        again = dbio.write(numbers(spark, number, number + 1), path, app=("nightly", date(2026, 11, day)))
        assert again.skipped == (number > 2)
    assert again.app == ("nightly", 20261119)
    assert ids(dbio.read(spark, path)) == [0, 1, 2]


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compression", "codec", "suffix"),
    [
        (None, "SNAPPY", ".snappy.parquet"),
        ("snappy", "SNAPPY", ".snappy.parquet"),
        ("zstd", "ZSTD", ".zstd.parquet"),
        ("gzip", "GZIP", ".gz.parquet"),
        ("none", "UNCOMPRESSED", "c000.parquet"),
    ],
)
def test_files_are_compressed_as_asked(
    spark: SparkSession, path: str, compression: Any, codec: str, suffix: str
) -> None:
    options = {"compression": compression} if compression else {}
    commit = dbio.write(numbers(spark, 0, 100), path, **options)
    for added in commit.added:
        assert added.endswith(suffix)
        assert pq.ParquetFile(Path(path, added)).metadata.row_group(0).column(0).compression == codec
    assert spark.read.parquet(path).count() == 100


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_no_file_has_more_records_than_asked(spark: SparkSession, path: str, partition_by: list[str]) -> None:
    commit = dbio.write(numbers(spark, 0, 50, tasks=1), path, partition_by=partition_by, max_records_per_file=7)
    sizes = sorted(file.rows or 0 for file in commit.files)
    assert sizes == ([1] + [7] * 7 if not partition_by else [4] * 2 + [7] * 6)
    assert sizes == sorted(pq.ParquetFile(Path(path, file)).metadata.num_rows for file in commit.added)
    assert ids(dbio.read(spark, path)) == list(range(50))


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"codec": "zstd"}, TypeError, "codec"),
        ({"compression": "lzo"}, dbio.InvalidInputError, "lzo.*snappy, zstd, gzip, none"),
        ({"compression": None}, dbio.InvalidInputError, "None"),
        ({"compression": ["snappy"]}, dbio.InvalidInputError, "snappy"),
        ({"max_records_per_file": -1}, dbio.InvalidInputError, "max_records_per_file.*-1"),
        ({"max_records_per_file": "10"}, dbio.InvalidInputError, "max_records_per_file.*'10'"),
        ({"max_records_per_file": 1.5}, dbio.InvalidInputError, r"max_records_per_file.*1\.5"),
        ({"max_records_per_file": True}, dbio.InvalidInputError, "max_records_per_file.*True"),
        ({"mode": "upsert"}, dbio.InvalidInputError, "upsert.*append"),
        ({"app": ("job", "7")}, dbio.InvalidInputError, "job|version"),
        ({"app": ("", 7)}, dbio.InvalidInputError, "application|app"),
        ({"app": "job"}, dbio.InvalidInputError, "job"),
        ({"partition_by": "hour"}, dbio.InvalidInputError, "hour"),
        ({"partition_by": ["day", "DAY"]}, dbio.InvalidInputError, "duplicate"),
        ({"partition_by": ["day", "id"]}, dbio.InvalidInputError, "no column is left"),
        ({"partition_by": [""]}, dbio.InvalidInputError, "partition column"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name_and_nothing_is_written(
    spark: SparkSession, path: str, options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        dbio.write(numbers(spark, 0, 2), path, **options)
    assert not Path(path).exists()


def test_storage_options_for_a_local_path_are_refused_without_their_values(spark: SparkSession, path: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match="key") as caught:
        dbio.write(numbers(spark, 0, 2), path, storage_options={"key": "hush-hush-hush"})
    assert "hush" not in str(caught.value)


# --- partitions ---------------------------------------------------------------------------------------------------


def test_partitions_become_directories_without_their_columns_in_the_files(spark: SparkSession, path: str) -> None:
    commit = dbio.write(numbers(spark, 0, 6).selectExpr("day AS Day", "id"), path, partition_by="dAY")
    assert {str(Path(added).parent) for added in commit.added} == {"Day=d0", "Day=d1"}
    assert pq.ParquetFile(Path(path, commit.added[0])).schema_arrow.names == ["id"]
    assert dbio.read(spark, path).columns == ["id", "Day"]
    assert dbio.Table(path).snapshot().partition_columns == ("Day",)


def test_later_writes_keep_the_partition_columns_of_the_table(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2), path, partition_by=["day"])
    for options in ({}, {"partition_by": ["DAY"]}, {"mode": "overwrite"}):
        commit = dbio.write(numbers(spark, 0, 2), path, **options)
        assert {added.split("=")[0] for added in commit.added} == {"day"}


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_other_partition_columns_than_the_tables_are_refused(spark: SparkSession, path: str, mode: Any) -> None:
    frame = numbers(spark, 0, 2).selectExpr("*", "1 AS hour")
    dbio.write(frame, path, partition_by=["day"])
    before = objects(path)
    for columns in (["hour"], ["day", "hour"], ["hour", "day"]):
        with pytest.raises(dbio.SchemaMismatchError, match=r"\['day'\]"):
            dbio.write(frame, path, mode=mode, partition_by=columns)
    assert objects(path) == before


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__", "a\0b"])
def test_a_value_that_no_directory_can_hold_fails_the_write(spark: SparkSession, path: str, value: str) -> None:
    frame = spark.createDataFrame([(1, "fine"), (2, value)], "id int, day string")
    with pytest.raises(dbio.InvalidInputError, match="'day'") as caught:
        dbio.write(frame, path, partition_by="day")
    assert "Traceback" not in str(caught.value)
    assert_nothing_committed(path)


def test_a_partition_directory_of_a_table_is_no_place_for_another(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2), path, partition_by=["day"])
    before = objects(path)
    with pytest.raises(dbio.InvalidInputError, match="is a partition of the table"):
        dbio.write(numbers(spark, 0, 2), f"{path}/day=d0")
    with pytest.raises(dbio.InvalidInputError, match="is a partition of the table"):
        dbio.read(spark, f"{path}/day=d0")
    assert objects(path) == before


# --- what a commit records ----------------------------------------------------------------------------------------

METRICS = {"numFiles", "numOutputBytes", "numOutputRows", "numParts", "jobCommitTime"}


def test_result_and_marker_carry_the_metrics_of_the_write(spark: SparkSession, path: str) -> None:
    result = dbio.write(numbers(spark, 0, 10), path, partition_by="day")
    sizes = {added: Path(path, added).stat().st_size for added in result.added}
    assert set(result.metrics) == METRICS
    assert result.metrics["numFiles"] == len(sizes) == 4
    assert result.metrics["numOutputBytes"] == sum(sizes.values())
    assert result.metrics["numOutputRows"] == 10
    assert result.metrics["numParts"] == 2
    (recorded,) = dbio.Table(path).history()
    assert {**recorded.metrics, "jobCommitTime": result.metrics["jobCommitTime"]} == result.metrics
    assert 0 <= recorded.metrics["jobCommitTime"] <= result.metrics["jobCommitTime"]  # which has the marker's PUT too
    body = json.loads(Path(path, f"_committed_{result.tid}").read_text())
    assert body["dbio_commit"]["metrics"] == recorded.metrics
    assert body["added"] == list(result.added)


def test_result_and_marker_carry_what_is_true_of_each_file(spark: SparkSession, path: str) -> None:
    frame = spark.sql(
        "SELECT id, IF(id % 3 = 0, NULL, cast(id * 1.5 AS decimal(10,2))) AS amount, "
        "IF(id < 5, NULL, concat('text ', id)) AS text, IF(id = 7, double('NaN'), id / 2) AS half, "
        "timestamp_micros(id * 1000001 + 1) AS at, date_from_unix_date(id) AS date, id % 2 = 0 AS even, "
        "array(id) AS list, concat('d', id % 2) AS day FROM range(0, 20, 1, 2)"
    )
    result = dbio.write(frame, path, partition_by="day")
    (recorded,) = dbio.Table(path).history()
    assert recorded.files == result.files
    for file in result.files:
        table = pq.ParquetFile(Path(path, file.path)).read()
        assert file.size == Path(path, file.path).stat().st_size
        assert file.rows == table.num_rows
        assert dict(file.partition) == {"day": file.path.split("/")[0].removeprefix("day=")}
        assert file.statistics is not None
        assert set(file.statistics) == set(table.column_names)
        for name, bounds in file.statistics.items():
            values = [value for value in table.column(name).to_pylist() if value is not None]
            assert bounds.nulls == table.num_rows - len(values)
            if name == "list" or (name == "half" and any(value != value for value in values)):
                assert bounds[:2] == (None, None)  # without an order that all readers share
            elif name == "amount":
                assert bounds[:2] == (str(min(values)), str(max(values)))
            elif name == "at":
                assert bounds[:2] == tuple(f"{value:%Y-%m-%dT%H:%M:%S.%f}Z" for value in (min(values), max(values)))
            elif name == "date":
                assert bounds[:2] == (min(values).isoformat(), max(values).isoformat())
            else:
                assert bounds[:2] == ((min(values), max(values)) if values else (None, None))


@pytest.mark.parametrize("partition_by", [[], ["day"]])
def test_an_empty_dataframe_commits_an_empty_transaction_with_its_schema(
    spark: SparkSession, path: str, partition_by: list[str]
) -> None:
    empty = numbers(spark, 0, 0)
    commit = dbio.write(empty, path, partition_by=partition_by)
    assert (list(commit.added), commit.metrics["numFiles"], commit.metrics["numOutputRows"]) == ([], 0, 0)
    assert dbio.Table(path).snapshot().tids == (commit.tid,)
    read = dbio.read(spark, path)
    assert read.dtypes == empty.dtypes
    assert read.collect() == []
    with pytest.raises(dbio.SchemaMismatchError):
        dbio.write(empty.selectExpr("day"), path)
    dbio.write(numbers(spark, 0, 3), path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2]


def test_an_overwrite_without_rows_empties_the_table(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 3), path, partition_by="day")
    dbio.write(numbers(spark, 0, 0), path, mode="overwrite")
    assert dbio.read(spark, path).collect() == []
    assert dbio.read(spark, path).columns == ["id", "day"]


# --- writers at once ----------------------------------------------------------------------------------------------


def at_once(count: int, write: Callable[[int], Any]) -> list[Any]:
    """The results, or exceptions, of calls that start together in threads."""
    barrier = Barrier(count)

    def call(number: int) -> Any:
        barrier.wait(60)
        try:
            return write(number)
        except dbio.DbioError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def test_of_two_first_writers_at_once_both_are_committed(spark: SparkSession, path: str) -> None:
    results = at_once(2, lambda n: dbio.write(numbers(spark, n * 10, n * 10 + 3), path, partition_by="day"))
    assert [type(result) for result in results] == [dbio.Commit, dbio.Commit]
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 10, 11, 12]


def test_of_two_first_writers_with_other_columns_one_is_refused_or_both_columns_read(
    spark: SparkSession, path: str
) -> None:
    """Neither has seen a schema, so both set one: in turn, and the second must see that it does not fit."""
    frames = [spark.range(3), spark.createDataFrame([("a",)], "id string")]
    results = at_once(2, lambda n: dbio.write(frames[n], path))
    committed = [result for result in results if isinstance(result, dbio.Commit)]
    assert len(committed) == 1
    assert {type(result) for result in results} <= {dbio.Commit, dbio.CommitConflictError, dbio.SchemaMismatchError}
    assert dbio.read(spark, path).count() == committed[0].metrics["numOutputRows"]


def test_of_two_writers_in_mode_error_exactly_one_wins(spark: SparkSession, path: str) -> None:
    results = at_once(2, lambda n: dbio.write(numbers(spark, n, n + 1), path, mode="error"))
    assert sorted(type(result).__name__ for result in results) == ["Commit", "TableExistsError"]
    (winner,) = [n for n, result in enumerate(results) if isinstance(result, dbio.Commit)]
    assert ids(dbio.read(spark, path)) == [winner]


def test_of_two_overwrites_at_once_exactly_one_remains(spark: SparkSession, path: str) -> None:  # I7
    dbio.write(numbers(spark, 100, 110), path)
    results = at_once(2, lambda n: dbio.write(numbers(spark, n * 10, n * 10 + 3), path, mode="overwrite"))
    assert [type(result) for result in results] == [dbio.Commit, dbio.Commit]
    last = dbio.Table(path).history()[0]
    (winner,) = [n for n, result in enumerate(results) if result.tid == last.tid]
    assert ids(dbio.read(spark, path)) == [winner * 10 + i for i in range(3)]


# --- the session --------------------------------------------------------------------------------------------------


def arrow_confs(spark: SparkSession) -> tuple[str | None, str | None]:
    return spark.conf.get(BYTES, None), spark.conf.get(RECORDS, None)


def test_the_sessions_own_settings_are_back_after_writes_also_after_a_failed_one(
    spark: SparkSession, path: str
) -> None:
    spark.conf.set(RECORDS, "777")
    try:
        before = arrow_confs(spark)
        dbio.write(numbers(spark, 0, 3), path)
        at_once(3, lambda n: dbio.write(numbers(spark, 0, 2000), path))
        with pytest.raises(dbio.InvalidInputError):
            dbio.write(spark.sql("SELECT 1 AS id, '' AS day"), f"{path}-2", partition_by="day")
        assert arrow_confs(spark) == before
    finally:
        spark.conf.unset(RECORDS)


# --- DBIO's directories -------------------------------------------------------------------------------------------


def dbio_directory(spark: SparkSession, path: str) -> set[str]:
    """As Databricks left it: two partitions with markers, and a file of a transaction that never committed."""
    for day in ("d0", "d1"):
        directory = Path(path, f"day={day}")
        directory.mkdir(parents=True)
        table = numbers(spark, 0, 4).where(f"day = '{day}'").select("id").toPandas()
        names = [f"part-00000-tid-{tid}-0123-{tid}-0-c000.snappy.parquet" for tid in (11, 12)]
        for name in names:
            table.to_parquet(directory / name)
        (directory / "_started_11").touch()
        (directory / "_started_12").touch()
        (directory / "_committed_11").write_text(json.dumps({"added": names[:1], "removed": []}))
    return objects(path)


def test_an_append_to_a_directory_of_dbio_is_one_of_dbio(spark: SparkSession, path: str) -> None:
    before = dbio_directory(spark, path)
    commit = dbio.write(numbers(spark, 10, 14), path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert not Path(path, "_dbio_table").exists()
    assert before <= objects(path)
    for day in ("d0", "d1"):
        body = json.loads(Path(path, f"day={day}", f"_committed_{commit.tid}").read_text())
        assert [f"day={day}/{name}" for name in body["added"]] == [
            a for a in commit.added if a.startswith(f"day={day}")
        ]
        assert body["removed"] == []
        assert Path(path, f"day={day}", f"_started_{commit.tid}").exists()


def test_an_overwrite_of_a_directory_of_dbio_is_logical(spark: SparkSession, path: str) -> None:
    before = dbio_directory(spark, path)
    commit = dbio.write(numbers(spark, 11, 12), path, mode="overwrite")
    assert ids(dbio.read(spark, path)) == [11]
    assert before <= objects(path)
    assert {removed.split("/")[0] for removed in commit.removed} == {"day=d0", "day=d1"}


def test_an_overwrite_of_partitions_of_a_directory_of_dbio_leaves_the_others(spark: SparkSession, path: str) -> None:
    dbio_directory(spark, path)
    dbio.write(numbers(spark, 11, 12), path, mode="overwrite_partitions")
    assert ids(dbio.read(spark, path)) == [0, 2, 11]


def test_an_append_to_a_directory_of_dbio_checks_the_columns_of_its_files(spark: SparkSession, path: str) -> None:
    before = dbio_directory(spark, path)
    with pytest.raises(dbio.SchemaMismatchError, match="id"):
        dbio.write(spark.createDataFrame([("a", "d1")], "id string, day string"), path)
    assert objects(path) == before


def test_plain_parquet_without_markers_can_be_appended_to(spark: SparkSession, path: str) -> None:
    numbers(spark, 0, 4).write.parquet(path)
    dbio.write(numbers(spark, 4, 6), path)
    assert ids(dbio.read(spark, path)) == list(range(6))


def test_a_write_to_the_path_of_a_file_is_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(dbio.StoreError, match="file"):
        dbio.write(numbers(spark, 0, 2), tmp_path / "file")


@pytest.mark.long
def test_decimals_that_go_as_whole_numbers_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """Those of up to 18 digits, at the ends of their types, null, as partitions, beside rows of large texts."""
    values = {
        "a": ("decimal(18,0)", ["999999999999999999", "-999999999999999999", "0"]),
        "b": ("decimal(18,18)", ["0.000000000000000001", "-0.999999999999999999", "0"]),
        "c": ("decimal(15,2)", ["12.30", "-0.01", "9999999999999.99"]),
        "d": ("decimal(1,0)", ["-9", "0", "9"]),
        "e": ("decimal(19,1)", ["-999999999999999999.9", "0.1", "0"]),
        "p": ("decimal(5,2)", ["-1.50", "0.00", "999.99"]),
    }
    rows = [
        ", ".join(f"CAST('{texts[number]}' AS {kind}) AS {name}" for name, (kind, texts) in values.items())
        for number in range(3)
    ]
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in values.items())
    frame = spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in [*rows, nulls]))
    frame = frame.selectExpr("*", "struct(c, array(c)) AS s").crossJoin(spark.range(50)).selectExpr(
        "*", "IF(id % 7 = 0, repeat('x', 2000000), 'y') AS t"
    )  # fmt: skip
    for partition_by in ((), ("p",), ("c", "e")):
        path = str(tmp_path / "-".join(["table", *partition_by]))
        commit = dbio.write(frame, path, partition_by=partition_by)
        assert commit.metrics["numOutputRows"] == 200
        back = dbio.read(spark, path)
        kinds = dict(frame.dtypes)
        assert dict(back.dtypes) == kinds
        assert rows_of(back) == rows_of(frame)


def rows_of(frame: DataFrame) -> list[str]:
    found = frame.selectExpr("to_json(struct(a, b, c, d, e, p, s, id, md5(t))) AS json").collect()
    return sorted(row.json for row in found)
