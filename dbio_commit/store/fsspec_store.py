"""What the stores on fsspec share: the client, its errors as errors of this package, deletion of many objects."""

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Self, TypeVar, cast

from dbio_commit.base.errors import AccessDeniedError, DbioError, ObjectNotFoundError, StoreError
from dbio_commit.base.logs import get_logger
from dbio_commit.base.redaction import redact, secrets_in, secrets_of_clients
from dbio_commit.base.texts import visible
from dbio_commit.store.contract import BATCHES, Store, Tail
from dbio_commit.store.location import Location
from dbio_commit.store.many import CONCURRENCY
from dbio_commit.store.principal import principal_of
from dbio_commit.store.upload import Download, Upload

_log = get_logger(__name__)

UPLOAD_BYTES = 16 * 1024 * 1024
"""A data file up to this size is one request. Of a larger one, this much is in memory at a time. A task may have many
files open."""

_T = TypeVar("_T")


class FsspecStore(Store):
    """A store on an fsspec filesystem. Each process opens its own when it first uses it. A pickled store has none."""

    has_directories = False
    lists_ranges = True

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        self.url = location.url
        self.storage_options = dict(storage_options)
        self._location = location
        self._container, self._prefix = location.container, location.key_prefix
        self._fs: Any = None
        self._pid = 0
        self._identity: str | None = None
        self._principal: str | None = None
        self._not_copied: frozenset[str] = frozenset()  # services and containers from which nothing can be copied

    def around(self) -> Sequence[Store]:
        return [type(self)(it, self.storage_options) for it in self._location.around()]

    def beside(self, path: str) -> Store:
        return type(self)(self._location.beside(path), self.storage_options)

    def _path_to(self, other: Store) -> str | None:
        if isinstance(other, type(self)) and self._shares_service(other):
            return self._location.path_to(other._location)
        return None

    # --- the client -----------------------------------------------------------------------------------------------

    @property
    def fs(self) -> Any:
        """The filesystem of this process. An instance inherited over a fork would raise, or hang."""
        if self._pid != os.getpid():
            self._fs, self._pid = self.connect(), os.getpid()
        return self._fs

    @property
    def identity(self) -> str:
        if self._identity is None:
            self._identity = self.call("connect to", "", self.identify)
        return self._identity

    @property
    def principal(self) -> str:
        if self._principal is None:
            self._principal = principal_of(self.storage_options)
        return self._principal

    @abstractmethod
    def identify(self) -> str:
        """Computes `identity` from the connected client, which knows its endpoint. Sends no request."""

    @abstractmethod
    def connect(self) -> Any:
        """A new fsspec filesystem."""

    @abstractmethod
    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        """The error of this package for an error of the client. None if the error does not come from the store."""

    def call(self, action: str, path: str, function: Callable[[], _T]) -> _T:
        """The function's result. Raises the client's errors as errors of this package.

        `action` is a verb for the message: "list", "read".
        """
        try:
            return function()
        except Exception as error:
            translated = self.translate(error, action, path)
            if translated is None:
                raise
            cause = ClientFailure.of(error, self.redact)
        raise translated from cause  # outside of `except`, so that the client's error is not its context

    def unless_absent(self, action: str, path: str, function: Callable[[], _T]) -> _T:
        """As `call`, but raises ObjectNotFoundError if access to an absent object is refused.

        A service answers 403 for an absent object if the caller may list only a part of the bucket. A listing shows
        whether the object exists.
        """
        try:
            return self.call(action, path, function)
        except AccessDeniedError as refused:
            with suppress(AccessDeniedError):  # of the listing, too
                if not self.lists(path):
                    raise ObjectNotFoundError(f"cannot {action} {self.url_of(path)}: no listing shows it") from None
            raise refused

    def lists(self, path: str) -> bool:
        """Whether a listing shows the object."""
        raise NotImplementedError  # only for services that refuse access to absent objects

    def failure(self, action: str, path: str, error: BaseException) -> str:
        """A message with the facts, without any secret that this store was given."""
        return f"cannot {action} {self.url_of(path)}: {type(error).__name__}: {self.redact(str(error))[:500]}"

    def redact(self, text: str) -> str:
        """The text without the secrets of the options and the environment, and without texts that look like secrets."""
        return redact(text, secrets_in(self.storage_options) | secrets_of_clients())

    # --- objects --------------------------------------------------------------------------------------------------

    def location(self, path: str) -> str:
        """The object as the filesystem names it."""
        return f"{self._container}/{self._prefix}{path}"

    def prefix_of(self, directory: str) -> str:
        """What the keys of all objects below the directory begin with."""
        return f"{self._prefix}{directory}/" if directory else self._prefix

    def neighbours(self, directories: Sequence[str], most: int) -> list[Sequence[str]]:
        size = max(1, -(-len(directories) // most))
        return [directories[start : start + size] for start in range(0, len(directories), size)]

    def open_read(self, path: str) -> BinaryIO:
        def look() -> BinaryIO:
            return cast(BinaryIO, self.fs.open(self.location(path), "rb"))

        return cast(BinaryIO, Download(look, lambda function: self.call("read", path, function)))

    def get_some(self, path: str, start: int, length: int) -> bytes:
        where, end = self.location(path), start + length
        return self.call("read", path, lambda: cast(bytes, self.fs.cat_file(where, start=start, end=end)))

    def open_write(self, path: str) -> BinaryIO:
        def create() -> BinaryIO:
            return cast(BinaryIO, self.fs.open(self.location(path), "wb", block_size=UPLOAD_BYTES))

        return cast(BinaryIO, Upload(create, lambda function: self.call("write", path, function)))

    def prepare(self, path: str) -> str:
        return self.url_of(path)

    def make_durable(self, paths: Iterable[str]) -> None:
        """Does nothing: an answered PUT is durable."""

    # --- delete ---------------------------------------------------------------------------------------------------

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        return self.in_batches(self.delete_together, paths)

    @abstractmethod
    def delete_together(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """Deletes one batch. Returns the failures by path."""

    @abstractmethod
    def delete_one(self, path: str) -> object:
        """Deletes one object by one request. Raises the client's errors; the result is ignored."""

    def delete_singly(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """One request for each object. Returns the failures by path."""

        def delete(path: str) -> StoreError | None:
            return self.failure_of("delete", path, lambda: self.delete_one(path))

        failures = zip(paths, self.in_parallel(delete, paths, at_once=CONCURRENCY // BATCHES), strict=True)
        return {path: error for path, error in failures if error}

    def delete_refused(self, paths: Sequence[str], refusal: StoreError) -> dict[str, StoreError]:
        """Deletes objects singly after one request for all was refused. Returns the failures by path.

        Some services, rights and signatures allow no requests for many. If the first and last are refused, too, no
        others are tried.
        """
        failures = self.delete_singly(ends := [*{paths[0], paths[-1]}])
        if len(failures) == len(ends):
            return dict.fromkeys(paths, refusal)
        return failures | self.delete_singly([path for path in paths if path not in ends])

    def failure_of(self, action: str, path: str, function: Callable[[], object]) -> StoreError | None:
        """Why the call failed. None if it succeeded, or if the object is not there."""
        try:
            self.call(action, path, function)
        except ObjectNotFoundError:
            return None
        except StoreError as error:
            return error
        return None

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        return []  # a directory exists as long as an object in it does

    # --- copies ---------------------------------------------------------------------------------------------------

    def copy_from(self, source: Store, path: str, copy: str) -> bool:
        if type(source) is not type(self) or source.identity in self._not_copied or not self._shares_service(source):
            return False
        try:
            return self.call("copy an object to", copy, lambda: self.copy_within(source, path, copy))
        except ObjectNotFoundError:  # of the source, which may be hidden from the credentials of this store
            return False
        except StoreError as error:
            self._not_copied |= {source.identity}
            _log.warning("%s: the service does not copy objects of %s by itself, so all bytes pass through this "
                         "process: %s", self.url, source.url, error)  # fmt: skip
            return False

    def copy_within(self, source: Self, path: str, copy: str) -> bool:
        """Asks the service for a copy, with the credentials of this store. False if it has no such request."""
        return False

    def shares_clock(self, other: Store) -> bool:
        return isinstance(other, type(self)) and self._shares_service(other)

    def _shares_service(self, other: Self) -> bool:
        return self.identity.removesuffix(self._container) == other.identity.removesuffix(other._container)

    # --- all ------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # Another process may have another environment.
        return {**self.__dict__, "_fs": None, "_pid": 0, "_identity": None, "_principal": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"  # without the options, which hold secrets


class ClientFailure(Exception):
    """An error of a store's client, as the cause of an error of this package: its type and text, without secrets.

    A traceback would show the client's own error with its whole text, and the errors that caused it.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(visible(text))
        self.code = code
        """The service's error code, or "" if there is none."""

    @classmethod
    def of(cls, error: BaseException, redact: Callable[[str], str]) -> "ClientFailure":
        origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        failure = cls(redact(f"{type(error).__module__}.{type(error).__qualname__}: {error}")[:2000], _code_of(error))
        if origin is not None and origin is not error:
            failure.__cause__ = cls.of(origin, redact)
            failure.code = failure.code or failure.__cause__.code
        return failure


def _code_of(error: BaseException) -> str:
    response = getattr(error, "response", None)  # of botocore's
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, Mapping) else ""


def tail_of(body: bytes, content_range: str | None, length: int) -> Tail:
    """The tail in the answer to a request for the last `length` bytes, with its Content-Range header if it has one.

    Raises OSError if the service has no ranges, or if the answer ended early.
    """
    found = re.fullmatch(r"bytes [0-9]+-[0-9]+/([0-9]{1,19})", content_range or "")
    if found is None and len(body) > length:
        raise OSError("the service answers a request for the end of an object with all of it: it has no ranges")
    size = int(found[1]) if found else len(body)
    if len(body) != min(size, length):
        raise OSError(f"the answer ended after {len(body)} of {min(size, length)} bytes")
    return Tail(size, body)


_ADDRESS = re.compile(r"((?:[^/?#]*://)?)(?:[^/?#]*@)?([^?#]*).*", re.DOTALL)


def without_user(address: str) -> str:
    """The endpoint or host, without a user name and password before it, and without a query."""
    return _ADDRESS.sub(r"\1\2", address, count=1).rstrip("/")
