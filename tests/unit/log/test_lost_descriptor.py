"""A table whose descriptor is gone, is corrupt, or comes while somebody looks: nobody takes it for something else.

Rules: PROTOCOL.md 9.1.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from dbio_commit.base.errors import CorruptMarkerError, TableNotFoundError
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import once
from tests.writers import live, write
from vacuum import VacuumOptions, vacuum_table

ACTIONS: list[Callable[[Table], object]] = [
    lambda table: table.snapshot(),
    lambda table: table.check(),
    lambda table: table.begin(),
    lambda table: table.begin("overwrite"),
    lambda table: table.adopt(),
    lambda table: table.checkpoint(),
    lambda table: table.drop(everything=True),
    lambda table: table.history(),
    lambda table: table.publish("delta"),
    lambda table: vacuum_table(table, VacuumOptions()),
]


@pytest.fixture(params=["with turns", "with a checkpoint", "with both, purged"])
def lost(request: pytest.FixtureRequest, table: Table, store: MemoryStore, clock: ManualClock) -> Table:
    """A table with a file of an aborted transaction, as one looks of which a copy lacks the descriptor."""
    for _ in range(3):
        write(table)
    if request.param != "with a checkpoint":
        write(table, "overwrite")
    if request.param != "with turns":
        table.checkpoint()
    write(table)
    if request.param == "with both, purged":
        for _ in range(3):
            vacuum_table(table, VacuumOptions(checkpoint_after=0))
            clock.advance(timedelta(minutes=31))
    clock.advance(timedelta(days=3))
    del store.objects[names.DESCRIPTOR]
    return table


@pytest.mark.parametrize("action", ACTIONS)
def test_a_table_without_its_descriptor_is_refused_and_stays_as_it_is(
    lost: Table, store: MemoryStore, action: Callable[[Table], object]
) -> None:
    before = dict(store.objects)
    with pytest.raises(CorruptMarkerError, match=r"_dbio_table is missing, and .* bring that object back"):
        action(lost)
    assert {path: it for path, it in store.objects.items() if not path.startswith(Kind.CLOCK)} == before


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("body", [b"", b"{", b'{"version": 1, "id": "x"}', b"x" * 99])
def test_a_descriptor_that_cannot_be_read_is_to_be_brought_back_and_never_removed(
    table: Table, store: MemoryStore, body: bytes, action: Callable[[Table], object]
) -> None:
    write(table)
    store.put(names.DESCRIPTOR, body)
    before = dict(store.objects)
    with pytest.raises(CorruptMarkerError, match=r"_dbio_table .*bring back what its writer wrote.*Do not remove it"):
        action(table)
    assert {path: it for path, it in store.objects.items() if not path.startswith(Kind.CLOCK)} == before


def test_once_the_descriptor_is_back_all_is_as_before(table: Table, store: MemoryStore) -> None:
    write(table, "overwrite")
    before = live(table)
    body, modified = store.objects.pop(names.DESCRIPTOR)
    with pytest.raises(CorruptMarkerError):
        table.snapshot()
    store.put(names.DESCRIPTOR, body, modified=modified)
    assert live(table) == before


# --- what comes while somebody looks ------------------------------------------------------------------------------


def create_and_publish(store: MemoryStore) -> None:
    table = Table.over(store, ManualClock(seed=1))
    write(table, schema=columns("id"))
    table.publish("delta")


@pytest.mark.parametrize(
    ("operation", "action"),
    [*(("list_files", action) for action in (*ACTIONS[:4], *ACTIONS[-3:-1])), ("list_directory", ACTIONS[-1])],
)
def test_a_table_that_is_created_and_published_during_a_look_is_that_table_and_no_other_format(
    clock: ManualClock, operation: str, action: Callable[[Table], object]
) -> None:
    store = MemoryStore(clock, url="s3://b/t")
    table = Table.over(store, clock)
    store.before = once(operation, "*", lambda: create_and_publish(store))
    with suppress(TableNotFoundError):  # who looked before it was there may say so
        action(table)
    assert table.snapshot().scope is Scope.TABLE


@pytest.mark.parametrize("action", [lambda table: table.snapshot(), lambda table: table.begin()])
def test_a_reader_and_a_writer_that_are_overtaken_find_the_table(
    clock: ManualClock, action: Callable[[Table], object]
) -> None:
    store = MemoryStore(clock, url="s3://b/t")
    table = Table.over(store, clock)
    store.before = once("list_files", "*", lambda: create_and_publish(store))
    assert action(table)


def test_a_listing_that_shows_a_turn_and_missed_the_descriptor_is_repeated(clock: ManualClock) -> None:
    """As a disk lists, while a table is created."""

    class Torn(MemoryStore):
        torn = 0

        def list_log(self, *prefixes: str) -> list[Entry]:
            self.torn -= 1
            hides = names.DESCRIPTOR if self.torn >= 0 else ""
            return [entry for entry in super().list_log(*prefixes) if entry.path != hides]

    table = Table.over(store := Torn(clock), clock)
    write(table, "overwrite")
    store.torn = 2
    assert len(table.snapshot().files) == 1
