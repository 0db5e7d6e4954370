"""What a transaction costs in requests, and what it leaves on disk."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dbio_commit import probe as probe_module
from dbio_commit.errors import (
    TableNotFoundError,
)
from dbio_commit.protocol.markers import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import calls_to
from tests.writers import data_files, write, write_days

# --- costs -------------------------------------------------------------------------------------------------------


def cost(store: MemoryStore, action: Callable[[], object]) -> list[tuple[str, str]]:
    """The calls of the action to the log, without the tids and numbers in the paths."""
    with calls_to(store) as calls:
        action()
    return [(operation, path.rstrip("0123456789")) for operation, path in calls if not path.startswith("part-")]


@pytest.fixture
def used(table: Table, clock: ManualClock) -> Table:
    """A table with twenty commits, on a clock that moves on by a second with each write."""
    for _ in range(20):
        write_later(table, clock)
    return table


def write_later(
    table: Table, clock: ManualClock, operation: Operation = "append", *, column: str = "a", app: Any = None
) -> None:
    clock.advance(timedelta(seconds=1))
    write(table, operation, app=app, schema=columns(column))


APPEND = [
    ("list_log", ""),
    ("get", "_dbio_table"),
    ("get", "_committed_"),
    ("put_if_absent", "_started_"),
    ("put_if_absent", "_committed_"),
]


def test_an_append_to_an_existing_table_costs_five_requests_and_once_a_probe(
    used: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cost(store, lambda: write_later(used, clock)) == APPEND
    monkeypatch.setattr(probe_module, "_PROBED", set())
    probing = [*APPEND[:4], ("put_if_absent", "_started_"), *APPEND[4:]]
    assert cost(store, lambda: write_later(used, clock)) == probing
    assert cost(store, lambda: write_later(used, clock)) == APPEND


def test_to_begin_at_a_place_without_anything_lists_it_once_and_creates_two_markers(
    table: Table, store: MemoryStore
) -> None:
    assert cost(store, table.begin) == [
        ("list_log", ""),
        ("list_files", ""),
        ("put_if_absent", "_dbio_table"),
        ("put_if_absent", "_dbio_table"),  # the probe
        ("put_if_absent", "_started_"),
    ]


@pytest.mark.parametrize(
    "last", [{"operation": "overwrite"}, {"operation": "overwrite", "column": "b"}, {"app": ("job", 1)}]
)
def test_an_append_after_a_turn_costs_no_more(
    used: Table, store: MemoryStore, clock: ManualClock, last: dict[str, Any]
) -> None:
    write_later(used, clock, **last)
    column = last.get("column", "a")
    assert cost(store, lambda: write_later(used, clock, column=column)) == APPEND


def test_an_append_after_an_overwrite_that_took_longer_than_three_appends_costs_no_more(
    used: Table, store: MemoryStore, clock: ManualClock
) -> None:
    overwrite = used.begin("overwrite")
    for _ in range(3):
        write_later(used, clock)
    clock.advance(timedelta(seconds=1))
    overwrite.commit(columns("a"))
    assert cost(store, lambda: write_later(used, clock)) == APPEND


def test_appends_after_an_aborted_turn_cost_no_more_once_one_of_them_has_committed(
    used: Table, store: MemoryStore, clock: ManualClock
) -> None:
    for _ in range(2):
        write_later(used, clock, app=("job", 1))  # the second is skipped: its turn ends with an abort
    write_later(used, clock)
    assert cost(store, lambda: write_later(used, clock)) == APPEND


def test_an_append_to_a_table_without_schema_costs_the_same_however_many_commits_there_are(
    table: Table, store: MemoryStore
) -> None:
    costs = [len(cost(store, lambda: write(table))) for _ in range(12)]
    assert costs[-1] == costs[5]


# --- what is on disk ---------------------------------------------------------------------------------------------


def test_a_marker_is_json_that_any_dbio_reader_takes(table: Table, store: MemoryStore) -> None:
    old = list(write(table).added)
    commit = write(table, "overwrite", app=("job", 3), schema=columns("a"))
    body = json.loads(store.get(f"_committed_{commit.tid}"))
    assert set(body) == {"added", "removed", "dbio_commit"}
    assert (body["added"], body["removed"]) == (list(commit.added), old)
    ours = body["dbio_commit"]
    assert (ours["version"], ours["operation"], ours["turn"]) == (1, "overwrite", 1)
    assert ours["app"] == {"id": "job", "version": 3}
    assert ours["schema"] == columns("a")


def test_everything_that_decides_lies_at_the_root_under_an_underscore(table: Table, store: MemoryStore) -> None:
    write_days(table, a=b"a1")
    write_days(table, "overwrite", b=b"b1")
    assert {path for path in store.objects if path not in data_files(store)} == {
        entry.path for entry in store.list_log()
    }
    assert store.get(f"_started_{table.snapshot().tids[0]}") == b""


def test_begin_at_a_path_without_anything_creates_a_table_that_reads_as_empty(table: Table) -> None:
    with pytest.raises(TableNotFoundError):
        table.snapshot()
    table.begin(partition_by=["day"])
    snapshot = table.snapshot()
    assert (snapshot.files, snapshot.partition_columns, snapshot.scope) == ((), ("day",), Scope.TABLE)
