"""The formats that a table is published in, where each lies in the table, and what is said of a publication. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format

DIRECTORIES: Final[Mapping[Format, str]] = {
    Format.DELTA: "_delta_log",
    Format.SPARK: "_spark_metadata",
    Format.SYMLINK: "_symlink_format_manifest",
}
"""Relative to the root. All are hidden: no reader takes what lies there for data."""


MOST_BYTES: Final = 1024**3
"""Of one object of a publication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is published now, in one format."""

    format: Format
    number: int
    """The Delta version, or the number of the list; each publication has a higher one."""
    tid: str | None
    """The newest commit in it; None where there is none."""
    files: int
    """Live files in it."""
    added: int
    """Files that the publication before did not have."""
    removed: int
    """Files that only the publication before had."""
    is_new: bool
    """Whether anything was written; else this is what was there already."""


def parse_formats(to: str | Sequence[str]) -> tuple[Format, ...]:
    """One format or several, each once. Raises InvalidInputError for what is none."""
    wanted = (to,) if isinstance(to, str) else tuple(to)
    known = ", ".join(map(repr, map(str, Format)))
    if not wanted:
        raise InvalidInputError(f"nothing says what to publish to; name one or more of {known}")
    for name in wanted:
        if name not in (*Format,):
            raise InvalidInputError(f"{name!r:.100} is no format that a table is published in; name one of {known}")
    return tuple(dict.fromkeys(map(Format, wanted)))


def by_number(entries: Iterable[Entry], grammar: re.Pattern[str]) -> dict[int, Entry]:
    """Those whose names, without directories, follow the grammar, by the number that is its first group."""
    found = ((entry, grammar.fullmatch(split(entry.path)[1])) for entry in entries)
    return {int(match[1]): entry for entry, match in found if match}


def is_published(path: str) -> bool:
    """Whether what lies there, below the root of a table of ours, is of a publication."""
    first, slash, _ = path.partition("/")
    return bool(slash) and first in DIRECTORIES.values()
