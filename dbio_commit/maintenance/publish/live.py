"""The one snapshot that a publication shows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from dbio_commit.base.clock import Clock, Moment
from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.commit.isolation import last_erasure_of
from dbio_commit.log.listing import is_dropped, read_last_erasure
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_state import misplaced
from dbio_commit.maintenance.publish.places import Published
from dbio_commit.protocol import names
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.commit import bounds_in
from dbio_commit.protocol.markers.files import Bounds, bounds_of
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.partitions import partition_types, refuse_unread
from dbio_commit.protocol.settings import Format
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store


@dataclass(frozen=True)
class Live:
    """A snapshot of a dbio table."""

    snapshot: Snapshot
    table_id: str
    looked: Moment
    """When the publisher began to look at what is published. It took the snapshot after that."""
    news: set[str] = field(default_factory=set, compare=False)
    """Transactions that were decided before something was created by this snapshot, which lacks them."""

    def paths(self) -> Iterator[str]:
        """The paths of the live files."""
        return (file.path for file in self.snapshot.files)

    def is_erased(self, store: Store) -> bool:
        """Whether rows were erased since the snapshot was taken."""
        return read_last_erasure(store, self.table_id) != last_erasure_of(self.snapshot)

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


def withdraw_if_dropped(store: Store, live: Live, made: Mapping[str, bytes]) -> None:
    """Publishers call this when they have created objects, given by path and body: two requests at once.

    If the table was dropped since the snapshot, deletes these objects again and raises CommitConflictError. They name
    files that are gone, and another table may be here by now. It notes in `live.news` what was decided meanwhile: then
    the caller publishes again, since another publisher may have had nothing to do. Rules: NOTES.md, Order.
    """
    now, decided = store.together(
        lambda: store.stat_log(names.DESCRIPTOR, names.DROPPED), lambda: parse_log(store.list_log(Kind.COMMITTED))
    )
    live.news.update(decided.committed.keys() - live.snapshot.log.committed.keys() - live.snapshot.checkpoint.covered)
    if now.get(names.DESCRIPTOR) == live.snapshot.log.descriptor and not is_dropped(store, parse_log(now.values())):
        return
    for path, body in made.items():
        store.delete_same(path, body)
    raise CommitConflictError(
        f"{store.url} was dropped while it was published, so this publication was withdrawn; if there is another table "
        "now, publish it again"
    )


def names_absent(store: Store, publication: str, path: str | None, format: Format) -> list[str]:
    """The problem that a publication without a table's id names a file, at `path`, that does not exist.

    Then the publication is of another table that was here before, or so old that vacuum has deleted its files.
    """
    if path is None or store.stat_many([path]) != [None]:
        return []
    return [
        f"{store.url_of(publication)} names {path[:300]!r}, which does not exist: it is old, or of a table that was "
        f"here before, and its readers fail. `dbio publish --to {format}` repairs it"
    ]


def columns_of(store: Store, live: Live) -> Mapping[str, Any]:
    """The columns as Spark's JSON: the recorded ones, or those of the files. Raises as `table_columns`."""
    if live.snapshot.schema is not None:
        return live.snapshot.schema
    from dbio_commit.log.found_columns import table_columns  # imports pyarrow, which most publications do without

    return table_columns(store, live.snapshot)


class Described(NamedTuple):
    """A live file, with what the marker of its commit records of it."""

    file: DataFile
    rows: int | None
    """None if nobody counted them."""
    bounds: Mapping[str, Bounds]
    """By column, as the file spells it."""
    modified: datetime
    """The time of the commit."""


def describe(part: Snapshot) -> list[Described]:
    """The files of a slice of a snapshot, each once. Raises CorruptMarkerError for one outside of all partitions."""
    live, found = {file.path: file for file in part.files}, dict[str, Described]()
    if wrong := next((it for it in live.values() if tuple(it.partition) != part.partition_columns), None):
        raise misplaced(part.url, wrong, part.partition_columns)
    for commit in part.decided:
        if live.keys().isdisjoint(commit.marker.added):
            continue
        info = commit.marker.dbio_commit
        files = info.files if info else None
        told = bounds_in(commit.marker)
        for i, path in enumerate(commit.marker.added):
            if file := live.get(path):
                bounds = {name: bounds_of(it, i) for name, it in told.items()}
                found[path] = Described(file, files.rows[i] if files else None, bounds, commit.modified)
    return list(found.values())


def read_live(store: Store, clock: Clock, looked: Moment) -> Live:
    """The current state of the table, for a publisher that has looked at this moment.

    Raises InvalidInputError if it is no dbio table, and as `read_snapshot` does.
    """
    snapshot = read_snapshot(store, clock)
    if snapshot.table_id is None:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so that it has no single state that could be published; "
            "`dbio adopt` makes it a table"
        )
    return Live(snapshot, snapshot.table_id, looked)
