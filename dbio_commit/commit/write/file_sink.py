"""Where new files go: `FileSink` is what their writer needs, `StoreSink` does it in the store of a table."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, Protocol

from dbio_commit.base.clock import Clock
from dbio_commit.commit.request import Terms
from dbio_commit.commit.roots import KINDS
from dbio_commit.protocol import names
from dbio_commit.store import Store


class FileSink(Protocol):
    """Where the files of a write go. Paths are relative to the root of the table."""

    def confirm(self) -> None:
        """Is called after the last file. Raises TransactionAbortedError if the transaction cannot commit any more."""

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream to a new file. The file is durable when the block ends; if the block raises, it may not exist."""

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes the files as far as possible; a file that does not exist counts as deleted."""


class StoreSink:
    """Writes files straight to their final names, below the root of a table."""

    def __init__(self, store: Store, clock: Clock, terms: Terms) -> None:
        self._store, self._terms = store, terms
        self._root = KINDS[terms.scope](store, clock)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self._root.mark(self._terms, names.split(path)[0])
        with self._store.open_write(path) as stream:
            yield stream
        self._store.make_durable([path])  # before the marker that names it (I2)

    def confirm(self) -> None:
        self._root.confirm(self._terms)

    def delete(self, paths: Sequence[str]) -> None:
        self._store.delete_many(paths)
