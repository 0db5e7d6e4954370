"""Writes the parts of a root checkpoint: parts with the new rows, and the merges of parts that are due.

The news of a snapshot are the transactions that its checkpoint does not cover.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Self
from uuid import uuid4

import pyarrow as pa
from msgspec import structs

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.log.parts import merging, news, parquet, rows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.files import PartFiles
from dbio_commit.log.parts.forgetting import Forgetting, NewRows
from dbio_commit.log.parts.merging import Piece
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.bodies import MAX_BYTES, MOST
from dbio_commit.protocol.parts import (
    LIMITS,
    Cut,
    Dropped,
    Key,
    Merge,
    Part,
    PartKind,
    State,
    plan_cut,
    plan_cuts_of_all,
    plan_merges,
    plan_merges_of_forgotten,
    tighten_cuts,
)
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import UNKNOWN_SIZE, live_files
from dbio_commit.store import Store

PICKLED = "no checkpoint was made of this snapshot, which was pickled: take a new one"


def only_adds(snapshot: Snapshot) -> bool:
    """Whether the news change nothing in the parts of the snapshot's checkpoint. Then the next checkpoint can be
    written without reading these parts."""
    state = snapshot.checkpoint.state
    if state is None or not isinstance(snapshot.files, PartFiles):  # a rebuild has read them already
        return False
    return not state.absent and not any(it.marker.removed_tids for it in snapshot.news)


def write_parts(store: Store, snapshot: Snapshot, checkpoint: Checkpoint, *, is_first: bool = False) -> Checkpoint:
    """Writes the parts of `checkpoint`, which follows the snapshot's checkpoint. Returns the root, whose parts hold its
    transactions.

    Transactions that are the very objects of `snapshot.transactions`, or of its checkpoint, count as unchanged. With
    `is_first`, the checkpoint follows none: it is the first one of a table that is made from the snapshot. Nothing
    refers to the new parts until the caller creates the root.
    """
    number, before = checkpoint.number, NO_CHECKPOINT if is_first else snapshot.checkpoint
    old = before.commits if isinstance(before.commits, StoredCommits) else None
    if before.is_root and old is None:
        raise InvalidInputError(PICKLED)
    adds = old is not None and checkpoint.commits is snapshot.transactions
    # Before the new rows are in memory, since this may read all old ones.
    state = _state_of(snapshot) if adds else state_of(checkpoint.commits, snapshot.layouts)
    known: Sequence[Decided] = old.all if old and not adds else ()
    if old and adds:
        known = [commit for commit in snapshot.transactions if commit.tid in old.tids]
    new = news.find_news(
        known, checkpoint.commits, old.keys if old else {}, number=number, firsts=old.firsts if old else {}
    )
    commits = new.commits
    if old and new.moved:
        commits = pa.concat_tables([commits, rows.moved_commits(old.table, new.moved, number)])
    cut = plan_cut(new.files.num_rows, before.cuts, LIMITS)
    pieces, new_cuts = merging.pieces_of_news(new.files, new.statistics, cut)
    with PartWriter(store, number) as writer:
        written = [*writer.write("files", pieces), *writer.write("commits", [Piece([commits])])]
        del new, commits, pieces  # before parts are merged
        return _merged(writer, snapshot.log, before, replace(checkpoint, state=state), written, new_cuts)


MOST_ROWS_AT_ONCE = 100_000
"""A checkpoint that forgets paths begins another part after about this many rows of files."""


def write_changes(
    store: Store,
    snapshot: Snapshot,
    checkpoint: Checkpoint,
    *,
    gone: Container[str],
    noted: Collection[str],
    keep_since: datetime,
    is_due: bool,
    erases: bool = False,
) -> Checkpoint | None:
    """As `write_parts`, for a root that forgets paths, or if transactions remove others by reference. Works slice by
    slice, in bounded memory: a slice has the paths in one range of keys.

    `checkpoint` has no transactions, and the `known_since` of the one before it. `gone` has the removed files that are
    deleted; `noted` and `keep_since` are as for `condense`. Unless the checkpoint `is_due`, returns None and writes
    nothing if no path would be forgotten. With `erases`, no part of the new root has rows or statistics of paths that
    this checkpoint or an earlier one has forgotten.
    """
    number, before = checkpoint.number, snapshot.checkpoint
    if not isinstance(before.commits, StoredCommits):
        raise InvalidInputError(PICKLED)
    change = Forgetting(before.commits, snapshot.news, snapshot.transactions, gone)
    written: list[Part] = []
    some = _Collected()
    with PartWriter(store, number) as writer:
        for new in change.slices():
            some.add(new)
            if some.count >= MOST_ROWS_AT_ONCE:
                pieces, _ = merging.pieces_of_news(*some.tables(), Cut(1, before.cuts))
                written += writer.write("files", pieces)
                some = _Collected()
        if not is_due and not change.loses:
            return None
        cut = Cut(1, before.cuts) if written else plan_cut(some.count, before.cuts, LIMITS)
        pieces, new_cuts = merging.pieces_of_news(*some.tables(), cut)
        written += writer.write("files", pieces)
        commits, known_since = change.commits(
            number, noted=noted, keep_since=keep_since, known_since=checkpoint.known_since
        )
        written += writer.write("commits", [Piece([commits])])
        checkpoint = replace(checkpoint, known_since=known_since, state=change.state(snapshot.layouts))
        if erases and change.loses:
            checkpoint = replace(checkpoint, erased_until=known_since)
        return _merged(writer, snapshot.log, before, checkpoint, written, new_cuts, erases=erases)


class _Collected:
    """New rows of several slices."""

    def __init__(self) -> None:
        self._new: list[NewRows] = []
        self.count = 0

    def add(self, new: NewRows) -> None:
        if new.files.num_rows:
            self._new.append(new)
            self.count += new.files.num_rows

    def tables(self) -> tuple[pa.Table, pa.Table | None]:
        """All rows, and their statistics; None if no row has any."""
        files = pa.concat_tables([rows.empty(rows.FILES), *(it.files for it in self._new)])
        known = next((it.statistics for it in self._new if it.statistics is not None), None)
        if known is None:
            return files, None
        each = [
            pa.table({known.column_names[0]: pa.nulls(it.files.num_rows, known.schema.field(0).type)})
            if it.statistics is None
            else it.statistics
            for it in self._new
        ]
        return files, pa.concat_tables(each, promote_options="default")


def _merged(
    writer: "PartWriter",
    log: Log,
    before: Checkpoint,
    checkpoint: Checkpoint,
    written: Sequence[Part],
    new_cuts: Sequence[Key],
    *,
    erases: bool = False,
) -> Checkpoint:
    """The root `checkpoint`, with the parts of the root before it and the parts just `written`, after the merges that
    are due.

    With `erases`, merges leave no row of a forgotten path: first parts that lie in several ranges of keys are divided,
    then the parts of each range that has such rows are merged. The latter merges neither read nor write other ranges.
    """
    store, number = writer.store, writer.number
    parts = [*before.parts, *written]
    cuts = sorted([*before.cuts, *new_cuts])
    dropped = [*_still_there(before, log)]
    reader = PartReader(store, number, newest=number - 1)  # a checkpoint with this number is another writer's

    def carry_out(merges: Iterable[Merge]) -> None:
        nonlocal parts, cuts
        for merge in merges:
            kind = merge.parts[0].kind
            pieces, new_cuts = merging.merge(reader, merge)
            since, until = min(it.since for it in merge.parts), max(it.until for it in merge.parts)
            merged = writer.write(kind, pieces, since=since, until=until)
            gone = {part.name for part in merge.parts}
            parts = [*(part for part in parts if part.name not in gone), *merged]
            into = [it.name for it in merged]
            dropped.extend(Dropped(part=part.without_directories(), into=into, by=number) for part in merge.parts)
            cuts = sorted([*cuts, *new_cuts])

    forgetful = reader.forgetful(parts) if erases else frozenset()
    if not forgetful:
        carry_out(plan_merges(parts, cuts, LIMITS))
    else:
        carry_out(plan_cuts_of_all(parts, cuts, LIMITS))
        forgetful |= reader.forgetful([part for part in parts if names.part_number(part.name) == number])
        carry_out(plan_merges_of_forgotten(parts, cuts, forgetful, LIMITS))
        cuts = tighten_cuts(parts, cuts)
    return replace(
        checkpoint,
        commits=StoredCommits(PartReader(store, number), parts),
        parts=tuple(parts),
        dropped=tuple(dropped),
        cuts=tuple(cuts),
    )


def _state_of(snapshot: Snapshot) -> State:
    """The totals of the snapshot's files, for its next checkpoint."""
    files = snapshot.files
    assert isinstance(files, PartFiles)
    return State(
        files=len(files),
        bytes=min(files.size, MOST),
        unknown=files.unknown,
        layouts=sorted(map(list, snapshot.layouts)),
        hides=files.hides,
    )


def state_of(commits: Sequence[Decided], layouts: Collection[Layout]) -> State:
    """The totals of the files of these transactions, for a checkpoint."""
    live = live_files(commits)
    added = {path for commit in commits for path in commit.marker.added}
    return State(
        files=len(live),
        bytes=min(sum(max(file.size, 0) for file in live), MOST),
        unknown=sum(file.size == UNKNOWN_SIZE for file in live),
        layouts=sorted(map(list, layouts)),
        absent=sorted({tid for commit in commits for tid in commit.marker.removed_tids}),
        hides=any(path not in added for commit in commits for path in commit.marker.removed),
    )


class PartWriter:
    """Writes the parts of one checkpoint. If its `with` block raises a DbioError, deletes every object that it may have
    put. The block fails, for example, if an erasure has purged a part that it reads."""

    def __init__(self, store: Store, number: int) -> None:
        self.store, self.number = store, number
        self._put: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is not None and issubclass(kind, DbioError):
            self.store.delete_many(self._put)

    def write(
        self, kind: PartKind, pieces: Iterable[Piece], *, since: int | None = None, until: int | None = None
    ) -> list[Part]:
        """Writes a part for each piece that has rows, and returns these parts. Their rows are of the checkpoints
        `since` to `until`, by default of this one."""
        found: list[Part] = []
        since, until = since or self.number, until or self.number
        for piece in pieces:
            tables = (table for table in piece.tables if table.num_rows)
            if (first := next(tables, None)) is None:
                continue
            rows = chain([first], tables)
            body, part = parquet.encode_part(rows, kind=kind, name=new_name(self.number), since=since, until=until)
            self._put_object(part.name, body)
            del body, first, rows, tables  # before the statistics are in memory, which are larger
            if piece.statistics:
                body, statistics = parquet.encode_statistics(piece.statistics(), name=new_name(self.number))
                self._put_object(statistics.name, body)
                part = structs.replace(part, statistics=statistics)
            found.append(part)
        return found

    def _put_object(self, name: str, body: bytes) -> None:
        self._put.append(name)
        put_part(self.store, name, body)


def new_name(number: int) -> str:
    """A new name for a part, or for statistics, of the checkpoint with this number."""
    return names.part(number, uuid4().hex)


def put_part(store: Store, name: str, body: bytes) -> None:
    """Writes an object of a part."""
    if len(body) > MAX_BYTES:
        store.replace(name, body)
    else:
        store.put_if_absent(name, body)  # nobody else has this name: if it exists, an earlier attempt succeeded


def _still_there(before: Checkpoint, log: Log) -> list[Dropped]:
    """The dropped parts of earlier roots that are still listed, with the times at which they were dropped.

    A part also stays while an object of another part of the same merge is listed, because a rebuild undoes only whole
    merges.
    """
    root = log.checkpoints.get(before.number)
    listed = {_merge_of(it) for it in before.dropped if not log.parts.keys().isdisjoint(it.part.objects)}
    return [
        structs.replace(it, at=root.modified) if root and not it.at and it.by <= before.number else it
        for it in before.dropped
        if _merge_of(it) in listed
    ]


def _merge_of(dropped: Dropped) -> tuple[int, tuple[str, ...]]:
    return dropped.by, tuple(dropped.into)
