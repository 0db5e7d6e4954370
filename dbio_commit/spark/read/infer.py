"""The columns of a table as a Spark schema: the recorded ones, or else those that its files have."""

from pyspark.sql import types as t

from dbio_commit.log.found_columns import find_columns
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.spark.session import schema as schemas
from dbio_commit.store import Store


def table_schema(store: Store, snapshot: Snapshot) -> t.StructType | None:
    """The columns of a table: recorded, or else inferred. None if none are recorded and the table is empty."""
    if snapshot.schema is not None:
        return schemas.from_json(snapshot.schema, where=snapshot.url)
    return infer_schema(store, snapshot)


def infer_schema(store: Store, snapshot: Snapshot) -> t.StructType | None:
    """The columns if none are recorded, as `find_columns` has them; None for an empty table."""
    found = find_columns(store, snapshot)
    return None if found is None else schemas.plain_schema(schemas.from_json(found, where=snapshot.url))
