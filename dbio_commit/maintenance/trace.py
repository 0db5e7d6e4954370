"""Finds the commits that touched a file, or some partitions: `Table.trace`, and `Table.history` of a partition."""

from dataclasses import dataclass
from urllib.parse import unquote

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.shown import Shown
from dbio_commit.log.opening import read_snapshot
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.chosen import Chooses
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit, CommitList
from dbio_commit.store import Store
from dbio_commit.store.location import path_below


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileTrace(Shown):
    """The commits that added and removed a file, and whether it is live."""

    path: str
    """Relative to the root of the table."""
    writer: str | None
    """The tid in its name, which is that of the transaction that wrote it; None if its name has none."""
    added: Commit | None
    """The commit that added it; None if no commit did, or if the history does not remember it. Then `writer` may be a
    commit that lacks paths of files that were deleted since."""
    removed: Commit | None
    """The commit that removed it; None if no commit did, or if the history does not remember it."""
    is_live: bool
    """Whether it is a live file now."""


def trace_file(store: Store, clock: Clock, path: str) -> FileTrace:
    """See `Table.trace`. Reads only those parts of a large table that may have the file."""
    readings = [path_below(store.url, text) for text in (path, unquote(path))]  # Spark shows URLs escaped
    within = list(dict.fromkeys(filter(None, readings)))
    if not within:
        raise InvalidInputError(f"this file does not lie in {store.url}: give its path from there, or its URL")
    snapshot = read_snapshot(store, clock)
    some = snapshot.among(within)
    for each in within:
        added = removed = None
        for commit in some.decided:
            if not commit.marker.is_abort:
                added = commit.tid if each in commit.marker.added else added
                removed = removed or (commit.tid if each in commit.marker.removed else None)
        is_live = any(file.path == each for file in some.files)
        if added or removed or is_live:
            break
    else:
        each = next((it for it in within if _may_be_forgotten(snapshot, it)), "")
        if not each:
            raise _unknown(snapshot, within[0])
    known = {commit.tid: commit for commit in snapshot.history() if commit.tid in {added, removed}}
    return FileTrace(
        path=each,
        writer=names.parse_data_file(names.split(each)[1]),
        added=known.get(added or ""),
        removed=known.get(removed or ""),
        is_live=is_live,
    )


def _may_be_forgotten(snapshot: Snapshot, path: str) -> bool:
    """Whether a commit may have added the file, by its name, and a checkpoint has forgotten paths of that commit."""
    directory, name = names.split(path)
    writer = names.parse_data_file(name)
    if writer is None or writer not in snapshot.tids:
        return False
    in_layout = tuple(names.parse_partition(directory)) in snapshot.layouts
    return in_layout and any(commit.forgotten.added for commit in snapshot.whole([writer]))


def _unknown(snapshot: Snapshot, path: str) -> InvalidInputError:
    """The error for a file that no commit names."""
    writer = names.parse_data_file(names.split(path)[1])
    hint = ""
    if writer in snapshot.tids:
        hint = f"; its name is that of a file of transaction {writer}, which committed without such a path"
    elif writer:
        hint = f"; its name is that of a file of transaction {writer}, which is not committed, or was forgotten"
    return InvalidInputError(
        f"no commit of {snapshot.url} that its history remembers names the file {path!r:.300}{hint}: give its path "
        "from the root, with its directories, or its URL; `dbio files` lists the live files"
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
