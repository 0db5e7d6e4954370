"""CREATE, REPLACE, ALTER, DESCRIBE and SHOW in SQL: in the catalog `dbio`, and in Spark's own catalog."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.commit import turns
from dbio_commit.spark.catalog import answers
from dbio_commit.spark.versions import HAS_CONSTRAINTS, HAS_DATA_SOURCES
from tests.spark_tables import SPARK_ERRORS, configured
from tests.streams import SPARK

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module", autouse=True)
def _catalog(spark: SparkSession) -> None:
    dbio.enable(spark)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a täble#1")


def rows(spark: SparkSession, query: str) -> Rows:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=str)


def operations(path: str) -> list[str]:
    return [commit.operation for commit in dbio.Table(path).history()]


def described(spark: SparkSession, name: str) -> dict[str, tuple[Any, ...]]:
    return {row[0]: tuple(row[1:]) for row in reversed(spark.sql(f"DESCRIBE EXTENDED {name}").collect())}


def refused(spark: SparkSession, *statements: tuple[str, type[Exception] | tuple[type[Exception], ...], str]) -> None:
    for statement, error, message in statements:
        with pytest.raises(error, match=message):
            spark.sql(statement)


# --- new tables ---------------------------------------------------------------------------------------------------


def test_a_table_with_columns_comments_partitions_and_settings_is_one_commit(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT NOT NULL, kind STRING DEFAULT 'none' COMMENT 'what', day STRING,
        up STRING GENERATED ALWAYS AS (upper(day)), it STRUCT<a: INT COMMENT 'inner'>)
        PARTITIONED BY (day) TBLPROPERTIES ('check.small' = 'id < 100')"""
    )
    settings = {
        "check.small": "id < 100",
        "not_null.id": "true",
        "default.kind": "'none'",
        "generated.up": "upper(day)",
    }
    assert (operations(path), dbio.Table(path).settings()) == (["append"], settings)
    # Before Spark 4.1, INSERT must name all columns.
    named, default = ("id, day, up", "") if SPARK >= (4, 1) else ("id, day, up, it, kind", ", NULL, DEFAULT")
    spark.sql(f"INSERT INTO {name} ({named}) VALUES (1, 'd0', 'D0'{default})")
    assert rows(spark, f"SELECT id, kind, day, up FROM {name}") == [(1, "none", "d0", "D0")]
    for values in ("NULL, 'd0', 'D0'", "2, 'd0', 'x'", "200, 'd0', 'D0'"):
        refused(
            spark,
            (f"INSERT INTO {name} ({named}) VALUES ({values}{default})", dbio.InvalidInputError, "1 row violates"),
        )
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (more INT COMMENT 'new', again STRING)")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN kind COMMENT 'it\\'s'")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN it.A COMMENT 'deep'")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('check.small' = 'id < 1000')")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN ID DROP NOT NULL")
    assert dbio.Table(path).settings() == {
        name: "id < 1000" if name == "check.small" else text for name, text in settings.items() if name != "not_null.id"
    }
    dbio.write(spark.sql("SELECT 2L AS id, 'k' AS kind, 'd1' AS day"), path, merge_schema=True)  # keeps comments
    assert operations(path)[:2] == ["append", "rewrite"]
    comments = {row[0]: row[2] for row in spark.sql(f"DESCRIBE {name}").collect() if row[2]}
    assert comments == {"kind": "it's", "more": "new", "# col_name": "comment"}
    inner: Any = spark.table(name).schema["it"].dataType
    assert inner["a"].metadata == {"comment": "deep"}
    refused(spark, (f"CREATE TABLE {name} (id BIGINT)", PySparkException, "TABLE_OR_VIEW_ALREADY_EXISTS"))
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} (id BIGINT)")


def test_create_table_as_select_is_one_transaction_and_a_failed_one_is_no_hindrance(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SETTLE_S", 0.1)  # partition columns change after this wait
    name = f"dbio.`{path}`"
    refused(
        spark,
        (
            f"CREATE TABLE {name} PARTITIONED BY (day) AS SELECT 1 / (id - 2) AS x, 'd0' AS day FROM range(5)",
            SPARK_ERRORS,
            "DIVIDE_BY_ZERO",
        ),
        (
            f"CREATE TABLE {name} PARTITIONED BY (x) TBLPROPERTIES ('check.small' = 'id < 2') "
            "AS SELECT id, 'x' AS x FROM range(3)",
            dbio.InvalidInputError,
            "1 row violates check.small",
        ),
    )
    assert not spark.catalog.tableExists(name)
    spark.sql(
        f"CREATE TABLE {name} PARTITIONED BY (d) TBLPROPERTIES ('check.small' = 'id < 3', 'change_data' = 'true') "
        "AS SELECT id, concat('d', id % 2) AS d FROM range(3)"
    )
    assert rows(spark, f"SELECT id, d FROM {name}") == [(0, "d0"), (1, "d1"), (2, "d0")]
    assert len(operations(path)) == 1
    found = dbio.Table(path).snapshot()
    assert found.partition_columns == ("d",)
    assert found.settings.items() >= {"check.small": "id < 3", "change_data": "true"}.items()
    refused(spark, (f"INSERT INTO {name} VALUES (3, 'd')", dbio.InvalidInputError, "1 row violates check.small"))


def test_replace_table_as_select_may_read_the_table_and_changes_nothing_if_it_fails(
    spark: SparkSession, path: str
) -> None:
    name = f"dbio.`{path}`"
    dbio.write(spark.range(3), path)
    replaced = f"CREATE OR REPLACE TABLE {name} TBLPROPERTIES ('check.small' = 'id < 2') AS SELECT"
    refused(
        spark,
        (f"CREATE OR REPLACE TABLE {name} AS SELECT 1 / (id - 2) AS id FROM range(5)", SPARK_ERRORS, "DIVIDE_BY"),
        (f"{replaced} id FROM {name}", dbio.InvalidInputError, "1 row violates check.small"),
    )
    assert (rows(spark, f"SELECT * FROM {name}"), dbio.Table(path).settings()) == ([(0,), (1,), (2,)], {})
    spark.sql(f"{replaced} id - 1 AS id, 'x' AS more FROM {name} WHERE id > 0")
    assert (rows(spark, f"SELECT * FROM {name}"), operations(path)) == ([(0, "x"), (1, "x")], ["overwrite", "append"])
    spark.sql(f"CREATE OR REPLACE TABLE {name} (id BIGINT COMMENT 'new') TBLPROPERTIES ('check.more' = 'id > 0')")
    assert (rows(spark, f"SELECT * FROM {name}"), spark.table(name).columns) == ([], ["id"])
    assert operations(path) == ["overwrite", "overwrite", "append"]
    assert dbio.Table(path).settings() == {"check.small": "id < 2", "check.more": "id > 0"}


def test_frames_create_and_replace_tables(spark: SparkSession, path: str) -> None:
    frame = spark.sql("SELECT 9L AS id, 'd1' AS day")
    new = frame.writeTo(f"dbio.`{path}`").partitionedBy(f.col("day")).tableProperty("check.small", "id < 20")
    new.create()
    frame.selectExpr("id + 1 AS id", "day").write.partitionBy("day").mode("overwrite").saveAsTable(f"dbio.`{path}`")
    assert rows(spark, f"SELECT id, day FROM dbio.`{path}`") == [(10, "d1")]
    assert dbio.Table(path).snapshot().partition_columns == ("day",)
    assert dbio.Table(path).settings() == {"check.small": "id < 20"}


def test_a_table_that_cannot_be_created_as_asked_is_not_created(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    refused(
        spark,
        (f"CREATE TABLE {name} (id BIGINT) LOCATION '/tmp/elsewhere'", dbio.InvalidInputError, "means the path"),
        (f"CREATE TABLE {name} (id INT) TBLPROPERTIES ('color' = 'red')", dbio.InvalidInputError, "no setting 'color'"),
        (f"CREATE TABLE {name} TBLPROPERTIES ('a' = 'b') AS SELECT 1 AS x", dbio.InvalidInputError, "no setting 'a'"),
        (f"CREATE TABLE {name} (id INT) TBLPROPERTIES ('check.a' = 'x > 0')", dbio.InvalidInputError, "check.a"),
        (f"CREATE TABLE {name} (t DATE) PARTITIONED BY (days(t))", dbio.InvalidInputError, "generated column"),
        (f"CREATE TABLE {name} (c ARRAY<VARCHAR(5)>)", dbio.InvalidInputError, "keeps no length of texts"),
        (f"CREATE TABLE {name} (id INT) COMMENT 'orders'", dbio.InvalidInputError, "keeps comments of columns"),
        (f"CREATE TABLE {name}", dbio.InvalidInputError, "there are no columns"),
    )
    assert not Path(path).exists()


@pytest.mark.skipif(not HAS_CONSTRAINTS, reason="the grammar of Spark 4.1")
def test_constraints_have_the_grammar_of_spark(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT CHECK (id < 100), n INT, CONSTRAINT positive CHECK (id > 0))")
    assert operations(path) == ["append"]
    (unnamed,) = dbio.Table(path).settings().keys() - {"check.positive"}
    assert unnamed.startswith("check.chk_")
    spark.sql(f"INSERT INTO {name} VALUES (1, 1)")
    refused(
        spark,
        (f"INSERT INTO {name} VALUES (0, 1)", dbio.InvalidInputError, "1 row violates check.positive"),
        (f"ALTER TABLE {name} ADD CONSTRAINT more CHECK (n > 1)", dbio.InvalidInputError, "1 row violates check.more"),
        (f"ALTER TABLE {name} ADD CONSTRAINT Positive CHECK (n > 0)", dbio.InvalidInputError, "'positive'.* already"),
        (f"ALTER TABLE {name} DROP CONSTRAINT nothing", dbio.InvalidInputError, "no constraint 'nothing'"),
        (f"CREATE TABLE dbio.`{path}2` (id INT, PRIMARY KEY (id))", dbio.InvalidInputError, "PRIMARY KEY"),
    )
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT more CHECK (n >= 1)")
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT POSITIVE")
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS nothing")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n SET DEFAULT 7")
    assert dbio.Table(path).settings() == {unnamed: "id < 100", "check.more": "n >= 1", "default.n": "7"}
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n DROP DEFAULT")
    assert dbio.Table(path).settings() == {unnamed: "id < 100", "check.more": "n >= 1"}


# --- about tables -------------------------------------------------------------------------------------------------


def test_show_and_describe_have_all_that_a_table_is(spark: SparkSession, path: str) -> None:
    name = f"dbio.`{path}`"
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT NOT NULL COMMENT 'the "id"', kind STRING DEFAULT 'it', n INT, day DATE)
        PARTITIONED BY (day, n) TBLPROPERTIES ('check.small' = "kind <> 'no'", 'change_data' = 'true')"""
    )
    spark.sql(f"INSERT INTO {name} SELECT id, 'a', DATE'2026-11-20' + INT(id), id % 2 FROM range(4)")
    spark.sql(f"INSERT INTO {name} VALUES (9, 'b', NULL, NULL)")
    snapshot = dbio.Table(path).snapshot()
    facts = described(spark, name)["Table Properties"][0]
    size = sum(file.size for file in snapshot.files)
    for fact in (
        f"dbio.files=5,dbio.partitions=5,dbio.tid={snapshot.tid}",
        f"dbio.bytes={size}",
        "check.small=kind <>",
    ):
        assert fact in facts
    created = spark.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
    other = path + "copy"
    spark.sql(created.replace(path, other))
    copy = dbio.Table(other).snapshot()
    assert (copy.schema, copy.settings, copy.partition_columns) == (
        snapshot.schema,
        snapshot.settings,
        snapshot.partition_columns,
    )
    assert "dbio.tid" not in created + str(rows(spark, f"SHOW TBLPROPERTIES {name}"))
    listed = [f"day=2026-11-{20 + i}/n={i % 2}" for i in range(4)]
    nulls = spark.sql(f"SHOW PARTITIONS {name}").collect()[-1][0]
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {name}").collect()] == [*listed, nulls]
    assert rows(spark, f"SHOW PARTITIONS {name} PARTITION (n = 1)") == [(listed[1],), (listed[3],)]


def test_partitions_are_dropped_in_one_commit(spark: SparkSession, path: str) -> None:
    name, day = f"dbio.`{path}`", "day = '2026-11-2{}'"
    dates = spark.sql("SELECT id, DATE'2026-11-20' + INT(id) AS day, concat('a/b ', id % 2) AS n FROM range(6)")
    dbio.write(dates, path, partition_by=["day", "n"])
    first, second = (f"PARTITION ({day.format(i)}, n = 'a/b {i % 2}')" for i in (1, 2))
    spark.sql(f"ALTER TABLE {name} DROP {first}, {second}")
    assert rows(spark, f"SELECT id FROM {name}") == [(0,), (3,), (4,), (5,)]
    spark.sql(f"ALTER TABLE {name} DROP IF EXISTS {first}")
    spark.sql(f"TRUNCATE TABLE {name} PARTITION ({day.format(3)}, n = 'a/b 1')")
    assert rows(spark, f"SELECT id FROM {name}") == [(0,), (4,), (5,)]
    assert operations(path) == ["overwrite_partitions", "overwrite_partitions", "append"]
    refused(
        spark,
        (f"ALTER TABLE {name} DROP {first}", PySparkException, "PARTITIONS_NOT_FOUND|NoSuchPartitions"),
        (f"ALTER TABLE {name} ADD {first}", dbio.InvalidInputError, "insert some"),
    )


# --- Spark's own catalog ------------------------------------------------------------------------------------------


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    spark.sql("CREATE DATABASE places")
    yield "places"
    spark.sql("DROP DATABASE places CASCADE")


@pytest.mark.long
@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="Spark 3.5 knows no data source of the name")
def test_sparks_own_catalog_names_tables(spark: SparkSession, path: str, database: str) -> None:
    name, values = f"{database}.events", f"SELECT * FROM {database}.events"
    spark.sql(
        f"""CREATE TABLE {name} (id BIGINT COMMENT 'the id', day STRING) USING dbio PARTITIONED BY (day)
        LOCATION '{path}' TBLPROPERTIES ('check.small' = 'id < 100')"""
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    first = dbio.Table(path).snapshot().tid
    with configured(spark, {"spark.sql.storeAssignmentPolicy": "ANSI"}):
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (more INT)")
        dbio.write(spark.sql("SELECT 5L id, 'x' day, 7 more, 8 other"), path, merge_schema=True)  # by another job
        assert spark.table(name).columns == ["id", "more", "other", "day"]
        spark.sql(f"UPDATE {name} SET more = 1 WHERE id = 1")
        spark.sql(f"DELETE FROM {name} WHERE id = 2")
        spark.sql(f"MERGE INTO {name} t USING (SELECT 5L id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET day = 'y'")
        spark.sql(f"ALTER TABLE {name} DROP PARTITION (day = 'c')")
    assert rows(spark, values) == [(1, 1, None, "a"), (5, 7, 8, "y")]
    assert rows(spark, f"{values} VERSION AS OF '{first}'") == [(1, "a"), (2, "b"), (3, "c")]
    assert rows(spark, f"{values} JOIN dbio.`{path}` USING (id)") == [
        (1, 1, None, "a", 1, None, "a"),
        (5, 7, 8, "y", 7, 8, "y"),
    ]
    assert [row[0] for row in rows(spark, f"SHOW PARTITIONS {name}")] == ["day=a", "day=y"]
    assert described(spark, name)["Location"][0] == path
    refused(
        spark,
        (f"INSERT INTO {name} VALUES (100, 1, 1, 'a')", dbio.InvalidInputError, "violates check.small"),
        (f"CREATE TABLE {name} (id INT) USING dbio LOCATION '{path}'", PySparkException, "ALREADY_EXISTS"),
        (f"CREATE TABLE places.x (id INT) USING dbio LOCATION '{path}'", dbio.TableExistsError, "without columns"),
        (f"CREATE TABLE places.x USING dbio LOCATION '{path}x'", dbio.InvalidInputError, "there is no table"),
        ("CREATE TABLE places.x (id INT) USING dbio", dbio.InvalidInputError, "add LOCATION"),
        ("CREATE TABLE places.x (id INT) USING dbio LOCATION 'x'", dbio.InvalidInputError, "no absolute path"),
        (f"ALTER TABLE {name} SET LOCATION '/tmp/x'", dbio.InvalidInputError, "does not change"),
    )
    spark.sql(f"CREATE TABLE places.again USING dbio LOCATION '{path}'")
    spark.sql("ALTER TABLE places.again RENAME TO places.renamed")
    assert rows(spark, "SELECT id FROM places.renamed") == [(1,), (5,)]
    for table in ("events", "renamed PURGE"):
        spark.sql(f"DROP TABLE places.{table}")
    assert rows(spark, f"SELECT id FROM dbio.`{path}`") == [(1,), (5,)]


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="Spark 3.5 knows no data source of the name")
def test_sparks_own_catalog_takes_rows_of_queries_and_frames(spark: SparkSession, path: str, database: str) -> None:
    name, place = f"{database}.views", f"USING dbio LOCATION '{path}'"
    cached = spark.range(1).cache()  # then Spark refreshes what a statement writes
    refused(
        spark,
        (f"CREATE TABLE {name} {place} AS SELECT 1 / (id - 1) AS x FROM range(3)", PySparkException, "DIVIDE_BY_ZERO"),
    )
    assert not spark.catalog.tableExists(name)
    spark.sql(f"CREATE TABLE {name} {place} TBLPROPERTIES ('check.p' = 'id >= 0') AS SELECT id FROM range(3)")
    spark.sql(f"CREATE OR REPLACE TABLE {name} USING dbio AS SELECT id + 1 AS id FROM {name}")
    assert operations(path) == ["overwrite", "append"]
    cached.write.format("dbio").mode("append").saveAsTable(name)
    cached.unpersist()
    spark.range(9, 10).write.insertInto(name)
    assert rows(spark, f"SELECT id FROM {name}") == [(0,), (1,), (2,), (3,), (9,)]
    spark.range(2).write.format("dbio").option("path", f"{path}2").saveAsTable("places.saved")
    spark.catalog.createTable("places.named", path=f"{path}2", source="dbio")
    assert rows(spark, "SELECT * FROM places.saved JOIN places.named USING (id)") == [(0,), (1,)]


def test_other_tables_of_sparks_own_catalog_are_as_before(spark: SparkSession, tmp_path: Path, database: str) -> None:
    name = f"{database}.plain"
    spark.sql(f"CREATE TABLE {name} USING parquet PARTITIONED BY (b) AS SELECT 1 AS a, 2 AS b")
    spark.sql(f"INSERT INTO {name} VALUES (3, 4)")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION (b = 2)")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (c INT)")
    spark.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS")
    spark.sql(f"CREATE VIEW places.seen AS SELECT * FROM {name}")
    assert rows(spark, "SELECT * FROM places.seen") == rows(spark, f"SELECT * FROM {name}") == [(3, None, 4)]
    assert described(spark, name)["Provider"][0] == "parquet"
    spark.sql(f"CREATE TABLE places.like_it LIKE {name}")
    assert [row[1] for row in rows(spark, "SHOW TABLES IN places") if not row[2]] == ["like_it", "plain", "seen"]
    refused(
        spark,
        (f"CREATE TABLE {name} (x INT) USING parquet", PySparkException, "ALREADY_EXISTS"),
        ("SELECT * FROM places.nothing", PySparkException, "TABLE_OR_VIEW_NOT_FOUND"),
    )


def test_another_session_catalog_stays(spark: SparkSession) -> None:
    session = spark.newSession()
    other = "org.example.Catalog"
    session.conf.set(answers._SESSION_SETTING, other)
    dbio.enable(session)
    assert session.conf.get(answers._SESSION_SETTING) == other
    assert spark.conf.get(answers._SESSION_SETTING) == answers._SESSION_CATALOG


# --- inside of a table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["sub", "_delta_log"])
def test_no_statement_and_no_write_makes_a_table_inside_of_a_table(spark: SparkSession, path: str, inside: str) -> None:
    """Other ways: tests/unit/commit/test_tables_apart.py. Rules: PROTOCOL.md 2.1."""
    data = spark.range(3)
    dbio.write(data, path)
    inner = f"{path}/{inside}"
    name = f"inner_{inside.strip('_')}"
    ways: dict[str, Callable[[], object]] = {
        "write": lambda: dbio.write(data, inner),
        "create": lambda: spark.sql(f"CREATE TABLE dbio.`{inner}` (id BIGINT)"),
        "create as": lambda: spark.sql(f"CREATE TABLE dbio.`{inner}` AS SELECT * FROM RANGE(3)"),
    }
    if HAS_DATA_SOURCES:
        in_catalog = f"CREATE TABLE {name} (id BIGINT) USING dbio LOCATION '{inner}'"
        ways["create in Spark's catalog"] = lambda: spark.sql(in_catalog)
        ways["data source"] = lambda: data.write.format("dbio").mode("append").save(inner)
    for way, call in ways.items():
        with pytest.raises((dbio.InvalidInputError, *SPARK_ERRORS), match="lies in the table"):
            print(way, call())
    assert not [*Path(inner).glob("_*")]
    assert dbio.Table(path).vacuum(dry_run=True).ok
