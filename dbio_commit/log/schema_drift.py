"""Finds live files that differ from the table's columns, by their footers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from dbio_commit.base.progress import Progress, silent
from dbio_commit.data.fitting import lost, misfit, respelled, without
from dbio_commit.data.footers import Footer, look_at
from dbio_commit.data.known_footers import KnownFooters
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.doubtful import doubtful_files
from dbio_commit.store import Store

_AT_ONCE = 1000
"""How many files are read between two reports of progress."""


def look_at_all(
    store: Store,
    paths: Iterable[str],
    progress: Progress = silent,
    *,
    total: int | None = None,
    bounds_of: Collection[str] = (),
) -> Iterator[tuple[str, Footer | None]]:
    """The footer of each file, by one request each; None for a file that does not exist. Raises StoreError.

    `total` is the number of files, if it is known. Files that have one of the columns `bounds_of` come with statistics.
    """
    look = partial(look_at, store, statistics=False, known=KnownFooters(), bounds_of=bounds_of)
    left, done = iter(paths), 0
    progress("files looked at", 0, total)
    while some := [*islice(left, _AT_ONCE)]:
        yield from zip(some, store.ask_each(look, some), strict=True)
        done += len(some)
        progress("files looked at", done, total)


def find_respelled(store: Store, snapshot: Snapshot, columns: Mapping[str, Any]) -> dict[str, str]:
    """The files of the snapshot that spell a column otherwise: by path, which column. Readers of Delta take such a
    column for null.

    Reads only files that no dbio writer made to fit. Raises StoreError.
    """
    looked = _look_at_doubtful(store, snapshot, columns)
    found = ((path, _respelled(footer, columns, snapshot.partition_columns)) for path, footer in looked)
    return {path: wrong for path, wrong in found if wrong}


def find_drifted(store: Store, snapshot: Snapshot, columns: Mapping[str, Any]) -> dict[str, str]:
    """As `find_respelled`, with files of types that some engine cannot read. A compaction rewrites all of these."""
    looked = _look_at_doubtful(store, snapshot, columns)
    found = (
        (path, footer.problem or _respelled(footer, columns, snapshot.partition_columns)) for path, footer in looked
    )
    return {path: wrong for path, wrong in found if wrong}


def find_other_types(store: Store, snapshot: Snapshot, columns: Mapping[str, Any]) -> dict[str, str]:
    """As `find_drifted`, with files that have a column of another type than the table's, which was widened since.

    Looks at the footer of each file of the snapshot. Raises StoreError.
    """
    found = {}
    for path, footer in look_at_all(store, (file.path for file in snapshot.files)):
        if footer is not None and not footer.broken:
            wrong = footer.problem or _respelled(footer, columns, snapshot.partition_columns)
            wrong = wrong or misfit(footer.columns or {}, without(columns, snapshot.partition_columns), _is_same)
            if wrong:
                found[path] = wrong
    return found


def _is_same(found: str, wanted: str) -> bool:
    """Whether files store both types in the same way. A text with a maximum length is a plain text there."""
    from dbio_commit.data.columns import arrow_type

    return found == wanted or bool(arrow_type(found) == arrow_type(wanted))


def find_doubtful(snapshot: Snapshot, columns: Mapping[str, Any]) -> list[str]:
    """The files of the snapshot that no dbio writer made to fit the columns."""
    names = [field["name"] for field in columns["fields"]]
    files = doubtful_files(snapshot.transactions, snapshot.files, names, columns_of=snapshot.columns_of)
    return [file.path for file in files]


def _look_at_doubtful(store: Store, snapshot: Snapshot, columns: Mapping[str, Any]) -> Iterator[tuple[str, Footer]]:
    """The footers of doubtful files, by path, without files that are not Parquet: these cannot be rewritten."""
    for path, footer in look_at_all(store, find_doubtful(snapshot, columns)):
        if footer is not None and not footer.broken:
            yield path, footer


def _respelled(footer: Footer, columns: Mapping[str, Any], partition_columns: Sequence[str]) -> str | None:
    """The column that a file spells otherwise, or None. Ignores partition columns, which all readers take from the
    directory."""
    inside = footer.columns and without(footer.columns, partition_columns)
    return respelled(inside, without(columns, partition_columns)) if inside else None


def find_wrong(
    store: Store,
    paths: Iterable[str],
    columns: Mapping[str, Any] | None,
    partition_columns: Sequence[str],
    progress: Progress = silent,
    *,
    total: int | None = None,
) -> dict[str, str]:
    """Files that some reader cannot read, or reads as something else, or with a column that the table lacks: by path,
    the reason.

    `columns` are the table's, if they are known. `total` is the number of paths. Raises StoreError.
    """
    looked = look_at_all(store, paths, progress, total=total)
    found = ((path, _wrong(footer, columns, partition_columns)) for path, footer in looked if footer is not None)
    return {path: wrong for path, wrong in found if wrong}


def _wrong(footer: Footer, columns: Mapping[str, Any] | None, partition_columns: Sequence[str]) -> str | None:
    if footer.broken:
        return f"it is no Parquet file: {footer.broken}"
    if footer.problems or not footer.columns or columns is None:
        return footer.problem
    if other := _respelled(footer, columns, partition_columns):
        return f"{other}: readers of Delta take it for null"
    if other := misfit(without(footer.columns, partition_columns), columns):
        return f"it holds {other}"
    if other := lost(footer.columns, columns, partition_columns):
        return f"it has the column {other!r:.200}, which the table does not have"
    return None
