"""The formats of publications, the place of each in the table, its URL, and the report of a publication."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.base.shown import Shown
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import LAST_NUMBER, split
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store, parse_location

DIRECTORIES: Final[Mapping[Format, str]] = {
    Format.DELTA: "_delta_log",
    Format.SPARK: "_spark_metadata",
    Format.SYMLINK: "_symlink_format_manifest",
    Format.ICEBERG: "_iceberg",
}
"""Directories relative to the root. All are hidden: no reader takes their contents for data."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Published(Shown):
    """The publication of a table in one format."""

    format: Format
    """The format."""
    number: int
    """The version of Delta or of Iceberg's metadata, or the number of the list; each publication has a higher one."""
    tid: str | None
    """The newest commit in it; None if there is none."""
    files: int
    """How many live files it has."""
    added: int
    """How many files the publication before did not have."""
    removed: int
    """How many files only the publication before had."""
    is_new: bool
    """Whether anything was written; if not, this publication existed already."""

    def after(self, earlier: "Published | None") -> "Published":
        """The report of this publication and of the one right before it, as one."""
        if earlier is None:
            return self
        added, removed = earlier.added + self.added, earlier.removed + self.removed
        return replace(self, added=added, removed=removed, is_new=earlier.is_new or self.is_new)


class Own(NamedTuple):
    """The objects that publishers of a table wrote in one format."""

    telling: list[Entry]
    """Objects that record whose publication it is. A deletion of everything deletes these last."""
    rest: list[Entry]
    """Other objects of these publications, such as checkpoints."""


def parse_formats(to: str | Sequence[str]) -> tuple[Format, ...]:
    """The formats that a caller gave, one or several, each once. Raises InvalidInputError for a name that is none."""
    wanted = (to,) if isinstance(to, str) else tuple(to)
    known = ", ".join(map(repr, map(str, Format)))
    if not wanted:
        raise InvalidInputError(f"no format to publish in was given; name one or more of {known}")
    for name in wanted:
        if name not in (*Format,):
            raise InvalidInputError(f"{name!r:.100} is no format that a table is published in; name one of {known}")
    return tuple(dict.fromkeys(map(Format, wanted)))


def by_number(entries: Iterable[Entry], grammar: re.Pattern[str], *, root: str, step: int = 1) -> dict[int, Entry]:
    """The entries whose names, without directories, match the grammar, by the number in its first group.

    The numbers may have gaps of any size, since anyone can choose a name. Raises CorruptMarkerError for a number that
    no publisher reaches, even with one more `step`. `root` is the URL of the table.
    """
    matches = ((entry, grammar.fullmatch(split(entry.path)[1])) for entry in entries)
    found = {int(match[1]): entry for entry, match in matches if match}
    if found and (last := max(found)) + step >= LAST_NUMBER:
        raise CorruptMarkerError(
            f"{root}/{found[last].path} has a number that no publisher reaches, so no publication could follow; find "
            "out who wrote this object, which other engines may take for the newest, and publish again once it is gone"
        )
    return found


def in_sequence(numbers: Collection[int], *, first: int) -> tuple[list[int], int | None]:
    """The numbers from `first` on, in order, and the first that is missing among them; None if none is missing."""
    found = sorted(number for number in numbers if number >= first)
    return found, next((due for due, number in enumerate(found, first) if due != number), None)


def is_published(path: str) -> bool:
    """Whether an object at this path below the root of a dbio table belongs to a publication."""
    first, slash, _ = path.partition("/")
    return bool(slash) and first in DIRECTORIES.values()


# --- URLs -----------------------------------------------------------------------------------------------------------


_ACCOUNT = re.compile(r"(?:^|;)\s*AccountName=([^;]+)", re.IGNORECASE)


def root_url(store: Store, *, s3: str) -> str:
    """The root as `file:///...`, `abfss://container@account...`, or with `s3` as the scheme; not escaped.

    Raises InvalidInputError if the storage account of an Azure container is not known.
    """
    it = parse_location(store.url)
    account = _account(getattr(store, "storage_options", {}))
    if it.scheme == "az" and not (it.account or account):
        raise InvalidInputError(
            f"{store.url} names no storage account, and absolute paths need one; name the table as "
            "abfss://container@account.dfs.core.windows.net/..., or give account_name"
        )
    return it.hadoop_url(s3=s3, account=account)


def _account(options: dict[str, Any]) -> str | None:
    """The account name as adlfs finds it."""
    text = options.get("connection_string") or os.environ.get("AZURE_STORAGE_CONNECTION_STRING") or ""
    match = _ACCOUNT.search(text)
    return options.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or (match[1] if match else None)
