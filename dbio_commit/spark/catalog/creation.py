"""CREATE, REPLACE and ALTER TABLE in SQL: new tables, columns and settings."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.options import Mode
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.settings import check_changes
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.rewrite.frame import write_frame
from dbio_commit.spark.session.conf import open_table
from dbio_commit.spark.write.constraints import constrain
from dbio_commit.spark.write.options import CommitOptions, WriteOptions
from dbio_commit.store import parse_location

_OF_SPARK = {"provider", "owner", "location", "external", "is_managed_location"}
"""Properties that Spark gives to each new table."""


def staged(path: str, mode: Mode, partition_by: str, properties: Mapping[str, str]) -> str:
    """The token of a table that will be written in this mode. Raises InvalidInputError for properties."""
    if given := sorted(settings_of(path, properties)):
        raise InvalidInputError(
            f"CREATE TABLE … AS SELECT takes no properties, constraints or defaults, such as {given[0]!r:.100}: create "
            "the table with them first, then INSERT; nothing was written"
        )
    return json.dumps({"path": path, "mode": mode, "by": partition_by})


def is_staged(token: str) -> bool:
    return token.startswith("{")


def write_staged(spark: SparkSession, token: str, data: DataFrame, options: WriteOptions) -> Commit:
    """Writes the rows of a table that `staged` has named, which creates or replaces the table."""
    given = json.loads(token)
    return _write(spark, given["path"], data, given["mode"], given["by"], options)


def create(
    spark: SparkSession, path: str, schema: StructType, partition_by: str, properties: Mapping[str, str], mode: Mode
) -> None:
    """Creates a table without rows, or replaces one; and sets its settings, in a commit of their own."""
    settings = settings_of(path, properties)
    check_changes(settings)
    _write(spark, path, spark.createDataFrame([], schema), mode, partition_by, WriteOptions())
    if settings:
        try:
            constrain(spark, open_table(spark, path, None), settings)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{error}. The table is there, without these settings: set them with ALTER TABLE, or drop it with PURGE"
            ) from error


def alter(spark: SparkSession, path: str, added: StructType, settings: Mapping[str, str]) -> None:
    """Adds columns, in one commit, and changes settings, in one commit."""
    table = open_table(spark, path, None)
    if added.fields:
        own = table_schema(table.store, table.snapshot()) or StructType()
        write_frame(
            spark.createDataFrame([], StructType([*own.fields, *added.fields])),
            table,
            mode="append",
            partition_by=None,
            options=WriteOptions(merge_schema=True),
            commit=CommitOptions(),
        )
    if settings:
        constrain(spark, table, settings)


def settings_of(path: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings in the properties of a new table. Raises InvalidInputError for a location that is not its path."""
    given = dict(properties)
    location = given.get("location")
    if location is not None and parse_location(location) != parse_location(path):
        raise InvalidInputError(
            f"the name means the path {path!r:.200}, and LOCATION is {location!r:.200}; name the table by that path, "
            f"as in CREATE TABLE dbio.`{location}`"
        )
    if given.get("provider", "dbio") not in ("dbio", "parquet"):  # `saveAsTable` gives parquet if nothing is given
        raise InvalidInputError(f"the catalog dbio creates tables USING dbio, and not USING {given['provider']!r:.100}")
    return {name: value for name, value in given.items() if name not in _OF_SPARK}


def schema_of(schema: Any) -> StructType:
    """A StructType of the JVM as one of Python."""
    return schema_of_json(schema.json())


def schema_of_json(schema: str) -> StructType:
    return StructType.fromJson(json.loads(schema))


def _write(
    spark: SparkSession, path: str, data: DataFrame, mode: Mode, partition_by: str, options: WriteOptions
) -> Commit:
    return write_frame(
        data,
        open_table(spark, path, None),
        mode=mode,
        partition_by=partition_by.split("\0") if partition_by else [],
        options=options,
        commit=CommitOptions(),
    )
