"""Converts a table's columns, partition values and statistics to the form of Delta's protocol. Pure.

Versions of a Delta log, and the state that they add up to, are in `delta_log`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.column_metadata import known
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.partition_values import canonical
from dbio_commit.protocol.types import Family, decimal_digits, type_of
from dbio_commit.protocol.types.bounds import Scalar


@dataclass(frozen=True)
class DeltaSchema:
    """The columns of a table in Delta's form."""

    text: str
    """Spark's JSON, as in `metaData`."""
    kinds: Mapping[str, Any]
    """Name of each column -> its type in Spark's JSON, with partition columns."""
    partition_columns: tuple[str, ...]
    features: frozenset[str]
    """The table features that its types need, of readers and of writers."""
    ordered: frozenset[str] = frozenset()
    """The columns by whose bounds readers may skip files: not nested, of an ordered type, with a plain name."""

    def name_of(self, column: str) -> str | None:
        """The column as the schema spells it. dbio ignores case, and other tools do not."""
        return self._spelled.get(column.lower())

    @cached_property
    def _spelled(self) -> Mapping[str, str]:
        return {name.lower(): name for name in self.kinds}


def delta_schema(schema: Mapping[str, Any], partition_columns: Sequence[str], *, where: str) -> DeltaSchema:
    """Converts the columns. Raises InvalidInputError, with the column, for a type that Delta cannot hold. `where` is
    the table's URL."""
    features: set[str] = set()

    def convert(kind: Any, column: str) -> Any:
        match kind:
            case {"type": "struct", "fields": [*fields]}:
                return {"type": "struct", "fields": [convert_field(it, f"{column}.{it['name']}") for it in fields]}
            case {"type": "array", "elementType": element}:
                return {**kind, "elementType": convert(element, f"{column}.element")}
            case {"type": "map", "keyType": key, "valueType": value}:
                return {
                    **kind,
                    "keyType": convert(key, f"{column}.key"),
                    "valueType": convert(value, f"{column}.value"),
                }
            case str() if (row := type_of(kind)) and row.delta:
                if row.delta_feature:
                    features.add(row.delta_feature)
                return kind if row.delta == row.name else row.delta
        raise InvalidInputError(
            f"column {column!r:.200} of {where} is {kind!s:.100}, which Delta has no type for; publish the table in "
            "another format, or overwrite it without the column"
        )

    def convert_field(field: Mapping[str, Any], column: str) -> dict[str, Any]:
        kind, metadata = convert(field["type"], column), known(field.get("metadata"))
        return {"name": field["name"], "type": kind, "nullable": True, "metadata": metadata}

    fields = [convert_field(field, field["name"]) for field in schema["fields"]]
    kinds = {field["name"]: field["type"] for field in fields}
    found = DeltaSchema(json.dumps({"type": "struct", "fields": fields}), kinds, (), frozenset(features))
    columns = tuple(found.name_of(column) or "" for column in partition_columns)
    if "" in columns:
        raise InvalidInputError(
            f"the recorded columns of {where} lack the partition column {partition_columns[columns.index('')]!r:.100}; "
            "overwrite the table with all of its columns"
        )
    ordered = frozenset(
        name
        for name, kind in kinds.items()
        if (row := type_of(kind)) and row.family in _ORDERED and _PLAIN_NAME.fullmatch(name) and name not in columns
    )
    return DeltaSchema(found.text, kinds, columns, found.features, ordered)


_ORDERED = frozenset(
    {Family.INTEGER, Family.FLOAT, Family.DECIMAL, Family.TEXT, Family.DATE, Family.INSTANT, Family.LOCAL_TIME}
)
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""Other names in the list of such columns are not understood by all readers."""


# --- partition values ---------------------------------------------------------------------------------------------


def partition_values(partition: Partition, schema: DeltaSchema) -> dict[str, str | None]:
    """Partition values in Delta's text formats. dbio's directories name instants in UTC, and so do these. Delta reads
    an empty text as null.

    However a directory of an adopted table spells a value, the text is canonical: readers of Delta accept fewer
    spellings than dbio does.
    """
    values = partition.values()  # in the order of the partition columns
    return {
        column: _value(value, schema.kinds[column])
        for column, value in zip(schema.partition_columns, values, strict=True)
    }


def _value(value: str | None, kind: str) -> str | None:
    if not value:
        return None
    text = canonical(value, kind)
    return f"{text.replace(' ', 'T')}Z" if kind == "timestamp" else text  # without a zone, a reader takes its own


# --- statistics ---------------------------------------------------------------------------------------------------

_EXACT_DIGITS = 15
"""Decimals of up to this many digits survive a reader that takes a number in JSON for a double."""

_MILLISECOND = timedelta(milliseconds=1)


class FileStatistics(NamedTuple):
    """The `stats` of a file."""

    text: str
    """JSON."""
    bounded: frozenset[str]
    """The columns of which it has both bounds, or only nulls."""


def statistics(rows: int | None, columns: Mapping[str, Bounds], schema: DeltaSchema) -> FileStatistics | None:
    """The `stats` of a file; None if its writer counted no rows. `columns` are those in the file."""
    if rows is None:
        return None
    low: list[str] = []
    high: list[str] = []
    nulls: list[str] = []
    bounded = {*schema.ordered} if rows == 0 else set[str]()
    for column, bounds in columns.items():
        name = schema.name_of(column)
        if name is None or not isinstance(
            kind := schema.kinds[name], str
        ):  # for nested columns Delta counts the leaves
            continue
        key = json.dumps(name)
        least, most = bound_text(bounds.min, kind, up=False), bound_text(bounds.max, kind, up=True)
        if least is not None and most is not None:
            low.append(f"{key}:{least}")
            high.append(f"{key}:{most}")
        if bounds.nulls is not None:
            nulls.append(f"{key}:{bounds.nulls}")
        if (least is not None and most is not None) or bounds.nulls == rows:
            bounded.add(name)
    kept = {"minValues": low, "maxValues": high, "nullCount": nulls}
    more = "".join(f',"{name}":{{{",".join(values)}}}' for name, values in kept.items() if values)
    return FileStatistics(f'{{"numRecords":{rows}{more}}}', frozenset(bounded))


def bound_text(bound: Scalar, kind: str, *, up: bool) -> str | None:
    """A bound as Delta writes it, as JSON; None if Delta has no such bound, or a reader might take it for another
    value.

    A bound comes from outside. One that is no value of the column's type is ignored.
    """
    row = type_of(kind)
    if row is None or row.bound is None:
        return None
    match row.family, bound:
        case Family.TEXT, str():
            return json.dumps(bound)
        case Family.DATE, str() if _DATE.fullmatch(bound):
            return json.dumps(bound)
        case Family.INSTANT, str() if bound.endswith("Z"):
            return _instant(bound, up=up)
        case Family.LOCAL_TIME, str() if not bound.endswith("Z"):
            return _instant(bound, up=up)
        case Family.DECIMAL, str():
            return _decimal(bound, kind, up=up)
        case _, bool():  # Delta has no bounds of booleans
            return None
        case Family.INTEGER, int() if -(1 << 63) <= bound < 1 << 63:
            return str(bound)
        case Family.FLOAT, int() | float() if isfinite(bound):
            return repr(bound)
    return None


def _decimal(bound: str, kind: str, *, up: bool) -> str | None:
    """The bound rounded outwards to so many digits, unless the type has no such number."""
    digits = decimal_digits(kind)
    if digits is None or not _PLAIN.fullmatch(bound):
        return None
    found = Decimal(bound).normalize(Context(prec=_EXACT_DIGITS, rounding=ROUND_CEILING if up else ROUND_FLOOR))
    return f"{found:f}" if found.copy_abs() < Decimal(10) ** (digits[0] - digits[1]) else None


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


def _instant(bound: str, *, up: bool) -> str | None:
    """The bound rounded outwards to a millisecond, the finest unit in Delta.

    Delta itself cuts off microseconds, and its readers expect that. So a bound in the last millisecond of the year 9999
    is cut off, too.
    """
    zone = "Z" if bound.endswith("Z") else ""
    try:
        moment = datetime.fromisoformat(bound.removesuffix("Z"))
    except ValueError:
        return None
    inside = timedelta(microseconds=moment.microsecond % 1000)
    moment -= inside
    if up and inside and moment <= datetime.max - _MILLISECOND:
        moment += _MILLISECOND
    return json.dumps(f"{moment.isoformat(timespec='milliseconds')}{zone}")
