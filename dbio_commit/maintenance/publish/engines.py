"""Finds the readers of a publication that fail because of names: the table's path, its columns, its directories. Pure.

docs/ENGINES.md has the same as a table, and `tests/integration/test_engines.py` tries the readers. All other readers,
and dbio itself, can still read the table.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from dbio_commit.protocol import names
from dbio_commit.protocol.types import decimal_digits

_ON_DISK = re.compile(r"[^\x21-\x7e]|[%#?{}]")
"""Characters of a path on a disk with which Polars finds no file: it looks for them as a URL escapes them."""
_IN_KEYS = re.compile(r"[^\x21-\x7e]|[{}]")
"""As `_ON_DISK`, in an object's key."""
_LIKE_ESCAPES = re.compile("%[0-9A-Fa-f]{2}")
_LIKE_PARTITIONS = re.compile(r"[^/=]+=[^/]*")

_MOVE = "a path of ASCII letters, digits and - _ . is read by all"


def find_limits(
    url: str,
    *,
    is_disk: bool,
    partition_columns: Sequence[str],
    directories: Sequence[str] = (),
    decimals: Collection[str] = (),
) -> list[str]:
    """The limits of a Delta log: one line for each reason why some reader fails. `url` is the table's root,
    `directories` are those of live files, and `decimals` are the partition columns of this type.

    Only the first of the directories with a problem is named.
    """
    root = url if is_disk else url.partition("://")[2].partition("/")[2]
    found = [*_of_root(root, is_disk), *_of_columns(root, partition_columns)]
    odd = None if is_disk else next(filter(_IN_KEYS.search, directories), None)
    if odd is not None:
        found.append(
            f"Polars does not find the files in directories such as {odd!r:.200}, since an object's key may have no "
            "space and no other character than ASCII there; partition by other values, or use another reader"
        )
    negative = next((it for it in directories if _has_negative(it, decimals)), None)
    if negative is not None:
        found.append(
            "delta-rs fails at decimals below zero with digits after the point as partition values, such as in "
            f"{negative!r:.200}, in to_pyarrow_table, to_pyarrow_dataset and to_pandas; its queries in SQL, and other "
            "engines, read the table"
        )
    return found


def limits_of_iceberg(kinds: Mapping[str, str | None]) -> list[str]:
    """As `find_limits`, for a table that is published as an Iceberg table. `kinds` has the types of all partition
    columns.
    """
    found = []
    if first := next(iter(kinds), None):
        found.append(
            f"PyIceberg finds no rows by a filter on a partition column, such as {first!r:.100}, that the scan does "
            "not select: let selected_fields name it, too"
        )
    if text := next((name for name, kind in kinds.items() if kind == "string"), None):
        found.append(
            f"Iceberg on Spark fails at IN with several texts on a partition column, such as {text!r:.100}, that has "
            "null in some partition: write the comparisons with = and OR"
        )
    return found


def decimal_columns(kinds: Mapping[str, str | None]) -> list[str]:
    """The partition columns that are decimals. `kinds` has the types of all partition columns."""
    return [name for name, kind in kinds.items() if kind and decimal_digits(kind)]


def limited_directories(paths: Iterable[str], decimals: Collection[str] = ()) -> list[str]:
    """For each problem that a directory can have, the first directory with it, if any. `paths` are those of files."""
    odd: str | None = None
    negative: str | None = None
    for path in paths:
        directory = names.split(path)[0]
        odd = directory if odd is None and _IN_KEYS.search(path) else odd
        negative = directory if negative is None and decimals and _has_negative(directory, decimals) else negative
    return [it for it in (odd, negative) if it is not None]


_NEGATIVE = re.compile(r"-[0-9]*\.[0-9]*[1-9][0-9]*")


def _has_negative(directory: str, decimals: Collection[str]) -> bool:
    """Whether the directory names a decimal below zero with digits after the point."""
    values = names.parse_partition(directory).items()
    return any(name in decimals and text is not None and _NEGATIVE.fullmatch(text) for name, text in values)


def _of_root(root: str, is_disk: bool) -> list[str]:
    found = []
    if odd := (_ON_DISK if is_disk else _IN_KEYS).search(root):
        found.append(f"Polars does not find the files of a table whose path has {odd[0]!r}; {_MOVE}")
    if is_disk and (odd := _LIKE_ESCAPES.search(root)):
        found.append(f"delta-rs takes {odd[0]!r} in the table's path for an escape, and finds no file; {_MOVE}")
    if is_disk and "%" in root:
        found.append(f"DuckDB's delta_scan takes '%' in the table's path for an escape, and finds no file; {_MOVE}")
    if not is_disk and (odd := re.search("[#?]", root)):
        found.append(f"delta-rs and Polars find no table at a path with {odd[0]!r}; {_MOVE}")
    return found


def _of_columns(root: str, partition_columns: Sequence[str]) -> list[str]:
    found = []
    if partition_columns and (like := next(filter(_LIKE_PARTITIONS.fullmatch, root.split("/")), None)):
        found.append(
            f"Polars takes {like!r:.100} in the table's path for a partition column, which the table does not have; "
            f"{_MOVE}"
        )
    found += [
        f"Polars does not know the partition column {column!r:.100}, whose name is escaped in directories; use a name "
        "of letters, digits and _"
        for column in partition_columns
        if names.escape(column) != column
    ]
    return found
