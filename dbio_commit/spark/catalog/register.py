"""Adds a dbio table to Spark's catalog, so that SQL can name the table: `dbio.register`."""

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.publish.places import DIRECTORIES, root_url
from dbio_commit.protocol.settings import PUBLISH, Format, published_forms
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.session.held import holding
from dbio_commit.spark.session.schema import quoted
from dbio_commit.table import Table


def create_catalog_table(spark: SparkSession, name: str, table: Table) -> None:
    """Publishes the table in the form `spark` after each commit, and adds it to the catalog under the name.

    Raises InvalidInputError if its columns are not known, and Spark's errors, such as for a name that is
    taken.
    """
    snapshot = table.snapshot()
    schema = table_schema(table.store, snapshot)
    if schema is None:
        raise InvalidInputError(
            f"{table.url} holds no files and no recorded columns, and the catalog needs columns: first write to it"
        )
    forms = published_forms(snapshot.settings)
    if Format.SPARK not in forms:
        table.set({PUBLISH: ",".join((*forms, Format.SPARK))})
    else:
        table.publish(Format.SPARK)
    root = root_url(table.store, s3="s3a")
    columns = ", ".join(map(quoted, snapshot.partition_columns))
    by = f" PARTITIONED BY ({columns})" if columns else ""
    # Spark guesses the types of a table that it creates over a published list. So it is created aside, and moved there.
    aside = _literal(f"{root}/{DIRECTORIES[Format.SPARK]}")
    with holding(spark, _AS_IT_STANDS):
        spark.sql(f"CREATE TABLE {name} ({_columns(schema)}) USING parquet{by} LOCATION {aside}")
        spark.sql(f"ALTER TABLE {name} SET LOCATION {_literal(root)}")


_AS_IT_STANDS = {"spark.sql.variable.substitute": "false", "spark.sql.parser.escapedStringLiterals": "false"}
"""Names and the path hold no variables of the session, and texts are escaped as `_literal` escapes them."""


def _columns(schema: StructType) -> str:
    """The columns in DDL: names in backticks (also those of fields in types), types and comments."""
    return ", ".join(f"{quoted(field.name)} {_type(field.dataType)}{_comment(field)}" for field in schema.fields)


def _comment(field: StructField) -> str:
    comment = (field.metadata or {}).get("comment")
    return f" COMMENT {_literal(comment)}" if isinstance(comment, str) else ""


def _type(kind: DataType) -> str:
    match kind:
        case StructType():
            return f"struct<{', '.join(f'{quoted(it.name)}: {_type(it.dataType)}' for it in kind.fields)}>"
        case ArrayType():
            return f"array<{_type(kind.elementType)}>"
        case MapType():
            return f"map<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return kind.simpleString()


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
