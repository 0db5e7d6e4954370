"""The one snapshot that a publication shows."""

from dataclasses import dataclass
from functools import cached_property

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.roots import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.settings import Format
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store
from dbio_commit.upkeep.publish.places import Published


@dataclass(frozen=True)
class Live:
    """A snapshot of a dbio table."""

    snapshot: Snapshot
    table_id: str

    @cached_property
    def files(self) -> dict[str, DataFile]:
        """The live files by path."""
        return {file.path: file for file in self.snapshot.files}

    def published(self, format: Format, number: int, *, added: int, removed: int, is_new: bool) -> Published:
        """The report of its publication under this number."""
        return Published(
            format=format,
            number=number,
            tid=self.snapshot.tid,
            files=len(self.files),
            added=added,
            removed=removed,
            is_new=is_new,
        )


def read_live(store: Store, clock: Clock) -> Live:
    """The current state of the table. Raises InvalidInputError if it is no dbio table, and as `read_snapshot` does."""
    snapshot = read_snapshot(store, clock)
    if snapshot.table_id is None:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so that it has no single state that could be published; "
            "`dbio adopt` makes it a table"
        )
    return Live(snapshot, snapshot.table_id)
