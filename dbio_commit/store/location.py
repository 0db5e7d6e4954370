"""Parses the URLs and paths that users write: scheme, container and prefix.

Pure, except that plain paths depend on the working directory, and `~` on the home directory.
"""

import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol.markers.joint import HERE

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_AZURE_HOST = re.compile(r"(?P<account>[a-z0-9][a-z0-9-]*(?:\.z[0-9]{1,3})?)\.(?:dfs|blob)\.(?P<cloud>[a-z0-9.-]+)")
"""An account, with its DNS zone if it has one: `lake.z01.dfs.storage.azure.net`. Or OneLake, also of a region."""

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
    """Where the root of a table is, in one spelling for each store."""

    scheme: Scheme
    container: str
    """The bucket (S3, Google) or container (Azure); "" on a local disk."""
    prefix: str
    """The key prefix without slashes at its ends. On a local disk, the absolute path."""
    account: str | None = None
    """The Azure storage account if the URL names one, with its DNS zone if it has one: "lake.z01"."""
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
        """The URL as Hadoop writes it, not escaped, with `s3` as the scheme of S3.

        `account` is the account of an Azure container whose URL names none.
        """
        if self.scheme == "file":
            return f"file://{self.prefix}"
        account = self.account or account
        host = f"@{account}.dfs.{self.cloud}" if self.scheme == "az" and account else ""
        scheme = {"s3": s3, "az": "abfss", "gs": "gs"}[self.scheme]
        return f"{scheme}://{self.container}{host}/{self.prefix}".rstrip("/")

    @property
    def key_prefix(self) -> str:
        """What the keys of all objects of the table begin with, including the slash."""
        return f"{self.prefix}/" if self.prefix else ""

    def around(self) -> "Iterator[Location]":
        """The directories around this one, the nearest first, up to the whole bucket, container or disk."""
        here = self
        while here.prefix.strip("/"):
            above = here.prefix.rpartition("/")[0]
            here = replace(here, prefix=above or "/" if here.scheme == "file" else above)
            yield here

    def beside(self, path: str) -> "Location":
        """The location with this path from here. Raises CorruptMarkerError if there is none."""
        above, below = [*filter(None, self.prefix.split("/"))], path.split("/")
        steps = sum(step == ".." for step in below)
        if path == HERE:
            return self
        if steps > len(above):
            raise CorruptMarkerError(
                f"{self.url} has no table beside it at {path[:200]!r}: the path leads out of the container or disk"
            )
        there = "/".join([*above[: len(above) - steps], *below[steps:]])
        return replace(self, prefix=f"/{there}" if self.scheme == "file" else there)

    def path_to(self, other: "Location") -> str | None:
        """The path with which `beside` returns the other location; None if it lies in another container."""
        if self.container != other.container:
            return None
        return os.path.relpath(f"/{other.prefix.strip('/')}", f"/{self.prefix.strip('/')}")

    def url_of(self, path: str) -> str:
        """The URL of an object of the table; `path` is relative to the root."""
        return f"{self.url}/{path}"


def is_plain(path: str) -> bool:
    """Whether the text has no scheme, so that `parse_location` takes it for a path on a disk."""
    match = _SCHEME.match(path)
    return match is None or (match[1].lower() not in _SCHEMES and not path.startswith("/", match.end()))


def instead_of(url: str) -> str:
    """What to use instead of a URL that no store has, as the end of a sentence. "" if there is no advice."""
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else ""
    if scheme in ("wasb", "wasbs") and (found := _WASB.fullmatch(url)):
        return f"abfss://{found['container']}@{found['account']}.dfs.{found['rest']}, which is the same container"
    return next((text for schemes, text in _INSTEAD.items() if scheme in schemes), "")


_WASB = re.compile(r"(?i:wasbs?)://(?P<container>[a-z0-9$-]+)@(?P<account>[a-z0-9]+)\.(?i:blob)\.(?P<rest>[^?#]+)")

_S3_GATEWAY = (
    "s3://BUCKET/…, with its S3 gateway as endpoint_url in storage_options, if that has conditional writes: the first "
    "write tests that"
)

_INSTEAD: dict[tuple[str, ...], str] = {
    ("dbfs",): "the URL of what is mounted there (`dbutils.fs.mounts()` lists that), s3://… or abfss://…; the root of "
    "DBFS itself, and volumes, have no way to create an object exactly once",
    ("wasb", "wasbs"): "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…, which is the same container",
    ("adl",): "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…: Data Lake Storage Gen1, and its URLs, are no more",
    ("hdfs", "viewfs", "webhdfs", "swebhdfs", "maprfs", "har"): "s3://… or abfss://…, or file:/… of a mount that all "
    "machines share and that has hard links: no table can lie on HDFS, which gives Python no way to create a file "
    "exactly once",
    ("oss", "cos", "cosn", "obs", "tos", "bos", "ks3", "swift", "ofs", "o3fs", "o3"): _S3_GATEWAY,
    ("alluxio",): "the URL of the store below it, s3://… or abfss://…: Alluxio checks and then creates",
    ("http", "https"): "s3://BUCKET/… or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…, and for another service "
    "than Amazon's its address as endpoint_url in storage_options",
}


def parse_location(path: str | os.PathLike[str]) -> Location:
    """The location of s3://, s3a://, az://, abfs://, abfss://container@account..., gs://, gcs://, file: or a plain
    path, in which `~` is the home directory.

    Raises InvalidInputError for other schemes, for a URL with credentials or without a bucket, for file: with a host,
    and for other types.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"a path or URL is expected, not a {type(path).__name__}; name the root of a table")
    if not text or "\0" in text or not _has_bytes(text, "surrogateescape"):  # a name on a disk may have any bytes
        raise InvalidInputError(f"{text!r} is no path of a table")
    match = _SCHEME.match(text)
    if match is None or is_plain(text):
        return Location("file", "", os.path.abspath(os.path.expanduser(text)))
    scheme, rest = _SCHEMES.get(match[1].lower()), text[match.end() :]
    if scheme is None:
        known = "a plain path, file:, s3://, s3a://, az://, abfs://, abfss:// or gs://"
        raise InvalidInputError(f"no store is known for {match[1]}: URLs; use {instead_of(text) or known}")
    if not rest.startswith("/"):
        raise InvalidInputError(f"{match[1]}: must be followed by a slash; give a whole URL, or ./ before a local path")
    if scheme == "file":
        return Location("file", "", _on_disk(rest))
    if not _has_bytes(text, "strict"):
        raise InvalidInputError(f"{text!r} is no URL: it is not UTF-8")
    authority, _, key = rest.removeprefix("//").partition("/")
    return _object_location(scheme, authority, _clean_key(key))


def path_below(root: str, text: str) -> str | None:
    """The path from the root of a table to the object that a path from there, or a URL in any spelling, names.

    `root` is the URL of the root. None if the object does not lie below the root, or if the text is no URL.
    """
    if text.startswith(f"{root.rstrip('/')}/"):
        return text[len(root.rstrip("/")) + 1 :]
    if is_plain(text) and not text.startswith(("/", "~")):
        return text.removeprefix("./")
    try:
        here, there = parse_location(root), parse_location(text)
    except InvalidInputError:
        return None
    accounts = {(it.account, it.cloud) for it in (here, there) if it.account}  # az:// names none
    is_near = (here.scheme, here.container) == (there.scheme, there.container) and len(accounts) < 2
    prefix = f"{here.prefix.rstrip('/')}/" if here.prefix else ""
    return there.prefix[len(prefix) :] if is_near and there.prefix.startswith(prefix) else None


def _on_disk(rest: str) -> str:
    """The path of a URL of a disk, without its scheme. Raises InvalidInputError for the URL of another machine."""
    host, _, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest)
    if host.lower() not in ("", "localhost"):
        named = f"{host.rpartition('@')[2]}/{path}".rstrip("/")  # what is before "@" may be a password
        raise InvalidInputError(
            f"'file://{named:.300}' names another machine, whose disk must be mounted here: write "
            f"'file:///{named:.300}' if that is a path of this machine"
        )
    return os.path.abspath("/" + path.lstrip("/"))


def _has_bytes(text: str, errors: str) -> bool:
    try:
        text.encode(errors=errors)
    except UnicodeEncodeError:  # halves of surrogate pairs
        return False
    return True


def _object_location(scheme: Literal["s3", "az", "gs"], authority: str, prefix: str) -> Location:
    if scheme == "s3" and "@" not in authority:  # with "@" it may hold credentials, so it must not be shown
        _check_bucket(authority, prefix)
    container, at, host = authority.partition("@")
    account = _AZURE_HOST.fullmatch(host) if at and scheme == "az" else None
    if (at and not account) or ":" in authority:
        raise InvalidInputError(
            "the URL's host part is not a bucket, a container or container@account.dfs.core.windows.net; if it "
            "holds credentials, pass them as storage_options instead (URLs end up in logs)"
        )
    if not container:
        raise InvalidInputError(f"{scheme}:///{prefix} names no {'container' if scheme == 'az' else 'bucket'}")
    if scheme == "az" and "\\" in prefix:
        raise InvalidInputError(
            f"the path {prefix!r} has a backslash, which Azure's services and clients take for a slash; write a slash, "
            "or give another name"
        )
    if scheme == "az" and any(component.endswith(".") for component in prefix.split("/")):
        raise InvalidInputError(
            f"the path {prefix!r} has a component that ends with a dot, which Azure cuts off; give another name"
        )
    return (
        Location(scheme, container, prefix, account["account"], account["cloud"])
        if account
        else Location(scheme, container, prefix)
    )


def _check_bucket(bucket: str, prefix: str) -> None:
    """Raises InvalidInputError for a bucket, or what is given instead of one, in which no table can lie."""
    name = prefix.partition("/")[0]
    if bucket.startswith("arn:") and not name.endswith(".mrap"):
        raise InvalidInputError(
            f"{bucket}/{name} is an ARN: give the bucket itself, or the alias of the access point, which ends with "
            f"-s3alias (`aws s3control get-access-point --name NAME`, or the console, shows it): s3://ALIAS/…"
        )
    for suffix, what in _NO_BUCKETS.items():
        if (name if bucket.startswith("arn:") else bucket).endswith(suffix):
            raise InvalidInputError(f"{bucket} is {what}; put the table into a general purpose bucket")


_UNSORTED = "whose listings are not sorted, and start only at whole directories: no log can be found in them"
_NO_BUCKETS = {
    "--x-s3": f"a directory bucket (S3 Express One Zone), {_UNSORTED}",
    "--xa-s3": f"an access point of a directory bucket (S3 Express One Zone), {_UNSORTED}",
    "--table-s3": "a table bucket, which S3 keeps for Iceberg tables alone",
    "--ol-s3": "an Object Lambda access point, which answers with other objects than were written",
    ".mrap": "a Multi-Region Access Point, behind which two buckets may each let a writer win",
}


def _clean_key(key: str) -> str:
    if "?" in key:
        raise InvalidInputError("the path has a '?'; if it holds a signature, pass that as storage_options instead")
    components = [component for component in key.split("/") if component]
    if any(component in (".", "..") for component in components):
        raise InvalidInputError(f"the path {key!r} holds '.' or '..', which object stores do not resolve")
    return "/".join(components)
