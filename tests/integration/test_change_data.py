"""With the setting `change_data` a rewrite tells row by row what it changed; `changes`, feeds and streams have that.

Rules: PROTOCOL.md 7.6.
"""

import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.base.errors import HistoryLostError, InvalidInputError
from dbio_commit.protocol import names
from tests.conftest import Root
from tests.later import vacuum_later
from tests.spark_tables import data_files
from tests.streams import ALL, finish, needs_source
from vacuum import VacuumOptions

Row = tuple[Any, ...]


def told(frame: DataFrame) -> list[tuple[str, int, int, str]]:
    return sorted((row._change_type, row.id, row.n, row.day) for row in frame.collect())


def changes_of(spark: SparkSession, path: str, commit: dbio.Commit) -> list[tuple[str, int, int, str]]:
    return told(dbio.changes(spark, path, commit.tid, commit.tid))


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows 0 to 5, in two partitions, with the setting."""
    path = f"{tmp_path_factory.mktemp('made')}/a table"
    frame = spark.sql("SELECT id, int(id) AS n, concat('d', id % 2) AS day FROM range(6)").coalesce(1)
    dbio.write(frame, path, partition_by="day")
    dbio.Table(path).set({"change_data": "true"})
    return path


@pytest.fixture
def path(made: str, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copytree(made, tmp_path / "a table"))


def rows(spark: SparkSession, path: str) -> Counter[Row]:
    return Counter(tuple(row) for row in dbio.read(spark, path).select("id", "n", "day").collect())


def test_an_update_tells_each_row_as_it_was_and_as_it_is(spark: SparkSession, path: str) -> None:
    commit = dbio.update(spark, path, {"n": "n + 10", "day": "'d0'"}, "id IN (1, 2)")
    assert changes_of(spark, path, commit) == [
        ("update_postimage", 1, 11, "d0"),
        ("update_postimage", 2, 12, "d0"),
        ("update_preimage", 1, 1, "d1"),
        ("update_preimage", 2, 2, "d0"),
    ]
    assert rows(spark, path) == Counter(
        [(0, 0, "d0"), (4, 4, "d0"), (3, 3, "d1"), (5, 5, "d1"), (1, 11, "d0"), (2, 12, "d0")]
    )


@pytest.mark.long
def test_a_delete_tells_the_rows_that_went_and_none_that_were_written_again(spark: SparkSession, path: str) -> None:
    commit = dbio.delete(spark, path, "id IN (0, 1, 3, 5)")
    assert changes_of(spark, path, commit) == [("delete", 0, 0, "d0"), *(("delete", i, i, "d1") for i in (1, 3, 5))]
    assert commit.change_files, "of the file that was written again"
    assert len(commit.removed) == 2


def test_a_delete_of_whole_files_writes_none_that_tells_of_it(spark: SparkSession, path: str) -> None:
    commit = dbio.delete(spark, path, "day = 'd1'")
    assert not commit.change_files
    assert changes_of(spark, path, commit) == [("delete", i, i, "d1") for i in (1, 3, 5)]


@pytest.mark.long
def test_a_merge_tells_what_it_inserted_updated_and_deleted(spark: SparkSession, path: str) -> None:
    source = spark.sql("SELECT id, 99 AS n, 'd9' AS day FROM range(3, 8)")
    clauses = [
        dbio.when_matched("source.id = 4").delete(),
        dbio.when_matched().update(),
        dbio.when_not_matched().insert(),
    ]
    commit = dbio.merge(spark, path, source, ["id"], clauses)
    assert changes_of(spark, path, commit) == [
        ("delete", 4, 4, "d0"),
        ("insert", 6, 99, "d9"),
        ("insert", 7, 99, "d9"),
        ("update_postimage", 3, 99, "d9"),
        ("update_postimage", 5, 99, "d9"),
        ("update_preimage", 3, 3, "d1"),
        ("update_preimage", 5, 5, "d1"),
    ]
    again = dbio.merge(spark, path, source, ["id"], [dbio.when_not_matched("source.id > 50").insert()])
    assert changes_of(spark, path, again) == []
    only_new = dbio.merge(
        spark, path, source.selectExpr("id + 100 AS id", "n", "day"), ["id"], [dbio.when_not_matched().insert()]
    )
    assert [kind for kind, *_ in changes_of(spark, path, only_new)] == ["insert"] * 5


def test_a_replacement_by_a_condition_tells_what_went_and_what_came(spark: SparkSession, path: str) -> None:
    data = spark.sql("SELECT 50L AS id, 1 AS n, 'd0' AS day")
    commit = dbio.write(data, path, mode="overwrite", replace_where="day = 'd0' AND id IN (2, 50)")
    assert changes_of(spark, path, commit) == [("delete", 2, 2, "d0"), ("insert", 50, 1, "d0")]


def test_files_of_changes_are_no_part_of_the_table(spark: SparkSession, path: str) -> None:
    commit = dbio.update(spark, path, {"n": "0"}, "id < 2")
    assert {names.is_change_file(it) for it in commit.change_files} == {True}
    assert not {*commit.change_files} & {file.path for file in dbio.Table(path).snapshot().files}
    assert not {*commit.change_files} & {*commit.added, *commit.removed}
    assert commit.metrics["numFiles"] == len(commit.added)
    assert {*commit.change_files} <= data_files(path)
    assert not dbio.Table(path).check().missing


@pytest.mark.slow("changes of random rewrites against a model")
def test_random_rewrites_tell_exactly_what_they_made_of_the_rows(spark: SparkSession, path: str) -> None:
    chance = random.Random(14)
    for _ in range(8):
        before, low = rows(spark, path), chance.randrange(10)
        match chance.randrange(4):
            case 0:
                commit = dbio.update(spark, path, {"n": "n + 1", "day": "concat('d', n % 3)"}, f"id % {low + 1} = 0")
            case 1:
                commit = dbio.delete(spark, path, f"id = {low} OR n = {low}")
            case 2:
                data = spark.sql(f"SELECT id, {low} AS n, concat('d', id % 3) AS day FROM range({low}, {low + 4})")
                commit = dbio.merge(spark, path, data, ["id"])
            case _:
                data = spark.sql(f"SELECT id, 7 AS n, 'd{low % 3}' AS day FROM range({low}, {low + 3})")
                commit = dbio.write(data, path, mode="overwrite", replace_where=f"day = 'd{low % 3}' AND id >= {low}")
        changes = changes_of(spark, path, commit)
        came = Counter(tuple(row) for kind, *row in changes if kind in ("insert", "update_postimage"))
        went = Counter(tuple(row) for kind, *row in changes if kind in ("delete", "update_preimage"))
        assert not went - before
        assert before - went + came == rows(spark, path)
        kinds = Counter(kind for kind, *_ in changes)
        assert kinds["update_postimage"] == kinds["update_preimage"]
        metrics = commit.metrics
        updated = metrics.get("numUpdatedRows", metrics.get("numTargetRowsUpdated", 0))
        assert kinds["update_postimage"] == updated


@pytest.mark.long
def test_without_the_setting_a_rewrite_tells_files(spark: SparkSession, path: str) -> None:
    dbio.Table(path).set({"change_data": ""})
    commit = dbio.update(spark, path, {"n": "n + 10"}, "id = 1")
    assert not commit.change_files
    kinds = Counter(kind for kind, *_ in changes_of(spark, path, commit))
    assert kinds == {"insert": 3, "delete": 3}
    net = told(dbio.changes(spark, path, commit.tid, commit.tid, net=True))
    assert net == [("delete", 1, 1, "d1"), ("insert", 1, 11, "d1")]


def test_the_command_line_counts_rows_and_not_what_was_written_again(spark: SparkSession, path: str) -> None:
    commit = dbio.update(spark, path, {"n": "0"}, "id < 2")
    (told_of,) = dbio.Table(path).changes(commit.tid)
    assert (told_of.updated_rows, told_of.inserted_rows, told_of.deleted_rows) == (2, 0, 0)
    assert len(told_of.recorded) == len(commit.change_files)


def test_vacuum_deletes_files_of_changes_with_the_files_that_the_commit_removed(spark: SparkSession, path: str) -> None:
    commit = dbio.update(spark, path, {"n": "0"}, "id < 2")
    report = vacuum_later(dbio.Table(path), VacuumOptions(), by=timedelta(days=1))
    assert not {it.path for it in report.deleted} & {*commit.change_files}, "within the retention"
    report = vacuum_later(dbio.Table(path), VacuumOptions(checkpoint_after=1), by=timedelta(days=3))
    assert {*commit.change_files, *commit.removed} <= {it.path for it in report.deleted}
    assert sum(rows(spark, path).values()) == 6
    with pytest.raises(HistoryLostError):
        dbio.changes(spark, path, commit.tid, commit.tid).collect()


def test_an_attempt_that_fails_leaves_nothing_of_its_changes_behind(spark: SparkSession, path: str) -> None:
    before = data_files(path)
    with pytest.raises(InvalidInputError):
        dbio.update(spark, path, {"n": "id * 3000000000"})
    assert data_files(path) == before


def test_a_table_with_a_column_of_the_feed_cannot_tell_changes(spark: SparkSession, tmp_path: Path) -> None:
    other = f"{tmp_path}/other"
    dbio.write(spark.sql("SELECT 1 AS id"), other)
    dbio.Table(other).set({"change_data": "true"})
    with pytest.raises(InvalidInputError, match="cannot have a column _change_type"):
        dbio.write(spark.sql("SELECT 2 AS id, 'x' AS _change_type"), other, merge_schema=True)


@pytest.mark.long
@pytest.mark.parametrize("natively", [True, False])
@needs_source
def test_a_stream_of_changes_has_them_row_by_row(
    spark: SparkSession, path: str, tmp_path: Path, natively: bool
) -> None:
    dbio.enable(spark)
    dbio.update(spark, path, {"n": "n + 10"}, "id = 1")
    dbio.delete(spark, path, "id = 2")

    def run() -> list[tuple[str, int, int, str]]:
        found = list[tuple[str, int, int, str]]()
        checkpoint = tmp_path / "checkpoint"

        def take(frame: DataFrame, batch: int) -> None:
            found.extend(told(frame))

        if natively:
            finish(dbio.for_each_batch(spark, path, take, checkpoint, changes=True, trigger=ALL))
        else:
            stream = spark.readStream.format("dbio").option("readChangeFeed", "true").load(path)
            writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
            finish(writer.trigger(**ALL).start())
        return sorted(found)

    assert run() == [("insert", i, 11 if i == 1 else i, f"d{i % 2}") for i in (0, 1, 3, 4, 5)]
    dbio.update(spark, path, {"n": "n + 10"}, "id = 3")
    assert run() == [("update_postimage", 3, 13, "d1"), ("update_preimage", 3, 3, "d1")]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Spark cannot read")
def test_changes_are_told_on_an_object_store_too(spark: SparkSession, s3_root: Root) -> None:
    frame = spark.sql("SELECT id, int(id) AS n, concat('d', id % 2) AS day FROM range(6)").coalesce(1)
    dbio.write(frame, s3_root.url, partition_by="day", storage_options=s3_root.storage_options)
    dbio.Table(s3_root.url, s3_root.storage_options).set({"change_data": "true"})
    commit = dbio.update(spark, s3_root.url, {"n": "n + 10"}, "id = 1", storage_options=s3_root.storage_options)
    found = dbio.changes(spark, s3_root.url, commit.tid, commit.tid, storage_options=s3_root.storage_options)
    assert told(found) == [("update_postimage", 1, 11, "d1"), ("update_preimage", 1, 1, "d1")]
