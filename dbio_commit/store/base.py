"""What a store guarantees to the protocol (PROTOCOL.md section 4), and what all stores share.

Paths are relative to the root of the table, "/" between components, and have been checked before they come here.
"""

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, NamedTuple, TypeVar, cast

from dbio_commit.base.errors import (
    AccessDeniedError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
)
from dbio_commit.base.redaction import redact, secrets_in, secrets_of_clients
from dbio_commit.base.texts import visible
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import INSPECT, MAX_BYTES
from dbio_commit.protocol.names import split
from dbio_commit.store.principal import principal_of
from dbio_commit.store.upload import Download, Upload

UPLOAD_BYTES = 16 * 1024 * 1024
"""A data file up to this size is one request; of a larger one, so much is in memory at a time. A task has many open."""

CONCURRENCY = 32
"""Requests in flight at once for one call."""

COPIES = 8
"""Objects copied at once: each has a piece in memory, and on object stores an upload."""

_PIECE_BYTES = 8 * 1024 * 1024

BATCHES = 8
"""Batches that are deleted at once: more of them would only be throttled."""

DeleteBatch = Callable[[Sequence[str]], dict[str, StoreError]]
"""Deletes the objects; returns the failures by path."""

_NO_NAMES = {"", ".", ".."}

_T = TypeVar("_T")
_A = TypeVar("_A")


class Listing(NamedTuple):
    """What lies directly in one directory. All paths are relative to the root."""

    entries: list[Entry]
    directories: list[str]


class Tail(NamedTuple):
    """The end of an object."""

    size: int
    """Of the whole object, in bytes."""
    body: bytes
    """Its last bytes."""


class Unfinished(NamedTuple):
    """An upload that was begun, and neither finished nor aborted. It takes up room and is in no listing."""

    path: str
    """What is being written, relative to the root; on a local disk the temporary file itself."""
    id: str
    """What the store knows it by."""
    size: int
    """In bytes; 0 where the store does not tell."""
    started: datetime
    """Aware, by the store's clock."""


class Store(ABC):
    """Objects below the root of one table.

    Reads and listings see every write that ended before they began. Every failure is a StoreError.
    """

    url: str
    """The root as users and fsspec write it; holds no credential."""

    has_directories: ClassVar[bool] = True
    """Whether directories are real, so that empty ones stay; else they are prefixes of keys."""

    is_disk: ClassVar[bool] = False
    """Whether a machine may have one of its own under the same path: what a task wrote need not be here."""

    delete_batch: ClassVar[int] = 1000
    """How many objects `delete_many` deletes at one go, and may leave undeleted only together."""

    contenders: ClassVar[int] = 4
    """How many calls of `put_if_absent` race for the first object of a process, to prove that one wins (`probe`).

    1 where a race proves nothing: a disk's own link is atomic, or is none at all.
    """

    settle_s: ClassVar[float] = 2.0
    """What an object's time is rounded to, and how long after its time it may appear, together (PROTOCOL.md 8.1)."""

    @abstractmethod
    def list_log(self, *prefixes: str) -> list[Entry]:
        """The objects directly at the root whose names start with one of these, which start with "_"; or with that.

        None of them starts another. Empty where there is no root. On S3 and Google, one listing from the first prefix
        to the last: name neighbours together. On Azure, one for each.
        """

    def list_log_from(self, name: str, prefix: str) -> list[Entry]:
        """Of what `list_log` lists of the prefix, the object of this name and all whose names come after it."""
        return [entry for entry in self.list_log(prefix) if entry.path >= name]

    @abstractmethod
    def stat_log(self, *names: str) -> dict[str, Entry]:
        """Those of the objects at the root that are there, by name; at least one name is given.

        One request on object stores, for neighbours. Azure's begins at what all of the names start with: from
        turn 9,999 to 10,000 it takes pages.
        """

    @abstractmethod
    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        """Every object below the directory `under`, recursively. Not atomic: others may write meanwhile.

        `links=False` leaves out what is, or lies behind, a symbolic link; only a local disk has any.
        """

    lists_ranges: ClassVar[bool] = False
    """Whether `list_below` takes no more requests for many directories than their objects have pages."""

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """Every object below these directories, none of which lies in another; as `list_files(links=False)` does."""
        return [entry for directory in directories for entry in self.list_files(directory, links=False)]

    def neighbours(self, directories: Sequence[str], most: int) -> list[Sequence[str]]:
        """The directories, which are sorted by their prefixes, in about as many groups as `list_below` serves best."""
        return [[directory] for directory in directories]

    @abstractmethod
    def list_directory(self, under: str = "") -> Listing:
        """The objects and directories directly in the directory `under`; nothing where there is no such directory.

        On a local disk nothing that is, or lies behind, a symbolic link: vacuum must never delete through one.
        """

    @abstractmethod
    def list_unfinished(self) -> list[Unfinished]:
        """The unfinished uploads below the root, those under way included: only their age tells which are abandoned.

        S3: multipart uploads. Local disk: temporary files of writers, not behind symbolic links. Azure and Google:
        none, since the services list none, and drop them a week after the last block, or after the upload began.
        """

    @abstractmethod
    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        """Gives up the uploads; what is not there (any more) counts as done. Returns the failures by path."""

    @abstractmethod
    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        """The whole object. Raises ObjectNotFoundError, and CorruptMarkerError where it is larger than the limit.

        It takes no more memory than the limit, however large the object is, and has become since it was listed. On a
        local disk a marker (any name that readers skip) must be a regular file, else it is a CorruptMarkerError, too.
        """

    @abstractmethod
    def stat(self, path: str) -> Entry:
        """The object's size and time. Raises ObjectNotFoundError."""

    @abstractmethod
    def open_read(self, path: str) -> BinaryIO:
        """A seekable stream of the object, for reading parts of a large one.

        Raises ObjectNotFoundError, as it is opened or read.
        """

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

    def replace(self, path: str, body: bytes) -> None:
        """Creates or replaces the object, durably. A reader finds all of the one body or all of the other.

        Never a marker: those are created once (PROTOCOL.md section 4).
        """
        with self.open_write(path) as stream:
            stream.write(body)

    @abstractmethod
    def make_durable(self, paths: Iterable[str]) -> None:
        """The objects, and the directories that gained them, survive a power cut from now on."""

    @abstractmethod
    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """Deletes the objects; what is not there counts as deleted. Returns the failures by path.

        S3, Azure and Google take one request for each `delete_batch` of paths (1,000, 256 and 100), with BATCHES of
        them at once.
        What a busy service refused, and nothing else, is asked for again, ever more slowly. Where a request for many is
        refused, and its first or last can be deleted, the others are deleted singly; on Azure a batch of which any blob
        was refused, blob by blob; on Google what a batch left. A local disk takes one system call for each path.
        """

    def delete_same(self, path: str, body: bytes) -> bool:
        """Deletes the object if it has this body; False where it has another. What is not there counts as deleted.

        S3 and Azure compare in the moment of the deletion. Elsewhere another object may take its place right before it.
        Raises StoreError.
        """
        with suppress(ObjectNotFoundError):
            if self.get(path) != body:
                return False
            for error in self.delete_many([path]).values():
                raise error
        return True

    @abstractmethod
    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        """Removes those of the directories that are empty, the deepest first, then each parent that became empty.

        Returns the removed ones. One that is not empty, or not there, is left be; so is the root, and what is, or
        lies behind, a symbolic link. Does nothing where directories are not real. Where one cannot be removed for
        another reason, the rest are still removed, and then its StoreError is raised.
        """

    @abstractmethod
    def prepare(self, path: str) -> str:
        """The URL to which any tool can write the object; its directory exists where directories are real."""

    def check_spelling(self, directories: Iterable[str]) -> None:  # noqa: B027  (others have nothing to check)
        """Raises InvalidInputError where one of them is there under another spelling that the store takes for it.

        Stores keep names as they are; not so disks that ignore case, or compose and decompose letters, and Azure, which
        cuts dots off the end of a directory's name.
        """

    def may_respell(self, path: str) -> bool:
        """Whether the store may list the object under another name than this, under which it was made."""
        return False

    def is_same(self, path: str, other: str) -> bool:
        """Whether two different paths lead to one object: by such spellings, on a disk also by a second link to it."""
        return False

    def behind_links(self, paths: Iterable[str]) -> set[str]:
        """Those of the paths that are, or lie behind, a symbolic link, also one that leads nowhere.

        What is there, a listing without links does not show.
        """
        return set()

    def keeps_versions(self) -> bool:
        """Whether the store keeps what is deleted, as far as it tells; a refusal to tell is False. One request."""
        return False

    @property
    @abstractmethod
    def identity(self) -> str:
        """What must be probed for put-if-absent only once: the same for all tables on the same service.

        It has the service's endpoint, wherever that came from, and no credential.
        """

    @property
    def principal(self) -> str:
        """As whom it asks: what one principal was told is remembered for no other. Shows no credential."""
        return ""

    def url_of(self, path: str) -> str:
        return f"{self.url}/{path}"

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Some bytes of the object, and no more than these travel. Raises ObjectNotFoundError."""
        with self.open_read(path) as stream:
            stream.seek(start)
            return stream.read(length)

    def get_tail(self, path: str, length: int) -> Tail:
        """The object's size, and so many of its last bytes, or all. Raises ObjectNotFoundError.

        One request on S3 and Google, and on Azure for what is no longer; else two there, which has no such range.
        """
        with self.open_read(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - length))
            return Tail(size, stream.read(length))

    def stat_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """The objects' sizes and times, in order; None for what is not there."""

        def stat(path: str) -> Entry | None:
            with suppress(ObjectNotFoundError):
                return self.stat(path)
            return None

        return self.ask_each(stat, paths)

    def in_batches(self, delete: DeleteBatch, paths: Sequence[str]) -> dict[str, StoreError]:
        """The failures of `delete`, called for batches of `delete_batch` paths, BATCHES of them at once."""
        batches = [paths[start : start + self.delete_batch] for start in range(0, len(paths), self.delete_batch)]
        failures: dict[str, StoreError] = {}
        for failed in self.in_parallel(delete, batches, at_once=BATCHES):
            failures |= failed
        return failures

    @staticmethod
    def in_parallel(function: Callable[[_A], _T], items: Sequence[_A], *, at_once: int = CONCURRENCY) -> list[_T]:
        """The function's results in order, with so many calls at once; raises the first error."""
        if len(items) <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(at_once, len(items)), thread_name_prefix="dbio") as pool:
            return list(pool.map(function, items))

    def ask_each(self, function: Callable[[_A], _T], items: Sequence[_A]) -> list[_T]:
        """As `in_parallel`, of calls that are short but for the time that the store takes to answer."""
        return self.in_parallel(function, items)


def tail_of(body: bytes, content_range: str | None, length: int) -> Tail:
    """What a service answered to a request for the last `length` bytes, with its Content-Range, if it gave one.

    Raises OSError where it has no ranges.
    """
    told = re.fullmatch(r"bytes [0-9]+-[0-9]+/([0-9]{1,19})", content_range or "")
    if told is None and len(body) > length:
        raise OSError("the service answers a request for the end of an object with all of it: it has no ranges")
    return Tail(int(told[1]) if told else len(body), body)


_ADDRESS = re.compile(r"((?:[^/?#]*://)?)(?:[^/?#]*@)?([^?#]*).*", re.DOTALL)


def without_user(address: str) -> str:
    """The endpoint, or host, without a name and password before it, and without what is asked of it."""
    return _ADDRESS.sub(r"\1\2", address, count=1).rstrip("/")


def common_start(names: Sequence[str]) -> str:
    """The longest text that all of the names start with."""
    return os.path.commonprefix(names)  # noqa: RUF071  (of characters: names are no paths of directories here)


def within(entries: Sequence[Entry], directories: Collection[str]) -> list[Entry]:
    """Those of the entries that lie below one of the directories."""
    wanted, depths = set(directories), {directory.count("/") + 1 for directory in directories}
    return [it for it in entries if any("/".join(it.path.split("/", depth)[:depth]) in wanted for depth in depths)]


def copy_object(source: Store, path: str, target: Store, copy: str) -> None:
    """Copies an object byte for byte, through this process. Not durable before `make_durable`.

    Raises ObjectNotFoundError, StoreError.
    """
    with source.open_read(path) as original, target.open_write(copy) as stream:
        shutil.copyfileobj(original, stream, _PIECE_BYTES)


def too_large(url: str, limit_bytes: int) -> CorruptMarkerError:
    return CorruptMarkerError(f"{url} has more than {limit_bytes} bytes, and no writer writes that; {INSPECT}")


def remove_upwards(paths: Iterable[str], remove: Callable[[str], bool]) -> list[str]:
    """Calls `remove` for the directories, the deepest first, and for the parent of each that it says True of.

    Returns those. Never calls it for the root, nor for what lies above. Raises the first StoreError of `remove` when
    all have had their turn.
    """
    by_depth: defaultdict[int, set[str]] = defaultdict(set)
    for path in filter(None, paths):
        components = path.split("/")
        if not _NO_NAMES.isdisjoint(components):
            raise InvalidInputError(f"{path!r} is not the path of a directory below the root; nothing was removed")
        by_depth[len(components)].add(path)
    removed: list[str] = []
    errors: list[StoreError] = []
    for depth in range(max(by_depth, default=0), 0, -1):
        for path in sorted(by_depth[depth]):
            try:
                if remove(path):
                    removed.append(path)
                    by_depth[depth - 1].add(split(path)[0])
            except StoreError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return removed


class FsspecStore(Store):
    """A store on an fsspec filesystem: opened when first used, anew in every process, and never pickled open."""

    has_directories = False
    _prefix: str
    """What the keys of all objects of the table begin with: empty, or with a slash at its end."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        self.url = url
        self.storage_options = dict(storage_options)
        self._fs: Any = None
        self._pid = 0
        self._identity: str | None = None
        self._principal: str | None = None

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
        """What `identity` is, of the connected client, which knows where its endpoint comes from. Asks nothing."""

    @abstractmethod
    def connect(self) -> Any:
        """A new fsspec filesystem."""

    @abstractmethod
    def translate(self, error: BaseException, action: str, path: str) -> DbioError | None:
        """The error of this package that the client's error means; None for what is not the store's."""

    def unless_absent(self, action: str, path: str, function: Callable[[], _T]) -> _T:
        """`call`. Who may list a part of a bucket only may be told 403 of what is not there: a listing tells."""
        try:
            return self.call(action, path, function)
        except AccessDeniedError as refused:
            with suppress(AccessDeniedError):  # of the listing, too
                if not self.lists(path):
                    raise ObjectNotFoundError(f"cannot {action} {self.url_of(path)}: no listing has it") from None
            raise refused

    def lists(self, path: str) -> bool:
        """Whether a listing of what starts with the object's path has the object."""
        raise NotImplementedError  # by those whose services refuse what is not there

    @abstractmethod
    def location(self, path: str) -> str:
        """The object as the filesystem names it."""

    def _prefix_of(self, directory: str) -> str:
        """What the keys of all objects in the directory begin with."""
        return f"{self._prefix}{directory}/" if directory else self._prefix

    def open_read(self, path: str) -> BinaryIO:
        def look() -> BinaryIO:
            return cast(BinaryIO, self.fs.open(self.location(path), "rb"))

        return cast(BinaryIO, Download(look, lambda function: self.call("read", path, function)))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        where, end = self.location(path), start + length
        return self.call("read", path, lambda: cast(bytes, self.fs.cat_file(where, start=start, end=end)))

    def open_write(self, path: str) -> BinaryIO:
        def create() -> BinaryIO:
            return cast(BinaryIO, self.fs.open(self.location(path), "wb", block_size=UPLOAD_BYTES))

        return cast(BinaryIO, Upload(create, lambda function: self.call("write", path, function)))

    def prepare(self, path: str) -> str:
        return self.url_of(path)

    def make_durable(self, paths: Iterable[str]) -> None:
        """An answered PUT is durable."""

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        return []  # a directory is there as long as an object in it is

    def call(self, action: str, path: str, function: Callable[[], _T]) -> _T:
        """The function's result; its client's errors become ours. `action` is a verb: "list", "read"."""
        try:
            return function()
        except Exception as error:
            translated = self.translate(error, action, path)
            if translated is None:
                raise
            cause = ClientFailure.of(error, self.redact)
        raise translated from cause  # out here, where the client's error is no context of it

    def failure(self, action: str, path: str, error: BaseException) -> str:
        """A message that names the facts without any secret that we were given."""
        return f"cannot {action} {self.url_of(path)}: {type(error).__name__}: {self.redact(str(error))[:500]}"

    def redact(self, text: str) -> str:
        """The text without the secrets of the options and of the environment, and without what is one in any text."""
        return redact(text, secrets_in(self.storage_options) | secrets_of_clients())

    def __getstate__(self) -> dict[str, Any]:
        # Another process may have another environment.
        return {**self.__dict__, "_fs": None, "_pid": 0, "_identity": None, "_principal": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"  # without the options: they hold secrets


class ClientFailure(Exception):
    """What a store's client said, as the cause of an error of ours: its type and its text, without secrets.

    The client's own error would be shown in every traceback with all that it says, and those that it came from.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(visible(text))
        self.code = code
        """The service's, where it gave one."""

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
