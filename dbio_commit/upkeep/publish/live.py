"""The one snapshot that a publication shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.roots import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.partitions import partition_types, refuse_unread
from dbio_commit.protocol.settings import Format
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store
from dbio_commit.upkeep.publish.places import Published


@dataclass(frozen=True)
class Live:
    """A snapshot of a dbio table."""

    snapshot: Snapshot
    table_id: str

    def paths(self) -> Iterator[str]:
        """The paths of the live files."""
        return (file.path for file in self.snapshot.files)

    def refuse_unread(self, files: Sequence[DataFile] | None = None) -> None:
        """Raises InvalidInputError for a file, of these or of all, on whose partition values readers do not agree."""
        now = self.snapshot
        types = partition_types(now.schema, now.partition_columns)
        refuse_unread(now.files if files is None else files, types, where=now.url)

    def published(self, format: Format, number: int, *, added: int, removed: int, is_new: bool) -> Published:
        """The report of its publication under this number."""
        return Published(
            format=format,
            number=number,
            tid=self.snapshot.tid,
            files=len(self.snapshot.files),
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
