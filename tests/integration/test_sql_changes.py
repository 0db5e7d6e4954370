"""DELETE, UPDATE, MERGE and INSERT in SQL: they do what the functions do, with expressions that no text can say.

Random histories are in `test_sql_histories.py`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.spark.catalog.tables import SqlTables
from tests import spark35
from tests.spark_tables import SPARK_ERRORS, configured, numbers, objects

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module", autouse=True)
def _catalog(spark: SparkSession) -> None:
    dbio.enable(spark)
    spark.sql("CREATE OR REPLACE TEMP VIEW news AS SELECT * FROM VALUES (2L, 'two'), (3L, 'three') AS it(id, kind)")


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """A table of 10 rows in 2 files: id (0 to 9), kind, n (as id) and inner, a struct."""
    path = str(tmp_path / "a täble#1")
    columns = (
        "id",
        "concat('k', id) AS kind",
        "cast(id AS int) AS n",
        "struct(id AS a, struct(id AS c) AS b) AS inner_",
    )
    dbio.write(spark.range(0, 10, 1, 2).selectExpr(*columns), path)
    return path


def rows(spark: SparkSession, path: str, columns: str = "id, kind, n") -> Rows:
    return sorted(tuple(row) for row in dbio.read(spark, path).selectExpr(*columns.split(", ")).collect())


def metrics(path: str) -> Mapping[str, Any]:
    found = dbio.Table(path).history()[0].metrics
    return {name: value for name, value in found.items() if "Rows" in name and name != "numOutputRows"}


def changed(given: Mapping[int, tuple[Any, ...] | None]) -> Rows:
    """The rows of the fixture, with other ones for some ids, or none."""
    every: dict[int, tuple[Any, ...] | None] = {id: (id, f"k{id}", id) for id in range(10)}
    return sorted(row for row in (every | dict(given)).values() if row)


# --- DELETE -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "gone"),
    [
        ("id > 7", {8, 9}),
        ("t.kind IN ('k1', 'it''s')", {1}),
        ("exists(array(n, 100), x -> x = 4)", {4}),  # a lambda, which Spark's own text of it loses
        ("inner_.b.c = 5", {5}),
        ("id IN (SELECT id FROM news)", {2, 3}),
        ("id NOT IN (SELECT id FROM news) AND id < 4", {0, 1}),
        ("EXISTS (SELECT 1 FROM news WHERE news.id = t.id AND news.kind = 'three')", {3}),
        ("id = (SELECT max(id) FROM {table})", {9}),
        ("id < (SELECT count(*) FROM {table} u WHERE u.n < t.n) + 1 AND id > 5", {6, 7, 8, 9}),
        ("id > 100", set()),
    ],
)
def test_delete_removes_the_rows_for_which_the_condition_holds(
    spark: SparkSession, path: str, condition: str, gone: set[int]
) -> None:
    before = len(dbio.Table(path).history())
    spark.sql(f"DELETE FROM dbio.`{path}` t WHERE {condition.format(table=f'dbio.`{path}`')}")
    assert rows(spark, path) == changed(dict.fromkeys(gone))
    assert len(dbio.Table(path).history()) == before + 1
    assert metrics(path) == {"numDeletedRows": len(gone)}


def test_a_delete_about_partitions_reads_no_data_and_truncate_deletes_all(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    parts = str(tmp_path / "parts")
    dbio.write(numbers(spark, 0, 6), parts, partition_by="day")
    before = {file.path for file in dbio.Table(parts).snapshot().files}
    spark.sql(f"DELETE FROM dbio.`{parts}` WHERE substr(day, 2) = '1'")
    assert {it.path for it in dbio.Table(parts).snapshot().files} == {it for it in before if it.startswith("day=d0")}
    assert rows(spark, parts, "id") == [(0,), (2,), (4,)]
    spark.sql(f"TRUNCATE TABLE dbio.`{path}`")
    assert (rows(spark, path), metrics(path)) == ([], {"numDeletedRows": 10})


# --- UPDATE -------------------------------------------------------------------------------------------------------


def test_update_sets_columns_with_aliases_parameters_functions_and_subqueries(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    spark.udf.register("twice", lambda n: 2 * n, "int")
    spark.sql(f"UPDATE {name} AS t SET t.kind = upper(t.kind), n = twice(n) WHERE t.id = 1")
    spark.sql(f"UPDATE {name} SET kind = :kind WHERE id = :id", {"kind": 'it\'s \\ "${x}"', "id": 4})
    spark.sql(
        f"UPDATE {name} t SET kind = (SELECT max(kind) FROM news WHERE news.id = t.id), n = -1 WHERE id IN (2, 5)"
    )
    spark.sql(f"UPDATE {name} SET n = 70 WHERE id = (SELECT max(id) FROM {name}) - 2")
    expected = {1: (1, "K1", 2), 2: (2, "two", -1), 4: (4, 'it\'s \\ "${x}"', 4), 5: (5, None, -1), 7: (7, "k7", 70)}
    assert sorted(rows(spark, path), key=str) == sorted(changed(expected), key=str)
    assert metrics(path) == {"numUpdatedRows": 1, "numCopiedRows": 9}


def test_update_sets_fields_of_structs(spark: SparkSession, path: str) -> None:
    spark.sql(f"UPDATE dbio.`{path}` SET inner_.a = 70, inner_.b.c = id + 100, n = 5 WHERE id = 1")
    spark.sql(f"UPDATE dbio.`{path}` SET inner_ = NULL WHERE id = 2")
    spark.sql(f"UPDATE dbio.`{path}` SET inner_.b.c = 7 WHERE id IN (2, 3)")
    found = {id: (a, c) for id, a, c in rows(spark, path, "id, inner_.a, inner_.b.c") if id < 5}
    assert found == {0: (0, 0), 1: (70, 101), 2: (None, 7), 3: (3, 7), 4: (4, 4)}


@pytest.mark.long
def test_settings_of_the_table_hold_for_statements(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    changes = {"default.kind": "concat('d', 'x')", "check.small": "n < 100 OR n IS NULL", "change_data": "true"}
    dbio.constrain(spark, path, changes)
    spark.sql(f"UPDATE {name} SET kind = DEFAULT WHERE id = 1")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 20L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (id)"
    )
    assert [row for row in rows(spark, path, "id, kind") if row[1] == "dx"] == [(1, "dx"), (20, "dx")]
    with pytest.raises(dbio.InvalidInputError, match=r"violates check\.small"):
        spark.sql(f"UPDATE {name} SET n = 1000 WHERE id = 1")
    update = dbio.Table(path).history()[1]
    kinds = dbio.changes(spark, path, update.tid, update.tid).select("_change_type").distinct().collect()
    assert sorted(row[0] for row in kinds) == ["update_postimage", "update_preimage"]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("UPDATE {} SET n = id * 3000000000 WHERE id > 0", dbio.InvalidInputError, "9 rows get values"),
        ("UPDATE {} SET n = kind", dbio.SchemaMismatchError, "column 'n' has the type int"),
        ("UPDATE {} SET n = 1, n = 2", dbio.InvalidInputError, "'n' is set twice"),
        ("UPDATE {} SET inner_.a = 1, inner_.a = 2", dbio.InvalidInputError, "'inner_.a' is set twice"),
        ("DELETE FROM {} WHERE rand() > 0.5", PySparkException, "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("DELETE FROM {} WHERE nothing = 1", PySparkException, "UNRESOLVED_COLUMN"),
        ("UPDATE {} SET n = 1 / (n - 1)", SPARK_ERRORS, "DIVIDE_BY_ZERO"),
        (
            "MERGE INTO {} t USING (SELECT * FROM news UNION ALL SELECT * FROM news) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET kind = s.kind",
            dbio.InvalidInputError,
            "more than one row of the source",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_committed(
    spark: SparkSession, path: str, statement: str, error: type[Exception] | tuple[type[Exception], ...], message: str
) -> None:
    with pytest.raises(error, match=message):
        spark.sql(statement.format(f"dbio.`{path}`"))
    assert len(dbio.Table(path).history()) == 1


def test_the_rows_of_a_view_are_not_changed_in_the_table_below_it(spark: SparkSession, path: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMP VIEW few AS SELECT id, kind AS n, n AS kind FROM dbio.`{path}` WHERE id < 2")
    spark.table(f"dbio.`{path}`").createOrReplaceTempView("all_of_it")
    for statement in (
        "DELETE FROM few",
        "UPDATE few SET n = 'x'",
        "MERGE INTO few t USING news s ON s.id = t.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "DELETE FROM all_of_it WHERE id = 1",
    ):
        with pytest.raises(dbio.InvalidInputError, match=r"is a view, and only a table can be changed"):
            spark.sql(statement)
    assert len(dbio.Table(path).history()) == 1
    spark.sql(f"DELETE FROM dbio.`{path}` AS few WHERE few.id IN (SELECT id FROM few)")
    assert rows(spark, path) == changed({0: None, 1: None})


@pytest.mark.parametrize(
    ("query", "is_table"),
    [
        ("SELECT n AS id, kind, id AS n, inner_ FROM {}", False),
        ("SELECT id + 1 AS id, kind, n, inner_ FROM {}", False),
        ("SELECT id, n, kind, inner_ FROM {}", False),
        ("SELECT id, kind, n FROM {}", False),
        ("SELECT * FROM {} WHERE id < 5", False),
        ("SELECT * FROM {} LIMIT 3", False),
        ("SELECT DISTINCT id, kind, n, inner_ FROM {}", False),
        ("SELECT * FROM {} VERSION AS OF '{}'", False),
        ("SELECT id, kind, n, inner_ FROM (SELECT * FROM {}) u", True),
    ],
)
def test_a_query_is_a_target_only_if_it_has_the_columns_of_the_table_as_they_are(
    spark: SparkSession, path: str, query: str, is_table: bool
) -> None:
    (first,) = dbio.Table(path).history()
    given = query.format(f"dbio.`{path}`", first.tid)
    for statement in (
        "DELETE FROM c WHERE id = 1",
        "UPDATE c SET n = 100 WHERE id = 2",
        "MERGE INTO c USING news ON c.id = news.id AND c.id = 3 WHEN MATCHED THEN DELETE",
    ):
        if is_table:
            spark.sql(f"WITH c AS ({given}) {statement}")
        else:
            with pytest.raises(dbio.InvalidInputError, match=r"only a table can be changed.*name the table dbio"):
                spark.sql(f"WITH c AS ({given}) {statement}")
    assert rows(spark, path) == changed({1: None, 2: (2, "k2", 100), 3: None} if is_table else {})


# --- MERGE --------------------------------------------------------------------------------------------------------


def test_merge_has_all_clauses_of_spark(spark: SparkSession, path: str) -> None:
    spark.sql(
        f"""WITH s AS (SELECT id, max(kind) AS kind FROM news GROUP BY id UNION ALL VALUES (30L, 'x'), (31L, 'y'))
        MERGE INTO dbio.`{path}` AS t USING s ON t.id = s.id AND t.n >= 0
        WHEN MATCHED AND s.kind = 'two' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.kind = concat(t.kind, s.kind), t.inner_.a = 1000
        WHEN NOT MATCHED AND s.id > 30 THEN INSERT (id, kind) VALUES (s.id, s.kind)
        WHEN NOT MATCHED BY SOURCE AND t.id > 8 THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET n = -1"""
    )
    expected = changed({0: (0, "k0", -1), 2: None, 3: (3, "k3three", 3), 9: None})
    assert sorted(rows(spark, path), key=str) == sorted([*expected, (31, "y", None)], key=str)
    assert [row for row in rows(spark, path, "id, inner_.a") if row[0] == 3] == [(3, 1000)]
    assert metrics(path) == {
        "numTargetRowsInserted": 1,
        "numTargetRowsUpdated": 2,
        "numTargetRowsDeleted": 2,
        "numTargetRowsCopied": 6,
    }


def test_merge_takes_stars_a_source_that_reads_the_target_and_frames(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    spark.sql(
        f"""MERGE INTO {name} t USING (SELECT id + 8 AS id, kind, n, inner_ FROM {name} WHERE id < 3) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    )
    expected = {8: (8, "k0", 0), 9: (9, "k1", 1), 10: (10, "k2", 2)}
    assert rows(spark, path) == changed(expected)
    if spark35.IS_USED:  # which has no mergeInto
        return
    spark.table(name).createOrReplaceTempView("target")
    merge: Any = spark.table("news").mergeInto(name, f.expr(f"dbio.`{path}`.id = news.id"))
    merge.whenMatched().update({"kind": f.expr("news.kind")}).merge()
    assert rows(spark, path) == changed(expected | {2: (2, "two", 2), 3: (3, "three", 3)})


def test_a_merge_does_not_drop_columns_that_schema_evolution_would_add(spark: SparkSession, path: str) -> None:
    merge = "MERGE WITH SCHEMA EVOLUTION INTO dbio.`{}` t USING ({}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    rows_of = f"SELECT 30L AS id, kind, n, inner_ FROM dbio.`{path}` WHERE id = 1"
    if spark35.IS_USED:  # which has no such words
        return
    with pytest.raises(dbio.InvalidInputError, match="the table has no column 'more' of the source"):
        spark.sql(merge.format(path, f"SELECT *, 1 AS more FROM ({rows_of})"))
    assert len(dbio.Table(path).history()) == 1
    spark.sql(merge.format(path, rows_of))
    assert rows(spark, path)[-1] == (30, "k1", 1)


def test_a_merge_reads_only_files_that_may_match(spark: SparkSession, path: str) -> None:
    before = {file.path for file in dbio.Table(path).snapshot().files}
    spark.sql(f"MERGE INTO dbio.`{path}` t USING news s ON s.id = t.id WHEN MATCHED THEN UPDATE SET n = 0")
    assert len(before & {file.path for file in dbio.Table(path).snapshot().files}) == 1
    assert metrics(path)["numTargetRowsCopied"] == 3


# --- INSERT -------------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(spark: SparkSession, tmp_path: Path) -> str:
    """A table of 4 rows, partitioned by day: (0, d0), (1, d1), (2, d0), (3, d1)."""
    path = str(tmp_path / "parts")
    dbio.write(numbers(spark, 0, 4), path, partition_by="day")
    return path


def test_insert_appends_by_position_by_columns_by_name_and_from_itself(spark: SparkSession, parts: str) -> None:
    name = f"dbio.`{parts}`"
    spark.sql(f"INSERT INTO {name} VALUES (10, 'd0'), (11, 'd2')")
    spark.sql(f"INSERT INTO {name} (day, id) VALUES ('d1', 12)")
    spark.sql(f"INSERT INTO {name} BY NAME SELECT 'd1' AS day, 13L AS id")
    spark.sql(f"INSERT INTO {name} PARTITION (day = 'd9') VALUES (14)")
    spark.sql(f"INSERT INTO {name} SELECT id + 100, day FROM {name} WHERE id >= 12")
    expected = [(10, "d0"), (11, "d2"), (12, "d1"), (13, "d1"), (14, "d9"), (112, "d1"), (113, "d1"), (114, "d9")]
    assert rows(spark, parts, "id, day")[4:] == expected
    assert [commit.operation for commit in dbio.Table(parts).history()] == ["append"] * 6


def test_insert_fills_in_generated_columns_that_it_does_not_set(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    dbio.constrain(spark, path, {"generated.kind": "concat('k', id)"})
    spark.sql(f"INSERT INTO {name} VALUES (20, DEFAULT, 1, NULL), (21, 'k21', 2, NULL)")
    spark.sql(f"INSERT INTO {name} SELECT id + 10, NULL, n, inner_ FROM {name} WHERE id = 20")
    assert rows(spark, path)[10:] == [(20, "k20", 1), (21, "k21", 2), (30, "k30", 1)]
    with pytest.raises(dbio.InvalidInputError, match=r"1 row violates generated\.kind"):
        spark.sql(f"INSERT INTO {name} VALUES (22, 'other', 1, NULL)")


def test_insert_that_replaces_rows_fills_in_generated_columns(spark: SparkSession, parts: str) -> None:
    name = f"dbio.`{parts}`"
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (twice BIGINT)")
    spark.sql(f"UPDATE {name} SET twice = id * 2")
    dbio.constrain(spark, parts, {"generated.twice": "id * 2", "generated.day": "concat('d', id % 2)"})
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (day = 'd1') (id) VALUES (5)")
    spark.sql(f"INSERT INTO {name} REPLACE WHERE day = 'd0' SELECT 6L, NULL, NULL")
    assert rows(spark, parts, "id, twice, day") == [(5, 10, "d1"), (6, 12, "d0")]
    with pytest.raises(dbio.InvalidInputError, match="does not hold for 1 rows of the data"):
        spark.sql(f"INSERT INTO {name} REPLACE WHERE day = 'd0' SELECT 7L, NULL, NULL")


def test_insert_overwrites_all_rows_some_partitions_or_those_of_a_condition(spark: SparkSession, parts: str) -> None:
    name = f"dbio.`{parts}`"
    spark.sql(f"INSERT OVERWRITE {name} PARTITION (day = 'd1') SELECT 5L")
    assert rows(spark, parts, "id, day") == [(0, "d0"), (2, "d0"), (5, "d1")]
    with configured(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        spark.sql(f"INSERT OVERWRITE {name} SELECT 6L, 'd0'")
    assert rows(spark, parts, "id, day") == [(5, "d1"), (6, "d0")]
    spark.sql(f"INSERT INTO {name} REPLACE WHERE id > 5 SELECT 7L, 'd2'")
    assert rows(spark, parts, "id, day") == [(5, "d1"), (7, "d2")]
    with pytest.raises(dbio.InvalidInputError, match="does not hold for 1 rows of the data"):
        spark.sql(f"INSERT INTO {name} REPLACE WHERE id > 5 SELECT 1L, 'd2'")
    spark.sql(f"INSERT OVERWRITE {name} SELECT id + 1, day FROM {name}")
    assert rows(spark, parts, "id, day") == [(6, "d1"), (8, "d2")]


def test_an_overwrite_from_the_table_itself_loses_no_commit_of_others(
    spark: SparkSession, parts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = SqlTables.find

    def find(tables: SqlTables, *args: Any) -> Any:
        monkeypatch.setattr(SqlTables, "find", inner)
        dbio.write(numbers(spark, 9, 10), parts)
        return inner(tables, *args)

    frame = spark.table(f"dbio.`{parts}`").selectExpr("id + 1", "day")
    frame.createOrReplaceTempView("target")
    monkeypatch.setattr(SqlTables, "find", find)
    with pytest.raises(dbio.CommitConflictError):
        spark.sql(f"INSERT OVERWRITE dbio.`{parts}` SELECT * FROM dbio.`{parts}`")
    assert rows(spark, parts, "id") == [(0,), (1,), (2,), (3,), (9,)]


def test_frames_write_by_write_to_insert_into_and_save_as_table(spark: SparkSession, parts: str) -> None:
    name, frame = f"dbio.`{parts}`", spark.sql("SELECT 9L AS id, 'd1' AS day")
    for _ in range(2):  # the second one is skipped
        frame.writeTo(name).option("txnAppId", "job").option("txnVersion", "1").append()
    with configured(spark, {"spark.dbio.app": "nightly:2026-11-20"}):
        for _ in range(2):
            frame.write.insertInto(name)
    frame.write.mode("append").saveAsTable(name)
    assert rows(spark, parts, "id")[4:] == [(9,)] * 3
    frame.writeTo(name).overwrite(f.col("id") == 9)
    assert rows(spark, parts, "id") == [(0,), (1,), (2,), (3,), (9,)]
    frame.writeTo(name).overwritePartitions()
    assert rows(spark, parts, "id") == [(0,), (2,), (9,)]
    with pytest.raises(dbio.InvalidInputError, match="no option color"):
        frame.writeTo(name).option("color", "red").append()


# --- beside other writers and threads -----------------------------------------------------------------------------


def test_statements_that_meet_are_tried_again_by_the_setting(spark: SparkSession, path: str) -> None:
    def count_up() -> None:
        for _ in range(2):
            spark.sql(f"UPDATE dbio.`{path}` SET n = n + 1 WHERE id < 5")

    with configured(spark, {"spark.dbio.retries": "20"}):
        in_threads(count_up, count_up)
    assert rows(spark, path) == [(id, f"k{id}", id + 4 * (id < 5)) for id in range(10)]


def test_a_statement_that_reads_its_table_conflicts_with_all_changes_since(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maximum is another one after the other writer's commit, which came after Spark analysed the statement."""
    inner = SqlTables.find

    def find(tables: SqlTables, *args: Any) -> Any:
        found = inner(tables, *args)
        monkeypatch.setattr(SqlTables, "find", inner)
        dbio.delete(spark, path, "id = 9")
        return found

    monkeypatch.setattr(SqlTables, "find", find)
    with configured(spark, {"spark.dbio.retries": "3"}), pytest.raises(dbio.CommitConflictError):
        spark.sql(f"DELETE FROM dbio.`{path}` WHERE id = (SELECT max(id) FROM dbio.`{path}`)")
    assert rows(spark, path) == changed({9: None})


def test_settings_of_statements_are_checked(spark: SparkSession, path: str) -> None:
    for settings in ({"spark.dbio.retries": "many"}, {"spark.dbio.isolation": "none"}):
        with configured(spark, settings), pytest.raises(dbio.InvalidInputError):
            spark.sql(f"DELETE FROM dbio.`{path}` WHERE id = 1")


def test_jobs_of_a_statement_are_in_the_job_group_of_its_thread(spark: SparkSession, path: str) -> None:
    tracker, context = spark.sparkContext.statusTracker(), spark.sparkContext
    jobs: list[set[int]] = []
    for group in ("sql one", "sql two"):
        context.setJobGroup(group, group)
        try:
            spark.sql(f"DELETE FROM dbio.`{path}` WHERE id = {len(jobs)}")
        finally:
            context._jsc.sc().clearJobGroup()
        jobs.append(set(tracker.getJobIdsForGroup("sql one")))
    assert jobs[0] == jobs[1] != set()
    assert tracker.getJobIdsForGroup("sql two")


def test_cancelling_the_job_group_stops_its_statement_and_nothing_is_committed(spark: SparkSession, path: str) -> None:
    context, before, ended = spark.sparkContext, objects(path), threading.Event()
    spark.udf.register("sleep", sleep, "int")

    def stop() -> None:
        while not ended.wait(0.5):  # repeatedly, as the first jobs of the statement are over in a moment
            context.cancelJobGroup("to stop")

    thread = threading.Thread(target=stop)
    context.setJobGroup("to stop", "to stop", interruptOnCancel=True)
    thread.start()
    try:
        with pytest.raises(SPARK_ERRORS, match=r"[cC]ancelled"):
            spark.sql(f"UPDATE dbio.`{path}` SET n = sleep(n)")
    finally:
        ended.set()
        thread.join()
        context._jsc.sc().clearJobGroup()
    assert {it for it in objects(path) - before if it.startswith("_committed")} <= aborts(path)
    assert rows(spark, path) == changed({})


def sleep(n: int) -> int:
    time.sleep(5)
    return n


def aborts(path: str) -> set[str]:
    committed = {f"_committed_{commit.tid}" for commit in dbio.Table(path).history()}
    return {it for it in objects(path) if it.startswith("_committed")} - committed


@pytest.mark.long
def test_a_cached_table_is_refreshed_after_a_statement(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    spark.sql(f"CACHE TABLE {name}")
    try:
        spark.sql(f"UPDATE {name} SET n = 100 WHERE id = 0")
        assert spark.table(name).where("id = 0").collect()[0].n == 100
    finally:
        spark.sql(f"UNCACHE TABLE {name}")


def test_explain_commits_nothing(spark: SparkSession, path: str) -> None:
    shown = spark.sql(f"EXPLAIN DELETE FROM dbio.`{path}` WHERE id = 1").collect()[0][0]
    assert "DbioDeleteFromTable" in shown
    assert len(dbio.Table(path).history()) == 1


def test_a_statement_lists_the_log_once_for_each_table_and_a_function_once(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides what any write does to begin, and to commit."""
    listed: list[str] = []
    inner = dbio.Table.snapshot

    def snapshot(table: dbio.Table, *args: Any, **more: Any) -> Snapshot:
        listed.append(table.url)
        return inner(table, *args, **more)

    other = str(tmp_path / "other")
    dbio.write(spark.sql("SELECT * FROM news"), other)
    name = f"dbio.`{path}`"
    spark.catalog.clearCache()  # what other tests have left: Spark would refresh it after each statement
    monkeypatch.setattr(dbio.Table, "snapshot", snapshot)
    statements: Mapping[str, list[str]] = {
        f"DELETE FROM {name} WHERE id = 1": [path],
        f"DELETE FROM {name} WHERE id = (SELECT max(id) FROM {name})": [path],
        f"UPDATE {name} SET n = n + 1 WHERE id IN (SELECT id FROM dbio.`{other}`)": [path, other],
        f"MERGE INTO {name} t USING dbio.`{other}` s ON t.id = s.id WHEN MATCHED THEN UPDATE SET kind = s.kind": [
            path,
            other,
        ],
    }
    for statement, tables in statements.items():
        listed.clear()
        spark.sql(statement)
        assert sorted(listed) == tables, statement
    functions: list[Callable[[], Any]] = [
        lambda: dbio.delete(spark, path, "id = 2"),
        lambda: dbio.update(spark, path, {"n": "n + 1"}, "id < 5"),
        lambda: dbio.merge(spark, path, spark.table("news"), on=["id"], when=[dbio.when_matched().delete()]),
    ]
    for function in functions:
        listed.clear()
        function()
        assert listed == [path]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("n = s.n", "n = s.n"),  # one column of the source
        ("n = s.n", "n = s.other"),
        ("n = s.n + 1", "n = s.n + 1"),
        ("n = 10 div s.n", "n = 10 div s.other"),  # each fails for rows of the other clause
        ("n = s.n", "kind = s.kind"),
    ],
)
@pytest.mark.parametrize("deletes", [False, True])
def test_clauses_of_a_merge_give_their_own_values(
    spark: SparkSession, path: str, first: str, second: str, deletes: bool
) -> None:
    spark.sql(
        "SELECT * FROM VALUES (2L, 'two', 5, 0), (3L, 'three', 0, 2), (4L, 'four', 1, 1) AS it(id, kind, n, other)"
    ).createOrReplaceTempView("given")
    spark.sql(
        f"MERGE INTO dbio.`{path}` t USING given s ON t.id = s.id "
        f"{'WHEN MATCHED AND s.id = 4 THEN DELETE ' if deletes else ''}"
        f"WHEN MATCHED AND s.id = 2 THEN UPDATE SET {first} WHEN MATCHED AND s.id = 3 THEN UPDATE SET {second}"
    )
    values: dict[str, Any] = {"s.n": {2: 5, 3: 0}, "s.other": {2: 0, 3: 2}, "s.n + 1": {2: 6, 3: 1}}
    values |= {"10 div s.n": {2: 2}, "10 div s.other": {3: 5}, "s.kind": {3: "three"}}
    expected: dict[int, tuple[Any, ...] | None] = {4: None} if deletes else {}
    for id, text in ((2, first), (3, second)):
        column, value = text.split(" = ")
        row = {"kind": f"k{id}", "n": id, column: values[value][id]}
        expected[id] = (id, row["kind"], row["n"])
    assert rows(spark, path) == changed(expected)


def costs(spark: SparkSession, patch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], tuple[int, int]]:
    """The result counts the jobs, and the calls between Python and the JVM, of the second run of what it is given."""
    inner, calls = ClientServerConnection.send_command, [0]

    def send_command(connection: ClientServerConnection, command: str) -> Any:
        calls[0] += not command.startswith("m\nd\n")  # which lets go of an object, at some time
        return inner(connection, command)

    def cost(run: Callable[[], object]) -> tuple[int, int]:
        context: Any = spark.sparkContext
        scheduler = context._jsc.sc().dagScheduler()
        run()
        first, calls[0] = scheduler.numTotalJobs(), 0
        run()
        counted = calls[0]
        return scheduler.numTotalJobs() - first, counted

    patch.setattr(ClientServerConnection, "send_command", send_command)
    # PySpark's own calls to note call sites: the process's first call decides for good whether it makes them.
    patch.setattr("pyspark.errors.utils._enable_debugging_cache", False, raising=False)
    return cost


def test_a_merge_reads_its_source_for_keys_once_and_asks_the_jvm_little_for_each_column(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes a sixth of a millisecond, and a job tens of them."""
    cost, found = costs(spark, monkeypatch), dict[int, tuple[int, int]]()
    for width in (2, 12):
        table = str(tmp_path / str(width))
        rows = spark.range(0, 4000, 1, 2).selectExpr("id", "id % 7 AS k", *(f"id AS c{i}" for i in range(width)))
        dbio.write(rows, table)
        rows.where("id % 2 = 0").createOrReplaceTempView("changed")
        merge = (
            f"MERGE INTO dbio.`{table}` t USING changed s ON t.id = s.id AND t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        found[width] = cost(lambda merge=merge: spark.sql(merge))  # type: ignore[misc]
    (jobs, few), (_, many) = found.values()
    print(found)
    assert jobs <= 5 or spark35.IS_USED  # the keys, two broadcasts, the join and its shuffle, and the tasks that write
    assert (many - few) / 10 <= 20


def test_sql_costs_no_more_jobs_and_calls_than_the_functions(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a SELECT, the analyzer and the optimizer of Spark ask Python, too."""
    cost = costs(spark, monkeypatch)
    name, news, ids = f"dbio.`{path}`", spark.table("news"), iter(range(5, 10))
    update = [dbio.when_matched().update({"kind": "source.kind"})]
    pairs: list[tuple[Callable[[], object], Callable[[], object], int]] = [
        (
            lambda: spark.sql(f"SELECT kind FROM {name} WHERE n > 3").collect(),
            lambda: dbio.read(spark, path).where("n > 3").select("kind").collect(),
            40,
        ),
        (
            lambda: spark.sql(f"DELETE FROM {name} WHERE id = {next(ids)}"),
            lambda: dbio.delete(spark, path, f"id = {next(ids)}"),
            0,
        ),
        (
            lambda: spark.sql(f"UPDATE {name} SET kind = 'a' WHERE id < 5"),
            lambda: dbio.update(spark, path, {"kind": "'b'"}, "id < 5"),
            0,
        ),
        (
            lambda: spark.sql(
                f"MERGE INTO {name} t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET kind = s.kind"
            ),
            lambda: dbio.merge(spark, path, news, on=["id"], when=update),
            0,
        ),
    ]
    for sql, function, more in pairs:
        (jobs, made), (jobs_there, made_there) = cost(sql), cost(function)
        print(jobs, jobs_there, made, made_there)
        assert jobs == jobs_there
        assert made <= made_there + more


def in_threads(*functions: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(it,)) for it in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.fixture(autouse=True)
def _without_views(spark: SparkSession) -> Iterator[None]:
    yield
    spark.catalog.dropTempView("target")
