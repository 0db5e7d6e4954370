"""How a write writes its files, checked, and how it tries again. The options of its commit are in `commit/options`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ParamSpec, TypedDict, TypeVar, cast, get_args

from dbio_commit.base.arguments import check_flags
from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.options import Compression
from dbio_commit.commit.begin import check_app, has_committed
from dbio_commit.commit.options import CommitKeywords, CommitOptions, NoteKeywords, takes_options
from dbio_commit.log.opening import read_snapshot
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.versions import AppVersion
from dbio_commit.store import Store

_LARGEST_FILE = 10**12

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FileKeywords(TypedDict, total=False):
    """How any write writes its files."""

    compression: Annotated[Compression, '"snappy", "zstd", "gzip" or "none", of the Parquet files.']
    max_records_per_file: Annotated[int, "the most rows in a file; 0 is no limit."]
    merge_schema: Annotated[
        bool,
        "the data may bring new columns and fields and wider types, and may lack columns, which are then null. Without "
        "it, the data must have the table's columns; narrower types are cast.",
    ]


class StreamKeywords(FileKeywords, NoteKeywords, total=False):
    """What the write of a stream takes."""


class WriteKeywords(FileKeywords, CommitKeywords, total=False):
    """What the write of a frame takes."""

    target_file_size: Annotated[
        int | None,
        "about how large the files are, in bytes. Spark shuffles the rows for that, and a partition with less gets one "
        "file. Without Spark, the default is 128 MB.",
    ]


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
        check_flags(merge_schema=self.merge_schema)
        if self.compression not in get_args(Compression):
            raise InvalidInputError(f"compression {self.compression!r} is none of {', '.join(get_args(Compression))}")
        if type(self.max_records_per_file) is not int or self.max_records_per_file < 0:
            raise InvalidInputError(f"max_records_per_file is {self.max_records_per_file!r}, not a number from 0 on")
        size = self.target_file_size
        if size is not None and (type(size) is not int or not 1 <= size <= _LARGEST_FILE):
            raise InvalidInputError(f"target_file_size is {size!r:.100}, not a number of bytes, such as 128_000_000")


def takes_write_options(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """As `takes_options`, for a function that takes options of files, too."""
    return takes_options(function, WriteOptions)


def checked(options: WriteKeywords | StreamKeywords) -> tuple[WriteOptions, CommitOptions]:
    """The options of the files, and those of the commit. Raises InvalidInputError."""
    rest: dict[str, Any] = {**options}
    files = {it.name: rest.pop(it.name) for it in fields(WriteOptions) if it.name in rest}
    return WriteOptions(**files), CommitOptions(**rest)


def with_retries(commit: CommitOptions, store: Store, clock: Clock, write: Callable[[], Commit]) -> Commit:
    """Calls `write`, unless the application has committed this version already.

    After a CommitConflictError, it waits and calls `write` again, up to `retries` times, with ever longer pauses. Then
    it raises the last CommitConflictError.
    """

    def once() -> Commit:
        return no_commit(store, clock, commit.app) if has_committed(store, clock, commit.app) else write()

    return try_again(once, commit.retries)


def try_again(once: Callable[[], _R], retries: int) -> _R:
    """Calls `once`, and after a CommitConflictError calls it again, as `with_retries` does."""
    if not retries:
        return once()
    from tenacity import (
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        wait_random_exponential,
    )  # not for workers

    tries = Retrying(
        stop=stop_after_attempt(retries + 1),
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


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """How a write of Spark writes its files, with `options` as in `number_option`. Raises InvalidInputError."""
    return WriteOptions(
        compression=cast(Compression, options.get("compression", "snappy")),
        max_records_per_file=number_option(options, "maxRecordsPerFile") or 0,
        merge_schema=flag_option(options, "mergeSchema"),
    )


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
