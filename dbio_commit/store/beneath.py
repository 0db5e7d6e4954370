"""Opens directories below a root component by component, by file descriptors, and never through a symbolic link.

At any moment another process can replace a path by a link, but not a directory that is open. So `local` creates,
changes and deletes only in directories that were opened here. Knows nothing of tables.
"""

import errno
import os
import stat
import time
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar

from dbio_commit.base.errors import InvalidInputError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_A_DIRECTORY = {errno.ENOTDIR, errno.ELOOP, errno.EMLINK}  # of a link: Linux, macOS, FreeBSD


_NO_SUCH_CALL = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


class Lacking(OSError):
    """The file system lacks a feature that a commit needs. Never raised after an object has its name."""

    what: ClassVar[str]


class NoSync(Lacking):
    what = "cannot sync files and directories"


def fsync(descriptor: int) -> None:
    """As `os.fsync`. Raises NoSync if the file system does not support it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in _NO_SUCH_CALL:
            raise NoSync(error.errno, error.strerror) from error
        raise


class LinkInTheWay(OSError):
    """A symbolic link where a directory below the root should be."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "a symbolic link, and nothing is written or deleted through one", path)


@dataclass(frozen=True, slots=True)
class Descent:
    """Open directories, from the root down."""

    descriptors: list[int]
    gained: list[int]
    """The open directories in which a directory was made."""

    @property
    def here(self) -> int:
        """The deepest open directory."""
        return self.descriptors[-1]

    def sync(self) -> None:
        """Makes the new directories on the way, and the entries of the deepest one, survive a power cut."""
        for descriptor in reversed(self.descriptors):
            if descriptor == self.here or descriptor in self.gained:
                os.fsync(descriptor)


@contextmanager
def descend(root: str, directory: str, *, make: bool = False) -> Iterator[Descent]:
    """Opens the directory below the root. `make` makes what is missing below the root. The root may be a link.

    Raises OSError, and LinkInTheWay for a link. With `make`, raises InvalidInputError for another spelling of a
    directory that exists, on a disk that takes both for the same.
    """
    with ExitStack() as opened:
        descent = Descent([os.open(root, _DIRECTORY)], [])
        opened.callback(os.close, descent.here)
        path = root
        for name in filter(None, directory.split("/")):
            path = os.path.join(path, name)
            parent = descent.here
            descent.descriptors.append(_open_or_make(descent, name, path) if make else _open(name, path, parent))
            opened.callback(os.close, descent.here)
            if make:
                refuse_other_spelling(parent, descent.here, name, path)
        yield descent


def _open_or_make(descent: Descent, name: str, path: str) -> int:
    parent = descent.here
    try:
        return _open(name, path, parent)
    except FileNotFoundError:
        descent.gained.append(parent)
        with suppress(FileExistsError):  # others make it too
            os.mkdir(name, dir_fd=parent)
        return _open(name, path, parent)


def _open(name: str, path: str, parent: int) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_A_DIRECTORY:
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    raise LinkInTheWay(path) from None
        raise


def make_root(root: str) -> list[str]:
    """Makes the root if it is missing. Returns the directories above that gained an entry."""
    missing: list[str] = []
    while not os.path.isdir(root):
        missing.append(root)
        root = os.path.dirname(root)
    for directory in reversed(missing):
        with suppress(FileExistsError):  # others make it too
            os.mkdir(directory)
    return [os.path.dirname(directory) for directory in missing]


def sync_directory(path: str) -> None:
    descriptor = os.open(path, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_SYNCED: dict[str, tuple[int, int, int]] = {}
"""By path: device, inode and change time of the directory that this process has synced."""

_SAME_TIME_NS = 2 * 10**9
"""If a directory changed longer ago than this, its next change gives it another time, even in whole seconds."""


def sync_if_changed(path: str) -> None:
    """As `sync_directory`, unless this process has synced the directory and no entry has changed since."""
    status = os.stat(path)
    state = status.st_dev, status.st_ino, status.st_ctime_ns
    if _SYNCED.get(path) == state:
        return
    sync_directory(path)
    if time.time_ns() - status.st_ctime_ns > _SAME_TIME_NS:
        _SYNCED[path] = state


# --- disks that do not keep names byte for byte -------------------------------------------------------------------


def refuse_other_spelling(parent: int, child: int, name: str, path: str) -> None:
    """Raises InvalidInputError if the open child has another name on the disk, which the disk takes for this one.

    Two partitions would share a directory, and vacuum would find files there that only one of them names. Only if the
    disk also finds the child under another spelling, the parent is listed.
    """
    own = os.fstat(child)
    if any(_is_at(parent, other, own) for other in _spellings(name)) and name not in os.listdir(parent):
        raise InvalidInputError(
            f"{path} cannot be written: the directory exists under another spelling, which this disk takes for the "
            "same; use one spelling (upper and lower case, composed letters, dots or spaces at the end), or a store "
            "that keeps names as they are"
        )


def _spellings(name: str) -> set[str]:
    forms = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")} if not name.isascii() else set()
    return {name.swapcase(), name.rstrip(" ."), *forms} - {name, ""}


def _is_at(parent: int, name: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), status)
    except (OSError, ValueError):  # not there, too long, or not a valid name
        return False
