"""The table of types: one row for each type that a column can have, with all facts about the type. Pure.

To add a type, add a row to `TYPES`, and its cases to the tests. `tests/unit/protocol/test_types.py` goes over all rows,
and asks each part of the code that works with types. A row has names of Arrow's constructors rather than Arrow's types,
since most processes that use this module import no pyarrow. Nested types have no rows: arrays, maps and structs consist
of these.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from dbio_commit.protocol.types import bounds, texts
from dbio_commit.protocol.types.bounds import BoundForm
from dbio_commit.protocol.types.texts import DECIMAL_PARAMETERS, TextForm


class Family(Enum):
    """The families of types, for code that treats each of them differently."""

    BOOLEAN = auto()
    INTEGER = auto()
    FLOAT = auto()
    DECIMAL = auto()
    TEXT = auto()
    BYTES = auto()
    DATE = auto()
    INSTANT = auto()
    """A point in time."""
    LOCAL_TIME = auto()
    """Date and time without a zone."""
    VARIANT = auto()
    """A value of any type, as JSON has them. To readers without such a type, it is a struct of two binaries."""
    NOTHING = auto()
    """Only nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """A row of the table of types."""

    name: str
    """In a recorded schema, which is Spark's JSON; without the parameters that follow it in parentheses."""
    family: Family
    parameters: str = ""
    """The grammar of the parameters, with their parentheses; empty if there are none."""
    sql: tuple[str, ...] = ()
    """The names in Spark's SQL, in lower case; the first is the usual one."""

    arrow: tuple[str, ...]
    """Arrow's type: a constructor of pyarrow, and its arguments. A decimal's parameters are arguments, too."""
    arrow_fields: tuple[tuple[str, str], ...] = ()
    """If the type is a struct in Arrow and in Parquet: the names of its fields, and the constructors of their types. No
    field is ever null."""
    arrow_also: tuple[str, ...] = ()
    """Constructors of other types of Arrow that Spark reads as this type."""
    parquet: tuple[str, ...] = ()
    """Parquet's logical types that all readers take for this type; empty if files may not have it."""

    text: TextForm | None = None
    """The texts of partition values; None if directories are not named by such values."""
    is_partition: bool = False
    """Whether writers may partition a table by such a column. With a text form alone, only adopted tables have it."""
    bound: BoundForm | None = None
    """The bounds in markers; None if readers do not order the values alike."""
    whole_bits: int = 0
    """The type holds each whole number from -2^n to 2^n - 1 exactly; 0 for types that are not binary numbers."""
    widens_to: tuple[str, ...] = ()
    """Types that hold each value of this type, the widest last. Decimals have a rule of their own."""

    delta: str | None = None
    """Delta's name for it; None if Delta has no such type."""
    delta_feature: str | None = None
    """The table feature that a Delta table with such a column needs, of readers and of writers."""
    iceberg: str | None = None
    """Iceberg's name for it, in version 2 of its specification; None if Iceberg has no such type there."""
    has_fixed_width: bool = True
    """Whether each value takes about the same memory. If not, batches count the bytes of the values."""
    packed: str = ""
    """The letter for it in `BlockLayout.java`, which lays out rows for Python."""

    @property
    def is_written(self) -> bool:
        """Whether data files may have such a column."""
        return bool(self.parquet)


def _integer(name: str, sql: tuple[str, ...], bits: int, wider: tuple[str, ...], also: str, packed: str) -> Type:
    return Type(
        name=name,
        family=Family.INTEGER,
        sql=sql,
        arrow=(f"int{bits}",),
        arrow_also=(also,) if also else (),
        parquet=("Int", "None"),
        text=texts.integers(bits),
        is_partition=True,
        bound=bounds.INTEGER,
        whole_bits=bits - 1,
        widens_to=wider,
        delta=name,
        iceberg="long" if bits > 32 else "int",
        packed=packed,
    )


def _text(name: str, sql: tuple[str, ...], *, parameters: str = "", bound: BoundForm | None = None) -> Type:
    return Type(
        name=name,
        family=Family.TEXT,
        parameters=parameters,
        sql=sql,
        arrow=("string",),
        arrow_also=("large_string", "string_view"),
        parquet=("String",),
        text=texts.TEXT,
        is_partition=True,
        bound=bound,
        delta="string",
        iceberg="string",
        has_fixed_width=False,
        packed="v",
    )


TYPES: tuple[Type, ...] = (
    Type(
        name="boolean",
        family=Family.BOOLEAN,
        sql=("boolean",),
        arrow=("bool_",),
        parquet=("None",),
        text=texts.BOOLEAN,
        is_partition=True,
        bound=bounds.BOOLEAN,
        delta="boolean",
        iceberg="boolean",
        packed="z",
    ),
    _integer("byte", ("tinyint", "byte"), 8, ("short", "integer", "long"), also="", packed="b"),
    _integer("short", ("smallint", "short"), 16, ("integer", "long"), also="uint8", packed="s"),
    _integer("integer", ("int", "integer"), 32, ("long",), also="uint16", packed="i"),
    _integer("long", ("bigint", "long"), 64, (), also="uint32", packed="l"),
    Type(
        name="float",
        family=Family.FLOAT,
        sql=("float", "real"),
        arrow=("float32",),
        arrow_also=("float16",),
        parquet=("None",),
        text=texts.SINGLE,
        bound=bounds.FLOAT,
        whole_bits=24,
        widens_to=("double",),
        delta="float",
        iceberg="float",
        packed="i",
    ),
    Type(
        name="double",
        family=Family.FLOAT,
        sql=("double",),
        arrow=("float64",),
        parquet=("None",),
        text=texts.DOUBLE,
        bound=bounds.FLOAT,
        whole_bits=53,
        delta="double",
        iceberg="double",
        packed="l",
    ),
    Type(
        name="decimal",
        family=Family.DECIMAL,
        parameters=DECIMAL_PARAMETERS,
        sql=("decimal", "dec", "numeric"),
        arrow=("decimal128",),
        parquet=("Decimal",),
        text=texts.DECIMAL,
        is_partition=True,
        bound=bounds.DECIMAL,
        delta="decimal",
        iceberg="decimal",
        packed="d",
    ),
    _text("string", ("string",), bound=bounds.TEXT),
    _text("char", ("char", "character"), parameters=r"\(\d+\)"),  # blanks at the end do not count: no bounds
    _text("varchar", ("varchar",), parameters=r"\(\d+\)"),
    Type(
        name="binary",
        family=Family.BYTES,
        sql=("binary",),
        arrow=("binary",),
        arrow_also=("large_binary", "binary_view"),
        parquet=("None",),
        text=texts.BYTES,
        delta="binary",
        iceberg="binary",
        has_fixed_width=False,
        packed="v",
    ),
    Type(
        name="date",
        family=Family.DATE,
        sql=("date",),
        arrow=("date32",),
        arrow_also=("date64",),
        parquet=("Date",),
        text=texts.DATE,
        is_partition=True,
        bound=bounds.DATE,
        delta="date",
        iceberg="date",
        packed="i",
    ),
    Type(
        name="timestamp",
        family=Family.INSTANT,
        sql=("timestamp", "timestamp_ltz"),
        arrow=("timestamp", "us", "UTC"),
        parquet=("Timestamp", "None"),  # the old INT96 has no logical type
        text=texts.INSTANT,
        is_partition=True,
        bound=bounds.INSTANT,
        delta="timestamp",
        iceberg="timestamptz",
        packed="l",
    ),
    Type(
        name="timestamp_ntz",
        family=Family.LOCAL_TIME,
        sql=("timestamp_ntz",),
        arrow=("timestamp", "us"),
        parquet=("Timestamp",),
        text=texts.LOCAL_TIME,
        is_partition=True,
        bound=bounds.LOCAL_TIME,
        delta="timestamp_ntz",
        delta_feature="timestampNtz",
        iceberg="timestamp",
        packed="l",
    ),
    Type(
        name="variant",
        family=Family.VARIANT,
        arrow=("struct",),
        arrow_fields=(("value", "binary"), ("metadata", "binary")),
        parquet=("None",),
        has_fixed_width=False,
    ),
    Type(name="void", family=Family.NOTHING, arrow=("null",)),
)

BY_NAME: Mapping[str, Type] = {row.name: row for row in TYPES}


@lru_cache(maxsize=1 << 12)
def _named(kind: str) -> Type | None:
    row = BY_NAME.get(kind.partition("(")[0])
    return row if row and re.fullmatch(row.parameters, kind[len(row.name) :]) else None


def type_of(kind: Any) -> Type | None:
    """The row of a type in a recorded schema, such as `decimal(10,2)`; None for one that is nested or unknown."""
    return _named(kind) if isinstance(kind, str) else None


def leaf_types(kind: Any) -> Iterator[Any]:
    """The types in a type of a recorded schema that are not nested; the type itself, if it is not nested."""
    match kind:
        case {"type": "struct", "fields": [*fields]}:
            for field in fields:
                yield from leaf_types(field["type"])
        case {"type": "array", "elementType": element}:
            yield from leaf_types(element)
        case {"type": "map", "keyType": key, "valueType": value}:
            yield from leaf_types(key)
            yield from leaf_types(value)
        case _:
            yield kind


def is_integer(kind: Any) -> bool:
    """Whether it is a type of whole numbers."""
    row = type_of(kind)
    return row is not None and row.family is Family.INTEGER


def is_number(kind: Any) -> bool:
    """Whether it is a type of numbers."""
    row = type_of(kind)
    return row is not None and row.family in (Family.INTEGER, Family.FLOAT, Family.DECIMAL)


def is_partition(kind: Any) -> bool:
    """Whether writers may partition a table by a column of this type."""
    row = type_of(kind)
    return row is not None and row.is_partition


def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a type of decimals; None for another type."""
    try:
        return texts.decimal_digits(kind)
    except ValueError:
        return None


# --- wider types --------------------------------------------------------------------------------------------------

MOST_DIGITS = 38
"""The most digits of a decimal that all readers support."""


def widens(narrow: str, wide: str) -> bool:
    """Whether `wide` is another type of the same family, in which each value of `narrow` has an equal value."""
    row, other = type_of(narrow), type_of(wide)
    if row is None or other is None:
        return False
    digits, more = decimal_digits(narrow), decimal_digits(wide)
    if digits and more:
        return more[0] > digits[0] and 0 <= more[1] - digits[1] <= more[0] - digits[0]
    return other.name in row.widens_to


def widest(kind: str) -> str:
    """The widest type that a column of this type may be widened to."""
    if digits := decimal_digits(kind):
        return f"decimal({MOST_DIGITS},{digits[1]})"
    row = type_of(kind)
    return row.widens_to[-1] if row and row.widens_to else kind
