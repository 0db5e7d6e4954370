"""Removals by reference: a marker that is too long for one PUT names transactions, all of whose files it removes. Pure.

Readers replace the references by paths before anything else uses the marker (PROTOCOL.md 7.5).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import REFERRING, VERSION
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.protocol.state import DataFile, live_among


def refer(
    marker: CommitMarker, *, live: Sequence[DataFile], whole: Callable[[Collection[str]], Iterable[Decided]]
) -> CommitMarker:
    """The marker with references instead of paths. Each refers to a transaction of which no file stays live.

    `whole` returns transactions with all of their paths.
    """
    info, removed = marker.dbio_commit, set(marker.removed)
    goes, stays = dict[str | None, list[str]](), set[str | None]()
    for file in live:
        if file.path in removed:
            goes.setdefault(file.tid, []).append(file.path)
        else:
            stays.add(file.tid)
    gone = {tid for tid in goes.keys() - stays if tid}
    if stays:  # another transaction may have added the same path once more, and then the live file counts as its own
        added = [(path, it.tid) for it in whole(gone) for path in it.marker.added if path not in removed]
        kept = live_among(live, {path for path, _ in added}) if added else ()
        gone -= {tid for path, tid in added if path in kept}
    tids = [tid for tid in goes if tid in gone]
    if info is None or not tids:
        return marker
    by_path = [path for tid, paths in goes.items() if tid not in gone for path in paths]
    info = replace(info, version=REFERRING, removed_tids=tids)
    return replace(marker, removed=[*by_path, *marker.change_files], dbio_commit=info)  # the latter were never live


def resolve(commits: Sequence[Decided]) -> list[Decided]:
    """The commits with paths instead of references: all paths that the transaction added and no earlier commit removed.

    A reference to a transaction that is not among the commits stays. For example, a state may have an overwrite, and
    not yet a recent append whose files it removes (PROTOCOL.md 8.1).
    """
    referring = sorted(
        (commit for commit in commits if commit.marker.removed_tids), key=lambda it: (_turn(it), it.modified, it.tid)
    )
    if not referring:
        return list(commits)
    added = {commit.tid: commit.marker.added for commit in commits}
    removers: dict[str, list[Decided]] = {}
    for commit in commits:
        for path in commit.marker.removed:
            removers.setdefault(path, []).append(commit)
    resolved: dict[str, Decided] = {}
    for commit in referring:
        resolved[commit.tid] = _resolve(commit, added, removers)
        for tid in (
            added.keys() & commit.marker.removed_tids
        ):  # all its files are gone: another reference to it removes nothing
            added[tid] = []
    return [resolved.get(commit.tid, commit) for commit in commits]


def _resolve(commit: Decided, added: Mapping[str, list[str]], removers: Mapping[str, Sequence[Decided]]) -> Decided:
    marker, info = commit.marker, commit.marker.dbio_commit
    named = chain.from_iterable(added.get(tid, ()) for tid in dict.fromkeys(marker.removed_tids))
    # Sorted: parts of a checkpoint keep no other order of these paths, and a stream may read them in several batches.
    found = sorted(path for path in named if not any(_is_before(other, commit) for other in removers.get(path, ())))
    left = [tid for tid in marker.removed_tids if tid not in added]
    version, tids = (REFERRING, left) if left else (VERSION, None)
    info = replace(info, version=version, removed_tids=tids) if info else None
    marker = replace(marker, removed=[*marker.removed, *found], dbio_commit=info)
    return commit._replace(marker=marker, referred=(*commit.referred, *commit.marker.removed_tids))


def _is_before(one: Decided, other: Decided) -> bool:
    """Whether `one` came first: by turns, or else by time. DBIO's own writers take no turns."""
    if _turn(one) and _turn(other):
        return _turn(one) < _turn(other)
    return (one.modified, one.tid) < (other.modified, other.tid)


def _turn(commit: Decided) -> int:
    info = commit.marker.dbio_commit
    return (info.turn or 0) if info else 0
