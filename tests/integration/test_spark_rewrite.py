"""`dbio.delete` and `replace_where`: exactly the rows for which the condition holds go, as Spark's own filter says."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    StoreError,
    TableNotFoundError,
)
from dbio_commit.spark.write.task import commit_files
from tests.integration.test_spark_where import ZONE, Conditions, table
from tests.spark_tables import SPARK_ERRORS, configured, data_files, ids, numbers, rows
from tests.tiers import long

__all__ = ["table"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"{tmp_path}/table"


def live(root: str) -> set[str]:
    return {file.path for file in dbio.Table(root).snapshot().files}


def break_files(root: str) -> None:
    """Whoever reads one fails."""
    for path in live(root):
        (Path(root) / path).write_bytes(b"broken")


def test_a_delete_removes_exactly_the_rows_for_which_the_condition_holds(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    dbio.write(numbers(spark, 10, 20, tasks=1), root)
    dbio.write(numbers(spark, 20, 30, tasks=1), root)
    first, second, third = (commit.added[0] for commit in reversed(dbio.Table(root).history()))
    commit = dbio.delete(spark, root, "id >= 15")
    assert ids(dbio.read(spark, root)) == [*range(15)]
    assert (commit.operation, commit.metrics["numDeletedRows"]) == ("rewrite", 15)
    assert {*commit.removed} == {second, third}
    assert live(root) == {first, *commit.added}
    assert [file.rows for file in commit.files] == [5]


def test_rows_for_which_the_condition_is_null_stay(spark: "SparkSession", root: str) -> None:
    frame = spark.createDataFrame([(1, 5), (2, None), (3, 7)], "id int, v int").coalesce(1)
    dbio.write(frame, root)
    dbio.delete(spark, root, "v > 6")
    assert ids(dbio.read(spark, root)) == [1, 2]
    dbio.delete(spark, root, "v IS NULL")
    assert ids(dbio.read(spark, root)) == [1]


def test_a_delete_by_partition_reads_nothing(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10), root, partition_by=["day"])
    break_files(root)
    commit = dbio.delete(spark, root, "day = 'd1' OR day IS NULL")
    assert not commit.added
    assert commit.metrics["numDeletedRows"] == 5
    assert {path.split("/")[0] for path in live(root)} == {"day=d0"}
    assert len(dbio.delete(spark, root, "upper(day) LIKE 'D%'").removed) > 0
    assert not live(root)


def test_files_that_the_statistics_exclude_are_not_read(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    break_files(root)
    kept = live(root)
    dbio.write(numbers(spark, 10, 20, tasks=1), root)
    dbio.delete(spark, root, "id = 15")
    assert kept < live(root)


@pytest.mark.parametrize("partitioned", [*long(False), True])
def test_random_conditions_delete_what_sparks_own_filter_finds(
    spark: "SparkSession", table: str, tmp_path: Path, partitioned: bool
) -> None:
    root = f"{tmp_path}/table"
    with configured(spark, {"spark.sql.session.timeZone": ZONE, "spark.sql.ansi.enabled": "false"}):
        for seed in range(8):
            shutil.rmtree(root, ignore_errors=True)
            if partitioned:
                shutil.copytree(table, root)
            else:
                dbio.write(dbio.read(spark, table).repartition(4), root)
            condition = Conditions(seed, mixed=False).condition()
            before = dbio.read(spark, root)
            kept, count = rows(before.where(f"NOT coalesce({condition}, false)")), before.count()
            commit = dbio.delete(spark, root, condition)
            assert rows(dbio.read(spark, root)) == kept, (seed, condition)
            assert commit.metrics["numDeletedRows"] == count - len(kept), (seed, condition)


def test_a_file_without_such_rows_stays_where_a_condition_says_nothing_by_itself(
    spark: "SparkSession", root: str
) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=2), root)
    before = live(root)
    commit = dbio.delete(spark, root, "id % 100 = 3")
    assert (len(commit.removed), len(before & live(root))) == (1, 1)
    assert not dbio.delete(spark, root, "id % 100 = 3").removed


@pytest.mark.parametrize("where", ["rand() < 0.5", "id IN (SELECT 1)", "", 7, "EXISTS (SELECT 1)"])
def test_a_condition_that_does_not_go_by_the_rows_alone_is_refused(
    spark: "SparkSession", root: str, where: Any
) -> None:
    dbio.write(numbers(spark, 0, 10), root)
    with pytest.raises(InvalidInputError):
        dbio.delete(spark, root, where)
    assert len(dbio.Table(root).history()) == 1


def test_where_there_is_nothing_to_delete_from_is_said(spark: "SparkSession", root: str) -> None:
    with pytest.raises(TableNotFoundError):
        dbio.delete(spark, root, "id = 1")
    Path(root).mkdir()
    numbers(spark, 0, 3).write.mode("append").parquet(root)
    with pytest.raises(InvalidInputError, match="dbio adopt"):
        dbio.delete(spark, root, "id = 1")


def test_a_directory_that_was_adopted_is_rewritten_at_once_with_the_columns_of_all_files(
    spark: "SparkSession", root: str
) -> None:
    spark.range(0, 3, 1, 3).write.parquet(root)
    priced = spark.sql("SELECT * FROM VALUES (10L, 9.5D), (11L, 8.5D), (12L, 7.5D) t(id, price)")
    priced.coalesce(1).write.mode("append").parquet(root)
    dbio.Table(root).adopt()
    assert dict(dbio.read(spark, root).dtypes) == {"id": "bigint", "price": "double"}
    dbio.delete(spark, root, "id = 10")
    dbio.update(spark, root, {"id": "id + 100"}, "id IN (0, 12)")
    dbio.merge(spark, root, spark.sql("SELECT 1L id, 0.5D price"), on=["id"])
    dbio.write(spark.sql("SELECT 20L id, CAST(NULL AS double) price"), root)
    dbio.Table(root).compact()
    found = {row.id: row.price for row in dbio.read(spark, root).collect()}
    assert found == {100: None, 1: 0.5, 2: None, 11: 8.5, 112: 7.5, 20: None}


@pytest.mark.long
def test_no_rewrite_loses_a_column_that_the_table_lacks(spark: "SparkSession", root: str) -> None:
    Path(root).mkdir()
    pq.write_table(pa.table({"id": [10, 11], "price": [9.5, 8.5]}), f"{root}/a.parquet")
    pq.write_table(pa.table({"id": [0]}), f"{root}/b.parquet")  # this one told the columns
    adopt_as_before(root)
    dbio.write(spark.range(1, 2), root)
    changes: list[Callable[[], object]] = [
        lambda: dbio.delete(spark, root, "id = 10"),
        lambda: dbio.update(spark, root, {"id": "id + 1"}, "id = 10"),
        lambda: dbio.merge(spark, root, spark.sql("SELECT 10L id"), on=["id"]),
        lambda: dbio.write(spark.sql("SELECT 10L id"), root, mode="overwrite", replace_where="id = 10"),
    ]
    for change in changes:
        with pytest.raises(InvalidInputError, match=r"the column 'price', which the table does not have"):
            change()
    dbio.write(spark.sql("SELECT 20L id, 1.5D price"), root, merge_schema=True)
    dbio.delete(spark, root, "id = 10")
    assert {(row.id, row.price) for row in dbio.read(spark, root).collect()} == {
        (0, None),
        (1, None),
        (11, 8.5),
        (20, 1.5),
    }


def adopt_as_before(root: str) -> None:
    """As earlier versions did, which looked into no file and recorded no columns."""
    table = dbio.Table(root)
    table.inspector = None
    table.adopt()


def test_an_adopted_directory_is_deleted_from_once_its_columns_are_recorded(spark: "SparkSession", root: str) -> None:
    numbers(spark, 0, 10).write.partitionBy("day").parquet(root)
    adopt_as_before(root)
    with pytest.raises(InvalidInputError, match="append to it with dbio first"):
        dbio.delete(spark, root, "day = 'd0' OR id = 3")
    dbio.write(numbers(spark, 10, 12), root)
    dbio.delete(spark, root, "day = 'd0' OR id = 3")
    assert ids(dbio.read(spark, root)) == [1, 5, 7, 9, 11]


@pytest.mark.long  # without Spark, `make test` has such a list
def test_a_condition_may_have_a_list_of_more_values_than_a_plan_has_parts_to_look_at(
    spark: "SparkSession", root: str
) -> None:
    dbio.write(spark.range(11_002).coalesce(1), root)
    listed = ", ".join(map(str, range(11_000)))
    assert dbio.delete(spark, root, f"id IN ({listed})").metrics["numDeletedRows"] == 11_000


# --- replace_where --------------------------------------------------------------------------------------------------


def test_an_overwrite_replaces_exactly_the_rows_that_match(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    data = spark.createDataFrame([(7, "new"), (9, "new")], "id int, day string")  # a narrower id
    commit = dbio.write(data, root, mode="overwrite", replace_where="id > 6")
    assert ids(dbio.read(spark, root)) == [*range(7), 7, 9]
    assert dbio.read(spark, root).where("day = 'new'").count() == 2
    assert (commit.metrics["numDeletedRows"], commit.metrics["numInsertedRows"]) == (3, 2)
    assert commit.operation == "rewrite"


def test_an_overwrite_by_partition_reads_nothing_of_the_table(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10), root, partition_by=["day"])
    break_files(root)
    dbio.write(numbers(spark, 1, 2), root, mode="overwrite", replace_where="day >= 'd1'")
    assert len([path for path in live(root) if path.startswith("day=d1")]) == 1
    dbio.delete(spark, root, "day = 'd0'")
    assert ids(dbio.read(spark, root)) == [1]


def test_data_that_does_not_match_is_refused_with_its_count_and_leaves_nothing(
    spark: "SparkSession", root: str
) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    before = data_files(root)
    data = spark.createDataFrame([(7, "new"), (1, "new"), (None, "new")], "id int, day string")
    with pytest.raises(InvalidInputError, match="does not hold for 2 rows"):
        dbio.write(data, root, mode="overwrite", replace_where="id > 6")
    assert data_files(root) == before
    assert ids(dbio.read(spark, root)) == [*range(10)]


def test_no_data_is_a_delete(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    dbio.write(numbers(spark, 0, 0), root, mode="overwrite", replace_where="id > 6")
    assert ids(dbio.read(spark, root)) == [*range(7)]


def test_new_columns_come_with_the_data_that_replaces(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 4, tasks=1), root)
    data = spark.createDataFrame([(3, "web")], "id int, source string")
    with pytest.raises(SchemaMismatchError):
        dbio.write(data, root, mode="overwrite", replace_where="id = 3")
    dbio.write(data, root, mode="overwrite", replace_where="id = 3 AND day IS NULL", merge_schema=True)
    dbio.write(data, root, mode="overwrite", replace_where="id = 3", merge_schema=True)
    found = {(row.id, row.day, row.source) for row in dbio.read(spark, root).collect()}
    assert found == {(0, "d0", None), (1, "d1", None), (2, "d0", None), (3, None, "web")}


def test_where_there_is_no_table_one_is_created(spark: "SparkSession", root: str) -> None:
    with pytest.raises(InvalidInputError, match="2 rows"):
        dbio.write(numbers(spark, 0, 4), root, mode="overwrite", replace_where="id > 1")
    dbio.write(numbers(spark, 2, 4), root, mode="overwrite", replace_where="id > 1")
    assert ids(dbio.read(spark, root)) == [2, 3]


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions", "error", "ignore"])
def test_only_an_overwrite_replaces_rows(spark: "SparkSession", root: str, mode: Any) -> None:
    with pytest.raises(InvalidInputError, match="mode='overwrite'"):
        dbio.write(numbers(spark, 0, 1), root, mode=mode, replace_where="id > 1")


# --- files that cannot be read, or not as they were written -----------------------------------------------------------


@pytest.mark.long
def test_what_goes_by_all_rows_of_files_fails_where_the_session_would_pass_over_some(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    dbio.write(numbers(spark, 10, 20, tasks=1), root)
    first = Path(root) / dbio.Table(root).history()[-1].added[0]
    lenient = {f"spark.sql.files.{name}": "true" for name in ("ignoreMissingFiles", "ignoreCorruptFiles")}
    good = first.read_bytes()

    def fails(act: Any) -> None:
        with pytest.raises((*SPARK_ERRORS, StoreError)):
            act()

    with configured(spark, lenient):
        for damage in (first.unlink, lambda: first.write_bytes(good[:4] + bytes(len(good) - 8) + good[-4:])):
            damage()
            for by_index in (True, False):
                with monkeypatch.context() as patch:
                    if not by_index:
                        patch.setattr("dbio_commit.spark.read.scan.read_by_index", lambda *_: None)
                    fails(lambda: dbio.delete(spark, root, "day = 'd0'"))
            fails(lambda: dbio.update(spark, root, {"day": "'new'"}, "day = 'd0'"))
            fails(lambda: dbio.merge(spark, root, numbers(spark, 8, 12), "target.id = source.id + 0"))
            fails(
                lambda: dbio.write(numbers(spark, 0, 2), root, "overwrite", replace_where="day IS NOT NULL AND id < 15")
            )
            fails(lambda: dbio.constrain(spark, root, {"check.a": "id * 1 >= 0"}))
            fails(lambda: dbio.changes(spark, root, dbio.Table(root).history()[-1].tid).collect())
            first.write_bytes(good)
    assert len(dbio.Table(root).history()) == 2
    assert ids(dbio.read(spark, root)) == [*range(20)]


def write_rows(path: str, count: int, width: int) -> int:
    """The size of a file of so many rows, one of which takes so many bytes."""
    rows = pa.table({"id": [*range(count)], "day": ["x" * width] + ["d"] * (count - 1)})
    pq.write_table(rows, path, compression="none", use_dictionary=False, write_statistics=False)
    return Path(path).stat().st_size


def test_a_file_with_other_rows_than_its_writer_recorded_is_not_written_again(spark: "SparkSession", root: str) -> None:
    dbio.write(numbers(spark, 0, 0), root)
    with dbio.Table(root).begin() as transaction:
        path = transaction.new_file()
        write_rows(path, 10, 200)
    size = Path(path).stat().st_size
    next(width for width in range(200, 300) if write_rows(path, 9, width) == size)  # Spark reads as much as is recorded
    with pytest.raises(StoreError, match="its writer recorded 10"):
        dbio.delete(spark, root, "id % 5 = 1")
    with pytest.raises(StoreError, match="its writer recorded 10"):
        dbio.update(spark, root, {"day": "'new'"}, "id % 5 = 1")
    assert len(dbio.Table(root).history()) == 2


# --- beside others ----------------------------------------------------------------------------------------------------


def beside(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Acts between what a delete has read and its commit."""

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        act()
        return commit_files(*args, **options)

    monkeypatch.setattr("dbio_commit.spark.write.run.commit_files", late)


def test_a_delete_fails_where_a_file_that_it_read_is_gone(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 10, tasks=1), root)
    beside(monkeypatch, lambda: dbio.delete(spark, root, "id = 3"))
    with pytest.raises(CommitConflictError, match="not live any more"):
        dbio.delete(spark, root, "id = 4")
    assert ids(dbio.read(spark, root)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_rows_that_are_appended_meanwhile_stay_but_not_with_if_match(
    spark: "SparkSession", root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 4, tasks=1), root)
    beside(monkeypatch, lambda: dbio.write(numbers(spark, 3, 4), root))
    dbio.delete(spark, root, "id = 3")
    assert ids(dbio.read(spark, root)) == [0, 1, 2, 3]
    seen = dbio.Table(root).snapshot().etag
    beside(monkeypatch, lambda: dbio.write(numbers(spark, 4, 5), root))
    with pytest.raises(CommitConflictError, match="the state that this write is based on"):
        dbio.delete(spark, root, "id = 3", if_match=seen)
    assert ids(dbio.read(spark, root)) == [0, 1, 2, 3, 4]


def test_texts_are_read_under_the_settings_of_the_session_in_each_thread(spark: "SparkSession", root: str) -> None:
    dbio.write(spark.createDataFrame([("a", "a"), ("b", "other")], "name string, other string"), root)
    with configured(spark, {"spark.sql.ansi.doubleQuotedIdentifiers": "true"}), ThreadPoolExecutor(1) as pool:
        pool.submit(dbio.update, spark, root, {"name": '"other"'}).result()
        pool.submit(dbio.delete, spark, root, "\"other\" = 'a'").result()
    assert [tuple(row) for row in dbio.read(spark, root).collect()] == [("other", "other")]


def test_if_match_goes_with_every_write(spark: "SparkSession", root: str) -> None:
    dbio.enable(spark)
    dbio.write(numbers(spark, 0, 2), root)
    seen = dbio.Table(root).snapshot().etag
    dbio.write(numbers(spark, 2, 4), root, mode="overwrite", if_match=seen)
    with pytest.raises(CommitConflictError):
        dbio.write(numbers(spark, 4, 6), root, if_match=seen)
    source = numbers(spark, 6, 8).write.format("dbio").mode("append")
    with pytest.raises(Exception, match="CommitConflictError"):
        source.option("ifMatch", seen).save(root)
    source.option("ifMatch", dbio.Table(root).snapshot().etag).save(root)
    assert ids(dbio.read(spark, root)) == [2, 3, 6, 7]
