"""Fetches small files of object stores whole, some of them before a reader needs them, in bounded memory.

pyarrow reads files in several threads, in about the announced order, and leaves some out. `store/many` is for one
thread that reads all files in order. `reading` makes rows of the bytes.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dbio_commit.base.forks import ProcessLock
from dbio_commit.store import Store
from dbio_commit.store.many import CONCURRENCY

WHOLE_IF_PART = 4 * 1024 * 1024
"""A file up to this size is fetched whole, even if only some of its columns or row groups are needed."""

HELD_BYTES = 16 * 1024 * 1024
"""Files are fetched ahead while those that are fetched and still needed have no more than this."""

_FIRST = 4
"""So many files are fetched at first, and two more for each file read, up to CONCURRENCY: a reader that wants only a
few rows stops early."""


class FilesAhead:
    """The whole files of one reader, which reads them in about this order. Threads may share this object."""

    def __init__(self, store: Store, files: Iterable[tuple[str, int]]) -> None:
        """`files`: paths and sizes in bytes."""
        self._store = store
        self._sizes = dict(files)
        self._rest = iter(self._sizes)
        self._next = next(self._rest, None)
        self._fetched: dict[str, Future[bytes]] = {}
        """The files that are fetched and still needed, or are being fetched."""
        self._past: set[str] = set()
        """The files that are not fetched ahead any more: the reader, or a fetch ahead, has come to them."""
        self._held_bytes = self._count = 0
        self._lock = ProcessLock()
        self._pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="dbio-fetch")

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def fetch(self, path: str) -> bytes:
        """The file, which is held until `done`. Raises ObjectNotFoundError, StoreError."""
        with self._lock:
            found = self._fetched.get(path) or self._begin(path)
            self._count += 1
            while (path_ahead := self._next) is not None:
                if path_ahead not in self._past:
                    if not self._has_room(self._sizes[path_ahead]):
                        break
                    self._begin(path_ahead)
                self._next = next(self._rest, None)
        return found.result()

    def done(self, path: str) -> None:
        """The reader needs the file no more, whether it has read it or not."""
        with self._lock:
            self._past.add(path)
            if (found := self._fetched.pop(path, None)) is not None:
                found.cancel()
                self._held_bytes -= self._sizes[path]

    @contextmanager
    def open(self, path: str) -> Iterator[Any]:
        """The file for pyarrow, which is held meanwhile. Raises as `fetch` does."""
        try:
            yield pa.BufferReader(self.fetch(path))
        finally:
            self.done(path)

    def close(self) -> None:
        """Fetches no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, path: str) -> Future[bytes]:
        found = self._fetched[path] = self._pool.submit(self._store.get, path)
        self._past.add(path)
        self._held_bytes += self._sizes[path]
        return found

    def _has_room(self, size: int) -> bool:
        at_once = min(CONCURRENCY, _FIRST + 2 * self._count)
        return len(self._fetched) < at_once and self._held_bytes + size <= HELD_BYTES
