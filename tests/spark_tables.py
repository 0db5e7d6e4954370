"""What the tests of Spark share: small DataFrames, and what lies in a table's directory."""

import os
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

SPARK_ERRORS = (PySparkException, Py4JJavaError)


def numbers(spark: SparkSession, start: int, end: int, *, tasks: int = 2) -> DataFrame:
    """Columns id (bigint) and day (string, of two values); one file for each task, where it is not partitioned."""
    return spark.range(start, end, 1, tasks).selectExpr("id", "concat('d', cast(id % 2 as string)) AS day")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def rows(frame: DataFrame) -> list[str]:
    """All rows in an order that does not depend on tasks; as text, in which NaN equals NaN."""
    return sorted(map(str, frame.collect()))


def objects(root: str | Path) -> set[str]:
    """Every file below the directory."""
    found = {os.path.join(directory, name) for directory, _, names in os.walk(root) for name in names}
    return {os.path.relpath(path, root) for path in found}


def data_files(root: str | Path) -> set[str]:
    return {path for path in objects(root) if not os.path.basename(path).startswith("_")}
