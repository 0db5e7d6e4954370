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
    """A snapshot of a table of ours."""

    snapshot: Snapshot
    table_id: str

    @cached_property
    def files(self) -> dict[str, DataFile]:
        """The live files by path."""
        return {file.path: file for file in self.snapshot.files}

    def published(self, format: Format, number: int, *, added: int, removed: int, is_new: bool) -> Published:
        """What is said of its publication under the number."""
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
    """The table as it is now. Raises InvalidInputError where it is none of ours, and as `read_snapshot` does."""
    snapshot = read_snapshot(store, clock)
    if snapshot.table_id is None:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so nobody knows of one state of it that could be published; "
            "`dbio adopt` makes it a table"
        )
    return Live(snapshot, snapshot.table_id)
