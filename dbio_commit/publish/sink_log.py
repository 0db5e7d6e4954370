"""The list of files that Spark's file sink leaves in its output, and its readers take instead of a listing. Pure."""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

from dbio_commit.errors import CorruptMarkerError
from dbio_commit.protocol.state import DataFile

_HEADER = "v1"
needs_no_quotes = re.compile(r"[A-Za-z0-9/=._-]*").fullmatch


def encode_list(root: str, files: Iterable[DataFile]) -> str:
    """The list; `root` is the absolute URL of the table as Hadoop writes it, not escaped."""
    parent = quoted(root)
    lines = [_HEADER]
    for path, size, *_ in files:
        lines.append(
            f'{{"path":"{parent}/{quoted(path)}","size":{size},"isDir":false,"modificationTime":0,"blockReplication":1,'
            '"blockSize":134217728,"action":"add"}'
        )
    return "\n".join(lines)


def quoted(path: str) -> str:
    """A path, or an URL, as a part of an URL in Spark's own lists."""
    return path if needs_no_quotes(path) else quote(path, safe=":/@=")


class Listed(NamedTuple):
    """What a list says."""

    paths: frozenset[str]
    """Relative to the root."""
    elsewhere: str | None
    """The URL of a file that is not below the root: the list was made where the table was before."""


def decode_list(body: bytes, root: str, *, where: str) -> Listed:
    """What the list says of the table at `root`. Raises CorruptMarkerError for what is no such list."""
    try:
        header, *lines = body.decode().split("\n")
        found = [unquote(json.loads(line)["path"]) for line in lines if line]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptMarkerError(
            f"{where} is no list of Spark's ({error!r:.200}); delete it, and publish again"
        ) from None
    if header != _HEADER:
        raise CorruptMarkerError(f"{where} begins with {header[:50]!r}, not {_HEADER!r}; delete it, and publish again")
    start = f"{root}/"
    elsewhere = next((url for url in found if not url.startswith(start)), None)
    return Listed(frozenset(url.removeprefix(start) for url in found), elsewhere)
