"""Finds where the rows of live files are in a table with `cluster_by`, by what markers record."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dbio_commit.data.conditions.pruning import column_types
from dbio_commit.data.counts import facts_in
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.compact.runs import PlacedFile, range_of
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.state import LiveFiles


def placed_files(
    snapshot: Snapshot, columns: Mapping[str, Any], cluster_by: Sequence[str], *, anew: Collection[str] = ()
) -> Iterator[PlacedFile]:
    """The files of the snapshot. The files with the paths `anew` are loose in any case. Reads no data files."""
    live = LiveFiles.of(snapshot.files)
    decided = {it.tid: it for it in replace(snapshot, files=live).of_files}
    types = column_types(columns)
    wanted, files = [(name, types[name]) for name in cluster_by], {file.path: file for file in live}
    for added in live.by_transaction:
        own = clustered_by(decided.get(added.tid or ""))
        is_run = is_same(own, cluster_by)
        for path, facts in facts_in(added, decided, wanted):
            is_loose = not own or path in anew
            yield PlacedFile(
                file=files[path],
                rows=facts[0].rows,
                ranges=tuple(map(range_of, facts)),
                run=added.tid if is_run and not is_loose else None,
                is_other=not is_run and not is_loose,
            )


def clustered_by(commit: Decided | None) -> Sequence[str]:
    """The columns by which the transaction has clustered its files; none if it has not."""
    return (commit.marker.dbio_commit.clustered if commit and commit.marker.dbio_commit else None) or ()


def is_same(columns: Sequence[str], others: Sequence[str]) -> bool:
    """Whether both name the same columns, in any order."""
    return {it.lower() for it in columns} == {it.lower() for it in others}
