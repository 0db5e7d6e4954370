"""SELECT on dbio tables: the catalog `dbio` in a classic session, by path and by name, at any version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.spark.catalog import answers
from dbio_commit.spark.session import conf
from dbio_commit.spark.versions import error_condition
from tests import spark35
from tests.conftest import Root
from tests.spark_tables import SPARK, SPARK_ERRORS, configured, ids, numbers, rows

LAKE = "reads"
"""The name of the root."""


@pytest.fixture(scope="module", autouse=True)
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with `events`: 40 rows in 4 files of 2 days, in 2 commits."""
    root = tmp_path_factory.mktemp("lake")
    dbio.enable(spark, roots={LAKE: root})
    for start in (0, 20):
        dbio.write(spark.range(start, start + 20, 1, 1).selectExpr(*EVENT), root / "events", partition_by="day")
    return root


EVENT = [
    "id",
    "concat('d', id % 2) AS day",
    "concat('k', id) AS kind",
    "named_struct('a', id, 'b', concat('x', id)) AS it",
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a täble#1")


def values(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.sql(query).collect())


def plan(spark: SparkSession, query: str) -> str:
    return str(spark.sql(query)._jdf.queryExecution().executedPlan().toString())


def files_read(spark: SparkSession, query: str) -> int:
    """How many files the scans of a query read."""
    frame: Any = spark.sql(query)
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return sum(leaves.apply(i).metrics().apply("numFiles").value() for i in range(leaves.size()))


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Gets an element for each listing of a log."""
    made: list[object] = []
    inner = dbio.Table.snapshot

    def counted(table: dbio.Table, *args: Any, **more: Any) -> Snapshot:
        made.append(table)
        return inner(table, *args, **more)

    monkeypatch.setattr(dbio.Table, "snapshot", counted)
    return made


# --- names --------------------------------------------------------------------------------------------------------


def test_a_table_is_named_by_its_path_or_below_a_root(spark: SparkSession, lake: Path) -> None:
    expected = rows(dbio.read(spark, lake / "events"))
    for name in (f"dbio.`{lake}/events`", f"dbio.`file://{lake}/events`", f"dbio.{LAKE}.events"):
        assert rows(spark.table(name)) == expected
        assert rows(spark.sql(f"SELECT * FROM {name}")) == expected
    assert spark.table(f"dbio.{LAKE}.events").columns == dbio.read(spark, lake / "events").columns
    assert values(spark, f"SELECT events.id, {LAKE}.events.kind FROM dbio.{LAKE}.events WHERE events.id = 3") == [
        (3, "k3")
    ]


def test_names_below_a_root_may_have_several_parts_and_odd_characters(spark: SparkSession, lake: Path) -> None:
    dbio.write(numbers(spark, 0, 3), lake / "more" / "a täble#1")
    assert ids(spark.table(f"dbio.{LAKE}.more.`a täble#1`")) == [0, 1, 2]
    dbio.Table(lake / "more" / "begun").begin().abort()  # a query finds no table, and so does SHOW TABLES
    assert values(spark, f"SHOW TABLES IN dbio.{LAKE}.more") == [(f"{LAKE}.more", "a täble#1", False)]
    assert values(spark, f"SHOW NAMESPACES IN dbio.{LAKE}.more") == []
    assert (f"{LAKE}.more",) in values(spark, f"SHOW NAMESPACES IN dbio.{LAKE}")
    with pytest.raises(dbio.InvalidInputError, match="no name of a directory"):
        spark.table(f"dbio.{LAKE}.`..`.secret")


def test_spark_says_which_table_does_not_exist(spark: SparkSession, lake: Path) -> None:
    for name in (f"dbio.`{lake}/none`", f"dbio.{LAKE}.none", "dbio.no_root.events", "dbio.events"):
        with pytest.raises(AnalysisException) as caught:
            spark.sql(f"SELECT * FROM {name}")
        assert (error_condition(caught.value), caught.value.getSqlState()) == ("TABLE_OR_VIEW_NOT_FOUND", "42P01")
        assert not spark.catalog.tableExists(name)
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_roots_that_sql_could_confuse_are_refused(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    with pytest.raises(dbio.InvalidInputError, match="which SQL cannot use"):
        dbio.enable(spark, roots={"a/b": tmp_path})
    with pytest.raises(dbio.InvalidInputError, match="the same name 'x'"):
        dbio.enable(spark, roots=[tmp_path / "1/x", tmp_path / "2/x"])


def test_sessions_that_come_later_have_the_catalog(spark: SparkSession, lake: Path) -> None:
    assert ids(spark.newSession().table(f"dbio.{LAKE}.events")) == [*range(40)]


# --- what a query sees --------------------------------------------------------------------------------------------


def test_each_query_sees_what_is_committed_when_it_begins_and_lists_each_log_once(
    spark: SparkSession, path: str, lake: Path, listings: list[object]
) -> None:
    dbio.write(numbers(spark, 0, 4), path)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW of_sql AS SELECT * FROM dbio.`{path}`")
    for query, tables_of_it in (
        (f"SELECT count(*) FROM dbio.`{path}`", 1),
        ("SELECT count(*) FROM of_sql", 1),
        (f"SELECT count(*) FROM dbio.`{path}` a JOIN dbio.`{path}` b USING (id)", 1),
        (f"WITH x AS (SELECT * FROM dbio.`{path}`) SELECT count(*) FROM x WHERE id IN (SELECT id FROM x)", 1),
        (
            f"SELECT count(*) FROM dbio.`{path}` t WHERE EXISTS (SELECT 1 FROM dbio.{LAKE}.events e WHERE e.id = t.id)",
            2,
        ),
    ):
        before = values(spark, query)[0][0]
        dbio.write(numbers(spark, before, before + 1, tasks=1), path)
        listings.clear()
        assert values(spark, query) == [(before + 1,)]
        assert len(listings) == tables_of_it


def test_a_frame_reads_its_own_snapshot_first_and_later_runs_see_later_commits(
    spark: SparkSession, path: str, listings: list[object]
) -> None:
    dbio.write(numbers(spark, 0, 4), path)
    listings.clear()
    frame = spark.table(f"dbio.`{path}`")
    assert (frame.count(), len(listings)) == (4, 1)
    dbio.write(numbers(spark, 4, 6), path)
    assert frame.count() == (6 if SPARK >= (4, 1) else 4)  # before 4.1, Spark loads the tables of a DataFrame once


def test_versions_by_tid_and_by_time(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    first, second = (dbio.write(numbers(spark, start, start + 2), path) for start in (0, 2))
    between = first.timestamp + (second.timestamp - first.timestamp) / 2
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        shown = spark.sql(f"SELECT string(timestamp'{between.isoformat()}')").collect()[0][0]
        assert ids(spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '{shown}'")) == [0, 1]
    assert ids(spark.sql(f"SELECT * FROM {name} VERSION AS OF '{first.tid}'")) == [0, 1]
    if spark35.IS_USED:  # which passes the options to the scan alone
        with pytest.raises(dbio.UnsupportedStoreError, match="use VERSION AS OF"):
            ids(spark.read.option("versionAsOf", first.tid).table(name))
    else:
        assert ids(spark.read.option("versionAsOf", first.tid).table(name)) == [0, 1]
        assert ids(spark.read.option("timestampAsOf", shown).table(name)) != []
    both = f"SELECT a.id FROM {name} a LEFT ANTI JOIN {name} VERSION AS OF '{first.tid}' b USING (id)"
    assert ids(spark.sql(both)) == [2, 3]
    for version in ("7", "2026-11-20"):
        with pytest.raises(dbio.InvalidInputError, match="dbio log"):
            spark.sql(f"SELECT * FROM {name} VERSION AS OF '{version}'")
    with pytest.raises(AnalysisException, match="use the option asOf"):
        spark.read.format("dbio").option("versionAsOf", first.tid).load(path).count()


def test_a_cached_table_is_used_until_it_is_refreshed(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    dbio.write(numbers(spark, 0, 4), path)
    spark.sql(f"CACHE TABLE {name}")
    assert "In-memory table" in plan(spark, f"SELECT * FROM {name}")
    dbio.write(numbers(spark, 4, 6), path)
    spark.sql(f"REFRESH TABLE {name}")
    assert ids(spark.table(name)) == [*range(6)]
    spark.sql(f"UNCACHE TABLE {name}")


@pytest.mark.long
def test_what_is_kept_of_snapshots_is_bounded_and_an_old_query_still_runs(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.write(numbers(spark, 0, 4), path)
    frame = spark.table(f"dbio.`{path}`").where("id < 2")
    kept = answers._answers.state.tables._kept
    for i in range(250):
        with monkeypatch.context() as patch:
            patch.setattr(Snapshot, "etag", f"another {i}")
            spark.table(f"dbio.`{path}`")
    assert 50 < len(kept) <= 100
    assert not any(json.loads(it)[2] == dbio.Table(path).snapshot().etag for it in kept)
    assert ids(frame) == [0, 1]


# --- how it is read -----------------------------------------------------------------------------------------------


def test_sparks_own_reader_gets_the_columns_fields_and_filters_of_the_query(spark: SparkSession, lake: Path) -> None:
    text = plan(spark, f"SELECT it.a FROM dbio.{LAKE}.events WHERE day = 'd1' AND kind > 'k3'")
    assert "FileScan parquet" in text
    assert "Batched: true" in text
    assert "ReadSchema: struct<kind:string,it:struct<a:bigint>>" in text
    assert "PartitionFilters: [isnotnull(day" in text
    assert "GreaterThan(kind,k3)" in text


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("id > 33", 2), ("id > 33L", 2), ("id > 33.5", 2), ("id IN (3, 5)", 2), ("day = 'd1' AND id < 3", 1),
        ("kind = 'k7' AND id < 20", 2), ("NOT (id >= 20 OR day = 'd0')", 1), ("id = 3 OR id = 30", 4),
        ("id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", 2), ("id IS NULL", 0), ("it.a = 3", 4),
        ("kind = 'it\\'s' OR id < 3", 4), ("kind <> 'it\\'s' AND id < 3", 2), ("id + 1 < 3", 4),
    ],
)  # fmt: skip
def test_files_are_left_out_by_statistics(spark: SparkSession, lake: Path, condition: str, files: int) -> None:
    query = f"SELECT * FROM dbio.{LAKE}.events WHERE {condition}"
    assert files_read(spark, query) == files
    assert rows(spark.sql(query)) == rows(dbio.read(spark, lake / "events").where(condition))


def test_a_join_prunes_partitions_while_it_runs(spark: SparkSession, lake: Path) -> None:
    spark.sql("CREATE OR REPLACE TEMP VIEW days AS SELECT concat('d', id) AS day, id AS n FROM range(3)")
    query = f"SELECT count(*) FROM dbio.{LAKE}.events JOIN (SELECT day FROM days WHERE n * 2 = 2) USING (day)"
    assert "dynamicpruning" in plan(spark, query)
    assert values(spark, query) == [(20,)]
    spark.sql(f"CREATE TABLE dbio.{LAKE}.days AS SELECT * FROM days")
    query = f"SELECT max(id) FROM dbio.{LAKE}.events JOIN dbio.{LAKE}.days USING (day) WHERE n * 2 = 2"
    assert "dynamicpruning" in plan(spark, query)
    assert values(spark, query) == [(39,)]


def test_metadata_of_files_pandas_on_spark_and_input_files(spark: SparkSession, lake: Path) -> None:
    import pyspark.pandas as ps

    name = f"dbio.{LAKE}.events"
    live = {file.path.rpartition("/")[2] for file in dbio.Table(lake / "events").snapshot().files}
    found = values(spark, f"SELECT DISTINCT _metadata.file_name, _metadata.row_index >= 0 FROM {name}")
    assert found == sorted((file, True) for file in live)
    assert len(spark.table(name).inputFiles()) == 4
    with configured(spark, {"spark.sql.ansi.enabled": "false"}):  # as pandas on Spark 4.0 asks for
        assert ps.read_table(name, index_col="id").shape == (40, 3)


def test_a_case_sensitive_session_reads_the_same(spark: SparkSession, lake: Path) -> None:
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        assert ids(spark.sql(f"SELECT id FROM dbio.{LAKE}.events WHERE id < 3")) == [0, 1, 2]


def test_without_a_connector_workers_read_and_a_warning_says_so(
    spark: SparkSession, s3_root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf, "_probes", WeakKeyDictionary())  # another test of this session may have been warned
    given = s3_root.storage_options
    settings = {"access.key": given["key"], "secret.key": given["secret"], "endpoint": given["endpoint_url"]}
    dbio.write(numbers(spark, 0, 6), s3_root.url, partition_by="day", storage_options=given)
    with (
        configured(spark, {f"fs.s3a.{name}": value for name, value in settings.items()}),
        pytest.warns(UserWarning, match="reads it through fsspec in Python workers"),
    ):
        found = values(spark, f"SELECT id, day FROM dbio.`{s3_root.url}` WHERE day = 'd1' AND id > 1")
    assert found == [(3, "d1"), (5, "d1")]


# --- about tables -------------------------------------------------------------------------------------------------


def test_spark_describes_tables(spark: SparkSession, lake: Path) -> None:
    name = f"dbio.{LAKE}.events"
    assert (LAKE, "events", False) in values(spark, f"SHOW TABLES IN dbio.{LAKE}")
    assert (LAKE,) in values(spark, "SHOW NAMESPACES IN dbio")
    assert [it.name for it in spark.catalog.listTables(f"dbio.{LAKE}") if it.name == "events"] == ["events"]
    described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED {name}").collect()}
    assert (described["id"], described["Provider"], described["Location"]) == ("bigint", "dbio", f"{lake}/events")
    shown = spark.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
    assert [it in shown for it in ("USING dbio", "PARTITIONED BY (day)", f"LOCATION '{lake}/events'")] == [True] * 3
    dbio.Table(lake / "events").set({"change_data": "true"})
    assert ("change_data", "true") in values(spark, f"SHOW TBLPROPERTIES {name}")
    spark.sql(f"USE dbio.{LAKE}")
    try:
        assert ids(spark.table("events")) == [*range(40)]
    finally:
        spark.sql("USE spark_catalog.default")


def test_drop_removes_what_a_drop_may_and_purge_removes_a_table(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[bool] = []
    dbio.write(numbers(spark, 0, 2), lake / "old")
    with pytest.raises(dbio.InvalidInputError, match="DROP TABLE … PURGE"):
        spark.sql(f"DROP TABLE dbio.{LAKE}.old")
    assert ids(spark.table(f"dbio.{LAKE}.old")) == [0, 1]
    monkeypatch.setattr(dbio.Table, "drop", lambda _, everything=False: dropped.append(everything))  # takes a minute
    spark.sql(f"DROP TABLE dbio.{LAKE}.old PURGE")
    assert dropped == [True]


def test_errors_of_dbio_arrive_as_themselves(spark: SparkSession, path: str) -> None:
    dbio.write(numbers(spark, 0, 2), path)
    marker = next(Path(path).glob("_committed_*"))
    marker.write_text("{")
    with pytest.raises(dbio.CorruptMarkerError, match=marker.name):
        spark.sql(f"SELECT * FROM dbio.`{path}`")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE dbio.{lake}.events DROP COLUMN kind",
        "CREATE TABLE dbio.{lake}.new (id BIGINT, at TIMESTAMP) PARTITIONED BY (days(at))",
        "CREATE TABLE dbio.{lake}.new (id BIGINT) USING orc",
        "ALTER TABLE dbio.{lake}.events RENAME TO dbio.{lake}.other",
        "COMMENT ON TABLE dbio.{lake}.events IS 'of the shop'",
        "CREATE NAMESPACE dbio.other",
    ],
)
def test_what_the_catalog_does_not_do_says_what_does(spark: SparkSession, lake: Path, statement: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match=r"the catalog dbio|a dbio table"):
        spark.sql(statement.format(lake=LAKE))


def test_statements_of_deltas_sql_say_what_to_type(spark: SparkSession, path: str) -> None:
    for statement, advice in {
        f"OPTIMIZE dbio.{LAKE}.events": f"CALL dbio.system.compact('dbio.{LAKE}.events')",
        f"DESCRIBE HISTORY dbio.`{path}`": f"CALL dbio.system.history('dbio.`{path}`')",
        f"DESC DETAIL dbio.{LAKE}.events": f"DESCRIBE EXTENDED dbio.{LAKE}.events",
    }.items():
        with pytest.raises(SPARK_ERRORS) as caught:
            spark.sql(statement)
        assert caught.value.__notes__ == [f"For a dbio table, type: {advice}"]


@pytest.fixture(autouse=True)
def _without_views(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("of_sql", "days"):
        spark.catalog.dropTempView(name)
