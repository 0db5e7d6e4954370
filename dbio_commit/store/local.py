"""The store on a local disk, or on any mounted file system with hard links."""

import errno
import io
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from time import perf_counter, thread_time
from typing import Any, BinaryIO, TypeVar, cast

from dbio_commit.base.errors import (
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    UnsupportedStoreError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.store.beneath import (
    LinkInTheWay,
    descend,
    fsync,
    make_root,
    refuse_other_spelling,
    sync_directory,
    sync_if_changed,
)
from dbio_commit.store.contract import Listing, Store, Unfinished, too_large
from dbio_commit.store.disk_files import (
    READ,
    SyncedEarly,
    link_new,
    open_new,
    refuse_copies,
    rename_new,
    sync_file,
    unlink,
    unlink_temporary,
)
from dbio_commit.store.disk_tree import DiskTree, is_hidden_path
from dbio_commit.store.location import Location
from dbio_commit.store.mounts import find_mount, instead_of_mount
from dbio_commit.store.paths import remove_upwards
from dbio_commit.store.upload import Upload

_log = get_logger(__name__)

_A = TypeVar("_A")
_T = TypeVar("_T")
_ATTEMPTS = 100
_PATIENCE_S = 0.02
"""`ask_each` begins threads once its calls have waited longer for the disk than this, and longer than they computed."""

_LOOKED_AT: set[str] = set()
"""Roots whose file systems this process has found to support commits."""


class LocalStore(Store):
    """`put_if_absent` writes and fsyncs a temporary file, then hard-links it to its name, which is atomic.

    Reads of data follow symbolic links, since people link data into tables. A marker must not be a link, and nothing
    is written or deleted through a link below the root.
    """

    is_disk = True
    lists_all_names = True
    contenders = 1

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        if storage_options:
            raise InvalidInputError(f"a local path takes no storage_options, but got {sorted(storage_options)}")
        self._location = location
        self.url = location.prefix
        self._tree = DiskTree(self.url)

    def around(self) -> Sequence[Store]:
        above = dict.fromkeys((*self._location.around(), *self._real.around()))
        return [LocalStore(it, {}) for it in above]

    def beside(self, path: str) -> Store:
        return LocalStore(self._real.beside(path), {})

    def _path_to(self, other: Store) -> str | None:
        return self._real.path_to(other._real) if isinstance(other, LocalStore) and self.shares_clock(other) else None

    @property
    def _real(self) -> Location:
        """The location without symbolic links, which other processes need not go through."""
        return replace(self._location, prefix=os.path.realpath(self.url))

    @property
    def identity(self) -> str:
        return f"file:{self.url}"  # each table may lie on a file system of its own

    @property
    def principal(self) -> str:
        return str(os.geteuid())

    def shares_clock(self, other: Store) -> bool:
        """Whether both lie on one mount: two file systems may round times in two ways, or be of two servers. On a
        system that lists no mounts, all disks count as one."""
        return isinstance(other, LocalStore) and find_mount(self.url) == find_mount(other.url)

    def ask_each(self, function: Callable[[_A], _T], items: Sequence[_A]) -> list[_T]:
        """Calls one after the other while the disk answers at once, otherwise in threads.

        On a fast disk, threads would only wait for Python's lock. But a disk may lie behind a network.
        """
        answers: list[_T] = []
        began_s, at_work_s = perf_counter(), thread_time()
        for item in items:
            worked_s = thread_time() - at_work_s
            if perf_counter() - began_s - worked_s > max(_PATIENCE_S, worked_s):
                break
            answers.append(function(item))
        return answers + self.in_parallel(function, items[len(answers) :])

    # --- listing --------------------------------------------------------------------------------------------------

    settle_s = 0.1

    def list_log(self, *prefixes: str) -> list[Entry]:
        with self._tree.children("", links=True, prefixes=prefixes or ("_",)) as (_, children):
            files = (child for child in children if not child.is_dir(follow_symlinks=False))
            return [entry for child in files if (entry := self._tree.listed(child.name, child))]

    def stat_log(self, *names: str) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for name in names:
            with self._tree.translating("look at", name), suppress(FileNotFoundError, NotADirectoryError):
                status = os.stat(self._tree.path_of(name), follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):  # as in `list_log`
                    found[name] = self._tree.entry(name, status)
        return found

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return list(self._tree.walk(under, links=links))

    def each_file(self, under: str = "") -> Iterator[Entry]:
        return self._tree.walk(under, links=True)

    def list_directory(self, under: str = "") -> Listing:
        found = Listing([], [])
        with self._tree.children(under, links=False) as (_, children):
            for child in children:
                path = names.join(under, child.name)
                if child.is_dir(follow_symlinks=False):
                    found.directories.append(path)
                elif entry := self._tree.listed(path, child):
                    found.entries.append(entry)
        return found

    def list_unfinished(self) -> list[Unfinished]:
        entries = self._tree.walk("", links=False, temporary=True)
        return [Unfinished(entry.path, entry.path, entry.size, entry.modified) for entry in entries]

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, path: str, *, limit_bytes: int = MAX_BYTES) -> bytes:
        with self._tree.translating("read", path):
            descriptor, size = self._open(path)
            try:  # a buffered file would take longer than reading a marker
                body, most = b"", min(size, limit_bytes) + 1
                while len(body) <= limit_bytes and (piece := os.read(descriptor, most)):
                    body += piece
            finally:
                os.close(descriptor)
        if len(body) > limit_bytes:
            raise too_large(self._tree.path_of(path), limit_bytes)
        return body

    def stat(self, path: str) -> Entry:
        return self._tree.entry(path, self._status(path))

    def _status(self, path: str) -> os.stat_result:
        with self._tree.translating("look at", path):
            return os.stat(self._tree.path_of(path), follow_symlinks=not is_hidden_path(path))

    def open_read(self, path: str) -> BinaryIO:
        with self._tree.translating("read", path):
            return open(self._open(path)[0], "rb")

    def _open(self, path: str) -> tuple[int, int]:
        """A descriptor, and the size of the file in bytes."""
        is_hidden = is_hidden_path(path)
        try:
            descriptor = os.open(self._tree.path_of(path), READ | os.O_NOFOLLOW if is_hidden else READ)
        except OSError as error:
            if is_hidden and error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):  # a link; a socket
                raise self._no_file(path) from None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._no_file(path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status.st_size

    def _no_file(self, path: str) -> DbioError:
        message = f"{self._tree.path_of(path)} is not a regular file, but a directory, a link, a pipe or a device"
        if is_hidden_path(path):
            return CorruptMarkerError(f"{message}; no writer makes such a marker: put the file itself in its place")
        return StoreError(f"{message}: put the file itself in its place")

    # --- writing --------------------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, body: bytes) -> bool:
        directory, name = names.split(path)
        is_known = self.url in _LOOKED_AT
        is_fuse = False if is_known else self._look_at_mount()

        def put() -> bool:
            with descend(self.url, directory, make=True) as descent:
                if not is_known:
                    fsync(descent.here)
                if is_fuse:
                    refuse_copies(descent.here)
                is_first = link_new(descent.here, name, body)
                descent.sync()  # also if another call won, which may not have synced the object yet
                return is_first

        with self._tree.translating("create", path):
            above = make_root(self.url)
            is_first = _again(put)
            for gained in above:
                sync_directory(gained)
        _LOOKED_AT.add(self.url)
        return is_first

    def _look_at_mount(self) -> bool:
        """Returns whether the root lies on FUSE, whose hard links must be tried. Called before a process's first
        marker.

        Raises UnsupportedStoreError for an object store behind FUSE. Warns of NFS.
        """
        mount = find_mount(self.url)
        if mount and mount.object_store:
            raise UnsupportedStoreError(
                f"{self.url} lies on {mount}: an object store that is mounted as a disk, where a hard link is a copy "
                "or fails, and what others write appears late. Nothing was written; give "
                f"{instead_of_mount(self.url, mount)}"
            )
        if mount and mount.caches_names:
            _log.warning("%s lies on %s: NFS, which caches names and listings, so that two machines may both believe "
                         "that theirs is the next commit; mount it with noac,lookupcache=none, or write from one "
                         "machine only (docs/STORES.md, Network disks)", self.url, mount)  # fmt: skip
        return mount is not None and mount.is_fuse

    def replace(self, path: str, body: bytes) -> None:
        directory, name = names.split(path)

        def put() -> None:
            with descend(self.url, directory, make=True) as descent:
                rename_new(descent.here, name, body)
                descent.sync()

        with self._tree.translating("replace", path):
            above = make_root(self.url)
            _again(put)
            for gained in above:
                sync_directory(gained)

    def open_write(self, path: str) -> BinaryIO:
        directory, name = names.split(path)

        def open_it() -> SyncedEarly:
            with descend(self.url, directory, make=True) as descent:
                return SyncedEarly(open_new(descent.here, name), "wb")

        def create() -> BinaryIO:
            make_root(self.url)
            return cast(BinaryIO, _again(open_it))

        def guard(function: Callable[[], Any]) -> Any:
            with self._tree.translating("write", path):
                return function()

        return cast(BinaryIO, io.BufferedWriter(Upload(create, guard)))  # so few large writes are guarded

    def prepare(self, path: str) -> str:
        def make() -> None:
            with descend(self.url, names.split(path)[0], make=True):
                pass

        with self._tree.translating("create the directory of", path):
            make_root(self.url)
            _again(make)
        return self._tree.path_of(path)

    def check_spelling(self, directories: Iterable[str]) -> None:
        for directory in sorted(set(directories) - {""}):
            with (
                suppress(ObjectNotFoundError),
                self._tree.translating("look at", directory),
                descend(self.url, directory) as descent,
            ):
                for name, (parent, child) in zip(directory.split("/"), pairwise(descent.descriptors), strict=False):
                    refuse_other_spelling(parent, child, name, self._tree.path_of(directory))

    def may_respell(self, path: str) -> bool:
        return True

    def is_same(self, path: str, other: str) -> bool:
        try:
            first, second = (os.stat(self._tree.path_of(it), follow_symlinks=False) for it in (path, other))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._tree.translate(error, "look at", path) from error
        return os.path.samestat(first, second)

    def behind_links(self, paths: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for directory, files in _by_directory(paths).items():
            try:
                with descend(self.url, directory) as descent:
                    found.update(names.join(directory, name) for name in files if _is_link(descent.here, name))
            except LinkInTheWay:
                found.update(names.join(directory, name) for name in files)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._tree.translate(error, "look at", directory) from error
        return found

    def make_durable(self, paths: Iterable[str]) -> None:
        synced = set[str]()
        for directory, files in _by_directory(paths).items():
            with (
                self._tree.translating("sync", names.join(directory, files[0])),
                descend(self.url, directory) as descent,
            ):
                for name in files:
                    with self._tree.translating("sync", names.join(directory, name)):
                        sync_file(descent.here, name)
                for descriptor in reversed(descent.descriptors):  # of the directory, and of those above it
                    if directory not in synced:
                        with self._tree.translating("sync", directory):
                            fsync(descriptor)
                        synced.add(directory)
                    directory = names.split(directory)[0]
        with suppress(PermissionError):  # this user may not be allowed to open the directory above the root
            sync_if_changed(os.path.dirname(self.url))

    # --- deleting -------------------------------------------------------------------------------------------------

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        return self.in_batches(lambda batch: self._delete(batch, unlink), paths)

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        failures = self._delete([item.path for item in items], unlink_temporary)
        return {path: error for path, error in failures.items() if not isinstance(error.__cause__, LinkInTheWay)}

    def _delete(self, paths: Sequence[str], unlink: Callable[[int, str], None]) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}

        def attempt(tried: Sequence[str], function: Callable[[], None]) -> None:
            try:
                with self._tree.translating("delete", tried[0]):
                    function()
            except ObjectNotFoundError:
                pass
            except StoreError as error:
                failures.update(dict.fromkeys(tried, error))

        def in_directory(directory: str, found: Sequence[str]) -> None:
            with descend(self.url, directory) as descent:
                for name in found:
                    attempt([names.join(directory, name)], lambda name=name: unlink(descent.here, name))  # type: ignore[misc]

        for directory, found in _by_directory(paths).items():
            tried = [names.join(directory, name) for name in found]
            attempt(tried, lambda directory=directory, found=found: in_directory(directory, found))  # type: ignore[misc]
        return failures

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        def remove(path: str) -> bool:
            with self._tree.translating("remove the directory", path):
                return self._rmdir(path)

        return remove_upwards(paths, remove)

    def _rmdir(self, path: str) -> bool:
        parent, name = names.split(path)
        try:
            with descend(self.url, parent) as descent:
                os.rmdir(name, dir_fd=descent.here)
        except (FileNotFoundError, NotADirectoryError, LinkInTheWay):
            return False
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # POSIX allows either
                return False
            raise
        return True

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"


def _is_link(directory: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


def _by_directory(paths: Iterable[str]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        directory, name = names.split(path)
        found[directory].append(name)
    return found


def _again(create: Callable[[], _T]) -> _T:
    """Calls `create` again if a directory has gone: vacuum may remove one while it is empty."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return create()
    return create()
