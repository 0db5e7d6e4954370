"""Which live files only their footers tell about: those that no writer of ours made to fit the table.

Rules: PROTOCOL.md 6.4.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.doubtful import doubtful_files
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, columns_in
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.state import DataFile

AT = datetime(2026, 11, 20, tzinfo=UTC)


def commit(operation: Any = "append", *, statistics: dict[str, Bounds] | None = None, **metrics: int) -> Decided:
    info = FileInfo(path="a.parquet", size=1, statistics=statistics)
    told = CommitInfo(recorded=operation, commit_id="x", timestamp=AT, metrics=metrics, files=pack_files([info]))
    return Decided(AT, "1", CommitMarker(added=["a.parquet"], removed=[], dbio_commit=told))


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        (commit(), False),
        (commit(statistics={"id": Bounds(1, 1, 0), "other": Bounds(1, 1, 0)}), False),
        (commit(statistics={"ID": Bounds(1, 1, 0)}), True),
        (commit("adopt"), True),
        (commit("rewrite"), False),
        (commit("rewrite", numRestoredFiles=1), True),
        (Decided(AT, "1", CommitMarker(added=["a.parquet"], removed=[])), True),  # another DBIO writer's
    ],
)
def test_files_of_others_are_doubtful_and_those_that_tasks_made_are_not(decided: Decided, expected: bool) -> None:
    files = [DataFile("a.parquet", 1, "1", {}), DataFile("b.parquet", 1, "2", {})]
    of = {"1": columns_in(decided.marker)}
    assert doubtful_files([decided], files, ["id", "day"], columns_of=of.__getitem__) == (files[:1] if expected else [])
