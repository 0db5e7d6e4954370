"""Paths without a scheme, which mean the default file system to Spark, and a disk to dbio. Pure."""

import re
from dataclasses import dataclass

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.store.location import instead_of, is_plain, parse_location

_LOCAL = ("", "file", "local")
_WITH_CONTAINER = ("abfs", "wasb")
_USER = re.compile("^//.*@")


@dataclass(frozen=True, slots=True)
class DefaultFileSystem:
    """The file system of a session's paths without a scheme, if it is not the disk of each machine."""

    url: str
    """`fs.defaultFS`, such as "hdfs://nn" or "dbfs:/"."""
    home: str | None = None
    """The URL of the directory for relative paths, if it is known."""

    @classmethod
    def of(cls, url: str | None, home: str | None = None) -> "DefaultFileSystem | None":
        """None if `url` is a disk or not set: Hadoop's own default is a disk."""
        scheme, colon, rest = (url or "").strip().partition(":")
        if not colon or scheme.lower() in _LOCAL:
            return None
        if not scheme.lower().startswith(_WITH_CONTAINER):  # in other URLs, the part before the host may be a secret
            rest = _USER.sub("//", rest)
        return cls(f"{scheme}:{rest}", home)

    def url_of(self, path: str) -> str | None:
        """The URL that the path means to Spark; None for a relative path if `home` is not known."""
        if path.startswith("/"):
            scheme, _, rest = self.url.partition(":")
            authority = rest[2:].partition("/")[0] if rest.startswith("//") else ""
            return f"{scheme}:{'//' if authority else ''}{authority}{path}"
        return None if self.home is None else f"{self.home.rstrip('/')}/{path}"


def refuse_elsewhere(path: str, default: DefaultFileSystem | None) -> None:
    """The rule for every function that takes a path and a session (ADR 0046).

    Raises InvalidInputError for a path without a scheme if it means another file system than a disk to Spark. Else dbio
    and Spark would use two different places for the same path.
    """
    if default is None or not is_plain(path):
        return
    url, local = default.url_of(path), parse_location(path).hadoop_url()
    raise InvalidInputError(
        f"{path!r} has no scheme: for Spark it is {url or 'a path'} in the default file system of this session "
        f"({default.url}), and for dbio a path on a disk. {_give(url or default.url, known=url is not None)}; "
        f"or {local!r} for a disk that this machine and all executors share"
    )


def _give(url: str, *, known: bool) -> str:
    try:
        parse_location(url)
    except InvalidInputError:
        return f"Give the URL of a store: {instead_of(url) or 's3://…, abfss://…'}"
    return f"Give {url!r}" if known else f"Give a URL, {url.rstrip('/')}/…"
