"""A snapshot's rows in memory, without Spark: `Snapshot.to_arrow`, `to_pandas`, `to_polars`, `to_duckdb`.

Files are read through the table's own store, with its credentials. pyarrow does the work; other packages are imported
when they are used. `data/rows` and `data/conform` make a file's columns those of the table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data import columns as kinds
from dbio_commit.data.pruning import UNKNOWN, AllOf, AnyOf, Comparison, Condition, IsNull, Operator, column_types, prune
from dbio_commit.data.rows import open_file, open_parquet, read_rows
from dbio_commit.log.found_columns import table_columns
from dbio_commit.protocol.partition_values import meant
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store

if TYPE_CHECKING:
    from dbio_commit.log.snapshot import Snapshot

Term = tuple[str, str, Any]
"""(column, operator, value), such as ("day", ">=", "2026-11-01")."""
Filter = Sequence[Term] | Sequence[Sequence[Term]]
"""A list of terms, all of which must hold; or a list of such lists, of which one must hold."""


def to_arrow(snapshot: "Snapshot", store: Store, *, columns: Sequence[str] | None, filter: Filter | None) -> "pa.Table":
    """See `Snapshot.to_arrow`."""
    known = table_columns(store, snapshot)
    schema = kinds.arrow_schema(known, where=snapshot.url)
    wanted = list(schema.names) if columns is None else _known(columns, schema)
    if not wanted:
        raise InvalidInputError(f"no column of {snapshot.url} was asked for; name one of {_listed(schema)}")
    choices = _choices(filter, schema)
    used = {column for choice in choices or () for column, _, _ in choice} | set(wanted)
    target = pa.schema([field for field in schema if field.name in used])
    condition = _any_of(choices, target) if choices else None
    files = (
        prune(snapshot.files, snapshot.of_files, _outline(choices), column_types(known)) if choices else snapshot.files
    )

    def read(file: DataFile) -> list["pa.RecordBatch"]:
        return _read(store, file, target, condition)

    batches = [batch for read_batches in store.in_parallel(read, files) for batch in read_batches]
    return pa.Table.from_batches(batches, schema=target).select(wanted)


# --- files --------------------------------------------------------------------------------------------------------


def _read(
    store: Store, file: DataFile, target: "pa.Schema", condition: "pc.Expression | None"
) -> list["pa.RecordBatch"]:
    where = store.url_of(file.path)
    with open_file(store, file) as source:
        batches = list(read_rows(open_parquet(source, where), target, partition=file.partition, where=where))
    return batches if condition is None else _filtered(batches, target, condition)


def _filtered(batches: list["pa.RecordBatch"], target: "pa.Schema", condition: Any) -> list["pa.RecordBatch"]:
    return pa.Table.from_batches(batches, schema=target).filter(condition).to_batches()


# --- filters ------------------------------------------------------------------------------------------------------


def _known(columns: Sequence[str], schema: "pa.Schema") -> list[str]:
    """The columns as the table spells them. Raises InvalidInputError for a name that is no column."""
    spelling = {name.lower(): name for name in schema.names}
    names = [columns] if isinstance(columns, str) else list(columns)
    if unknown := [name for name in names if not isinstance(name, str) or name.lower() not in spelling]:
        raise InvalidInputError(f"{unknown[0]!r:.100} is no column of the table; it has {_listed(schema)}")
    return list(dict.fromkeys(spelling[name.lower()] for name in names))


def _listed(schema: "pa.Schema") -> str:
    return ", ".join(schema.names[:100])


def _choices(filter: Filter | None, schema: "pa.Schema") -> list[list[Term]] | None:
    """The filter as a list of lists of terms, checked, with values of the columns' types."""
    if filter is None:
        return None
    if isinstance(filter, str | bytes) or not isinstance(filter, Sequence) or not filter:
        raise InvalidInputError(_no_filter(filter))
    is_flat = isinstance(filter[0], tuple) and len(filter[0]) == 3 and isinstance(filter[0][0], str)
    choices: Any = [filter] if is_flat else filter
    return [[_term(term, schema) for term in choice] for choice in choices]


def _term(term: Any, schema: "pa.Schema") -> Term:
    if not isinstance(term, tuple) or len(term) != 3 or term[1] not in _OPERATORS:
        raise InvalidInputError(_no_filter(term))
    column, operator, value = term
    (column,) = _known([column], schema)
    kind = schema.field(column).type
    try:
        if operator in ("in", "not in"):
            return column, operator, [_value(it, kind) for it in value]
        return column, operator, _value(value, kind)
    except (pa.ArrowException, ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the filter {term!r:.200} does not fit column {column!r}, which is {kind}") from error


def _value(value: Any, kind: Any) -> Any:
    if pa.types.is_temporal(kind) and not isinstance(value, str | date | None):
        raise TypeError("Arrow would take a number for days or microseconds")
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return pa.scalar(meant(value, kinds.type_name(kind)) if isinstance(value, str) and not is_text else value, kind)


def _no_filter(given: Any) -> str:
    return (
        f"{given!r:.200} is no filter: give a list of (column, operator, value), all of which must hold, or a list of "
        f"such lists, of which one must hold; operators are {', '.join(_OPERATORS)}"
    )


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": lambda column, value: column == value if value.is_valid else column.is_null(),
    "==": lambda column, value: column == value if value.is_valid else column.is_null(),
    "!=": lambda column, value: column != value if value.is_valid else column.is_valid(),
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "in": lambda column, values: column.isin(values),
    "not in": lambda column, values: ~column.isin(values) & column.is_valid(),
}


def _any_of(choices: Sequence[Sequence[Term]], schema: "pa.Schema") -> Any:
    found: Any = pc.scalar(False)
    for choice in choices:
        every: Any = pc.scalar(True)
        for column, operator, value in choice:
            kind = schema.field(column).type
            if pa.types.is_floating(kind):
                every = every & _of_floats(pc.field(column), operator, value, kind)
            else:
                value = pa.array(value, kind) if isinstance(value, list) else value
                every = every & _OPERATORS[operator](pc.field(column), value)
        found = found | every
    return found


def _of_floats(column: Any, operator: str, value: Any, kind: Any) -> Any:
    """As Spark compares them: NaN is equal to itself and greater than all others, and -0.0 is 0.0."""
    if operator == "not in":
        return ~_of_floats(column, "in", value, kind) & column.is_valid()
    if operator == "in":
        zeros = [pa.scalar(zero, kind) for zero in (0.0, -0.0)] if any(it.as_py() == 0 for it in value) else []
        found = column.isin(pa.array([*value, *zeros], kind))
        return found | pc.is_nan(column) if any(map(_is_nan, value)) else found
    if not value.is_valid:
        return _OPERATORS[operator](column, value)
    if _is_nan(value):
        is_nan = pc.is_nan(column)
        return {"=": is_nan, "==": is_nan, ">=": is_nan, ">": is_nan & ~is_nan, "<=": is_nan | ~is_nan}.get(
            operator, ~is_nan
        )
    found = _OPERATORS[operator](column, value)
    return found | pc.is_nan(column) if operator in (">", ">=") else found


def _is_nan(value: Any) -> bool:
    return value.is_valid and math.isnan(value.as_py())


def _outline(choices: Sequence[Sequence[Term]]) -> Condition:
    """The part of the filter by which files can be left out."""
    return AnyOf(tuple(AllOf(tuple(_part(*term) for term in choice)) for choice in choices))


def _part(column: str, operator: str, value: Any) -> Condition:
    if operator in ("in", "not in"):
        each = AnyOf(tuple(_part(column, "=", it) for it in value))
        return each if operator == "in" else AllOf((IsNull(column, False), each.negated()))
    found, operator = value.as_py(), "=" if operator == "==" else operator
    if found is None:
        return {"=": IsNull(column), "!=": IsNull(column, False)}.get(operator, UNKNOWN)
    if isinstance(found, float) and math.isnan(found):  # bounds do not show NaN
        return UNKNOWN
    return Comparison(column, cast(Operator, operator), found, found)
