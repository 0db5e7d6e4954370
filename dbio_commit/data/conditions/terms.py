"""Conditions as callers give them, in SQL or as lists of (column, operator, value); and values of Python. Pure.

A value of Python is read in one way, whether it is compared with a column or becomes a new value of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.data import columns as kinds
from dbio_commit.data.conditions.expressions import MOST_PARTS, TERMS, count_parts, term
from dbio_commit.data.conditions.tree import ALWAYS, AllOf, AnyOf, Condition
from dbio_commit.data.constants import scalar
from dbio_commit.protocol.partition_values import meant, read, spell

Term = tuple[str, str, Any]
"""(column, operator, value), such as ("day", ">=", "2026-11-01")."""
Filter = Term | Sequence[Term] | Sequence[Sequence[Term]]
"""A term; a list of terms, all of which must hold; or a list of such lists, of which one must hold."""
Where = str | Filter
"""A condition in Spark's SQL, or such a list."""


def read_condition(
    where: Where,
    schema: Mapping[str, Any],
    *,
    zone: str | None,
    instead: str,
    names: Mapping[tuple[str, str], str] | None = None,
) -> Condition:
    """The condition that holds for exactly those rows that Spark's WHERE keeps. `schema` is Spark's JSON.

    `zone` is the time zone of times in SQL without a zone. `instead` ends the message about SQL that only Spark can
    evaluate. `names` are as for `parse_exactly`. Raises InvalidInputError; MissingPackageError without sqlglot if it is
    SQL.
    """
    if isinstance(where, str):
        if where.strip().lower() == "true":
            return ALWAYS
        with needs("a condition in SQL", extra="cli"):
            from dbio_commit.data.conditions.sql import parse_exactly
        found = parse_exactly(where, schema, zone=zone, instead=instead, names=names)
    elif zone is not None:
        raise InvalidInputError(f"time_zone={zone!r:.100} is for times in a condition in SQL; `where` is not one")
    else:
        found = _of_lists(where, kinds.arrow_schema(schema, where="the table"))
    if (count := count_parts(found)) > MOST_PARTS:
        raise InvalidInputError(
            f"the condition {where!r:.100}… joins {count:,} parts, and at most {MOST_PARTS:,} are evaluated without "
            "Spark: give values of one column as a list, by IN in SQL, or by 'in'"
        )
    return found


def known_columns(columns: str | Iterable[str], schema: pa.Schema) -> list[str]:
    """The columns as the table spells them, each once. Raises InvalidInputError for a name that is no column."""
    spelling = {name.lower(): name for name in schema.names}
    names = [columns] if isinstance(columns, str) else list(columns)
    if unknown := [name for name in names if not isinstance(name, str) or name.lower() not in spelling]:
        advice = "; a condition is given as where=…" if any(it in str(unknown[0]) for it in "=<> ") else ""
        raise InvalidInputError(f"{unknown[0]!r:.100} is no column of the table; it has {listed(schema)}{advice}")
    return list(dict.fromkeys(spelling[name.lower()] for name in names))


def listed(schema: pa.Schema) -> str:
    """The names of the columns, for a message."""
    return ", ".join(schema.names[:100])


# --- lists of terms -----------------------------------------------------------------------------------------------


def _of_lists(filter: Filter, schema: pa.Schema) -> Condition:
    if isinstance(filter, bytes) or not isinstance(filter, Sequence) or not filter:
        raise InvalidInputError(_no_filter(filter))
    if _is_term(filter):
        return _term(filter, schema)
    choices: Any = [filter] if _is_term(filter[0]) else filter
    if wrong := [choice for choice in choices if not isinstance(choice, Sequence)]:
        raise InvalidInputError(_no_filter(wrong[0]))
    if not all(map(len, choices)):
        raise InvalidInputError(
            f"{filter!r:.200} has an empty list, which would hold for every row: leave the list out, or give "
            "where='true' for all rows"
        )
    return AnyOf(tuple(AllOf(tuple(_term(it, schema) for it in choice)) for choice in choices))


def _is_term(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str)


def _term(given: Any, schema: pa.Schema) -> Condition:
    if not isinstance(given, tuple) or len(given) != 3 or given[1] not in TERMS:
        raise InvalidInputError(_no_filter(given))
    column, operator, value = given
    (column,) = known_columns([column], schema)
    kind = schema.field(column).type
    try:
        if operator in ("in", "not in"):
            if isinstance(value, str | bytes):
                raise TypeError("a list of values is expected, not one text")
            return term(column, operator, [column_value(it, kind) for it in value])
        return term(column, operator, column_value(value, kind))
    except (pa.ArrowException, ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the filter {given!r:.200} does not fit column {column!r}, which is {kind}: {error!s:.200}"
        ) from error


def column_value(value: Any, kind: Any) -> Any:
    """The same value as one of a column of this type of Arrow. For a column of type float, it is the nearest one.

    A text is the value that it means. Raises pa.ArrowException, ArithmeticError, KeyError, TypeError or ValueError,
    with the reason, for a value that the type does not have: rounding it would find, or make, another one.
    """
    if value is None:
        return None
    if _is_missing(value):
        raise ValueError(f"no value equals {value!r}; None is null")
    if pa.types.is_nested(kind):
        raise TypeError("single values of such a type are neither compared nor set")
    if isinstance(value, float) and math.isnan(value):
        if pa.types.is_floating(kind):
            return value
        raise ValueError("NaN is no value of the type; None is null")
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return scalar(value, kind).as_py()
    name = kinds.type_name(kind)
    if isinstance(value, str):
        return meant(value, name)
    is_whole = isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value)
    given = int(value) if is_whole and pa.types.is_integer(kind) else value
    found = read(spell(given, name), name)
    if isinstance(value, int) and found != value:
        raise ValueError(f"{kind} does not have the number {value}")
    return found


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType")


def new_value(value: Any, kind: Any, *, column: str) -> Any:
    """A value of Python as a new value of the column, which has this type in Spark's JSON. pandas' NA and NaT are null.

    Raises InvalidInputError.
    """
    try:
        return None if _is_missing(value) else column_value(value, kinds.arrow_type(kind))
    except (pa.ArrowException, ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the value {value!r:.200} of column {column!r} does not fit it: {error!s:.300}. Nothing was changed: "
            f"give a value of the column's type, {kind!s:.100}"
        ) from None


def _no_filter(given: Any) -> str:
    return (
        f"{given!r:.200} is no filter: give Spark's SQL as text; or (column, operator, value), a list of these, all "
        f"of which must hold, or a list of such lists, of which one must hold. Operators are {', '.join(TERMS)}"
    )
