"""The options of a write, checked: how its files are written, and how it treats commits of other writers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, get_args

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.options import Compression, Isolation
from dbio_commit.commit.begin import check_app, has_committed
from dbio_commit.commit.isolation import check_isolation
from dbio_commit.commit.provenance import Labels, check_note
from dbio_commit.log.opening import read_snapshot
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.versions import AppVersion, parse_version
from dbio_commit.store import Store

_LARGEST_FILE = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How the files are written, and whether the data may change the table's columns."""

    compression: Compression = "snappy"
    max_records_per_file: int = 0
    """0: no limit."""
    merge_schema: bool = False
    target_file_size: int | None = None
    """In bytes. None: Spark shuffles no rows, and its tasks do not cut their files by size."""

    def __post_init__(self) -> None:
        if self.compression not in get_args(Compression):
            raise InvalidInputError(f"compression {self.compression!r} is none of {', '.join(get_args(Compression))}")
        if type(self.max_records_per_file) is not int or self.max_records_per_file < 0:
            raise InvalidInputError(f"max_records_per_file is {self.max_records_per_file!r}, not a number from 0 on")
        size = self.target_file_size
        if size is not None and (type(size) is not int or not 1 <= size <= _LARGEST_FILE):
            raise InvalidInputError(f"target_file_size is {size!r:.100}, not a number of bytes, such as 128_000_000")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How a write treats commits of other writers, and earlier commits of its own application."""

    app: AppVersion | None = None
    if_match: str | None = None
    isolation: Isolation = "write_serializable"
    retries: int = 0
    message: str | None = None
    labels: Labels | None = None

    def __post_init__(self) -> None:
        check_isolation(self.isolation)
        check_note(self.message, self.labels)
        if type(self.retries) is not int or self.retries < 0:
            raise InvalidInputError(f"retries={self.retries!r:.100} is no number from 0 on")
        if self.retries and self.if_match is not None:
            raise InvalidInputError("if_match and retries do not go together: what was committed since stays committed")

    def attempt(self, store: Store, clock: Clock, write: Callable[[], Commit]) -> Commit:
        """Calls `write`, unless the application has committed this version already.

        After a CommitConflictError, it waits and calls `write` again, up to `retries` times, with ever longer pauses.
        Then it raises the last CommitConflictError.
        """

        def once() -> Commit:
            return no_commit(store, clock, self.app) if has_committed(store, clock, self.app) else write()

        if not self.retries:
            return once()
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            stop_after_attempt,
            wait_random_exponential,
        )  # not for workers

        tries = Retrying(
            stop=stop_after_attempt(self.retries + 1),
            wait=wait_random_exponential(multiplier=0.2, max=30),
            retry=retry_if_exception_type(CommitConflictError),
            reraise=True,
        )
        return tries(once)


def no_commit(store: Store, clock: Clock, app: AppVersion | None) -> Commit:
    """The result of a write that did nothing: the commit that exists already, marked as skipped.

    That is the commit of this version of the application; without `app`, the newest commit.
    """
    wanted = check_app(app)
    for commit in read_snapshot(store, clock).history():
        if wanted is None or commit.app == (wanted.id, wanted.version):
            return replace(commit, skipped=True)
    nothing = CommitMarker(added=[], removed=[])  # the directory has files without markers
    return Commit(tid="", timestamp=clock.now(), marker=nothing, skipped=True)


# --- options of Spark's readers and writers, which are texts ------------------------------------------------------


def number_option(options: Mapping[str, str], name: str) -> int | None:
    """The option as a number from 0; None if it is not given. The names in `options` are lower case or ignore case.

    Raises InvalidInputError.
    """
    text = options.get(name.lower())
    if text is None or (text.isascii() and text.isdigit()):
        return None if text is None else int(text)
    raise InvalidInputError(f"option {name} is {text!r}, not a number from 0")


def flag_option(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """The option as true or false, with `options` as in `number_option`. Raises InvalidInputError."""
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"option {name} is {text!r:.100}, not one of true, false")
    return text == "true"


def app_option(options: Mapping[str, str]) -> AppVersion | None:
    """The application and its version; None if neither is given. Raises InvalidInputError if only one is given."""
    id, version = options.get("txnappid"), options.get("txnversion")
    if (id is None) != (version is None):
        raise InvalidInputError("options txnAppId and txnVersion go together")
    if id is None or version is None:
        return None
    try:
        return id, parse_version(version)
    except ValueError:
        raise InvalidInputError(
            f"option txnVersion is {version!r:.100}, not a number from 0, a day such as 2026-11-20, or a time such as "
            "2026-11-20T13:00:00"
        ) from None


class Said(TypedDict, total=False):
    """The message and the labels of a commit, as `CommitOptions` takes them."""

    message: str
    labels: Labels


def said_options(options: Mapping[str, str], *, message: str = "message", labels: str = "labels") -> Said:
    """The message and the labels in options with these names: a text, and a JSON object. Raises InvalidInputError."""
    found = Said()
    if (text := options.get(message.lower())) is not None:
        found["message"] = text
    if (text := options.get(labels.lower())) is not None:
        try:
            found["labels"] = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidInputError(
                f'{labels} is {text!r:.200}, not a JSON object of short texts, such as {{"team": "sales"}}'
            ) from None
    return found
