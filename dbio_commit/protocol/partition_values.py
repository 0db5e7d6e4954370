"""Partition values as texts in the names of directories: one canonical text for each value (PROTOCOL.md 6.2). Pure.

A type is named as in a recorded schema, which is Spark's JSON. Its grammar is in the table of types. `names` escapes
texts, and writes null. `problem` says whether a text is canonical, as writers must write it. `read` gives the value
that all readers take a text for. Some texts in adopted directories have one, though they are not canonical. `meant`
gives the only value that its author can have meant, for messages and filters.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from numbers import Integral
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.types import Family, is_partition, type_of
from dbio_commit.protocol.types.texts import TextForm, TypedValue

Given = Any
"""A partition value that a caller gives: its text, or a value of Python or NumPy. The column's type decides."""

# --- texts and values ---------------------------------------------------------------------------------------------


def _form(kind: str) -> TextForm:
    row = type_of(kind)
    if row is None or row.text is None:
        raise ValueError(f"{kind} is no type that directories are named by")
    return row.text


@lru_cache(maxsize=1 << 14)
def read(text: str, kind: str) -> TypedValue:
    """The value that all readers take the text for. Raises ValueError, with the reason, if they do not agree."""
    form = _form(kind)
    try:
        value: TypedValue = form.read(text, kind)
    except (ValueError, OverflowError):
        hint = _hint(text, kind, "it may be meant as")
        raise ValueError(f"{text!r:.200} is no {kind} that all readers take for the same value{hint}") from None
    return value


def write(value: TypedValue, kind: str) -> str:
    """The canonical text of a value of the type. Raises ValueError if the type has no such value."""
    return writer(kind)(value)


def writer(kind: str) -> Callable[[Any], str]:
    """A function like `write`, for many values of one type."""
    text_of = _form(kind).write

    def write(value: Any) -> str:
        try:
            return text_of(value, kind)
        except OverflowError as error:  # in UTC it is before the year 1, or after 9999
            raise ValueError(str(error)) from None

    return write


def canonical(text: str, kind: str) -> str:
    """The canonical text of the same value. Raises ValueError as `read` does."""
    return write(read(text, kind), kind)


def problem(text: str, kind: str) -> str | None:
    """Why no writer may write the text for a column of the type, and what to write; None if it is canonical."""
    try:
        own = canonical(text, kind)
    except ValueError:
        own = None
    if own == text:
        return None
    hint = _hint(text, kind, "write")
    if own is not None:
        return f"{text!r:.200} is no canonical text of type {kind}{hint}"
    row = type_of(kind)
    like = "" if hint else f"; {kind} is written like {row.text.example if row and row.text else ''!r}"
    return f"{text!r:.200} is no {kind}{hint}{like}"


def meant(text: str, kind: str) -> TypedValue:
    """The only value that a text can mean, even if readers do not take it so. Raises ValueError if there is none."""
    row = type_of(kind)
    form = row.text if row else None
    for parse, given in ((form.read, text), (form.guess, text.strip())) if form else ():
        with suppress(ValueError, OverflowError, InvalidOperation):
            if parse:
                value: TypedValue = parse(given, kind)
                write(value, kind)
                return value
    raise ValueError(f"{text!r:.200} is no {kind}")


def _hint(text: str, kind: str, word: str) -> str:
    try:
        return f"; {word} {write(meant(text, kind), kind)!r}"
    except ValueError:
        return ""


# --- what callers give --------------------------------------------------------------------------------------------


def spell(value: Given, kind: str | None) -> str:
    """The canonical text of a value that a caller gave for a column. `kind` is None if its type is not known: then the
    value's own type decides.

    Raises ValueError, with the reason, for what is no value of the type.
    """
    if isinstance(value, str):
        why = problem(value, kind) if kind is not None else None
        if why is not None:
            raise ValueError(why)
        return value
    value = _plain(value)
    own = kind_of(value)
    if kind is None:
        if not is_partition(own):
            raise ValueError(f"{value!r:.200} is of type {own}, by which no table is partitioned; give a text")
        return write(value, own)
    row, given = type_of(kind), base_of(own)
    is_taken = row is not None and row.text is not None and given in row.text.takes
    if kind == "date" and is_taken and given == "timestamp_ntz":
        is_taken = value.time() == time()
    if not is_taken:
        raise ValueError(f"{value!r:.200} is no {kind}{_ADVICE.get((base_of(kind), given), '')}")
    if row is not None and row.family is Family.TEXT:
        return write(value, own)
    return write(value.date() if kind == "date" and isinstance(value, datetime) else value, kind)


def base_of(kind: str) -> str:
    """The type without its parameters."""
    return kind.partition("(")[0]


def kind_of(value: Given) -> str:
    """The type of a new column with such values. Raises ValueError if no column has such values."""
    match _plain(value):
        case str():
            return "string"
        case bool():
            return "boolean"
        case int():
            return "long"
        case Decimal() as number if number.is_finite():
            return f"decimal(38,{max(0, -int(number.as_tuple().exponent))})"
        case datetime() as moment:
            return "timestamp" if moment.tzinfo else "timestamp_ntz"
        case date():
            return "date"
        case float():
            return "double"
        case bytes():
            return "binary"
    raise ValueError(f"{value!r:.200} is no value of a partition column; give a text, a number, a date or a datetime")


def _plain(value: Given) -> Any:
    """The value as Python's own type. Raises ValueError for null, and for times with parts finer than microseconds."""
    try:
        is_none = bool(value != value)  # so are NaN, and pandas' NaT
    except (TypeError, ValueError):  # pandas' NA, an array
        is_none = True
    if is_none:
        raise ValueError(f"{value!r:.200} is no value of a partition column; None is null")
    if type(value).__module__ == "numpy":
        if type(value).__name__ == "timedelta64":  # NumPy treats it as a whole number
            return value
        value = _of_datetime64(value) if type(value).__name__ == "datetime64" else value.item()
    if getattr(value, "nanosecond", 0):  # of pandas' timestamps
        raise ValueError(_TOO_FINE.format(value))
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


_TOO_FINE = "{!r:.200} has finer parts than microseconds, which no column holds; give a time in whole microseconds"


def _of_datetime64(value: Any) -> date | datetime:
    """A date if the value counts days, otherwise a time. NumPy makes no Python value of nanoseconds."""
    plain = value.item()
    if value.dtype.name == "datetime64[ns]":
        exact = value.astype("datetime64[us]")
        if exact != value:
            raise ValueError(_TOO_FINE.format(value))
        plain = exact.item()
    if not isinstance(plain, date) or value.dtype.name in ("datetime64[Y]", "datetime64[M]", "datetime64[W]"):
        raise ValueError(f"{value!r:.200} is no date or time that a column can hold; give a date or a datetime")
    return plain


_ADVICE: Mapping[tuple[str, str], str] = {
    ("timestamp", "timestamp_ntz"): "; give a datetime with a zone",
    ("timestamp_ntz", "timestamp"): "; give a datetime without a zone",
    ("timestamp", "date"): "; give a datetime with a zone",
    ("timestamp_ntz", "date"): "; give a datetime",
    ("date", "timestamp"): "; give a date",
    ("date", "timestamp_ntz"): "; give a date",
}


# --- what readers meet --------------------------------------------------------------------------------------------


def unread(url: str, column: str, why: str) -> InvalidInputError:
    """The error for a file, by its URL, if readers do not agree on the column's value in its directory's name."""
    return InvalidInputError(
        f"the directory of {url} names no value of the column {column!r} on which readers agree: {why}. The "
        "other columns of the file can be read. Write its rows into the partition where they belong and remove the "
        'file, in one transaction, as OPERATIONS.md shows under "A partition value that readers do not agree on"; or '
        "restore the state of the table before the file came"
    )
