"""Removals by reference: a marker too long for one PUT names transactions, all of whose files it removes. Pure.

Readers put the paths in their place before anything else looks at them (PROTOCOL.md 7.5).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers import REFERRING, VERSION, CommitMarker
from dbio_commit.protocol.state import DataFile


def refer(marker: CommitMarker, live: Iterable[DataFile]) -> CommitMarker:
    """The marker with a reference to each transaction of which it removes all that is live, instead of the paths."""
    info, removed = marker.dbio_commit, set(marker.removed)
    if info is None:
        return marker
    left, goes = Counter[str](), list[DataFile]()
    for file in live:
        if file.path in removed:
            goes.append(file)
        elif file.tid:
            left[file.tid] += 1
    by_path = [file.path for file in goes if not file.tid or left[file.tid]]
    tids = list(dict.fromkeys(file.tid for file in goes if file.tid and not left[file.tid]))
    if not tids:
        return marker
    info = info.model_copy(update={"version": REFERRING, "removed_tids": tids})
    return marker.model_copy(update={"removed": by_path, "dbio_commit": info})


def resolve(commits: Sequence[Decided]) -> list[Decided]:
    """The commits with paths instead of references: all that the transaction added and no other commit removes.

    A reference to a transaction that is not among them stays: a state may have an overwrite, and not yet an append of
    the last moments that it removes (PROTOCOL.md 8.1).
    """
    if not any(commit.marker.removed_tids for commit in commits):
        return list(commits)
    added = {commit.tid: commit.marker.added for commit in commits}
    by_path = set(chain.from_iterable(commit.marker.removed for commit in commits))
    return [_resolve(commit, added, by_path) if commit.marker.removed_tids else commit for commit in commits]


def _resolve(commit: Decided, added: dict[str, list[str]], by_path: set[str]) -> Decided:
    marker, info = commit.marker, commit.marker.dbio_commit
    found = [path for tid in dict.fromkeys(marker.removed_tids) for path in added.get(tid, ()) if path not in by_path]
    left = [tid for tid in marker.removed_tids if tid not in added]
    version, tids = (REFERRING, left) if left else (VERSION, None)
    info = info.model_copy(update={"version": version, "removed_tids": tids}) if info else None
    return commit._replace(marker=marker.model_copy(update={"removed": [*marker.removed, *found], "dbio_commit": info}))
