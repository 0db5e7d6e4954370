"""What a caller asks of a snapshot's rows: columns, and a condition in Spark's SQL or as a list of terms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.data import columns as kinds
from dbio_commit.data.exact import TERMS, term
from dbio_commit.data.pruning import AllOf, AnyOf, Condition, column_types, prune
from dbio_commit.log.found_columns import table_columns
from dbio_commit.protocol.partition_values import meant, read, spell
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store

if TYPE_CHECKING:
    from dbio_commit.log.snapshot import Snapshot

Term = tuple[str, str, Any]
"""(column, operator, value), such as ("day", ">=", "2026-11-01")."""
Filter = Sequence[Term] | Sequence[Sequence[Term]]
"""A list of terms, all of which must hold; or a list of such lists, of which one must hold."""
Where = str | Filter
"""A condition in Spark's SQL, or such a list."""


@dataclass(frozen=True)
class Request:
    """Which rows and columns of a snapshot are asked for."""

    snapshot: "Snapshot"
    store: Store
    columns: Mapping[str, Any]
    """All columns of the table, as Spark's JSON."""
    wanted: Sequence[str]
    """The columns that are asked for, in this order."""
    condition: Condition | None
    """What each row must fulfil."""

    @cached_property
    def target(self) -> pa.Schema:
        """The columns to read: those that are asked for, in their order, then others that the condition uses."""
        schema = kinds.arrow_schema(self.columns, where=self.snapshot.url)
        used = dict.fromkeys([*self.wanted, *(self.condition.columns() if self.condition else ())])
        return pa.schema([schema.field(name) for name in used])

    @cached_property
    def files(self) -> Sequence[DataFile]:
        """The files that may hold such rows."""
        return self.snapshot.files if self.condition is None else self.pruned(self.condition)

    def pruned(self, condition: Condition) -> Sequence[DataFile]:
        """Those of the snapshot's files that may hold rows which fulfil the condition."""
        return prune(self.snapshot.files, self.snapshot.of_files, condition, column_types(self.columns))


def make_request(
    snapshot: "Snapshot",
    store: Store,
    *,
    columns: Sequence[str] | None,
    where: Where | None,
    time_zone: str | None,
) -> Request:
    """The request, checked. Raises InvalidInputError for what the table does not have, and for a condition whose rows
    are not certain without Spark; MissingPackageError without sqlglot if the condition is SQL.
    """
    known = table_columns(store, snapshot)
    schema = kinds.arrow_schema(known, where=snapshot.url)
    wanted = list(schema.names) if columns is None else _known(columns, schema)
    if not wanted:
        raise InvalidInputError(f"no column of {snapshot.url} was asked for; name one of {_listed(schema)}")
    if time_zone is not None and not isinstance(where, str):
        raise InvalidInputError(f"time_zone={time_zone!r:.100} is for times in a condition in SQL; `where` is not one")
    if where is None:
        condition = None
    elif isinstance(where, str):
        condition = _of_sql(where, known, time_zone)
    else:
        condition = _of_lists(where, schema)
    return Request(snapshot, store, known, wanted, condition)


def _of_sql(sql: str, known: Mapping[str, Any], time_zone: str | None) -> Condition:
    with needs("where", extra="cli"):
        from dbio_commit.data.where_exactly import parse_exactly
    return parse_exactly(sql, known, zone=time_zone, instead=_INSTEAD)


_INSTEAD = (
    "Leave this part out and filter by it in the tool that gets the rows; or give a list such as "
    "[('day', '>=', '2026-11-20')]; or read with Spark, by dbio.read(spark, path, where=…)"
)


# --- lists of terms -----------------------------------------------------------------------------------------------


def _known(columns: Sequence[str], schema: pa.Schema) -> list[str]:
    """The columns as the table spells them. Raises InvalidInputError for a name that is no column."""
    spelling = {name.lower(): name for name in schema.names}
    names = [columns] if isinstance(columns, str) else list(columns)
    if unknown := [name for name in names if not isinstance(name, str) or name.lower() not in spelling]:
        raise InvalidInputError(f"{unknown[0]!r:.100} is no column of the table; it has {_listed(schema)}")
    return list(dict.fromkeys(spelling[name.lower()] for name in names))


def _listed(schema: pa.Schema) -> str:
    return ", ".join(schema.names[:100])


def _of_lists(filter: Filter, schema: pa.Schema) -> Condition:
    if isinstance(filter, bytes) or not isinstance(filter, Sequence) or not filter:
        raise InvalidInputError(_no_filter(filter))
    is_flat = isinstance(filter[0], tuple) and len(filter[0]) == 3 and isinstance(filter[0][0], str)
    choices: Any = [filter] if is_flat else filter
    return AnyOf(tuple(AllOf(tuple(_term(it, schema) for it in choice)) for choice in choices))


def _term(given: Any, schema: pa.Schema) -> Condition:
    if not isinstance(given, tuple) or len(given) != 3 or given[1] not in TERMS:
        raise InvalidInputError(_no_filter(given))
    column, operator, value = given
    (column,) = _known([column], schema)
    kind = schema.field(column).type
    try:
        if operator in ("in", "not in"):
            return term(column, operator, [_value(it, kind) for it in value])
        return term(column, operator, _value(value, kind))
    except (pa.ArrowException, ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the filter {given!r:.200} does not fit column {column!r}, which is {kind}: {error!s:.200}"
        ) from error


def _value(value: Any, kind: Any) -> Any:
    """The same value as one of the column's. For a column of type float, it is the nearest one.

    Raises ValueError, with the reason, for a value that the type does not have: rounding it would find other rows.
    """
    if pa.types.is_nested(kind):
        raise TypeError("such values are not compared")
    if value is None or (pa.types.is_floating(kind) and isinstance(value, float) and math.isnan(value)):
        return value
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.scalar(value, kind).as_py()
    name = kinds.type_name(kind)
    if isinstance(value, str):
        return meant(value, name)
    is_whole = isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value)
    given = int(value) if is_whole and pa.types.is_integer(kind) else value
    found = read(spell(given, name), name)
    if isinstance(value, int) and found != value:
        raise ValueError(f"{kind} does not have the number {value}")
    return found


def _no_filter(given: Any) -> str:
    return (
        f"{given!r:.200} is no filter: give a list of (column, operator, value), all of which must hold, or a list of "
        f"such lists, of which one must hold; operators are {', '.join(TERMS)}"
    )
