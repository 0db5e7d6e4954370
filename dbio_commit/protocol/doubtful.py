"""Finds live files that may differ from the table's columns, since no dbio writer made them to fit. Pure.

Only their footers show how they spell columns, and which types they have.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.state import DataFile, FilesInParts

ColumnsOf = Callable[[str], Collection[str]]
"""The columns of which a transaction has statistics, as its files spell them."""

FILES_WITH_IDS = "numFilesWithIds"
"""The metric of commits whose files have field ids, by which readers of Iceberg find columns instead of by names."""
FILES_WITH_OWN_IDS = "numFilesWithOwnIds"
"""How many of these files have the ids of `field_ids`, or none."""
DOUBTFUL_FILES = "numDoubtfulFiles"
"""The metric of commits with copies of files that were doubtful in the table from which they come."""
RESTORED_FILES = "numRestoredFiles"
"""The metric of restores: how many files are copies of removed ones."""
DECIDING = (FILES_WITH_IDS, FILES_WITH_OWN_IDS, DOUBTFUL_FILES, RESTORED_FILES)
"""The metrics by which readers decide. Only `Transaction` records them, and no caller's metrics have such names."""


def doubtful_files(
    transactions: Iterable[Decided], files: Sequence[DataFile], columns: Collection[str], *, columns_of: ColumnsOf
) -> list[DataFile]:
    """The live files that came by an adoption, from another DBIO writer, or with other spellings or field ids; and
    their copies.

    `columns` are the table's. The transactions need not have their paths.
    """
    spellings = {column.lower(): column for column in columns}
    if not isinstance(files, FilesInParts):  # a publication asks about a few files, and need not go over all
        writers = {file.tid for file in files}
        transactions = (it for it in transactions if it.tid in writers)
    tids = {it.tid for it in transactions if not it.marker.is_abort and _is_doubtful(it, spellings, columns_of)}
    return [file for file in files if file.tid in tids] if tids else []


def _is_doubtful(commit: Decided, spellings: dict[str, str], columns_of: ColumnsOf) -> bool:
    info = commit.marker.dbio_commit
    if info is None or info.operation == "adopt":
        return True
    metrics = info.metrics
    if metrics.get(RESTORED_FILES) or metrics.get(DOUBTFUL_FILES):
        return True
    if metrics.get(FILES_WITH_IDS, 0) > metrics.get(FILES_WITH_OWN_IDS, 0):
        return True
    return any(spellings.get(name.lower(), name) != name for name in columns_of(commit.tid))
