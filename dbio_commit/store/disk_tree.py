"""The files below a root on a disk: their paths, listings, times, and failures as errors of this package."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime

from dbio_commit.base.clock import is_of_a_clock
from dbio_commit.base.errors import (
    AccessDeniedError,
    DbioError,
    ObjectNotFoundError,
    StoreError,
    UnsupportedStoreError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.store.beneath import Lacking, LinkInTheWay, descend
from dbio_commit.store.disk_files import TEMPORARY, UNLINKED_S
from dbio_commit.store.mounts import find_mount, instead_of_mount

_ABSENCE_MATTERS = {"read", "look at", "sync", "delete"}
"""The actions for which a file that is not there is an ObjectNotFoundError."""


class DiskTree:
    """The files below a root, which need not exist. Paths are relative to it."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path_of(self, path: str) -> str:
        """The path on the disk."""
        return os.path.join(self.root, path) if path else self.root

    @contextmanager
    def translating(self, action: str, path: str) -> Iterator[None]:
        """Raises an OSError of the block as an error of this package. `action` is a verb for the message: "read"."""
        try:
            yield
        except OSError as error:
            raise self.translate(error, action, path) from error

    def translate(self, error: OSError, action: str, path: str) -> DbioError:
        message = f"cannot {action} {self.path_of(path)}: {error.strerror or error}"
        if isinstance(error, Lacking):
            mount = find_mount(self.root)
            which = f" ({mount})" if mount else ""
            return UnsupportedStoreError(
                f"{message}; this file system{which} {error.what}, which a commit needs: give "
                f"{instead_of_mount(self.root, mount)}"
            )
        if isinstance(error, LinkInTheWay):
            return StoreError(f"cannot {action} {self.path_of(path)}: {error.filename} is {error.strerror}; use the "
                              "path of the directory that it leads to")  # fmt: skip
        if isinstance(error, FileNotFoundError | NotADirectoryError) and action in _ABSENCE_MATTERS:
            return ObjectNotFoundError(message)
        if isinstance(error, PermissionError):
            return AccessDeniedError(f"{message}; give this user access to it")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreError(f"{message}; make room there, then try again")
        if error.errno == errno.EROFS:
            return StoreError(f"{message}; mount it for writing, or name another path")
        return StoreError(f"{message}; check the path and the disk, then try again")

    def walk(self, top: str, *, links: bool, temporary: bool = False) -> Iterator[Entry]:
        """Every file below `top`. Since links may lead in circles, each directory appears once, under its own path if
        that is below `top`."""
        seen: set[tuple[int, int]] = set()
        rest: list[Entry | str] = [top]  # the last is next; a directory is a path
        linked: list[str] = []
        while rest or linked:
            it = rest.pop() if rest else linked.pop(0)
            if isinstance(it, Entry):
                yield it
                continue
            with self.children(it, links=links) as (identity, children):
                if identity not in seen:
                    seen.add(identity)
                    for child in reversed(children):
                        path = names.join(it, child.name)
                        if child.is_dir(follow_symlinks=False):
                            rest.append(path)
                        elif self._leads_to_directory(path, child):
                            linked.append(path)
                        elif entry := self.listed(path, child, temporary=temporary):
                            rest.append(entry)

    @contextmanager
    def children(
        self, directory: str, *, links: bool, prefixes: tuple[str, ...] = ("",)
    ) -> Iterator[tuple[tuple[int, int], list[os.DirEntry[str]]]]:
        """The directory's device and inode, and its children. Use these only within the context."""
        with ExitStack() as opened:
            children: list[os.DirEntry[str]] = []
            identity = (0, 0)
            with self.translating("list", directory), suppress(FileNotFoundError, NotADirectoryError, LinkInTheWay):
                # Absent if there is no root, or if it was removed since its parent was listed.
                if links:
                    descriptor = os.open(self.path_of(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    opened.callback(os.close, descriptor)
                else:
                    descriptor = opened.enter_context(descend(self.root, directory)).here
                status = os.fstat(descriptor)
                identity = (status.st_dev, status.st_ino)
                with os.scandir(descriptor) as found:
                    children = [e for e in found if e.name.startswith(prefixes) and (links or not e.is_symlink())]
            yield identity, sorted(children, key=lambda child: child.name)

    def _leads_to_directory(self, path: str, child: os.DirEntry[str]) -> bool:
        """Whether it is a symbolic link to a directory, with a name that readers do not skip."""
        if not child.is_symlink() or names.is_hidden(child.name):
            return False
        try:
            return child.is_dir()
        except OSError as error:
            if error.errno == errno.ELOOP:  # it leads only to itself
                return False
            raise self.translate(error, "list", path) from error

    def listed(self, path: str, child: os.DirEntry[str], *, temporary: bool = False) -> Entry | None:
        """The child as an entry of a listing. None for a child that is not listed.

        With `temporary`, only temporary files are listed, and otherwise none of them. A file that has gone is not
        listed, nor one that is neither a regular file nor a marker.
        """
        if child.name.startswith(TEMPORARY) is not temporary:
            return None
        is_hidden = names.is_hidden(child.name)
        try:
            status = child.stat(follow_symlinks=not is_hidden)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno == errno.ELOOP:
                return None
            raise self.translate(error, "look at", path) from error
        # A marker that is not a regular file is listed, too: reading it raises what is wrong.
        return self.entry(path, status) if is_hidden or stat.S_ISREG(status.st_mode) else None

    def entry(self, path: str, status: os.stat_result) -> Entry:
        """The file as an entry of a listing. Raises StoreError for a time that is no valid date."""
        seconds = status.st_ctime if status.st_mtime == UNLINKED_S else status.st_mtime
        try:
            modified = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            modified = datetime.min
        if not is_of_a_clock(modified):
            raise StoreError(
                f"{self.path_of(path)} has a modification time that is no valid date ({seconds:g} s since "
                "1970); set it right with `touch`"
            )
        return Entry(path, status.st_size, modified)


def is_hidden_path(path: str) -> bool:
    """Whether readers skip a file of this name."""
    return names.is_hidden(names.split(path)[1])
