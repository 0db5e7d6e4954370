"""Which live files may differ from the table's columns, since no dbio writer made them to fit? Pure.

Only their footers show how they spell columns, and which types they have.
"""

from collections.abc import Collection, Iterable, Sequence

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import CommitMarker, columns_in
from dbio_commit.protocol.state import DataFile


def doubtful_files(decided: Iterable[Decided], files: Sequence[DataFile], columns: Collection[str]) -> list[DataFile]:
    """Files that came by an adoption, from another DBIO writer, or from a writer that spelled a column otherwise; and
    their copies.

    `columns` are the table's.
    """
    spellings = {column.lower(): column for column in columns}
    writers = {file.tid for file in files}  # a publication asks about a few files, and need not go over all commits
    tids = {it.tid for it in decided if it.tid in writers and _is_doubtful(it.marker, spellings)}
    return [file for file in files if file.tid in tids] if tids else []


def _is_doubtful(marker: CommitMarker, spellings: dict[str, str]) -> bool:
    info = marker.dbio_commit
    if info is None or info.operation == "adopt" or info.metrics.get("numRestoredFiles"):
        return bool(marker.added)
    return any(spellings.get(name.lower(), name) != name for name in columns_in(marker))
