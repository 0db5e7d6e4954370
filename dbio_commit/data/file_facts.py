"""Reads the bounds and counts of some columns from markers, file by file. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from dbio_commit.data.conditions.pruning import facts_of_bounds
from dbio_commit.data.conditions.tree import Facts
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import bounds_in
from dbio_commit.protocol.markers.files import bounds_of
from dbio_commit.protocol.state import Added


def facts_in(
    added: Added, markers: Mapping[str, Decided], columns: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, list[Facts]]]:
    """The path of each file that a transaction added, with the facts of these columns. They are given as name and type,
    and none is a partition column."""
    commit = markers.get(added.tid or "")
    info = commit.marker.dbio_commit.files if commit and commit.marker.dbio_commit else None
    if commit is None or info is None:
        yield from ((path, [Facts()] * len(columns)) for path in added.paths)
        return
    bounds = bounds_in(commit.marker, lower={name.lower() for name, _ in columns})
    by_lower = {name.lower(): it for name, it in bounds.items()}
    number = {path: i for i, path in enumerate(commit.marker.added)}
    for path in added.paths:
        i = number.get(path)
        rows = None if i is None else info.rows[i]
        each = [None if i is None or name.lower() not in by_lower else bounds_of(by_lower[name.lower()], i)
                for name, _ in columns]  # fmt: skip
        yield path, [facts_of_bounds(it, rows, kind) for it, (_, kind) in zip(each, columns, strict=True)]
