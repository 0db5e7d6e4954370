"""Encodes and decodes the list of Spark's file sink, which Spark's readers use instead of a listing. Pure."""

import re
from collections.abc import Iterable
from string import ascii_letters, digits
from typing import NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct, field, json

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.maintenance.publish.bounds import NamedPaths, decode_lines
from dbio_commit.protocol.state import DataFile

_HEADER = "v1"
PLAIN = (ascii_letters + digits + "/=._-").encode()
"""Characters that are never quoted."""
needs_no_quotes = re.compile(r"[A-Za-z0-9/=._-]*").fullmatch


def encode_list(root: str, files: Iterable[DataFile]) -> str:
    """The body of a list. `root` is the absolute URL of the table as Hadoop writes it, not escaped."""
    parent = quoted(root)
    lines = [_HEADER]
    for path, size, *_ in files:
        lines.append(
            f'{{"path":"{parent}/{quoted(path)}","size":{size},"isDir":false,"modificationTime":0,"blockReplication":1,'
            '"blockSize":134217728,"action":"add"}'
        )
    return "\n".join(lines)


def quoted(path: str) -> str:
    """A path or a URL as a part of a URL in Spark's own lists."""
    return path if needs_no_quotes(path) else quote(path, safe=":/@=")


class SinkList(NamedTuple):
    """The contents of a list."""

    paths: frozenset[str]
    """Paths relative to the root."""
    elsewhere: str | None
    """The URL of a file that is not below the root: the list was made when the table was at another place."""
    is_streams: bool = False
    """Whether a Spark stream wrote it: then its files have times."""


class _Line(Struct):
    path: str
    modified: int = field(name="modificationTime", default=0)


_LINE = json.Decoder(_Line)
_URL_CHARACTERS = 300


def decode_list(lines: Iterable[bytes], root: str, *, where: str) -> SinkList:
    """The contents of a list for the table at `root`. Raises CorruptMarkerError for a body that is no such list."""
    lines = iter(lines)
    if (header := next(lines, b"").strip()) != _HEADER.encode():
        raise CorruptMarkerError(
            f"{where} begins with {header[:50]!r}, not {_HEADER!r}; move it elsewhere, and publish again"
        )
    start, paths = f"{root}/", NamedPaths(where)
    elsewhere: str | None = None
    is_streams = False
    for line in decode_lines(_LINE, lines, f"{where} is no list of Spark's", "move it elsewhere, and publish again"):
        url = unquote(line.path)
        is_streams |= line.modified != 0
        if url.startswith(start):
            paths.add(url.removeprefix(start))
        else:
            elsewhere = elsewhere or url[:_URL_CHARACTERS]
    return SinkList(paths.found(), elsewhere, is_streams)
