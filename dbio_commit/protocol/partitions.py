"""Finds the files in a partition, and the files on whose partition readers do not agree. Pure.

Files of an adopted directory may spell values in other ways than dbio does. What a text means is in `partition_values`.
How it becomes the name of a directory, and back, is in `names`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.partition_values import canonical, meant, problem, read, unread, write
from dbio_commit.protocol.state import DataFile, FilesInParts, LiveFiles
from dbio_commit.protocol.types import widest

Types = Mapping[str, str | None]
"""The type of each partition column in Spark's JSON; None if no writer recorded it."""


def partition_types(schema: Mapping[str, Any] | None, columns: Sequence[str]) -> Types:
    """The types of the partition columns in the table's schema (Spark's JSON)."""
    fields = {str(field["name"]).lower(): field.get("type") for field in (schema or {}).get("fields", ())}
    types = {column: fields.get(column.lower()) for column in columns}
    return {column: kind if isinstance(kind, str) else None for column, kind in types.items()}


def replaced_files(live: Sequence[DataFile], replaced: Iterable[Partition], types: Types) -> list[DataFile]:
    """The live files in one of the partitions. A partition is given by some or all partition columns.

    Raises InvalidInputError if it is not certain whether a file is in one. m=01 and m=1 are the same number, but
    different texts. Readers do not agree on the value of d=1.5 for a decimal(5,2).
    """
    wanted: dict[tuple[str, ...], set[_Key]] = {}
    for partition in replaced:
        columns = tuple(sorted(partition))
        wanted.setdefault(columns, set()).add(_key(partition, columns, types))
    alike = {
        columns: {_key_alike(key, columns, types) for key in keys if _is_read(key, columns, types)}
        for columns, keys in wanted.items()
    }

    def is_in(file: DataFile, columns: tuple[str, ...]) -> bool:
        if not all(column in file.partition for column in columns):
            return False
        key = _key(file.partition, columns, types)
        if key in wanted[columns]:
            return True
        if _key_alike(key, columns, types) in alike[columns]:
            unknown = [column for column in columns if types.get(column) is None]
            why = (
                f"no writer recorded the types of {unknown}, and as numbers its values are the same; pass the columns "
                "with commit(schema=…)"
                if unknown
                else "readers do not agree which value the name of its directory means. Put the file right first, as "
                'OPERATIONS.md shows under "A partition value that readers do not agree on", or overwrite that '
                "directory, too: "
                f"transaction.overwrite_partition({dict(file.partition)})"
            )
            raise InvalidInputError(f"{file.path!r} may or may not lie in a partition that is replaced: {why}")
        return False

    def may_be_in(partition: Partition) -> bool:
        """Whether a file in this partition may be in a replaced one."""
        for columns in wanted:
            if all(column in partition for column in columns):
                key = _key(partition, columns, types)
                if key in wanted[columns] or _key_alike(key, columns, types) in alike[columns]:
                    return True
        return False

    if isinstance(live, FilesInParts):
        live = live.choose(may_be_in, (), None)
    return [file for file in live if any(is_in(file, columns) for columns in wanted)]


_Key = tuple[str | None, ...]


def _key(partition: Partition, columns: Sequence[str], types: Types) -> _Key:
    return tuple(agreed_text(partition[column], types.get(column)) for column in columns)


def _key_alike(key: _Key, columns: Sequence[str], types: Types) -> _Key:
    return tuple(_alike(value, types.get(column)) for column, value in zip(columns, key, strict=True))


def _is_read(key: _Key, columns: Sequence[str], types: Types) -> bool:
    """Whether readers agree on the values; otherwise the partition means only directories of exactly that name."""
    partition = dict(zip(columns, key, strict=True))
    return next(_unread_values(partition, types), None) is None


@lru_cache(maxsize=1 << 14)
def agreed_text(value: str | None, kind: str | None) -> str | None:
    """The canonical text of the value that all readers find; the text itself if they do not agree."""
    if value is None or kind is None:
        return value
    try:
        return canonical(value, kind)
    except ValueError:
        return value


@lru_cache(maxsize=1 << 14)
def _alike(value: str | None, kind: str | None) -> str | None:
    """One text for all texts that some reader or writer may take for the same value."""
    if value is None:
        return None
    if kind is None:
        return str(int(value)) if _INTEGER.fullmatch(value) else value
    try:
        return write(meant(value, kind), kind)
    except ValueError:
        return value


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


# --- values on which readers do not agree -------------------------------------------------------------------------


class Unread(NamedTuple):
    """A file whose directory names no value of a column on which all readers agree."""

    path: str
    column: str
    why: str


def find_unread(files: Sequence[DataFile], types: Types) -> Iterator[Unread]:
    """The files on whose partitions readers do not agree, each with the first such column."""
    if not any(types.values()):
        return
    if isinstance(files, FilesInParts):
        files = files.choose(lambda it: next(_unread_values(it, types), None) is not None, (), None)
    live, wrong = LiveFiles.of(files), dict[str, tuple[str, str]]()
    for directory, partition in live.partitions.items():
        found = next(_unread_values(partition, types), None)
        if found is not None:
            wrong[directory] = found
    if wrong:
        directories = ((path, path.rpartition("/")[0]) for path in live.paths())
        yield from (Unread(path, *wrong[directory]) for path, directory in directories if directory in wrong)


def _unread_values(partition: Partition, types: Types) -> Iterator[tuple[str, str]]:
    for column, text in partition.items():
        kind = types.get(column)
        if text is not None and kind is not None:
            try:
                read(text, kind)
            except ValueError as error:
                yield column, str(error)


def refuse_unread(files: Sequence[DataFile], types: Types, *, where: str) -> None:
    """Raises InvalidInputError for a file on whose partition readers do not agree. `where` is the URL of the table."""
    for it in find_unread(files, types):
        raise unread(f"{where}/{it.path}", it.column, it.why)


# --- values that are written --------------------------------------------------------------------------------------


def find_problem(partitions: Iterable[Partition], types: Types) -> tuple[Partition, str] | None:
    """A partition that no writer may write to, and the reason; None if all have canonical texts."""
    seen = set[tuple[str, str | None]]()
    for partition in partitions:
        for column, text in partition.items():
            kind = types.get(column)
            if kind is None or text is None or (column, text) in seen:
                continue
            seen.add((column, text))
            if why := problem(text, kind):
                return partition, f"{column} = {why}"
    return None


def widest_types(types: Types) -> Types:
    """The widest types that the columns may get by the commit of files that are staged already."""
    return {column: kind and widest(kind) for column, kind in types.items()}
