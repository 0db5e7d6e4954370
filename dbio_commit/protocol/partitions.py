"""When two partition values are the same: files of an adopted directory may spell them as our writers do not. Pure.

How values become names of directories, and back, is in `names`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.state import DataFile

Types = Mapping[str, str | None]
"""The Spark type of each partition column, as its JSON has it; None where no writer recorded it."""


def partition_types(schema: Mapping[str, Any] | None, columns: Sequence[str]) -> Types:
    """Of the partition columns in the table's schema (Spark's JSON)."""
    fields = {str(field["name"]).lower(): field["type"] for field in (schema or {}).get("fields", ())}
    types = {column: fields.get(column.lower()) for column in columns}
    return {column: kind if isinstance(kind, str) else None for column, kind in types.items()}


def replaced_files(live: Iterable[DataFile], replaced: Iterable[Partition], types: Types) -> list[DataFile]:
    """The live files that lie in one of the partitions, each given by some or all partition columns.

    Raises InvalidInputError where nothing tells whether they do: m=01 and m=1 are the same number, and other texts.
    """
    wanted: dict[tuple[str, ...], set[_Key]] = {}
    for partition in replaced:
        columns = tuple(sorted(partition))
        wanted.setdefault(columns, set()).add(_key(partition, columns, types))
    alike = {columns: {_as_numbers(key, columns, types) for key in keys} for columns, keys in wanted.items()}

    def is_in(file: DataFile, columns: tuple[str, ...]) -> bool:
        if not all(column in file.partition for column in columns):
            return False
        key = _key(file.partition, columns, types)
        if key in wanted[columns]:
            return True
        if _as_numbers(key, columns, types) in alike[columns]:
            raise InvalidInputError(
                f"{file.path!r} may or may not lie in a partition that is replaced: no writer recorded the types of "
                f"{[column for column in columns if types.get(column) is None]}, and as numbers its values are the "
                "same; pass the columns with commit(schema=…)"
            )
        return False

    return [file for file in live if any(is_in(file, columns) for columns in wanted)]


_Key = tuple[str | None, ...]


def _key(partition: Partition, columns: Sequence[str], types: Types) -> _Key:
    return tuple(canonical(partition[column], types.get(column)) for column in columns)


def _as_numbers(key: _Key, columns: Sequence[str], types: Types) -> _Key:
    """With what may be numbers, where no type is known, spelt in one way."""
    return tuple(
        _integer(value) if value is not None and types.get(column) is None else value
        for column, value in zip(columns, key, strict=True)
    )


def canonical(value: str | None, kind: str | None) -> str | None:
    """The value as our writers spell it (PROTOCOL.md 6.2); as it is where it is none of that type."""
    if value is None or kind is None:
        return value
    spell = next((spell for prefix, spell in _SPELLINGS.items() if kind.startswith(prefix)), None)
    with suppress(ValueError, InvalidOperation):
        return spell(value.strip()) if spell else value
    return value


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")


def _integer(text: str) -> str:
    return str(int(text)) if _INTEGER.fullmatch(text) else text


def _decimal(text: str) -> str:
    return format(Decimal(text).normalize(), "f")


def _date(text: str) -> str:
    found = _DATE.fullmatch(text)
    return date(*map(int, found.groups())).isoformat() if found else text


def _timestamp(text: str) -> str:
    return datetime.fromisoformat(text).isoformat(" ")


_SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "byte": _integer,
    "short": _integer,
    "integer": _integer,
    "long": _integer,
    "boolean": str.lower,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
}
"""By how the type's name begins."""
