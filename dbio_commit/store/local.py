"""A local disk, or any mounted file system with hard links."""

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from threading import Thread
from typing import Any, BinaryIO, TypeVar, cast
from uuid import uuid4

from dbio_commit import names
from dbio_commit.errors import (
    AccessDeniedError,
    DbioError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
    UnsupportedStoreError,
)
from dbio_commit.state import Entry
from dbio_commit.store.base import Listing, Store, Unfinished, remove_upwards
from dbio_commit.store.location import Location
from dbio_commit.store.upload import Upload

_T = TypeVar("_T")
_Child = tuple[str, os.DirEntry[str]]  # with its path below the root
_TEMPORARY = "._dbio-"
_SYNC_BYTES = 8 * 1024 * 1024
_ATTEMPTS = 100
_OF_WHAT_IS_THERE = {"read", "look at", "sync", "delete"}


class LocalStore(Store):
    """`put_if_absent` writes and fsyncs a temporary file, then hard-links it to its name, which is atomic."""

    def __init__(self, location: Location, storage_options: Mapping[str, Any]) -> None:
        if storage_options:
            raise InvalidInputError(f"a local path takes no storage_options, but got {sorted(storage_options)}")
        self.url = location.prefix

    @property
    def identity(self) -> str:
        return f"file:{self.url}"  # each table may lie on a file system of its own

    def list_log(self) -> list[Entry]:
        children = self._children("", links=True, prefix="_")
        return list(self._entries(child for child in children if not self._is_directory(child)))

    def list_files(self, under: str = "", *, links: bool = True) -> list[Entry]:
        return list(self._entries(self._walk(under, links=links)))

    def list_directory(self, under: str = "") -> Listing:
        files: list[_Child] = []
        directories: list[str] = []
        for child in self._children(under, links=False):
            if self._is_directory(child):
                directories.append(child[0])
            else:
                files.append(child)
        return Listing(list(self._entries(files)), directories)

    def list_unfinished(self) -> list[Unfinished]:
        entries = self._entries(self._walk("", links=False), temporary=True)
        return [Unfinished(entry.path, entry.path, entry.size, entry.modified) for entry in entries]

    def _walk(self, directory: str, *, links: bool) -> Iterator[_Child]:
        """Whatever is not a directory, recursively; temporary files included."""
        for child in self._children(directory, links=links):
            if self._is_directory(child):
                yield from self._walk(child[0], links=links)
            else:
                yield child

    def _children(self, directory: str, *, links: bool, prefix: str = "") -> list[_Child]:
        if not links and self._is_behind_link(directory):
            return []
        try:
            with os.scandir(self._local(directory)) as found:
                children = sorted((e for e in found if e.name.startswith(prefix)), key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            return []  # there is no root, or the directory has gone since its parent was listed
        except OSError as error:
            raise self._translate(error, "list", directory) from error
        return [(names.join(directory, child.name), child) for child in children if links or not child.is_symlink()]

    def _is_directory(self, child: _Child) -> bool:
        path, found = child
        return self._call("list", path, found.is_dir)

    def _is_behind_link(self, path: str) -> bool:
        """Whether the path, or a directory on the way to it, is a symbolic link. The root may be one."""
        while path:
            if os.path.islink(self._local(path)):
                return True
            path = names.split(path)[0]
        return False

    def _entries(self, children: Iterable[_Child], *, temporary: bool = False) -> Iterator[Entry]:
        for path, child in children:
            if child.name.startswith(_TEMPORARY) is temporary:
                with suppress(ObjectNotFoundError):  # deleted since it was listed
                    yield self._entry(path, child.stat)

    def get(self, path: str) -> bytes:
        def read() -> bytes:
            with open(self._local(path), "rb") as file:
                return file.read()

        return self._call("read", path, read)

    def stat(self, path: str) -> Entry:
        return self._entry(path, lambda: os.stat(self._local(path)))

    def _entry(self, path: str, look: Callable[[], os.stat_result]) -> Entry:
        status = self._call("look at", path, look)
        try:
            modified = datetime.fromtimestamp(status.st_mtime, UTC)
        except (ValueError, OverflowError, OSError):
            raise StoreError(
                f"{self._local(path)} has a modification time that no calendar holds ({status.st_mtime:g} s since "
                "1970); set it right with `touch`"
            ) from None
        return Entry(path, status.st_size, modified)

    def open_read(self, path: str) -> BinaryIO:
        return self._call("read", path, lambda: open(self._local(path), "rb"))

    def put_if_absent(self, path: str, body: bytes) -> bool:
        return self._call("create", path, lambda: _again(lambda: _link_new(self._local(path), body)))

    def open_write(self, path: str) -> BinaryIO:
        target = self._local(path)

        def create() -> BinaryIO:
            return cast(BinaryIO, io.BufferedWriter(_again(lambda: _open_new(target))))

        return cast(BinaryIO, Upload(create, lambda f: self._call("write", path, f)))

    def prepare(self, path: str) -> str:
        target = self._local(path)
        self._call("create the directory of", path, lambda: _again(lambda: _make_directory_of(target)))
        return target

    def make_durable(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        directories = {""}
        for path in paths:
            self._call("sync", path, lambda path=path: _sync(self._local(path)))  # type: ignore[misc]
            directory = names.split(path)[0]
            while directory not in directories:
                directories.add(directory)
                directory = names.split(directory)[0]
        for directory in sorted(directories, reverse=True):
            self._call("sync", directory, lambda directory=directory: _sync(self._local(directory)))  # type: ignore[misc]
        with suppress(PermissionError):  # the directory that holds the root need not be ours to open
            _sync(os.path.dirname(self.url))

    def delete_many(self, paths: Sequence[str]) -> dict[str, StoreError]:
        return self.in_batches(self._delete_batch, paths)

    def _delete_batch(self, paths: Sequence[str]) -> dict[str, StoreError]:
        failures: dict[str, StoreError] = {}
        for path in paths:
            try:
                self._call("delete", path, lambda path=path: os.remove(self._local(path)))  # type: ignore[misc]
            except ObjectNotFoundError:
                continue
            except StoreError as error:
                failures[path] = error
        return failures

    def abort_unfinished(self, items: Sequence[Unfinished]) -> dict[str, StoreError]:
        return self.delete_many([item.path for item in items if not self._is_behind_link(item.path)])

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        return remove_upwards(paths, lambda path: self._call("remove the directory", path, lambda: self._rmdir(path)))

    def _rmdir(self, path: str) -> bool:
        if self._is_behind_link(path):
            return False
        try:
            os.rmdir(self._local(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # POSIX allows either
                return False
            raise
        return True

    def _local(self, path: str) -> str:
        return os.path.join(self.url, path) if path else self.url

    def _call(self, action: str, path: str, function: Callable[[], _T]) -> _T:
        try:
            return function()
        except OSError as error:
            raise self._translate(error, action, path) from error

    def _translate(self, error: OSError, action: str, path: str) -> DbioError:
        message = f"cannot {action} {self._local(path)}: {error.strerror or error}"
        link_refused = isinstance(error, PermissionError) and error.filename2 is not None  # only link(2) names two
        if link_refused or error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
            return UnsupportedStoreError(f"{message}; this file system has no hard links, which a commit needs")
        if isinstance(error, FileNotFoundError | NotADirectoryError) and action in _OF_WHAT_IS_THERE:
            return ObjectNotFoundError(message)
        if isinstance(error, PermissionError):
            return AccessDeniedError(f"{message}; give this user access to it")
        return StoreError(f"{message}; check the path and the disk, then try again")

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"


class _SyncedEarly(io.FileIO):
    """Brings what is written to the disk in the background, so that little is left for `make_durable` to wait for."""

    def __init__(self, path: str, mode: str) -> None:
        super().__init__(path, mode)
        self._unsynced = 0
        self._thread: Thread | None = None
        self._failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._unsynced += written
        if self._unsynced >= _SYNC_BYTES and not (self._thread and self._thread.is_alive()):
            self._unsynced = 0
            self._thread = Thread(target=self._sync, name="dbio-sync")
            self._thread.start()
        return written

    def _sync(self) -> None:
        try:
            os.fsync(self.fileno())
        except OSError as error:
            self._failure = error

    def close(self) -> None:
        if self._thread:
            self._thread.join()
        super().close()
        if self._failure:  # the kernel tells of it once only: a later fsync would succeed
            failure, self._failure = self._failure, None
            raise failure


def _again(create: Callable[[], _T]) -> _T:
    """Calls it a few times more where a directory has gone: vacuum may remove one while there is nothing in it."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return create()
    return create()


def _make_directory_of(target: str) -> list[str]:
    """Makes it where it is missing. Returns the directories that gained an entry by that."""
    missing = []
    directory = os.path.dirname(target)
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    for directory in reversed(missing):
        with suppress(FileExistsError):  # others make it too
            os.mkdir(directory)
    return [os.path.dirname(directory) for directory in missing]


def _open_new(target: str) -> "_SyncedEarly":
    _make_directory_of(target)
    return _SyncedEarly(target, "xb")


def _link_new(target: str, body: bytes) -> bool:
    directory = os.path.dirname(target)
    gaining = [directory, *_make_directory_of(target)]
    temporary = os.path.join(directory, _TEMPORARY + uuid4().hex)
    try:
        with open(temporary, "xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.utime(temporary)  # its time is that of its appearance, however long the disk took
            os.link(temporary, target)
        except FileExistsError:
            return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    for directory in gaining:
        _sync(directory)
    return True


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
