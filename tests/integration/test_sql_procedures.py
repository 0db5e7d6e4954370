"""CALL dbio.system.…, and the table function `dbio_changes`."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit.spark.catalog import procedures
from tests import spark35
from tests.spark_tables import configured, ids, numbers

pytestmark = pytest.mark.skipif(spark35.IS_USED, reason="CALL is there since Spark 4.0")

LAKE = "called"


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Path:
    """A table of 8 rows in 2 commits, of 4 files in 2 days."""
    dbio.enable(spark, roots={LAKE: tmp_path})
    for start in (0, 4):
        dbio.write(numbers(spark, start, start + 4, tasks=1), tmp_path / "events", partition_by="day")
    return tmp_path / "events"


def call(spark: SparkSession, what: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(f"CALL dbio.system.{what}").collect()]


def test_procedures_do_what_the_methods_do_and_return_rows(spark: SparkSession, path: Path) -> None:
    table, name = dbio.Table(path), f"dbio.{LAKE}.events"
    second, first = table.history()
    history = call(spark, f"history(table => '{name}')")
    assert [row["tid"] for row in history] == [second.tid, first.tid]
    assert history[1]["timestamp"].timestamp() == pytest.approx(first.timestamp.timestamp(), abs=1e-5)
    assert (history[1]["operation"], history[1]["added"], history[1]["metrics"]["numFiles"]) == ("append", 2, 2)

    dry = call(spark, f"compact('{path}', 1000000, 'id >= 0', dry_run => true)")[0]
    assert (dry["dry_run"], dry["files_before"], dry["files_after"]) == (True, 4, 2)
    done = call(spark, f"compact(table => '{name}', sort_by => array('id'), min_files => 2)")[0]
    assert (done["files_before"], done["files_after"], done["left_files"], done["notes"]) == (4, 2, 0, [])
    assert done["commits"] == [table.history()[0].tid]

    assert call(spark, f"checkpoint('{name}')") == [{"checkpoint": "_checkpoint_00000000000000000001"}]
    published = call(spark, f"publish('{name}', array('delta', 'symlink'))")
    assert [(row["format"], row["files"], row["is_new"]) for row in published] == [
        ("delta", 2, True),
        ("symlink", 2, True),
    ]
    spark.sql(f"EXPLAIN CALL dbio.system.restore('{name}', '{first.tid}')")
    assert len(table.history()) == 3
    assert call(spark, f"restore('{name}', as_of => '{first.tid}')")[0]["tid"] == table.history()[0].tid
    assert ids(spark.table(name)) == [0, 1, 2, 3]
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        at = spark.sql(f"SELECT string(timestamp '{second.timestamp.isoformat()}')").collect()[0][0]
        call(spark, f"restore('{name}', '{at}')")
    assert ids(spark.table(name)) == [*range(8)]
    would = call(spark, f"vacuum('{name}', 0, true, force => true)")[0]
    assert (would["dry_run"], would["deleted"] > 0, would["failed"]) == (True, True, 0)
    vacuumed = call(spark, f"vacuum('{name}', retention_hours => 0, force => true)")[0]
    assert (vacuumed["deleted"], vacuumed["deleted_bytes"]) == (would["deleted"], would["deleted_bytes"])


def test_a_table_is_named_as_in_sql_or_by_its_path(spark: SparkSession, path: Path) -> None:
    names = [f"dbio.{LAKE}.events", f"`dbio`.`{LAKE}`.`events`", f"dbio.`{path}`", str(path), f"file://{path}"]
    spark.sql(f"USE dbio.{LAKE}")
    try:
        found = [call(spark, f"history('{name}')")[0]["tid"] for name in [*names, "events"]]
    finally:
        spark.sql("USE spark_catalog.default")
    assert set(found) == {dbio.Table(path).history()[0].tid}
    listed = {row.procedure_name for row in spark.sql("SHOW PROCEDURES IN dbio.system").collect()}
    assert listed == {*procedures.PROCEDURES}


def test_what_cannot_be_called_says_why(spark: SparkSession, path: Path) -> None:
    spark.range(1).createOrReplaceTempView("range_of")
    cases: list[tuple[str, type[Exception], str]] = [
        ("vacuum('{}', 0.5)", dbio.RetentionError, "force=True"),
        ("history('{}x')", dbio.TableNotFoundError, "there is no table at"),
        ("nothing('{}')", dbio.InvalidInputError, "has no procedure 'nothing'; it has dbio.system.history"),
        ("restore('{}', 'very soon')", dbio.InvalidInputError, "neither a tid nor a time"),
        ("publish('{}', array('csv'))", dbio.InvalidInputError, "'csv' is no format"),
        ("vacuum('{}', NULL)", dbio.InvalidInputError, "retention_hours is NULL"),
        ("history('range_of')", dbio.InvalidInputError, "no dbio table"),
        ("history('none.such')", AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
        ("history()", AnalysisException, "REQUIRED_PARAMETER_NOT_FOUND"),
        ("compact('{}', speed => 1)", AnalysisException, "UNRECOGNIZED_PARAMETER_NAME"),
    ]
    for what, error, message in cases:
        with pytest.raises(error, match=message):
            call(spark, what.format(f"dbio.{LAKE}.events"))
    spark.catalog.dropTempView("range_of")


def test_changes_are_rows_of_a_function_and_few_of_them_of_a_procedure(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, (second, first) = f"dbio.{LAKE}.events", dbio.Table(path).history()
    columns = ["id", "day", "_change_type", "_commit_tid", "_commit_timestamp"]
    expected = sorted(dbio.changes(spark, path, first.tid, first.tid).select(columns).collect())
    one = f"SELECT * FROM dbio_changes('{name}', '{first.tid}', '{first.tid}')"
    assert spark.sql(one).columns == columns
    assert sorted(spark.sql(one).collect()) == sorted(spark.newSession().sql(one).collect()) == expected
    assert sorted(spark.sql(f"CALL dbio.system.changes('{name}', '{first.tid}', '{first.tid}')").collect()) == expected

    frame = spark.sql(f"SELECT id, _change_type FROM dbio_changes('{path}', TIMESTAMP '2020-01-01') WHERE id < 6")
    assert sorted(map(tuple, frame.collect())) == [(id, "insert") for id in range(6)]
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    assert frame.count() in (6, 9)  # from Spark 4.2 on, a later run sees later commits
    net = f"SELECT id FROM dbio_changes('{name}', '2020-01-01', NULL, true) WHERE _change_type = 'delete'"
    assert ids(spark.sql(net)) == [3]
    joined = f"SELECT count(*) FROM {name} JOIN dbio_changes('{name}', '{second.tid}', '{second.tid}') USING (id)"
    assert spark.sql(joined).collect()[0][0] == 4
    for wrong, message in (
        (f"'{name}'", "and the start"),
        (f"'{name}', 'very soon'", "neither"),
        (f"'{name}', '2020-01-01', NULL, 1", "net"),
    ):
        with pytest.raises(dbio.InvalidInputError, match=message):
            spark.sql(f"SELECT * FROM dbio_changes({wrong})")
    monkeypatch.setattr(procedures, "MOST_ROWS", 3)
    with pytest.raises(dbio.InvalidInputError, match=r"more than 3 rows.*dbio_changes"):
        call(spark, f"changes('{name}', '2020-01-01')")
