"""What a store guarantees to the protocol (PROTOCOL.md section 4), and what all stores share.

Paths are relative to the root of the table, "/" between components, and have been checked before they come here.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar, cast

from dbio_commit.errors import DbioError, ObjectNotFoundError, StoreError
from dbio_commit.state import Entry
from dbio_commit.store.upload import Upload

UPLOAD_BYTES = 16 * 1024 * 1024
"""A data file up to this size is one request; of a larger one, so much is in memory at a time. A task has many open."""

CONCURRENCY = 32
"""Requests in flight at once for one call."""

_T = TypeVar("_T")


class Store(ABC):
    """Objects below the root of one table.

    Reads and listings see every write that ended before they began. Every failure is a StoreError.
    """

    url: str
    """The root as users and fsspec write it; holds no credential."""

    @abstractmethod
    def list_log(self) -> list[Entry]:
        """The objects directly at the root whose names start with "_". Empty where there is no root."""

    @abstractmethod
    def list_files(self, under: str = "") -> list[Entry]:
        """Every object below the directory `under`, recursively. Not atomic: others may write meanwhile."""

    @abstractmethod
    def get(self, path: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""

    @abstractmethod
    def stat(self, path: str) -> Entry:
        """The object's size and time. Raises ObjectNotFoundError."""

    @abstractmethod
    def open_read(self, path: str) -> BinaryIO:
        """A seekable stream of the object, for reading parts of a large one. Raises ObjectNotFoundError."""

    @abstractmethod
    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Creates the object, durably; True if this call did, False if it was there already.

        Exactly one of any concurrent callers succeeds, and nobody ever reads a part of the body. False may also mean
        that an earlier attempt of this same call had succeeded and its answer was lost: read back to know. Raises
        StoreError where the outcome is unknown, AccessDeniedError where it was refused.
        """

    @abstractmethod
    def open_write(self, path: str) -> BinaryIO:
        """A stream that creates the object when it is closed. Not durable before `make_durable`."""

    @abstractmethod
    def make_durable(self, paths: Iterable[str]) -> None:
        """The objects, and the directories that gained them, survive a power cut from now on."""

    @abstractmethod
    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """Deletes the objects; what is not there counts as deleted. Returns the failures by path."""

    @abstractmethod
    def prepare(self, path: str) -> str:
        """The URL to which any tool can write the object; its directory exists where directories are real."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What must be probed for put-if-absent only once: the same for all tables on the same service."""

    def url_of(self, path: str) -> str:
        return f"{self.url}/{path}"

    def get_many(self, paths: Sequence[str]) -> list[bytes]:
        """The objects, in order, read in parallel. Raises ObjectNotFoundError for the first that is not there."""
        return self.in_parallel(self.get, paths)

    def stat_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """The objects' sizes and times, in order; None for what is not there."""

        def stat(path: str) -> Entry | None:
            with suppress(ObjectNotFoundError):
                return self.stat(path)
            return None

        return self.in_parallel(stat, paths)

    @staticmethod
    def in_parallel(function: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
        """The function's results in order, with at most CONCURRENCY calls at once; raises the first error."""
        if len(paths) <= 1:
            return [function(path) for path in paths]
        with ThreadPoolExecutor(min(CONCURRENCY, len(paths)), thread_name_prefix="dbio") as pool:
            return list(pool.map(function, paths))


class FsspecStore(Store):
    """A store on an fsspec filesystem: opened when first used, anew in every process, and never pickled open."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self.url = url
        self.storage_options = dict(storage_options)
        self._fs: Any = None
        self._pid = 0

    @property
    def fs(self) -> Any:
        """The filesystem of this process. An instance inherited over a fork would raise, or hang."""
        if self._pid != os.getpid():
            self._fs, self._pid = self.connect(), os.getpid()
        return self._fs

    @abstractmethod
    def connect(self) -> Any:
        """A new fsspec filesystem."""

    @abstractmethod
    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        """The error of this package that the client's error means; None for what is not the store's."""

    @abstractmethod
    def location(self, path: str) -> str:
        """The object as the filesystem names it."""

    def open_read(self, path: str) -> BinaryIO:
        return self.call("read", path, lambda: cast(BinaryIO, self.fs.open(self.location(path), "rb")))

    def open_write(self, path: str) -> BinaryIO:
        def create() -> BinaryIO:
            return cast(BinaryIO, self.fs.open(self.location(path), "wb", block_size=UPLOAD_BYTES))

        return cast(BinaryIO, Upload(create, lambda function: self.call("write", path, function)))

    def prepare(self, path: str) -> str:
        return self.url_of(path)

    def make_durable(self, paths: Iterable[str]) -> None:
        """An answered PUT is durable."""

    def call(self, action: str, path: str, function: Callable[[], _T]) -> _T:
        """The function's result; its client's errors become ours. `action` is a verb: "list", "read"."""
        try:
            return function()
        except Exception as error:
            translated = self.translate(error, action, path)
            if translated is None:
                raise
            raise translated from error

    def failure(self, action: str, path: str, error: BaseException) -> str:
        """A message that names the facts without any secret that we were given."""
        return f"cannot {action} {self.url_of(path)}: {type(error).__name__}: {self.redact(str(error))[:500]}"

    def redact(self, text: str) -> str:
        for secret in sorted(_secrets(self.storage_options), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None, "_pid": 0}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"  # without the options: they hold secrets


_NOT_SECRET = {"endpoint_url", "account_name", "region_name", "profile", "addressing_style", "account_host"}


def _secrets(options: Mapping[str, Any]) -> set[str]:
    """Every text among the options that could be one, connection strings by their parts too."""
    found: set[str] = set()
    for key, value in options.items():
        if isinstance(value, Mapping):
            found |= _secrets(value)
        elif isinstance(value, str) and key not in _NOT_SECRET:
            parts = (part.partition("=")[2] for part in value.split(";"))
            found |= {text for text in (value, *parts) if len(text) >= 8 and "://" not in text}
    return found
