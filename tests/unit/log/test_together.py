"""Several tables are read at one moment, in the requests that each of them takes alone (PROTOCOL.md 8.5)."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import combinations_with_replacement, count
from pathlib import Path

import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError, StoreError, TableNotFoundError
from dbio_commit.log.together import SURE_S
from dbio_commit.maintenance.erase.run import WAIT_S
from dbio_commit.maintenance.vacuum.plan import METADATA_RETENTION
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.names import Kind
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to
from tests.tiny_parts import in_both_forms
from tests.writers import write

State = tuple[frozenset[str], ...]
"""The live files of each table."""


class DiskLike(MemoryStore):
    """Lists commit markers first, and others may act before it lists the rest: the order of a disk is any order."""

    def list_log(self, *prefixes: str) -> list[Entry]:
        found = [*super().list_log(Kind.COMMITTED)]
        if prefixes != (Kind.COMMITTED,):
            found += [it for it in super().list_log(*prefixes) if not it.path.startswith(Kind.COMMITTED)]
        return found


class KeyOrder(MemoryStore):
    """Lists checkpoints first, and others may act before it lists the rest: the order of an object store."""

    def list_log(self, *prefixes: str) -> list[Entry]:
        found = [] if prefixes == (Kind.COMMITTED,) else [*super().list_log(Kind.CHECKPOINT)]
        return found + [it for it in super().list_log(*prefixes) if not it.path.startswith(Kind.CHECKPOINT)]


class Lake:
    """Two tables in one store, and all states that they have had together."""

    def __init__(self, kind: type[MemoryStore] = MemoryStore) -> None:
        self.clock = ManualClock()
        self.tables = [Table.over(kind(self.clock), self.clock) for _ in range(2)]
        self.dims, self.facts = self.tables
        self.history: list[State] = [(frozenset(), frozenset())]
        self.calls = 0
        for table in self.tables:
            self.write(table)
            table.checkpoint()

    @property
    def stores(self) -> list[MemoryStore]:
        return [table.store for table in self.tables if isinstance(table.store, MemoryStore)]

    def write(self, table: Table, operation: Operation = "append") -> None:
        commit, place = write(table, operation), self.tables.index(table)
        live = [*self.history[-1]]
        live[place] = live[place].difference(commit.removed).union(commit.added)
        self.history.append(tuple(live))

    def write_both(self) -> None:
        """A fact whose dimension was committed before."""
        self.write(self.dims)
        self.write(self.facts)

    def vacuum(self) -> None:
        """Commits, and purges all markers that were there before them, with their removed files."""
        for table in self.tables:
            self.write(table, "overwrite")
        for _ in range(3):
            self.clock.advance(timedelta(hours=50))
            for table in self.tables:
                vacuum_table(table, VacuumOptions(checkpoint_after=1))

    def before_call(self, act: Callable[[int], None]) -> None:
        """`act` gets the number of each call that a reader makes from now on. Nobody looks at its own calls."""
        numbers = count()
        acting = False

        def step(operation: str, path: str) -> None:
            nonlocal acting
            if not acting:
                self.clock.advance(timedelta(milliseconds=1))
                self.calls += 1
                acting = True
                try:
                    act(next(numbers))
                finally:
                    acting = False

        for store in self.stores:
            store.before = step

    def read(self, order: Sequence[int] = (0, 1)) -> State:
        found = dbio.snapshots([self.tables[i] for i in order])
        state = {i: frozenset(file.path for file in it.files) for i, it in zip(order, found, strict=True)}
        return tuple(state[i] for i in range(2))


def _dimension(lake: Lake) -> None:
    lake.write(lake.dims)


def _fact(lake: Lake) -> None:
    lake.write(lake.facts)


def _fact_and_checkpoint(lake: Lake) -> None:
    lake.write(lake.facts)
    lake.facts.checkpoint()


def _purge(lake: Lake) -> None:
    lake.vacuum()
    lake.write_both()


ACTS: dict[str, Sequence[Callable[[Lake], None]]] = {
    "commits": [_dimension, _fact],
    "more commits": [_dimension, _fact, _dimension],
    "checkpoints": [_dimension, _fact_and_checkpoint],
    "purges": [Lake.write_both, _purge],
}
"""What others do during a read, in this order."""


def _in_both_forms(test: Callable[..., None]) -> Callable[..., None]:
    for mark in in_both_forms:
        test = mark(test)
    return test


@pytest.mark.parametrize(
    "order",
    [pytest.param((0, 1), id="dimensions-first"), pytest.param((1, 0), id="facts-first", marks=pytest.mark.long)],
)
@pytest.mark.parametrize(
    "acts", [pytest.param(acts, marks=[pytest.mark.long] if acts.startswith("more") else []) for acts in ACTS]
)
def test_a_read_shows_one_state_that_was_there_in_every_interleaving(acts: str, order: tuple[int, int]) -> None:
    alone = Lake(DiskLike)
    alone.before_call(lambda number: None)
    alone.read(order)
    most = alone.calls + 4  # a read during which commits come makes a few calls more
    for places in combinations_with_replacement(range(most), len(ACTS[acts])):
        lake = Lake(DiskLike)
        todo = [*zip(places, ACTS[acts], strict=True)]

        def act(number: int, lake: Lake = lake, todo: list[tuple[int, Callable[[Lake], None]]] = todo) -> None:
            while todo and todo[0][0] <= number:
                todo.pop(0)[1](lake)

        lake.before_call(act)
        found = lake.read(order)
        assert found in lake.history, places


@_in_both_forms
def test_tables_together_cost_the_requests_that_they_cost_alone() -> None:
    clock = ManualClock()
    tables = [Table.over(MemoryStore(clock), clock) for _ in range(3)]
    for table in tables:
        write(table)
        table.checkpoint()
        write(table)
    clock.advance(timedelta(minutes=1))

    def kinds(calls: list[tuple[str, str]]) -> list[str]:
        return sorted(f"{operation} {re.sub('[0-9].*', '', path)}" for operation, path in calls)

    for is_remembered in (False, True):
        first, second, alone = [it.store for it in tables if isinstance(it.store, MemoryStore)]
        with calls_to(first) as of_first, calls_to(second) as of_second, calls_to(alone) as of_alone:
            dbio.snapshots(tables[:2])
            tables[2].snapshot()
        assert kinds(of_first) == kinds(of_second) == kinds(of_alone)
        assert len(of_alone) == (2 if is_remembered else 5 + sum(path.startswith("_part_") for _, path in of_alone))


def test_a_commit_during_the_read_costs_each_table_one_listing() -> None:
    lake = Lake()
    lake.read()
    lake.before_call(lambda number: lake.write(lake.dims) if number == 2 else None)
    listed: list[list[str]] = [[], []]
    for i, store in enumerate(lake.stores):
        before = store.before

        def step(operation: str, path: str, i: int = i, before: Callable[[str, str], None] = before) -> None:
            calls = lake.calls
            before(operation, path)
            if operation == "list_log" and lake.calls > calls:
                listed[i].append(path)

        store.before = step
    lake.read()
    assert listed == [["", "_checkpoint_ _committed_", "_committed_"]] * 2


def test_a_marker_that_was_read_ahead_and_then_withdrawn_does_not_count() -> None:
    lake = Lake()
    lake.clock.advance(timedelta(minutes=1))
    before = lake.read()
    lake.write(lake.facts)
    store = lake.stores[1]
    marker = max(path for path in store.objects if path.startswith(Kind.COMMITTED))

    def step(operation: str, path: str) -> None:
        if operation == "list_log" and path:
            store.objects.pop(marker, None)

    store.before = step
    assert lake.read() == before


@_in_both_forms
def test_what_was_purged_between_the_listings_of_a_reader_that_sleeps_is_not_missed() -> None:
    for number in range(1, 8):
        lake = Lake()

        def act(call: int, lake: Lake = lake, number: int = number) -> None:
            if call == number:
                lake.vacuum()
                lake.write_both()

        lake.before_call(act)
        assert lake.read() in lake.history, number


def test_a_marker_that_an_erasure_purges_during_the_first_listing_is_not_missed() -> None:
    """NOTES.md, Erasures: an erasure waits for no age of its checkpoint."""
    for number in range(12):
        lake = Lake(KeyOrder)
        lake.write_both()
        lake.clock.advance(timedelta(minutes=5))

        def act(call: int, lake: Lake = lake, number: int = number) -> None:
            if call == number:
                for table, store in zip(lake.tables, lake.stores, strict=True):
                    table.checkpoint()
                    for path in [it for it in store.objects if it.startswith((Kind.STARTED, Kind.COMMITTED))]:
                        del store.objects[path]

        lake.before_call(act)
        assert lake.read() == lake.history[-1], number


def test_no_purge_comes_as_soon_as_readers_trust_their_listings() -> None:
    assert min(WAIT_S, METADATA_RETENTION.total_seconds()) >= 2 * SURE_S  # as by PROTOCOL.md 10.6 and 10.4


def test_a_marker_that_is_always_withdrawn_ends_with_an_error() -> None:
    lake = Lake()
    store = lake.stores[0]

    def step(operation: str, path: str) -> None:
        if operation == "list_log" and path == "":
            store.objects["_committed_3764666341786125349"] = (b"{}", lake.clock.now())
        elif operation == "list_log":
            store.objects.pop("_committed_3764666341786125349", None)

    store.before = step
    with pytest.raises(StoreError, match="changed under each of 100 attempts"):
        lake.read()


@_in_both_forms
def test_all_tables_are_read_as_of_a_time() -> None:
    lake = Lake()
    lake.clock.advance(timedelta(hours=1))
    lake.write(lake.dims)
    then = lake.clock.now()
    lake.clock.advance(timedelta(hours=1))
    lake.write_both()

    def paths(as_of: object) -> State:
        found = dbio.snapshots(lake.tables, as_of)  # type: ignore[arg-type]
        return tuple(frozenset(file.path for file in it.files) for it in found)

    assert paths(then) == paths(then.isoformat()) == lake.history[3]
    assert paths(None) == paths(lake.clock.now()) == lake.history[-1]
    tid = lake.facts.snapshot().tid
    with pytest.raises(InvalidInputError, match="is no time, and a tid belongs to one table; give a time"):
        dbio.snapshots(lake.tables, tid)
    with pytest.raises(InvalidInputError, match="time zone"):
        dbio.snapshots(lake.tables, "2026-11-20T00:00:00")


def test_what_has_no_moment_in_common_is_refused_by_name(tmp_path: Path) -> None:
    lake = Lake()
    local = Table(tmp_path / "table")
    with pytest.raises(InvalidInputError, match=r"memory://table and /.*/table lie in stores with separate clocks"):
        dbio.snapshots([lake.dims, local])
    with pytest.raises(InvalidInputError, match="takes a list of tables"):
        dbio.snapshots(tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TableNotFoundError, match=r"there is no table at .*/table"):
        dbio.snapshots([local])
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "rows.parquet").write_bytes(b"rows")
    with pytest.raises(InvalidInputError, match="make it a table with `dbio adopt`"):
        dbio.snapshots([local])
    assert dbio.snapshots([]) == []


def test_a_table_that_is_named_twice_has_one_state() -> None:
    lake = Lake()
    lake.before_call(lambda number: lake.write(lake.facts) if number < 9 else None)
    first, second = dbio.snapshots([lake.facts, lake.facts])
    assert [*first.files] == [*second.files]


def test_a_table_that_is_created_during_the_listing_is_read() -> None:
    clock = ManualClock()
    tables = [Table.over(MemoryStore(clock), clock) for _ in range(2)]
    write(tables[0])
    store = tables[1].store
    assert isinstance(store, MemoryStore)

    def step(operation: str, path: str) -> None:
        store.before = lambda operation, path: None
        assert (operation, path) == ("list_log", "")
        store.after = after

    def after(operation: str, path: str) -> None:
        store.after = lambda operation, path: None
        write(tables[1])

    store.before = step
    assert [len(it.files) for it in dbio.snapshots(tables)] == [1, 1]
