"""URLs and paths that users write, taken apart: scheme, container and prefix. Pure but for the working directory."""

import os.path
import re
from dataclasses import dataclass
from typing import Literal

from dbio_commit.errors import InvalidInputError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.(?P<cloud>[a-z0-9.-]+)")

Scheme = Literal["file", "s3", "az", "gs"]

_SCHEMES: dict[str, Scheme] = {
    "file": "file",
    "local": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "gs": "gs",
    "gcs": "gs",
}


@dataclass(frozen=True, slots=True)
class Location:
    """The root of a table: where it is, in one spelling for each store."""

    scheme: Scheme
    container: str
    """The bucket (S3, Google) or container (Azure); "" on a local disk."""
    prefix: str
    """The key prefix without slashes at its ends; on a local disk the absolute path."""
    account: str | None = None
    """The Azure storage account, where the URL names it."""
    cloud: str = "core.windows.net"
    """The domain of the account's hosts."""

    @property
    def url(self) -> str:
        """As fsspec, pandas and DuckDB understand it: a plain path on a local disk, else scheme://container/prefix."""
        if self.scheme == "file":
            return self.prefix
        if self.account:
            return f"abfss://{self.container}@{self.account}.dfs.{self.cloud}/{self.prefix}".rstrip("/")
        return f"{self.scheme}://{self.container}/{self.prefix}".rstrip("/")

    def hadoop_url(self, *, s3: str = "s3a", account: str | None = None) -> str:
        """As Hadoop and those who share its spelling write it, not escaped, with `s3` as the scheme of S3.

        `account` is that of an Azure container whose URL names none.
        """
        if self.scheme == "file":
            return f"file://{self.prefix}"
        account = self.account or account
        host = f"@{account}.dfs.{self.cloud}" if self.scheme == "az" and account else ""
        scheme = {"s3": s3, "az": "abfss", "gs": "gs"}[self.scheme]
        return f"{scheme}://{self.container}{host}/{self.prefix}".rstrip("/")

    @property
    def key_prefix(self) -> str:
        """What the keys of all objects of the table begin with, up to and with the slash."""
        return f"{self.prefix}/" if self.prefix else ""

    def url_of(self, path: str) -> str:
        """The URL of an object of the table; `path` is relative to the root."""
        return f"{self.url}/{path}"


def parse_location(path: str | os.PathLike[str]) -> Location:
    """Understands s3://, s3a://, az://, abfs://, abfss://container@account..., gs://, gcs://, file: and plain
    paths.

    Raises InvalidInputError for other schemes, for a URL with credentials or without a bucket, and for what is no path.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"a path or URL is expected, not a {type(path).__name__}; name the root of a table")
    if not text or "\0" in text:
        raise InvalidInputError(f"{text!r} is no path of a table")
    match = _SCHEME.match(text)
    scheme = _SCHEMES.get(match[1].lower()) if match else None
    rest = text[match.end() :] if match else ""
    if match is None or (scheme is None and not rest.startswith("/")):
        return Location("file", "", os.path.abspath(text))
    if scheme is None:
        raise InvalidInputError(
            f"no store is known for {match[1]}: URLs; use a plain path, file:, s3://, s3a://, az://, abfs://,"
            " abfss:// or gs://"
        )
    if not rest.startswith("/"):
        raise InvalidInputError(f"{match[1]}: must be followed by a slash; give a whole URL, or ./ before a local path")
    if scheme == "file":
        return Location("file", "", os.path.abspath("/" + rest.lstrip("/")))
    authority, _, key = rest.removeprefix("//").partition("/")
    return _object_location(scheme, authority, _clean_key(key))


def _object_location(scheme: Literal["s3", "az", "gs"], authority: str, prefix: str) -> Location:
    container, at, host = authority.partition("@")
    account = _AZURE_HOST.fullmatch(host) if at and scheme == "az" else None
    if (at and not account) or ":" in authority:
        raise InvalidInputError(
            "the URL's host part is none of a bucket, a container or container@account.dfs.core.windows.net; "
            "where it holds credentials, pass them as storage_options instead (URLs end up in logs)"
        )
    if not container:
        raise InvalidInputError(f"{scheme}:///{prefix} names no {'container' if scheme == 'az' else 'bucket'}")
    if scheme == "az" and any(component.endswith(".") for component in prefix.split("/")):
        raise InvalidInputError(
            f"the path {prefix!r} has a component that ends with a dot, which Azure cuts off; give another name"
        )
    return (
        Location(scheme, container, prefix, account["account"], account["cloud"])
        if account
        else Location(scheme, container, prefix)
    )


def _clean_key(key: str) -> str:
    if "?" in key:
        raise InvalidInputError("the path has a '?'; where it holds a signature, pass it as storage_options instead")
    components = [component for component in key.split("/") if component]
    if any(component in (".", "..") for component in components):
        raise InvalidInputError(f"the path {key!r} holds '.' or '..', which object stores do not resolve")
    return "/".join(components)
