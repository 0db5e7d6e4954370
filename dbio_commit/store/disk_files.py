"""Creates files in an open directory atomically, syncs them and deletes them. Never follows a symbolic link.

`beneath` opens the directory. This module does not know what the files mean.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any
from uuid import uuid4

from dbio_commit.store.beneath import Lacking, fsync

TEMPORARY = "._dbio-"
"""What the names of temporary files begin with."""

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # without O_NONBLOCK, opening a pipe would wait
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

UNLINKED_S = 1234
"""The modification time, in s since 1970, of a file before it is linked to its name. Then its change time counts."""

_SYNC_BYTES = 8 * 1024 * 1024


def open_new(here: int, name: str) -> int:
    """A descriptor of a new file, for writing."""
    return os.open(name, _CREATE, 0o666, dir_fd=here)


@contextmanager
def _temporary(here: int, body: bytes) -> Iterator[tuple[str, int]]:
    """A temporary file with this body: its name and a descriptor. Its name is removed at the end."""
    name = TEMPORARY + uuid4().hex
    descriptor = open_new(here, name)
    try:
        left = memoryview(body)
        while left:
            left = left[os.write(descriptor, left) :]
        yield name, descriptor
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=here)
        os.close(descriptor)


def rename_new(here: int, name: str, body: bytes) -> None:
    """Creates or replaces the file, by a rename."""
    with _temporary(here, body) as (temporary, descriptor):
        fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)


def link_new(here: int, name: str, body: bytes) -> bool:
    """Creates the file, by a hard link. False if the name exists already.

    Its modification time must be the time of the link. Only the disk knows this time: the change time right after the
    link. Until that is copied, the modification time is UNLINKED_S. The temporary name is removed last, since that
    changes the change time.
    """
    with _temporary(here, body) as (temporary, descriptor):
        _set_time(descriptor, UNLINKED_S * 10**9)
        fsync(descriptor)
        try:
            _link(here, temporary, name)
        except FileExistsError:
            return False
        _copy_time(descriptor)
    return True


def _copy_time(descriptor: int) -> None:
    changed = os.fstat(descriptor).st_ctime_ns
    os.utime(descriptor, ns=(changed, changed))


class _NoLinks(Lacking):
    what = "has no hard links"


class _NoTimes(Lacking):
    what = "does not let this user set the times of files"


_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}
_NO_TIMES = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


def _link(here: int, name: str, other: str) -> None:
    try:
        os.link(name, other, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise _NoLinks(error.errno, error.strerror) from error
        raise


def _set_time(descriptor: int, time_ns: int) -> None:
    try:
        os.utime(descriptor, ns=(time_ns, time_ns))
    except OSError as error:
        if error.errno in _NO_TIMES:
            raise _NoTimes(error.errno, error.strerror) from error
        raise


class _Copies(Lacking):
    what = "makes a copy instead of a hard link"


def refuse_copies(here: int) -> None:
    """Raises `_Copies` if a hard link is a copy: what is written to one name does not appear under the other."""
    first, second = (TEMPORARY + uuid4().hex for _ in range(2))
    with open(open_new(here, first), "wb") as file:
        try:
            _link(here, first, second)
            file.write(b"x")
            file.close()
            descriptor = os.open(second, READ | os.O_NOFOLLOW, dir_fd=here)
            try:
                if os.read(descriptor, 1) != b"x":
                    raise _Copies(errno.EXDEV, "not the same file under both names")
            finally:
                os.close(descriptor)
        finally:
            for name in (first, second):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=here)


def unlink(here: int, name: str) -> None:
    os.unlink(name, dir_fd=here)


def unlink_temporary(here: int, name: str) -> None:
    """Removes a temporary file.

    A writer may have died after it had linked the file to its name. Then the file keeps the time of that link.
    """
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_mtime == UNLINKED_S and status.st_nlink > 1:
            descriptor = os.open(name, READ | os.O_NOFOLLOW, dir_fd=here)
            try:
                _copy_time(descriptor)
            finally:
                os.close(descriptor)
    os.unlink(name, dir_fd=here)


def sync_file(here: int, name: str) -> None:
    descriptor = os.open(name, READ | os.O_NOFOLLOW, dir_fd=here)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


class SyncedEarly(io.FileIO):
    """A file that is synced in the background while it is written, so that `make_durable` need not wait for long."""

    def __init__(self, descriptor: int, mode: str) -> None:
        super().__init__(descriptor, mode)
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
        if self._failure:  # the kernel reports it only once: a later fsync would succeed
            failure, self._failure = self._failure, None
            raise failure
