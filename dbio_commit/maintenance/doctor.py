"""Checks whether a store can hold tables, and whether this machine can use it: `dbio doctor`. Leaves nothing behind."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dbio_commit import __version__
from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import AccessDeniedError, StoreError, UnsupportedStoreError
from dbio_commit.commit.probe import race
from dbio_commit.commit.tids import new_tid
from dbio_commit.protocol import names
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.store import Store
from dbio_commit.store.location import Scheme

MOST_APART = timedelta(seconds=60)
"""The most by which the clocks of the store and of this machine may differ."""

_ALWAYS = ("msgspec", "fsspec", "pyarrow")
_OPTIONAL = ("pandas", "polars", "duckdb", "sqlglot")
_OF_STORES: dict[Scheme, Sequence[str]] = {
    "file": (),
    "s3": ("s3fs", "aiobotocore", "botocore"),
    "az": ("adlfs", "azure-storage-blob"),
    "gs": ("gcsfs",),
}
_CREDENTIALS: dict[Scheme, str] = {
    "file": "look at the owner and the mode of the directory, and run as a user who may use it",
    "s3": "look at AWS_PROFILE, AWS_ACCESS_KEY_ID or the role of this machine, and at the rights in docs/SETUP.md",
    "az": "look at AZURE_STORAGE_CONNECTION_STRING or AZURE_CLIENT_ID, and at the rights in docs/SETUP.md",
    "gs": "look at GOOGLE_APPLICATION_CREDENTIALS, and at the rights in docs/SETUP.md",
}


class Verdict(StrEnum):
    """What was found."""

    OK = "ok"
    """It works."""
    PROBLEM = "problem"
    """It does not work: see the advice."""
    UNKNOWN = "unknown"
    """It could not be tried, or does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    what: str
    verdict: Verdict
    text: str
    """What was found, in a few words."""
    advice: str = ""
    """What to do about it."""


def ok(what: str, text: str) -> Finding:
    return Finding(what=what, verdict=Verdict.OK, text=text)


def problem(what: str, text: str, advice: str) -> Finding:
    return Finding(what=what, verdict=Verdict.PROBLEM, text=text, advice=advice)


def look_at_packages(scheme: Scheme | None) -> Finding:
    """The versions of Python, of dbio and of what both need. `scheme` is None if the store is not known."""
    named = (*_ALWAYS, *_OPTIONAL, *(_OF_STORES[scheme] if scheme else ()))
    found = {name: text for name in named if (text := _version(name))}
    listed = ", ".join(f"{name} {text}" for name, text in found.items())
    return ok("software", f"dbio-commit {__version__}, Python {sys.version.split()[0]}, {listed}")


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def look_at_store(store: Store, clock: Clock, scheme: Scheme) -> Iterator[Finding]:
    """Lists the root, then creates one small object, reads it, and deletes it, as a vacuum does to ask for the time."""
    try:
        log = parse_log(store.list_log())
    except AccessDeniedError as error:
        yield problem("access", f"the store refuses to list: {error}", _CREDENTIALS[scheme])
        return
    except StoreError as error:
        advice = "check the path, the endpoint, the proxy and the network; then run this again"
        yield problem("access", f"the store does not answer: {error}", advice)
        return
    yield ok("access", _there(log))
    new = _new_directories(store)
    path = names.clock(new_tid(clock))
    try:
        yield from _look_at_object(store, clock, path, scheme)
    finally:
        failures = store.delete_many([path])
        for directory in new:
            with suppress(OSError):  # another process uses it already
                directory.rmdir()
    for failure in failures.values():
        advice = f"{_CREDENTIALS[scheme]}; then delete {store.url_of(path)}, which is empty"
        yield problem("deletion", f"the store refuses to delete: {failure}", advice)
        return
    yield ok("deletion", "objects can be deleted")
    if store.keeps_versions():
        text = "the store keeps versions of deleted objects, which take space until a lifecycle rule removes them"
        yield Finding(what="versions", verdict=Verdict.UNKNOWN, text=text)


def _there(log: Log) -> str:
    if log.descriptor is not None:
        return "the store answers, and has a dbio table here"
    if log.started or log.committed:
        return "the store answers, and has a directory here that DBIO wrote: `dbio adopt` makes it a table"
    return "the store answers, and has no table here yet"


def _new_directories(store: Store) -> list[Path]:
    """On a disk: the directories that do not exist yet, the deepest first."""
    if not store.is_disk:
        return []
    root = Path(store.url)
    return [path for path in (root, *root.parents) if not path.exists()]


def _look_at_object(store: Store, clock: Clock, path: str, scheme: Scheme) -> Iterator[Finding]:
    before = clock.now()
    try:
        race(store, path, b"")
    except AccessDeniedError as error:
        text = f"the store refuses to create an object: {error}"
        yield problem("put-if-absent", text, f"reading works; to write, {_CREDENTIALS[scheme]}")
        return
    except UnsupportedStoreError as error:
        yield problem("put-if-absent", str(error), "do not write tables here: two writers could both win")
        return
    except StoreError as error:
        yield problem("put-if-absent", f"no object could be created: {error}", "see docs/SETUP.md, and run this again")
        return
    after = clock.now()
    yield ok("put-if-absent", "of several writers that create the same object, one succeeds")
    try:
        modified = store.stat(path).modified
        store.get(path)
    except StoreError as error:
        yield problem("reading", f"a new object cannot be read: {error}", _CREDENTIALS[scheme])
        return
    early, late = before - modified, modified - after
    apart = max(early, late, timedelta())
    text = f"the clocks of the store and of this machine differ by less than {int(apart.total_seconds()) + 2} s"
    if apart <= MOST_APART:
        yield ok("clock", text)
    else:
        ahead = "behind" if late > early else "ahead of"
        yield problem(
            "clock",
            f"the clock of this machine is {int(apart.total_seconds())} s {ahead} the store's",
            "set the clock by NTP: by a wrong clock, vacuum keeps too much, and S3 refuses requests from 15 min on",
        )
