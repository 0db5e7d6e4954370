"""The contract of a store: what each one guarantees to the protocol (PROTOCOL.md section 4).

Paths are relative to the root of the table, with "/" between components. The caller has checked them.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import BinaryIO, ClassVar, NamedTuple

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, ObjectNotFoundError, StoreError
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import INSPECT, MAX_BYTES
from dbio_commit.protocol.markers.joint import is_other
from dbio_commit.store.many import ManyCalls

BATCHES = 8
"""Batches that are deleted at once. The service would throttle more."""

DeleteBatch = Callable[[Sequence[str]], dict[str, StoreError]]
"""Deletes the objects and returns the failures by path."""


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
    """An upload that was begun, and neither finished nor aborted. It takes up space, and no listing shows it."""

    path: str
    """The object that is being written, relative to the root. On a local disk, the temporary file itself."""
    id: str
    """The store's id of the upload."""
    size: int
    """In bytes. 0 if the store does not report it."""
    started: datetime
    """With a time zone, by the store's clock."""


class Store(ManyCalls, ABC):
    """Objects below the root of one table.

    Reads and listings see every write that ended before they began. Every failure is a StoreError.
    """

    url: str
    """The root as users and fsspec write it. It holds no credential."""

    has_directories: ClassVar[bool] = True
    """Whether directories are real, so that empty ones stay. Otherwise they are only prefixes of keys."""

    is_disk: ClassVar[bool] = False
    """Whether each machine may have its own disk under the same path. Then this process may not see the files that a
    task wrote."""

    delete_batch: ClassVar[int] = 1000
    """How many objects `delete_many` deletes in one request. If the request fails, all of them may remain."""

    contenders: ClassVar[int] = 4
    """How many calls of `put_if_absent` race for the first object of a process, to prove that only one wins (`probe`).

    1 if a race proves nothing: hard links on a disk are atomic, or there are none.
    """

    settle_s: ClassVar[float] = 2.0
    """The settling time (PROTOCOL.md 4), in s: the rounding of an object's time plus the delay until the object
    appears."""

    # --- list -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def list_log(self, *prefixes: str) -> list[Entry]:
        """The objects directly at the root whose names start with one of the prefixes, or with "_" if none is given.

        Each prefix starts with "_", and none is the beginning of another. Empty if there is no root. S3 and Google make
        one listing from the first prefix to the last, so pass prefixes that sort close together. Azure makes one
        listing for each prefix.
        """

    def list_log_from(self, name: str, prefix: str) -> list[Entry]:
        """As `list_log` for one prefix, without objects whose names sort before `name`."""
        return [entry for entry in self.list_log(prefix) if entry.path >= name]

    lists_all_names: ClassVar[bool] = False
    """Whether `list_log_from` reads all names at the root, and so takes longer than `stat_log` for two of them."""

    @abstractmethod
    def stat_log(self, *names: str) -> dict[str, Entry]:
        """The objects at the root that have these names, by name; absent ones are left out. Give at least one name.

        Object stores take one request if the names sort close together. Azure lists from the common beginning of the
        names: from turn 9,999 to 10,000 that takes several pages.
        """

    @abstractmethod
    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        """Every object below the directory `under`, recursively. Not atomic: others may write meanwhile.

        `links=False` leaves out symbolic links and what lies behind them. Only a local disk has any.
        """

    def each_file(self, under: str = "") -> Iterator[Entry]:
        """As `list_files`, one after the other. A local disk lists one directory at a time."""
        yield from self.list_files(under)

    lists_ranges: ClassVar[bool] = False
    """Whether `list_below`, for many directories, takes no more requests than there are pages of objects in them."""

    def list_below(self, directories: Sequence[str]) -> list[Entry]:
        """Every object below these directories, as `list_files(links=False)` does. No directory may lie in another."""
        return [entry for directory in directories for entry in self.list_files(directory, links=False)]

    def neighbours(self, directories: Sequence[str], most: int) -> list[Sequence[str]]:
        """Divides directories, which are sorted by their prefixes, into about `most` groups that suit `list_below`."""
        return [[directory] for directory in directories]

    @abstractmethod
    def list_directory(self, under: str = "") -> Listing:
        """The objects and directories directly in the directory `under`. Empty if there is no such directory.

        On a local disk, symbolic links and what lies behind them are left out: vacuum must never delete through one.
        """

    @abstractmethod
    def list_unfinished(self) -> list[Unfinished]:
        """The unfinished uploads below the root, also those under way: only their age shows which are abandoned.

        S3: multipart uploads. Local disk: temporary files of writers, but none behind symbolic links. Azure and Google:
        empty, since these services do not list them. Azure drops them a week after the last block, Google a week after
        the upload began.
        """

    @abstractmethod
    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        """Aborts the uploads. One that no longer exists counts as aborted. Returns the failures by path."""

    # --- read -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        """The whole object. Raises ObjectNotFoundError, and CorruptMarkerError if it is larger than the limit.

        Takes no more memory than the limit, even if the object is larger, or has grown since it was listed. On a local
        disk a marker (any name that readers skip) must be a regular file. Otherwise CorruptMarkerError is raised.
        """

    @abstractmethod
    def stat(self, path: str) -> Entry:
        """The object's size and time. Raises ObjectNotFoundError."""

    @abstractmethod
    def open_read(self, path: str) -> BinaryIO:
        """A seekable stream of the object, for reading parts of a large one.

        Opening or reading raises ObjectNotFoundError. Reading raises StoreError if the object ends before the size that
        it had when it was opened; on a disk, the stream ends there.
        """

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes of the object from `start`. Only these are transferred.

        Raises StoreError if there are fewer, ObjectNotFoundError.
        """
        found = self.get_some(path, start, length)
        if len(found) != length:
            raise cut_short(self.url_of(path), len(found), length)
        return found

    def get_some(self, path: str, start: int, length: int) -> bytes:
        """As `get_range`, but returns fewer bytes if the object ends before: for callers that check the length."""
        with self.open_read(path) as stream:
            stream.seek(start)
            return stream.read(length)

    def get_tail(self, path: str, length: int) -> Tail:
        """The object's size and its last `length` bytes, or all if it has fewer.

        Raises StoreError if the store answers with fewer, ObjectNotFoundError.

        One request on S3 and Google. Azure has no range that counts from the end: one request if the object has no more
        than `length` bytes, otherwise two.
        """
        with self.open_read(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - length))
            body = stream.read(length)
        if len(body) != min(size, length):
            raise cut_short(self.url_of(path), len(body), min(size, length))
        return Tail(size, body)

    def stat_many(self, paths: Sequence[str]) -> list[Entry | None]:
        """The objects' sizes and times, in the order of the paths. None for an object that is not there."""

        def stat(path: str) -> Entry | None:
            with suppress(ObjectNotFoundError):
                return self.stat(path)
            return None

        return self.ask_each(stat, paths)

    # --- write ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Creates the object, durably. True if this call created it, False if it was there already.

        Exactly one of any concurrent callers succeeds, and nobody ever reads a part of the body. False may also mean
        that an earlier attempt of this same call had succeeded and its answer was lost: read the object to find out.
        Raises StoreError if the outcome is unknown, AccessDeniedError if the request was refused.
        """

    @abstractmethod
    def open_write(self, path: str) -> BinaryIO:
        """A stream that creates the object when it is closed. The object is durable only after `make_durable`."""

    def replace(self, path: str, body: bytes) -> None:
        """Creates or replaces the object, durably. A reader finds either the whole old body or the whole new one.

        Never use it for a marker: markers are created once (PROTOCOL.md section 4).
        """
        with self.open_write(path) as stream:
            stream.write(body)

    def copy_from(self, source: "Store", path: str, copy: str) -> bool:
        """Copies an object of another store, or of this one, within the service: its bytes do not pass through this
        process.

        The copy appears at once, as from `open_write`. False if nothing was copied; then copy the bytes. The stores may
        be of different services, or the service may not copy objects. Or it refused, for example since the credentials
        of this store may not read the source. S3 and Google copy in one bucket, and between buckets of one endpoint,
        Azure within one storage account. If the process is killed, Azure may leave an object that is not whole.
        """
        return False

    def unfinished_copies(self) -> Collection[str]:
        """The objects below the root that `copy_from` has begun, and that are not whole. Their sizes prove nothing.

        Only Azure has any: copies that are pending, have failed or were aborted. Takes one listing of all objects.
        """
        return ()

    @abstractmethod
    def make_durable(self, paths: Iterable[str]) -> None:
        """Makes the objects, and the directories that gained them, survive a power cut."""

    @abstractmethod
    def prepare(self, path: str) -> str:
        """The URL to which any tool can write the object. Creates its directory if directories are real."""

    # --- delete ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        """Deletes the objects. One that is not there counts as deleted. Returns the failures by path.

        S3, Azure and Google take one request for each `delete_batch` of paths (1,000, 256 and 100), and send BATCHES of
        these requests at once. Only what a busy service refused is asked for again, with growing pauses. If a request
        for many is refused, but its first or last object can be deleted singly, the others are deleted singly, too. If
        a batch succeeds but leaves objects, Azure deletes all of the batch singly, and Google those that were left. A
        local disk takes one system call for each path.
        """

    def delete_same(self, path: str, body: bytes) -> bool:
        """Deletes the object if it has this body. False if it has another. One that is not there counts as deleted.

        S3, Azure and Google delete only the very object that was compared. Elsewhere, another object may take its place
        between the comparison and the deletion. Raises StoreError.
        """
        with suppress(ObjectNotFoundError):
            if self.get(path) != body:
                return False
            for error in self.delete_many([path]).values():
                raise error
        return True

    @abstractmethod
    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        """Removes the directories that are empty, the deepest first, then each parent that became empty.

        Returns those that it removed. It leaves alone a directory that is not empty or not there, the root, symbolic
        links and what lies behind them. Does nothing if directories are not real. If a directory cannot be removed for
        another reason, the rest are still removed, and then its StoreError is raised.
        """

    # --- names ----------------------------------------------------------------------------------------------------

    def url_of(self, path: str) -> str:
        return f"{self.url}/{path}"

    def check_spelling(self, directories: Iterable[str]) -> None:
        """Raises InvalidInputError if a directory exists under another spelling that the store takes for the same.

        Most stores keep names as they are. Disks may ignore case, or compose and decompose letters. Azure cuts dots off
        the end of a directory's name.
        """

    def may_respell(self, path: str) -> bool:
        """Whether the store may list the object under another name than the one it was created with."""
        return False

    def is_same(self, path: str, other: str) -> bool:
        """Whether two different paths lead to one object: by such spellings, or on a disk by a second hard link."""
        return False

    def behind_links(self, paths: Iterable[str]) -> set[str]:
        """The paths that are symbolic links or lie behind one, even a link that leads nowhere.

        Listings with `links=False` do not show them.
        """
        return set()

    def around(self) -> Sequence["Store"]:
        """The directories around the root, the nearest first, up to the whole bucket, container or disk.

        On a disk also those around the directory to which a symbolic link on the way leads. No I/O on other stores.
        """
        return ()

    @abstractmethod
    def beside(self, path: str) -> "Store":
        """The store of another table in the same bucket, container or disk, with the same credentials. No I/O.

        `path` is that of its root from this root (`protocol/markers/joint`). Raises CorruptMarkerError if it leads out
        of the bucket, container or disk.
        """

    def path_to(self, other: "Store") -> str:
        """The path with which `beside` makes a store of the other root. Raises InvalidInputError if there is none."""
        path = self._path_to(other)
        if path is None:
            raise InvalidInputError(
                f"{self.url} and {other.url} lie in different stores; a joint transaction writes to tables of one "
                "bucket, container or disk"
            )
        if not is_other(path):  # nobody could read a marker that names it
            raise InvalidInputError(
                f"{self.url} and {other.url} cannot be written in one joint transaction: from the first to the second "
                f"leads {path[:200]!r}, and there must be `..` and then names without backslashes, control characters "
                "and bytes that are not UTF-8"
            )
        return path

    @abstractmethod
    def _path_to(self, other: "Store") -> str | None:
        """As `path_to`; None if there is none."""

    # --- the service ----------------------------------------------------------------------------------------------

    def keeps_versions(self) -> bool:
        """Whether the store keeps deleted objects. False if it refuses to report that. One request."""
        return False

    @property
    @abstractmethod
    def identity(self) -> str:
        """Identifies the place for which one proof of put-if-absent is enough, such as a bucket. All its tables have
        this identity.

        It contains the service's endpoint, however that was configured, and no credential.
        """

    @abstractmethod
    def shares_clock(self, other: "Store") -> bool:
        """Whether one clock gives the times of objects in both, and rounds them in one way (PROTOCOL.md 8.5)."""

    @property
    def principal(self) -> str:
        """Identifies the store's credentials, and reveals none. What one principal has read is not remembered for
        another."""
        return ""

    # --- many at once ---------------------------------------------------------------------------------------------

    def in_batches(self, delete: DeleteBatch, paths: Sequence[str]) -> dict[str, StoreError]:
        """The failures of `delete`, called for batches of `delete_batch` paths, BATCHES of them at once."""
        batches = [paths[start : start + self.delete_batch] for start in range(0, len(paths), self.delete_batch)]
        failures: dict[str, StoreError] = {}
        for failed in self.in_parallel(delete, batches, at_once=BATCHES):
            failures |= failed
        return failures


def cut_short(url: str, found: int, asked: int) -> StoreError:
    return StoreError(
        f"{url} was read with {found} of {asked} bytes: the answer ended early, or somebody cut the object off; try "
        "again, and if that fails too, see `dbio check`"
    )


def too_large(url: str, limit_bytes: int) -> CorruptMarkerError:
    return CorruptMarkerError(f"{url} has more than {limit_bytes} bytes, and no writer writes that; {INSPECT}")
