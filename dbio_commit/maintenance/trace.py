"""Finds the commits that touched a file, or some partitions: `Table.trace`, and `Table.history` of a partition."""

from dataclasses import dataclass

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.shown import Shown
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.chosen import Chooses
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit, CommitList
from dbio_commit.store import Store


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileTrace(Shown):
    """The commits that added and removed a file, and whether it is live."""

    path: str
    """Relative to the root of the table."""
    writer: str | None
    """The tid in its name, which is that of the transaction that wrote it; None if its name has none."""
    added: Commit | None
    """The commit that added it; None if no commit did, or if the history does not remember it."""
    removed: Commit | None
    """The commit that removed it; None if no commit did, or if the history does not remember it."""
    is_live: bool
    """Whether it is a live file now."""


def trace_file(store: Store, clock: Clock, path: str) -> FileTrace:
    """See `Table.trace`. Reads only those parts of a large table that may have the file."""
    prefix = f"{store.url.rstrip('/')}/"
    within = path.removeprefix(prefix) if path.startswith(prefix) else path.removeprefix("./")
    snapshot = read_snapshot(store, clock)
    some = snapshot.among({within})
    added = removed = None
    for commit in some.decided:
        if commit.marker.is_abort:
            continue
        added = commit.tid if within in commit.marker.added else added
        removed = removed or (commit.tid if within in commit.marker.removed else None)
    is_live = any(file.path == within for file in some.files)
    writer = names.parse_data_file(names.split(within)[1])
    if added is None and removed is None and not is_live and writer not in snapshot.tids:
        hint = f"; its name is that of a file of transaction {writer}, which is not committed" if writer else ""
        raise InvalidInputError(
            f"no commit of {store.url} that its history remembers names the file {within!r:.300}{hint}: `dbio files` "
            "lists the live files"
        )
    tids = {added or writer, removed} - {None}
    known = {commit.tid: commit for commit in snapshot.history() if commit.tid in tids}
    return FileTrace(
        path=within,
        writer=writer,
        added=known.get(added or writer or ""),
        removed=known.get(removed or ""),
        is_live=is_live,
    )


def commits_in_partitions(snapshot: Snapshot, chooses: Chooses) -> CommitList:
    """The commits that added or removed files in these partitions, newest first, if they still name the files.

    One slice of a large table is in memory at a time.
    """
    found: set[str] = set()
    chosen: dict[str, bool] = {}
    for part in snapshot.slices():
        for commit in part.decided:
            if commit.tid not in found and _touches(commit.marker.added, commit.marker.removed, chooses, chosen):
                found.add(commit.tid)
        chosen.clear()
    return CommitList(commit for commit in snapshot.history() if commit.tid in found)


def _touches(added: list[str], removed: list[str], chooses: Chooses, chosen: dict[str, bool]) -> bool:
    for path in (*added, *removed):
        directory = names.split(path)[0]
        if directory not in chosen:
            chosen[directory] = chooses(names.parse_partition(directory))
        if chosen[directory]:
            return True
    return False
