"""What the tests of Spark share: small DataFrames, and what lies in a table's directory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


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


def quote(names: Sequence[str]) -> list[str]:
    """Column names as Spark's `select` takes them."""
    return ["`" + name.replace("`", "``") + "`" for name in names]


def one_row(spark: SparkSession, **columns: Any) -> DataFrame:
    return spark.createDataFrame([tuple(columns.values())], list(columns))
