"""Live files that are otherwise than the table says, by their footers: only a compaction mends them."""

from collections.abc import Mapping
from typing import Any

from dbio_commit.data.fitting import respelled
from dbio_commit.data.footers import look_at
from dbio_commit.protocol.doubtful import doubtful_files
from dbio_commit.snapshot import Snapshot
from dbio_commit.store import Store


def find_unlike(store: Store, snapshot: Snapshot, columns: Mapping[str, Any]) -> dict[str, str]:
    """Of the snapshot's files those that not all readers read as the table's columns: by path, what is wrong.

    Looks at files that no writer of ours made to fit, by a request for each. Raises StoreError.
    """
    names = [field["name"] for field in columns["fields"]]
    doubtful = doubtful_files(snapshot.decided, snapshot.files, names)

    def look(path: str) -> str | None:
        footer = look_at(store, path, statistics=False)
        if footer is None or footer.broken:
            return None  # nobody can write it anew
        if footer.problems:
            return "; ".join(footer.problems)
        return respelled(footer.columns, columns) if footer.columns else None

    found = store.in_parallel(look, [file.path for file in doubtful])
    return {file.path: problem for file, problem in zip(doubtful, found, strict=True) if problem}
