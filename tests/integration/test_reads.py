"""Reads of Parquet by code that knows nothing of dbio, in a session with `enable(parquet=True)`: committed rows only.

Each state of a directory is read in each way in which Spark reads Parquet.
"""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from dbio_commit.protocol import names
from dbio_commit.spark.catalog import reads
from dbio_commit.spark.catalog.reads import SWITCH
from dbio_commit.spark.catalog.tables import SqlTables
from dbio_commit.table import Table
from tests import spark35
from tests.counted_files import counted_files
from tests.spark_tables import SPARK_ERRORS, configured, ids
from tests.tiny_parts import tiny_parts

Way = Callable[[SparkSession, str], DataFrame]
DEAD = "part-00000-tid-7-0b1f0a1e-6f2c-4a3e-9d55-0c9f5c1f7a10-0-0-c000.snappy.parquet"
COLUMNS = "id BIGINT, v DOUBLE, day STRING"


@pytest.fixture
def spark(enabled: SparkSession) -> Iterator[SparkSession]:
    yield enabled
    for name in ("over_path", "inferred", "flat_columns"):
        enabled.sql(f"DROP TABLE IF EXISTS {name}")
    enabled.sql("DROP VIEW IF EXISTS stored_view")
    enabled.catalog.clearCache()


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    """Partitions '01', '02' and '03', whose names look like numbers."""
    return spark.range(start, end, 1, 1).selectExpr("id", "id * 1.0D AS v", "lpad(id % 3 + 1, 2, '0') AS day")


def dead_file(directory: str | Path, columns: Mapping[str, Any], name: str = DEAD) -> None:
    """What a killed job has left."""
    os.makedirs(directory, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), f"{directory}/{name}")


# --- states of a directory ----------------------------------------------------------------------------------------


def overwritten(spark: SparkSession, path: str) -> list[int]:
    dbio.write(rows(spark, 100, 109), path, partition_by="day")
    dbio.write(rows(spark, 0, 9), path, mode="overwrite")
    return list(range(9))


def with_dead_files(spark: SparkSession, path: str) -> list[int]:
    found = overwritten(spark, path)
    dead_file(f"{path}/day=01", {"id": [200], "v": [2.0]})
    dead_file(f"{path}/day=09", {"id": [201], "v": [2.0]})
    return found


def with_dead_files_of_another_type(spark: SparkSession, path: str) -> list[int]:
    found = with_dead_files(spark, path)
    dead_file(f"{path}/day=01", {"id": ["x"], "other": [7]}, f"part-0-{DEAD}")
    return found


def emptied(spark: SparkSession, path: str) -> list[int]:
    with_dead_files(spark, path)
    dbio.delete(spark, path, "true")
    return []


def undecided(spark: SparkSession, path: str) -> list[int]:
    dbio.write(rows(spark, 0, 9), path, partition_by="day")
    (tid,) = dbio.Table(path).snapshot().tids
    os.unlink(f"{path}/{names.committed(tid)}")
    return []


def directory_of_dbio(spark: SparkSession, path: str) -> list[int]:
    """Of Databricks: each partition has its own markers."""
    rows(spark, 0, 9).write.partitionBy("day").parquet(path)
    table = dbio.Table(path)
    for day in ("01", "02", "03"):
        dead_file(f"{path}/day={day}", {"id": [300], "v": [3.0]})
        Path(path, f"day={day}", names.started("7")).write_text("{}")
    assert table.snapshot().scope == "directory"
    return list(range(9))


STATES: list[Callable[[SparkSession, str], list[int]]] = [
    with_dead_files_of_another_type,
    overwritten,
    with_dead_files,
    emptied,
    undecided,
    directory_of_dbio,
]

# --- ways to read it ----------------------------------------------------------------------------------------------


def sql(text: str) -> Way:
    """The statements, the last of which gives rows."""

    def read(spark: SparkSession, path: str) -> DataFrame:
        *before, last = (it.format(path=path, columns=COLUMNS) for it in text.split(";"))
        for statement in before:
            spark.sql(statement)
        return spark.sql(last)

    return read


def in_thread(spark: SparkSession, path: str) -> DataFrame:
    found: list[DataFrame] = []
    thread = threading.Thread(target=lambda: found.append(spark.newSession().read.parquet(path)))
    thread.start()
    thread.join()
    return found[0]


_PARTITIONED = (
    "DROP TABLE IF EXISTS over_path;"
    "CREATE TABLE over_path ({columns}) USING parquet PARTITIONED BY (day) LOCATION '{path}';"
)
WITHOUT_COLUMNS: Mapping[str, Way] = {
    "parquet": lambda spark, path: spark.read.parquet(path),
    "format": lambda spark, path: spark.read.format("parquet").load(path),
    "load": lambda spark, path: spark.read.load(path),
    "path as an option": lambda spark, path: spark.read.option("path", path).format("parquet").load(),
    "SQL": sql("SELECT * FROM parquet.`{path}`"),
    "SQL in a subquery": sql("SELECT id FROM range(1000) WHERE id IN (SELECT id FROM parquet.`{path}`)"),
    "SQL in WITH": sql("WITH t AS (SELECT * FROM parquet.`{path}`) SELECT id FROM t WHERE id IN (SELECT id FROM t)"),
    "table": lambda spark, path: spark.table(f"parquet.`{path}`"),
    "temporary view": sql(
        "CREATE OR REPLACE TEMPORARY VIEW v USING parquet OPTIONS (path '{path}');SELECT * FROM v"
    ),
    "global view": sql(
        "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v USING parquet OPTIONS (path '{path}');SELECT * FROM global_temp.v"
    ),
    "stored view": sql(
        "CREATE OR REPLACE VIEW stored_view AS SELECT * FROM parquet.`{path}`;SELECT * FROM stored_view"
    ),
    "mergeSchema": lambda spark, path: spark.read.option("mergeSchema", "true").parquet(path),
    "an option": lambda spark, path: spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(path),
    "glob": lambda spark, path: spark.read.parquet(f"{path}/day=0*"),
    "glob of files": lambda spark, path: spark.read.parquet(f"{path}/*/*.parquet"),
    "glob with basePath": lambda spark, path: spark.read.option("basePath", path).parquet(f"{path}/day=0[0-9]"),
    "glob of tables": lambda spark, path: spark.read.parquet(f"{os.path.dirname(path)}/tab*"),
    "partitions": lambda spark, path: spark.read.parquet(*(f"{path}/day={day}" for day in ("01", "02", "03"))),
    "recursive": lambda spark, path: spark.read.option("recursiveFileLookup", "true").parquet(path),
    "recursive, above": lambda spark, path: spark.read.option("recursiveFileLookup", "true").parquet(
        os.path.dirname(path)
    ),
    "pathGlobFilter": lambda spark, path: spark.read.option("pathGlobFilter", "*.parquet").parquet(path),
    "modifiedAfter": lambda spark, path: spark.read.option("modifiedAfter", "2020-01-01T00:00:00").parquet(path),
    "self-join": lambda spark, path: (it := spark.read.parquet(path)).alias("a").join(it.alias("b"), "id"),
    "newSession": lambda spark, path: spark.newSession().read.parquet(path),
    "thread": in_thread,
}  # fmt: skip
WITH_COLUMNS: Mapping[str, Way] = {
    "schema": lambda spark, path: spark.read.schema("id BIGINT, day INT").parquet(path),
    "view with columns": sql(
        "CREATE OR REPLACE TEMPORARY VIEW v (id BIGINT, day STRING) USING parquet OPTIONS (path '{path}');"
        "SELECT * FROM v"
    ),
    "partitioned table": sql(_PARTITIONED + "SELECT * FROM over_path"),
    "repaired table": sql(_PARTITIONED + "MSCK REPAIR TABLE over_path;SELECT * FROM over_path"),
    "unpartitioned table": sql(
        "DROP TABLE IF EXISTS flat_columns;CREATE TABLE flat_columns (id BIGINT) USING parquet LOCATION '{path}';"
        "SELECT * FROM flat_columns"
    ),
}


def found_by(way: Way, spark: SparkSession, path: str) -> list[int] | str:
    try:
        frame = way(spark, path)
        found = ids(frame)
        return found if frame.count() == len(found) else f"{len(found)} rows, counted as {frame.count()}"
    except SPARK_ERRORS as error:
        return str(error)[:300]


@pytest.mark.parametrize("state", STATES)
def test_each_way_to_read_gives_the_committed_rows(
    spark: SparkSession, tmp_path: Path, state: Callable[[SparkSession, str], list[int]]
) -> None:
    path = str(tmp_path / "lake" / "table")
    expected = state(spark, path)
    ways = {**WITH_COLUMNS} if state is undecided else {**WITHOUT_COLUMNS, **WITH_COLUMNS}
    if state is directory_of_dbio:
        del ways["partitioned table"]  # Spark's catalog knows no partition of it before the repair
    if state is with_dead_files_of_another_type and spark35.IS_USED:
        del ways["mergeSchema"]  # Spark 3.5 reads the footers first
    found = {name: found_by(way, spark, path) for name, way in ways.items()}
    assert {name: it for name, it in found.items() if it != expected} == {}


# --- what a read finds if there are no rows -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["parquet", "glob", "SQL"])
def test_a_table_whose_first_write_is_not_committed_is_read_as_a_directory_without_files(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    """Code that catches this error of Spark, before a first run, goes on."""
    path = str(tmp_path / "table")
    undecided(spark, path)
    with pytest.raises(AnalysisException, match=r"UNABLE_TO_INFER_SCHEMA.* no write of it has been committed"):
        WITHOUT_COLUMNS[way](spark, path)


def test_an_emptied_table_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    emptied(spark, path)
    assert spark.read.parquet(path).dtypes == [("id", "bigint"), ("v", "double"), ("day", "string")]
    assert spark.read.parquet(f"{path}/day=01").dtypes == [("id", "bigint"), ("v", "double")]
    assert spark.read.option("basePath", path).parquet(f"{path}/day=*").columns == ["id", "v", "day"]


def test_a_table_that_is_dropped_is_no_path(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    Path(path, names.DROPPED).write_text('{"version": 1, "everything": true, "created": "2026-11-20T12:00:00Z"}')
    for name in ("parquet", "SQL", "glob", "partitions", "repaired table"):
        with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
            {**WITHOUT_COLUMNS, **WITH_COLUMNS}[name](spark, path).collect()
    shutil.rmtree(path)
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        spark.read.parquet(path)


# --- one moment ---------------------------------------------------------------------------------------------------


def test_a_frame_is_pinned_when_it_is_made_and_a_name_is_read_by_each_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    ways = {**WITHOUT_COLUMNS, **WITH_COLUMNS}
    pinned = {name: ways[name](spark, path) for name in ("parquet", "glob", "partitions", "schema", "repaired table")}
    ways["temporary view"](spark, path)
    dbio.write(rows(spark, 20, 22), path, mode="overwrite")
    assert {name: ids(frame) for name, frame in pinned.items()} == {name: [*range(9)] for name in pinned}
    assert {name: frame.where("id < 4").count() for name, frame in pinned.items()} == dict.fromkeys(pinned, 4)
    for fresh in (*(ways[name](spark, path) for name in pinned), spark.table("v"), spark.table("over_path")):
        assert ids(fresh) == [20, 21]


@pytest.mark.parametrize(
    "way", ["parquet", "recursive, above", "glob", "glob of tables", "partitions", "modifiedAfter", "repaired table"]
)
def test_a_commit_while_spark_lists_is_seen_whole_or_not_at_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path = str(tmp_path / "lake" / "table")
    old = overwritten(spark, path)
    load = SqlTables.load_for_files
    loads: list[str] = []

    def late(tables: SqlTables, session: SparkSession, root: str) -> Any:
        """Spark has listed, and the snapshot comes after another commit."""
        if not loads:
            dbio.write(rows(spark, 20, 27).withColumn("day", f.lit("07")), path, mode="overwrite")
        loads.append(root)
        return load(tables, session, root)

    monkeypatch.setattr(SqlTables, "load_for_files", late)
    frame = {**WITHOUT_COLUMNS, **WITH_COLUMNS}[way](spark, path)
    new = list(range(20, 27)) if way != "partitions" else []  # it asks for others
    assert ids(frame) in (old, new)
    assert loads


def test_rows_of_an_unreadable_log_are_an_error_and_never_a_listing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lake" / "table")
    overwritten(spark, path)
    rows(spark, 0, 5).write.parquet(str(tmp_path / "plain"))
    ways = {name: it for name, it in {**WITHOUT_COLUMNS, **WITH_COLUMNS}.items() if name != "thread"}

    def fail(*_: object) -> None:
        raise dbio.StoreError("the listing was refused")

    monkeypatch.setattr(Table, "snapshot", fail)
    for name, way in ways.items():
        with pytest.raises(dbio.StoreError, match="the listing was refused"):
            print(name, ids(way(spark, path)))
    assert spark.read.parquet(str(tmp_path / "plain")).count() == 5


# --- what it costs ------------------------------------------------------------------------------------------------


def test_a_read_of_another_directory_costs_one_look_and_none_for_its_children(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "plain")
    rows(spark, 0, 9).write.partitionBy("day").parquet(path)
    spark.sql(f"CREATE TABLE over_path ({COLUMNS}) USING parquet PARTITIONED BY (day) LOCATION '{path}'")
    spark.sql("MSCK REPAIR TABLE over_path")
    with counted_files(spark) as asked:
        for name in ("parquet", "SQL", "mergeSchema", "schema", "glob"):
            asked.reset()
            frame = {**WITHOUT_COLUMNS, **WITH_COLUMNS}[name](spark, path)
            assert frame.where("id < 5").count() == 5
            looks = {place for place in asked.of("isFile") if place.endswith(names.DESCRIPTOR)}
            if name == "glob":
                assert f"{path}/{names.DESCRIPTOR}" in looks
            else:
                assert asked.of("isFile") == {f"{path}/{names.DESCRIPTOR}": 1}, name
        asked.reset()
        assert spark.table("over_path").where("day = '01'").count() == 3
        assert asked.of("isFile") == {f"{path}/{names.DESCRIPTOR}": 1}


@pytest.mark.parametrize("way", ["parquet", "SQL", "glob", "partitions", "schema", "repaired table", "temporary view"])
def test_spark_lists_nothing_of_a_table(spark: SparkSession, tmp_path: Path, way: str) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    ways = {**WITHOUT_COLUMNS, **WITH_COLUMNS}
    if way == "repaired table":
        ways[way](spark, path)  # MSCK lists
        ways[way] = lambda spark, path: spark.table("over_path")
    with counted_files(spark) as asked:
        asked.reset()
        assert len(ids(ways[way](spark, path))) == 9
        assert not [place for place in asked.of("list") if place.startswith(path)]


def test_files_are_left_out_by_statistics_and_counts_come_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for start in (0, 10, 20):
        dbio.write(spark.range(start, start + 10, 1, 1), path)
    one = spark.read.parquet(path).where("id = 15")
    assert [row.id for row in one.collect()] == [15]
    scan = one._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.metrics().apply("numFiles").value() == 1
    counted = spark.read.parquet(path).groupBy().count()
    assert counted.collect()[0][0] == 30
    assert "FileScan" not in counted._jdf.queryExecution().executedPlan().toString()


@pytest.mark.long
def test_statistics_of_another_type_leave_no_file_out(spark: SparkSession, tmp_path: Path) -> None:
    """As text, '9' is more than '10'."""
    path = str(tmp_path / "table")
    dbio.write(spark.range(5, 15).selectExpr("id", "int(id) AS n"), path)
    assert ids(spark.read.schema("id BIGINT, n BIGINT").parquet(path).where("n > 8.5")) == [9, 10, 11, 12, 13, 14]


# --- columns and types --------------------------------------------------------------------------------------------


def test_recorded_types_win_and_those_of_the_caller_win_over_them(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    assert spark.read.parquet(path).select("day").distinct().orderBy("day").collect()[0].day == "01"
    assert dict(spark.read.option("basePath", path).parquet(f"{path}/day=0*").dtypes)["day"] == "string"
    given = spark.read.schema("v DOUBLE, day INT").parquet(path)
    assert given.dtypes == [("v", "double"), ("day", "int")]
    assert given.where("day = 1").count() == 3
    assert spark.read.schema("id BIGINT").parquet(path).dtypes == [("id", "bigint"), ("day", "string")]


def test_partition_columns_come_last_as_spark_has_them(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(rows(spark, 0, 9).select("day", "v", "id"), path, partition_by="day")
    assert spark.read.parquet(path).columns == ["v", "id", "day"]
    assert spark.read.option("mergeSchema", "true").parquet(path).columns == ["v", "id", "day"]
    assert spark.read.option("int96RebaseMode", "LEGACY").parquet(path).columns == ["v", "id", "day"]


def test_what_is_read_can_be_changed_and_written_back(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    changed = spark.read.parquet(path).where("id < 5").withColumn("v", f.col("v") + 1)
    changed.write.mode("overwrite").partitionBy("day").parquet(path)
    assert [row.v for row in spark.read.parquet(path).orderBy("id").collect()] == [1.0, 2.0, 3.0, 4.0, 5.0]


# --- other ways, and what is refused ------------------------------------------------------------------------------


def test_tables_and_other_directories_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    one, two, plain = (str(tmp_path / name) for name in ("one", "two", "plain"))
    for path, start in ((one, 0), (two, 10)):
        dbio.write(spark.range(100), path)
        dbio.write(spark.range(start, start + 3), path, mode="overwrite")
        dead_file(path, {"id": ["x"]})
    spark.range(50, 52).write.parquet(plain)
    assert ids(spark.read.parquet(one, two)) == [0, 1, 2, 10, 11, 12]
    assert ids(spark.read.parquet(one, two, plain)) == [0, 1, 2, 10, 11, 12, 50, 51]
    assert ids(spark.read.parquet(one).unionByName(spark.read.parquet(two))) == [0, 1, 2, 10, 11, 12]
    assert ids(spark.read.parquet(f"{tmp_path}/*")) == [0, 1, 2, 10, 11, 12, 50, 51]


def test_a_file_by_its_name_is_read_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.range(3), path)
    before = dbio.Table(path).snapshot().urls()
    dbio.write(spark.range(10, 12), path, mode="overwrite")
    assert ids(spark.read.parquet(*before)) == [0, 1, 2]
    assert ids(spark.read.parquet(before[0], *before[1:])) == [0, 1, 2]


def test_a_stream_over_a_table_is_refused_and_says_what_to_write(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    for place in (path, f"{path}/day=01", f"{path}/day=*"):
        with pytest.raises(dbio.UnsupportedTableError, match=r'readStream.format\("dbio"\).load\(') as caught:
            spark.readStream.schema("id BIGINT").parquet(place)
        assert path in str(caught.value)
    spark.sql(f"CREATE TABLE over_path ({COLUMNS}) USING parquet PARTITIONED BY (day) LOCATION '{path}'")
    with pytest.raises(dbio.UnsupportedTableError, match="is a dbio table, and a stream of its files"):
        spark.readStream.table("over_path")


@pytest.mark.long
def test_a_batch_of_a_stream_reads_tables(spark: SparkSession, tmp_path: Path) -> None:
    path, plain = str(tmp_path / "table"), str(tmp_path / "plain")
    with_dead_files(spark, path)
    spark.range(2).write.parquet(plain)
    found: list[list[int]] = []

    def batch(frame: DataFrame, _: int) -> None:
        found.append(ids(frame.sparkSession.read.parquet(path)))

    stream = spark.readStream.schema("id BIGINT").parquet(plain)
    query = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert found == [list(range(9))]


def test_more_than_a_hundred_tables_in_one_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    dbio.write(spark.range(1), tmp_path / "lake" / "t0")
    for number in range(1, 101):
        shutil.copytree(tmp_path / "lake" / "t0", tmp_path / "lake" / f"t{number}")
    with pytest.raises(dbio.UnsupportedTableError, match="one read of Parquet is of 101 dbio tables"):
        spark.read.parquet(f"{tmp_path}/lake/*")


@pytest.mark.long
def test_spark_s_second_reader_of_parquet_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "lake" / "table")
    overwritten(spark, path)
    rows(spark, 0, 5).write.parquet(str(tmp_path / "plain"))
    with configured(spark, {"spark.sql.sources.useV1SourceList": ""}):
        assert spark.read.parquet(str(tmp_path / "plain")).count() == 5
        with pytest.raises(dbio.UnsupportedTableError, match=r"unset spark\.sql\.sources\.useV1SourceList"):
            WITHOUT_COLUMNS["glob of tables"](spark, path)


def test_the_switch_of_the_session_gives_all_files_and_frames_stay_as_they_were_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    WITH_COLUMNS["repaired table"](spark, path)
    spark.conf.set(SWITCH, "off")
    raw, named = spark.read.parquet(path), spark.table("over_path")
    spark.conf.set(SWITCH, "on")
    for frame in (raw, named):
        assert frame.count() == 18
        assert frame.alias("a").join(frame.alias("b"), "id").count() == 18
        assert frame.where("id < 5").count() == 5
    assert spark.read.parquet(path).count() == spark.table("over_path").count() == 9


def test_a_cached_frame_stays_and_a_fresh_read_of_the_same_state_uses_it(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    ways = {name: {**WITHOUT_COLUMNS, **WITH_COLUMNS}[name] for name in ("parquet", "glob", "schema", "repaired table")}
    cached = {name: way(spark, path).cache() for name, way in ways.items()}
    ways["repaired table"] = lambda spark, path: spark.table("over_path")
    for name, way in ways.items():
        assert cached[name].count() == 9
        assert "InMemoryTableScan" in way(spark, path)._jdf.queryExecution().executedPlan().toString(), name
    dbio.write(rows(spark, 20, 22), path)
    for name, way in ways.items():
        assert cached[name].count() == 9
        assert ids(way(spark, path)) == [*range(9), 20, 21]


# --- tables of Spark's catalog ------------------------------------------------------------------------------------


def test_statements_on_a_table_of_the_catalog_work(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    with_dead_files(spark, path)
    WITH_COLUMNS["repaired table"](spark, path)
    spark.sql("ANALYZE TABLE over_path COMPUTE STATISTICS")
    spark.sql("INSERT INTO over_path VALUES (20, 1.0, '07')")
    assert ids(spark.table("over_path")) == [*range(9), 20]
    spark.sql("INSERT OVERWRITE over_path SELECT id + 100, v, day FROM parquet.`" + path + "` WHERE id < 3")
    assert ids(spark.table("over_path")) == [100, 101, 102]
    assert spark.sql("SELECT count(*) FROM over_path WHERE day = '01'").collect()[0][0] == 1
    spark.sql("CACHE TABLE over_path")
    dbio.write(rows(spark, 7, 8), path, mode="overwrite")
    assert ids(spark.table("over_path")) == [7]


@pytest.mark.long
def test_a_bucketed_table_of_the_catalog_is_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    dbio.enable(spark, parquet=True, roots=[tmp_path])
    spark.range(20).write.bucketBy(2, "id").option("path", path).saveAsTable("inferred")
    dbio.write(spark.range(20, 25), path)
    found = spark.table("inferred")
    assert ids(found) == list(range(25))
    assert found.alias("a").join(spark.table("inferred").alias("b"), "id").count() == 25


def test_a_partition_that_the_catalog_has_elsewhere_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    overwritten(spark, path)
    WITH_COLUMNS["repaired table"](spark, path)
    for read in (f"ALTER TABLE over_path ADD PARTITION (day = '11') LOCATION '{tmp_path}/else'", "TABLE over_path"):
        with pytest.raises(dbio.UnsupportedTableError, match=f"{tmp_path}/else, outside of the dbio table"):
            spark.sql(read).collect()
    spark.sql("ALTER TABLE over_path DROP PARTITION (day = '11')")
    assert ids(spark.table("over_path")) == list(range(9))


@pytest.mark.long
def test_a_dbio_table_that_the_catalog_has_as_a_partition_gives_committed_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The table around it is none of dbio."""
    plain, path = str(tmp_path / "plain"), str(tmp_path / "table")
    rows(spark, 0, 9).write.partitionBy("day").parquet(plain)
    dbio.write(spark.range(50, 55).selectExpr("id", "1.0D AS v"), path)
    dbio.write(spark.range(60, 62).selectExpr("id", "1.0D AS v"), path, mode="overwrite")
    WITH_COLUMNS["repaired table"](spark, plain)
    spark.sql(f"ALTER TABLE over_path ADD PARTITION (day = '11') LOCATION '{path}'")
    assert ids(spark.table("over_path")) == [*range(9), 60, 61]
    assert ids(spark.table("over_path").where("day = '11'")) == [60, 61]


def test_where_spark_lacks_what_the_rules_need_enable_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Lacking:
        @staticmethod
        def addTo(session: object) -> str:
            return "java.lang.NoSuchFieldException: extendedResolutionRules"

    monkeypatch.setattr(reads, "java_class", lambda *_: Lacking)
    dbio.enable(spark, parquet=True)
    assert "NoSuchFieldException: extendedResolutionRules" in caplog.text
    assert "spark.read.parquet" in caplog.text


# --- at random, with a writer beside ------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.long)])
def test_reads_beside_a_writer_are_those_of_dbio_read_at_one_moment(
    spark: SparkSession, tmp_path: Path, seconds: int
) -> None:
    """The writer appends, overwrites all or some partitions, deletes, and leaves files of dead jobs behind."""
    path = str(tmp_path / "lake" / "table")
    chance = random.Random(seconds)
    overwritten(spark, path)
    WITH_COLUMNS["repaired table"](spark, path)
    table, states, failed = Table(path), [sorted(range(9))], list[BaseException]()
    last = threading.Event()

    def write() -> None:
        live = {number: f"0{number % 3 + 1}" for number in range(9)}
        number = 1000
        while not last.is_set():
            added = {number + i: f"0{chance.randint(1, 5)}" for i in range(chance.randint(1, 4))}
            number += len(added)
            rows = pa.table({"id": [*added], "v": [1.0] * len(added), "day": [*added.values()]})
            match chance.randint(0, 5):
                case 0:
                    table.write(rows, mode="overwrite")
                    live = added
                case 1:
                    table.write(rows, mode="overwrite_partitions")
                    live = {key: day for key, day in live.items() if day not in added.values()} | added
                case 2:
                    dropped = f"0{chance.randint(1, 5)}"
                    table.delete(f"day = '{dropped}'")
                    live = {key: day for key, day in live.items() if day != dropped}
                case 3:
                    transaction = table.begin()
                    place = transaction.new_file(partition={"day": f"0{chance.randint(1, 9)}"})
                    pq.write_table(pa.table({"id": ["dead"]}), place)
                    continue
                case _:
                    table.write(rows)
                    live = live | added
            states.append(sorted(live))
            last.wait(chance.choice((0, 0.5)))  # a listing by Spark must come to its end now and then

    def guarded() -> None:
        try:
            write()
        except BaseException as error:
            failed.append(error)

    names_of_ways = ["parquet", "SQL", "glob", "glob of files", "glob with basePath", "recursive, above", "schema"]
    if not spark35.IS_USED:  # which reads the footers of dead files first
        names_of_ways.append("mergeSchema")
    ways = {name: {**WITHOUT_COLUMNS, **WITH_COLUMNS}[name] for name in [*names_of_ways, "modifiedAfter"]}
    ways["table of the catalog"] = lambda spark, _: spark.table("over_path")
    ways["newSession"] = WITHOUT_COLUMNS["newSession"]
    ways["dbio.read"] = dbio.read
    writer = threading.Thread(target=guarded)
    writer.start()
    try:
        reads, until = 0, time.monotonic() + seconds
        while time.monotonic() < until or reads < len(ways):
            name = [*ways][reads % len(ways)] if reads < len(ways) else chance.choice([*ways])
            first = len(states) - 1
            found = ids(ways[name](spark, path))
            time.sleep(0.05)  # the writer may just have committed
            possible = states[first:]
            assert found in possible, f"{name}: {found} is none of the last {len(possible)} states"
            reads += 1
    finally:
        last.set()
        writer.join()
    assert not failed
    assert len(states) > 5
    for name, way in ways.items():
        assert ids(way(spark, path)) == states[-1], name
    assert sorted(map(str, spark.read.parquet(path).select("id", "v", "day").collect())) == sorted(
        map(str, dbio.read(spark, path).select("id", "v", "day").collect())
    )


# --- roots and states of other kinds ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["country=de", "ä b%20#+&1"])
def test_a_root_with_an_odd_name_is_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "lake" / name)
    overwritten(spark, path)
    for way in ("parquet", "SQL", "schema", "recursive, above", "repaired table", "temporary view"):
        found = {**WITHOUT_COLUMNS, **WITH_COLUMNS}[way](spark, path)
        assert ids(found) == list(range(9)), way
        assert "country" not in found.columns
    assert ids(spark.read.parquet(f"{path}/day=02")) == [1, 4, 7]


def test_parts_of_a_large_table_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "lake" / "table")
    with tiny_parts():
        overwritten(spark, path)
        dbio.Table(path).checkpoint()
        dbio.write(rows(spark, 20, 22), path)
        for way in ("parquet", "glob", "partitions", "recursive, above", "repaired table"):
            assert ids({**WITHOUT_COLUMNS, **WITH_COLUMNS}[way](spark, path)) == [*range(9), 20, 21], way
        assert ids(spark.read.parquet(f"{path}/day=02")) == [1, 4, 7]


def test_dbio_read_is_as_in_other_sessions(spark: SparkSession, tmp_path: Path) -> None:
    """It gives Spark a list of files, which is no listing."""
    for state in (directory_of_dbio, with_dead_files):
        path = str(tmp_path / state.__name__)
        expected = state(spark, path)
        assert ids(dbio.read(spark, path)) == expected
