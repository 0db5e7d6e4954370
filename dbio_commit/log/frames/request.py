"""A request for rows of a snapshot: the columns, and a condition in Spark's SQL or as a list of terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data import columns as kinds
from dbio_commit.data.conditions.pruning import column_types, prune
from dbio_commit.data.conditions.terms import Where, known_columns, listed, read_condition
from dbio_commit.data.conditions.tree import Condition
from dbio_commit.data.rows import naming_vacuum
from dbio_commit.log.found_columns import table_columns
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store

if TYPE_CHECKING:
    from dbio_commit.log.snapshot import Snapshot


@dataclass(frozen=True)
class Request:
    """The rows and columns of a snapshot that a caller wants."""

    snapshot: "Snapshot"
    store: Store
    columns: Mapping[str, Any]
    """All columns of the table, as Spark's JSON."""
    wanted: Sequence[str]
    """The names of the columns that the caller wants, in this order."""
    condition: Condition | None
    """The condition that each row must fulfil; None for all rows."""

    @cached_property
    def target(self) -> pa.Schema:
        """The columns to read: the wanted ones, in their order, then others that the condition uses."""
        schema = kinds.arrow_schema(self.columns, where=self.snapshot.url)
        used = dict.fromkeys([*self.wanted, *(self.condition.columns() if self.condition else ())])
        return pa.schema([schema.field(name) for name in used])

    @cached_property
    def files(self) -> Sequence[DataFile]:
        """The files that may hold such rows."""
        return self.snapshot.files if self.condition is None else self.pruned(self.condition)

    def pruned(self, condition: Condition) -> Sequence[DataFile]:
        """The snapshot's files that may hold rows which fulfil the condition."""
        return prune(self.snapshot.files, self.snapshot.of_files, condition, column_types(self.columns))


def make_request(
    snapshot: "Snapshot",
    store: Store,
    *,
    columns: Sequence[str] | None,
    where: Where | None,
    time_zone: str | None,
) -> Request:
    """The request, checked. Raises InvalidInputError for a column that the table lacks, and for a condition that only
    Spark can evaluate for certain; MissingPackageError without sqlglot if the condition is SQL.
    """
    with naming_vacuum():
        known = table_columns(store, snapshot)
    schema = kinds.arrow_schema(known, where=snapshot.url)
    wanted = list(schema.names) if columns is None else known_columns(columns, schema)
    if not wanted:
        raise InvalidInputError(f"no column of {snapshot.url} was asked for; name one of {listed(schema)}")
    if where is None and time_zone is not None:
        raise InvalidInputError(f"time_zone={time_zone!r:.100} is for times in `where`, and there is no `where`")
    condition = None if where is None else read_condition(where, known, zone=time_zone, instead=_INSTEAD)
    return Request(snapshot, store, known, wanted, condition)


_INSTEAD = (
    "Leave this part out and filter by it in the tool that gets the rows; or give a list such as "
    "[('day', '>=', '2026-11-20')]; or read with Spark, by dbio.read(spark, path, where=…)"
)
