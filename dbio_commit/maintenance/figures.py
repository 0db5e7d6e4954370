"""Formats numbers, sizes and times as texts, for people or programs. Pure."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.figures import age_text, count_text, size_text, time_text
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.names import HIVE_NULL, Partition, escape
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile

# --- how many, and how large --------------------------------------------------------------------------------------


def files_text(files: int, size: int) -> str:
    return f"{count_text(files, 'file')}, {size_text(size)}"


_SIZE = re.compile(r"(\d{1,15})\s*(B|bytes|[kKMGT]B|[KMGT]iB)?", re.ASCII)
_UNITS = {"kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
          "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}  # fmt: skip


def parse_size(text: str) -> int:
    """Bytes, such as "128MB", "64MiB" or "1000". Raises InvalidInputError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise InvalidInputError(f"{text!r:.100} is no size; give bytes, or a unit such as 128MB, 64MiB or 1GB")
    return int(match[1]) * _UNITS.get(match[2], 1)


def total_text(files: Sequence[DataFile | FileInfo | Entry]) -> str:
    return files_text(len(files), size_of(files))


def total_json(files: Sequence[DataFile | FileInfo | Entry]) -> dict[str, int]:
    return {"files": len(files), "size": size_of(files)}


def size_of(files: Iterable[DataFile | FileInfo | Entry]) -> int:
    return sum(known_size(file.size) or 0 for file in files)


def known_size(size: int) -> int | None:
    return None if size == UNKNOWN_SIZE else size


# --- when ---------------------------------------------------------------------------------------------------------


def moment_text(at: datetime, now: datetime) -> str:
    return f"{age_text(now - at)} ago, {time_text(at)}"


def iso_text(at: datetime) -> str:
    """The time for programs, in ISO 8601."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


# --- where --------------------------------------------------------------------------------------------------------


def partition_text(partition: Partition) -> str:
    """The partition as the name of its directory. Unlike the function that names directories, it accepts any value."""
    return "/".join(
        f"{escape(name)}={HIVE_NULL if value is None else escape(value)}" for name, value in partition.items()
    )
