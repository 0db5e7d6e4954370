"""Reads from the running query what a write is about, since Spark passes almost nothing to its commit protocol."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pyspark import SparkContext
from pyspark.sql.types import StructField, StructType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.names import HIVE_NULL
from dbio_commit.spark import versions
from dbio_commit.spark.session.conf import java_class

SaveMode = Literal["Append", "Overwrite", "ErrorIfExists", "Ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of Spark that writes files."""

    format: str
    """In lower case: "parquet", "csv"."""
    mode: SaveMode
    schema: StructType
    """The columns of the rows, with the partition columns."""
    partition_columns: tuple[str, ...]
    static_partition: Mapping[str, str | None]
    """The values in INSERT … PARTITION (day = 7), by column; None is null."""
    options: Mapping[str, str]
    """By name, in lower case."""
    query: Any
    """The plan of the rows, in the JVM."""


def running_query(context: SparkContext, execution: str) -> Any:
    """The QueryExecution with this id, in the JVM; None if the write is not part of a query of SQL or DataFrames."""
    executions = java_class(context._jvm, "org.apache.spark.sql.execution.SQLExecution")
    return executions.getQueryExecution(int(execution)) if execution != "null" else None


def find_command(context: SparkContext, query: Any, path: str) -> Command:
    """The only command of the query that writes to the path. Raises InvalidInputError if there is none, or several."""
    found = [plan for plan in _plans(query.analyzed()) if _writes_to(plan, path)] if query is not None else []
    if len(found) != 1:
        raise InvalidInputError(
            f"cannot tell what is written to {path}: dbio finds {len(found)} commands in the running query that write "
            "files there; use df.write.parquet, INSERT or CREATE TABLE … AS SELECT, one for each table, or dbio.write"
        )
    return _read(context, found[0])


_INSERT, _CREATE = "InsertIntoHadoopFsRelationCommand", "CreateDataSourceTableAsSelectCommand"


def _plans(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _plans(children.apply(i))


def _writes_to(plan: Any, path: str) -> bool:
    name = plan.getClass().getSimpleName()
    if name == _INSERT:
        return str(plan.outputPath().toString()).rstrip("/") == path.rstrip("/")
    return bool(name == _CREATE)  # its location may not be known yet: the catalog may choose it


def _read(context: SparkContext, plan: Any) -> Command:
    as_java = partial(versions.as_java, context._jvm)
    inserts = plan.getClass().getSimpleName() == _INSERT
    fields = StructType.fromJson(json.loads(plan.query().schema().json())).fields
    named = zip(as_java(plan.outputColumnNames()), fields, strict=True)
    if inserts:
        format = str(plan.fileFormat().toString())
        columns = tuple(column.name() for column in as_java(plan.partitionColumns()))
        static, options = as_java(plan.staticPartitions()), as_java(plan.options())
    else:
        format = str(plan.table().provider().get())
        columns = tuple(as_java(plan.table().partitionColumnNames()))
        static, options = {}, as_java(plan.table().storage().properties())
    return Command(
        format=format.lower(),
        mode=plan.mode().toString(),
        schema=StructType([StructField(name, field.dataType, field.nullable, field.metadata) for name, field in named]),
        partition_columns=columns,
        static_partition={name: None if value == HIVE_NULL else value for name, value in dict(static).items()},
        options={str(name).lower(): str(value) for name, value in dict(options).items()},
        query=plan.query(),
    )
