"""Makes snapshots and histories of a table from its log, read as one state (`Settled`)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.log.lazy import Lazy
from dbio_commit.log.listing import with_sizes
from dbio_commit.log.settled import Settled
from dbio_commit.log.snapshot import Snapshot, Source
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import before_first, committed_by, cut_at, in_order, not_known
from dbio_commit.protocol.checkpoint import CommitsInParts
from dbio_commit.protocol.commits import AsOf, Decided
from dbio_commit.protocol.history import History, HistoryInParts
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import Layout
from dbio_commit.protocol.state import NO_METADATA, DataFile, LiveFiles, current_metadata, live_files
from dbio_commit.store import Store


def table_snapshot(
    store: Store, settled: Settled, *, as_of: AsOf = None, ignore_corrupt: bool = False, unchecked: bool = False
) -> Snapshot:
    """The state now, or as of a time or tid.

    If `unchecked`, its files may lie outside of the table's partitions, and sizes that no marker records are not looked
    up. Raises CorruptMarkerError unless `ignore_corrupt`, InvalidInputError for an `as_of` that cannot be read any
    more.
    """
    settled.markers.only_valid(ignore_corrupt=ignore_corrupt)
    if settled.checkpoint.is_root:
        return snapshot_of_parts(store, settled) if as_of is None else _past_of_parts(store, settled, as_of)
    checkpoint, decided = settled.checkpoint, settled.decided
    commits = committed_by(
        decided,
        as_of,
        known_since=checkpoint.known_since,
        erased_until=checkpoint.erased_until,
        redated_until=settled.redated_until,
        doubts=() if as_of is None else settled.doubts,
    )
    files = live_files(commits)
    before = NO_METADATA if as_of else checkpoint.metadata
    layout = settled.layout(current_metadata((it.marker for it in commits), before=before))
    if not unchecked:
        check_partitions(store, files, layout)
    if as_of is not None:
        _refuse_vacuumed(store, files, decided, as_of)
    files = files if unchecked else with_sizes(store, files)
    if as_of is not None:
        found = state_of(store, settled, files, layout, decided=tuple(commits), news=commits)
        return replace(found, too_early=before_first(as_of, commits, decided))
    found = state_of(store, settled, files, layout, decided=tuple(commits), news=settled.news)
    return replace(found, checkpoint=checkpoint)


def state_of(
    store: Store,
    settled: Settled,
    files: Sequence[DataFile],
    layout: Layout,
    *,
    decided: Sequence[Decided],
    news: Sequence[Decided],
) -> Snapshot:
    """A state of the table, without a checkpoint."""
    return Snapshot(
        url=store.url,
        scope=Scope.TABLE,
        files=files,
        partition_columns=layout,
        decided=decided,
        news=tuple(news),
        first_layout=tuple(settled.descriptor.partition_columns),
        log=settled.log,
        origin=settled.origin,
        redated_until=settled.redated_until,
        doubts=settled.doubts,
        strange=tuple(settled.strange),
        source=Source(store),
    )


def snapshot_of_parts(store: Store, settled: Settled) -> Snapshot:
    """The state now. Rows in parts of the checkpoint are read when they are needed."""
    from dbio_commit.log.parts.files import PartFiles  # imports pyarrow, which small tables do without

    news = settled.news
    layout = settled.layout(settled.metadata(news))
    files, decided = PartFiles(store, settled.checkpoint, news, layout), Lazy(lambda: in_order(settled.decided))
    return replace(
        state_of(store, settled, files, layout, decided=decided, news=news),
        outlines=Lazy(lambda: in_order(_outlines(settled, news))),
        checkpoint=settled.checkpoint,
    )


def _outlines(settled: Settled, news: Sequence[Decided]) -> list[Decided]:
    """All transactions. Those in parts are outlines: they have no paths."""
    return [*settled.checkpoint.outlines(news), *news]


def _past_of_parts(store: Store, settled: Settled, as_of: datetime | str) -> Snapshot:
    """A state of the past. Rows in parts of the checkpoint are read when they are needed.

    If no later commit removed files, this reads no rows of files. Otherwise it reads all of them once, to find out
    whether the state is still known.
    """
    from dbio_commit.log.parts.files import PartFiles  # imports pyarrow, which small tables do without
    from dbio_commit.log.parts.time_travel import Later, Past, PastCommits

    root, news = settled.checkpoint, settled.news
    stored = root.commits
    assert isinstance(stored, CommitsInParts)
    counted, later = cut_at(
        _outlines(settled, news),
        as_of,
        known_since=root.known_since,
        erased_until=root.erased_until,
        redated_until=settled.redated_until,
        doubts=settled.doubts,
    )
    tids = {commit.tid for commit in counted}
    own = [commit for commit in news if commit.tid in tids]
    layout = settled.layout(current_metadata(it.marker for it in counted))
    files = PartFiles(store, root, own, layout, past=Past.of(counted))
    since = files.since(Later.of(later, stored.tids))
    if since.forgets:
        raise not_known(as_of, root.known_since, is_erased=bool(root.erased_until == root.known_since))
    if since.gone:
        raise _vacuumed(store, as_of, since.gone, str(since.first))
    decided = Lazy(lambda: [commit for commit in in_order(settled.decided) if commit.tid in tids])
    return replace(
        state_of(store, settled, files, layout, decided=decided, news=own),
        outlines=counted,
        past=PastCommits(stored, tids),
        too_early=before_first(as_of, counted, later),
    )


def table_history(store: Store, settled: Settled, *, now: datetime, before: History | None = None) -> History:
    """Every commit that the log and its checkpoint still hold. Raises CorruptMarkerError.

    `before` is an earlier history of a table here, whose reads are used again.
    """
    settled.markers.only_valid(ignore_corrupt=False)
    parts: HistoryInParts | None = None
    decided: Sequence[Decided]
    if settled.checkpoint.is_root:
        from dbio_commit.log.parts.history import StoredHistory  # imports pyarrow, which small tables do without

        snapshot = snapshot_of_parts(store, settled)
        decided = snapshot.transactions
        parts = StoredHistory(store, snapshot, before=before.parts if before else None)
    else:
        decided = in_order(settled.decided)
    return History(
        url=store.url,
        origin=settled.origin,
        layouts=settled.layouts(decided),
        commits=[commit for commit in decided if not commit.marker.is_abort],
        known_since=settled.checkpoint.known_since,
        redated_until=settled.redated_until,
        metadata=settled.metadata(decided),
        now=now,
        parts=parts,
    )


def check_partitions(store: Store, files: LiveFiles, columns: Layout) -> None:
    """Raises CorruptMarkerError for a file outside of all partitions of the table.

    A DBIO writer may commit at the root of a table without knowing the partition columns.
    """
    if file := files.outside(columns):
        raise misplaced(store.url, file, columns)


def misplaced(url: str, file: DataFile, columns: Layout) -> CorruptMarkerError:
    """The error for a file outside of all partitions of the table with this URL."""
    return CorruptMarkerError(
        f"{url}/{names.committed(str(file.tid))} adds {file.path!r} to a table that is partitioned by "
        f"{list(columns)}, but the file lies in no such partition. `dbio show` lists what the commit added. Move "
        "the marker and these files out of the table, keep them, and write their rows again into their partitions"
    )


def _refuse_vacuumed(store: Store, files: Iterable[DataFile], commits: Iterable[Decided], as_of: AsOf) -> None:
    """Raises InvalidInputError if files that were live then were vacuumed since.

    Only files that were removed since are looked for. A checkpoint will record that they are gone, but there may be
    none yet.
    """
    removed = {path for commit in commits for path in commit.marker.removed}
    doubtful = [file.path for file in files if file.path in removed]
    gone = [path for path, entry in zip(doubtful, store.stat_many(doubtful), strict=True) if entry is None]
    if gone:
        raise _vacuumed(store, as_of, len(gone), gone[0])


def _vacuumed(store: Store, as_of: AsOf, count: int, first: str) -> InvalidInputError:
    return InvalidInputError(
        f"{store.url} as of {as_of} cannot be read: {count} files that were live then were removed, and "
        f"vacuumed or erased since, first {first}; ask for a later time"
    )
