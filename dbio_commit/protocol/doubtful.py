"""Which live files may be otherwise than the table says, since no writer of ours made them to fit it. Pure.

Only their footers tell: how they spell columns, and what types they have.
"""

from collections.abc import Collection, Iterable, Sequence

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import CommitMarker, columns_in
from dbio_commit.protocol.state import DataFile


def doubtful_files(decided: Iterable[Decided], files: Sequence[DataFile], columns: Collection[str]) -> list[DataFile]:
    """Those that an adoption brought in, another DBIO writer, or one that spelled a column otherwise; and their copies.

    `columns` are the table's.
    """
    spellings = {column.lower(): column for column in columns}
    writers = {file.tid for file in files}  # of few files a publication asks: it need not look at all commits
    tids = {it.tid for it in decided if it.tid in writers and _is_doubtful(it.marker, spellings)}
    return [file for file in files if file.tid in tids] if tids else []


def _is_doubtful(marker: CommitMarker, spellings: dict[str, str]) -> bool:
    info = marker.dbio_commit
    if info is None or info.operation == "adopt" or info.metrics.get("numRestoredFiles"):
        return bool(marker.added)
    return any(spellings.get(name.lower(), name) != name for name in columns_in(marker))
