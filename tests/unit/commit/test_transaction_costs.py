"""What a transaction costs in requests, and what it leaves on disk."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dbio_commit.base.errors import TableNotFoundError
from dbio_commit.commit import probe as probe_module
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.turn import Turn
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.state import NO_METADATA
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
    ("stat_log", "_dbio_table _dropped"),
    ("list_log_from", "_serial_"),
    ("put_if_absent", "_started_"),
    ("list_log_from", "_serial_"),
    ("put_if_absent", "_committed_"),
    ("stat_log", "_dbio_table"),
]
"""After one turn, which gave the table its columns."""

FIRST = [
    ("list_log", "_d _serial_"),
    ("get", "_dbio_table"),
    ("get", "_serial_"),
    ("get", "_committed_"),
    *APPEND[2:],
]


def of_another_process(store: MemoryStore) -> None:
    """Who has read nothing of the table yet."""
    store._identity += "'"
    probe_module._PROBED.add(store.identity)


def without_numbers(costs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(operation, re.sub("[0-9]+", "", path)) for operation, path in costs]


def test_an_append_costs_six_requests_and_two_more_the_first_time_in_a_process(
    used: Table, store: MemoryStore, clock: ManualClock
) -> None:
    assert cost(store, lambda: write_later(used, clock)) == APPEND
    of_another_process(store)
    assert cost(store, lambda: write_later(used, clock)) == FIRST
    assert cost(store, lambda: write_later(used, clock)) == APPEND


def test_a_process_proves_a_store_with_three_requests_more_once(
    used: Table, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "_PROBED", set())
    probing = [*APPEND[:2], *[("put_if_absent", "_started_")] * 4, *APPEND[3:]]
    assert cost(store, lambda: write_later(used, clock)) == probing
    assert cost(store, lambda: write_later(used, clock)) == APPEND


def test_an_append_costs_the_same_at_any_length_of_the_log(used: Table, store: MemoryStore, clock: ManualClock) -> None:
    for number in range(500):
        store.put_if_absent(names.started(str(number)), b"")
        store.put_if_absent(names.committed(str(number)), b'{"added": [], "removed": []}')
    assert cost(store, lambda: write_later(used, clock)) == APPEND
    of_another_process(store)
    assert cost(store, lambda: write_later(used, clock)) == FIRST


def test_to_begin_at_a_place_without_anything_lists_its_log_twice_and_it_once_and_creates_two_markers(
    table: Table, store: MemoryStore
) -> None:
    assert cost(store, table.begin) == [
        ("list_log", "_d _serial_"),
        ("list_log", ""),
        ("list_files", ""),
        *[("put_if_absent", "_dbio_table")] * 4,  # who race, to prove that one wins
        ("put_if_absent", "_started_"),
    ]


@pytest.mark.parametrize(
    "last", [{"operation": "overwrite"}, {"operation": "overwrite", "column": "b"}, {"app": ("job", 1)}]
)
def test_an_append_after_a_turn_of_this_process_costs_no_more(
    used: Table, store: MemoryStore, clock: ManualClock, last: dict[str, Any]
) -> None:
    write_later(used, clock, **last)
    column = last.get("column", "a")
    assert without_numbers(cost(store, lambda: write_later(used, clock, column=column))) == without_numbers(APPEND)


def test_an_append_after_a_turn_of_another_process_costs_three_more_once(
    used: Table, store: MemoryStore, clock: ManualClock
) -> None:
    mine = store._identity
    of_another_process(store)
    write_later(used, clock, "overwrite")
    store._identity = mine
    told = [("get", "_serial_"), ("get", "_committed_"), APPEND[1]]
    costs = without_numbers(cost(store, lambda: write_later(used, clock)))
    assert costs == without_numbers([*APPEND[:2], *told, *APPEND[2:]])
    assert without_numbers(cost(store, lambda: write_later(used, clock))) == without_numbers(APPEND)


def test_an_append_beside_a_holder_that_never_ends_costs_two_requests_more(
    used: Table, store: MemoryStore, clock: ManualClock
) -> None:
    holder = used.begin("overwrite")
    store.put_if_absent(names.turn(2), encode(Turn(tid=holder.tid)))
    write_later(used, clock)  # learns who holds it
    look = [APPEND[1], ("get", "_committed_")]
    beside = [APPEND[0], *look, APPEND[2], *look, *APPEND[4:]]
    for _ in range(3):
        assert cost(store, lambda: write_later(used, clock)) == beside
    used.abort(holder.tid)
    write_later(used, clock)
    assert without_numbers(cost(store, lambda: write_later(used, clock))) == without_numbers(APPEND)


def test_a_table_that_was_dropped_and_made_anew_is_not_taken_for_the_one_before(
    used: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write_later(used, clock)
    store.objects.clear()
    clock.advance(timedelta(seconds=1))
    write_days(used, a=b"1")
    assert used.begin().terms.partition_columns == ("day",)
    assert used.begin().terms.metadata == NO_METADATA


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


def test_begin_at_a_path_without_anything_creates_a_table_that_reads_as_empty(table: Table) -> None:
    with pytest.raises(TableNotFoundError):
        table.snapshot()
    table.begin(partition_by=["day"])
    snapshot = table.snapshot()
    assert (snapshot.files, snapshot.partition_columns, snapshot.scope) == ((), ("day",), Scope.TABLE)
