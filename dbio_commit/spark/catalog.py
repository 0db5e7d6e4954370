"""A table of Spark's catalog over a table of ours, so that SQL can name it."""

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.settings import PUBLISH, Format, words_of
from dbio_commit.publish.urls import root_url
from dbio_commit.spark.infer import table_schema
from dbio_commit.table import Table


def create_catalog_table(spark: SparkSession, name: str, table: Table) -> None:
    """Sets the table to be published in the form `spark`, and has the catalog know it under the name.

    Raises InvalidInputError where nothing says what its columns are, and Spark's errors, such as for a name that is
    taken.
    """
    snapshot = table.snapshot()
    schema = table_schema(table.store, snapshot)
    if schema is None:
        raise InvalidInputError(
            f"{table.url} holds no files and no recorded columns, and the catalog needs them: write to it first"
        )
    forms = words_of(snapshot.settings[PUBLISH]) if PUBLISH in snapshot.settings else ()
    if Format.SPARK not in forms:
        table.set({PUBLISH: ",".join((*forms, Format.SPARK))})
    else:
        table.publish(Format.SPARK)
    spark.sql(_statement(name, root_url(table.store, s3="s3a"), schema, snapshot.partition_columns))


def _statement(name: str, root: str, schema: StructType, columns: Sequence[str]) -> str:
    by = f" PARTITIONED BY ({', '.join(map(_quoted, columns))})" if columns else ""
    location = root.replace("\\", "\\\\").replace("'", "\\'")
    return f"CREATE TABLE {name} ({schema.toDDL()}) USING parquet{by} LOCATION '{location}'"


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"
