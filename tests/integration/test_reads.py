"""Reads of Parquet by code that knows nothing of dbio, in a session with `enable(parquet=True)`: committed rows only.

Each state of a directory is read in each way in which Spark reads Parquet.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.protocol import names
from dbio_commit.spark.catalog import answers
from dbio_commit.spark.catalog.reads import SWITCH
from dbio_commit.table import Table
from tests import spark35
from tests.spark_tables import SPARK_ERRORS, configured, ids

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


_PARTITIONED = "DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({{columns}}) USING parquet PARTITIONED BY (day) LOCATION '{{path}}'"
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
    "stored view": sql("CREATE OR REPLACE VIEW stored_view AS SELECT * FROM parquet.`{path}`;SELECT * FROM stored_view"),
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
        "CREATE OR REPLACE TEMPORARY VIEW v (id BIGINT, day STRING) USING parquet OPTIONS (path '{path}');SELECT * FROM v"
    ),
    "partitioned table": sql(_PARTITIONED.format(name="over_path") + ";SELECT * FROM over_path"),
    "repaired table": sql(
        _PARTITIONED.format(name="over_path") + ";MSCK REPAIR TABLE over_path;SELECT * FROM over_path"
    ),
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
    ways = WITH_COLUMNS if state is undecided else {**WITHOUT_COLUMNS, **WITH_COLUMNS}
    if state is directory_of_dbio:
        del ways["partitioned table"]  # Spark's catalog knows no partition of it before the repair
    if state is with_dead_files_of_another_type and spark35.IS_USED:
        del ways["mergeSchema"]  # Spark 3.5 reads the footers first
    found = {name: found_by(way, spark, path) for name, way in ways.items()}
    assert {name: it for name, it in found.items() if it != expected} == {}
