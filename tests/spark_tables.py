"""What the tests of Spark share: settings of a session, small DataFrames, and what lies in a table's directory."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests import spark35
from tests.beside import free_ports

SPARK_ERRORS = (PySparkException, Py4JJavaError)
SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def over_connect() -> SparkSession:
    """A session whose server is in this process, on a free port: a client of such a server expects it at 15002."""
    from pyspark.sql.connect import client

    (port,) = free_ports(1)
    channel: Any = client.ChannelBuilder if spark35.IS_USED else client.DefaultChannelBuilder
    channel.default_port = staticmethod(lambda: port)
    builder = SparkSession.builder.config("spark.connect.grpc.binding.port", str(port))
    if spark35.IS_USED:
        builder = builder.config(map=spark35.LATER_DEFAULTS | {"spark.jars": spark35.connect_jar()})
    return builder.remote("local[2]").getOrCreate()


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """With these settings in the session, for a while."""
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
            if spark35.IS_USED and name in spark35.LATER_DEFAULTS:
                spark.conf.set(name, str(spark35.LATER_DEFAULTS[name]))


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


def to_arrow(frame: DataFrame) -> pa.Table:
    """The rows as Spark collects them as Arrow. Spark 3.5 has no public name for that."""
    if not spark35.IS_USED:
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    collected: Any = frame
    batches = collected._collect_as_arrow()
    return pa.Table.from_batches(batches, batches[0].schema if batches else to_arrow_schema(frame.schema))
