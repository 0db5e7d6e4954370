"""A process that remembers markers sleeps between its listing and the next call, while vacuums purge and forget what
it has listed (PROTOCOL.md 8.1, 9.4)."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from dbio_commit.base.errors import StoreError
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.log import listing
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import act_before_call, calls_to
from tests.tiny_parts import in_both_forms
from tests.writers import stage, write

pytestmark = in_both_forms

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def forget(table: Table, clock: ManualClock) -> None:
    """Vacuums delete the removed files, purge all markers, and forget the old transactions."""
    for _ in range(4):
        vacuum_table(table, VacuumOptions(checkpoint_after=1))
        clock.advance(HOUR)
        write(table, "overwrite")
    clock.advance(timedelta(minutes=1))


def remembered() -> tuple[Table, MemoryStore, ManualClock]:
    """A table with removed files, whose markers this process remembers, and which a checkpoint may forget."""
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    write(table)
    write(table)
    clock.advance(DAY)
    write(table, "overwrite")
    assert len(table.snapshot().files) == 1
    clock.advance(32 * DAY)
    return table, store, clock


WORK: dict[str, tuple[Callable[[Table], object], range]] = {
    "snapshot": (lambda table: table.snapshot(), range(1, 4)),
    "checkpoint": (lambda table: table.checkpoint(), range(1, 8)),
    "vacuum": (lambda table: vacuum_table(table, VacuumOptions(checkpoint_after=1)), range(3, 12)),
}
"""What the process does, and at which of its calls to the store it sleeps."""


@pytest.mark.parametrize("work", WORK)
def test_a_process_that_slept_brings_no_removed_file_back(work: str) -> None:
    function, calls = WORK[work]
    for number in calls:
        table, store, clock = remembered()
        act_before_call(store, number, lambda: forget(table, clock))  # noqa: B023
        seen = function(table)
        store.before = lambda operation, path: None
        if work == "snapshot":
            assert {file.path for file in seen.files} <= store.objects.keys()  # type: ignore[attr-defined]
        assert {file.path for file in table.snapshot().files} <= store.objects.keys()


def test_a_quiet_table_costs_no_request_more(table: Table, store: MemoryStore) -> None:
    write(table)
    table.checkpoint()
    write(table)
    table.snapshot()
    with calls_to(store) as calls:
        table.snapshot()
    assert [path for operation, path in calls if operation == "list_log"] == ["", "_checkpoint_ _committed_"]


def test_a_new_checkpoint_costs_one_listing_of_the_markers(table: Table, store: MemoryStore) -> None:
    def listings(before: Callable[[], object]) -> list[str]:
        with pytest.MonkeyPatch.context() as patch, calls_to(store) as calls:
            list_log, began = store.list_log, iter([True])

            def listed(*prefixes: str) -> list[Entry]:
                found = list_log(*prefixes)
                if next(began, False):
                    before()
                return found

            patch.setattr(store, "list_log", listed)
            table.snapshot()
        return [path for operation, path in calls if operation == "list_log"]

    write(table)
    write(table)
    later = Table.over(store.seen_by("another"), table.clock)
    quiet = listings(lambda: None)
    assert listings(later.checkpoint) == quiet  # it covers all that was listed
    write(table)
    some = table.snapshot()
    write(table)
    assert listings(lambda: write_checkpoint(later.store, table.clock, some)) == [*quiet, "_committed_"]


def test_a_listing_that_shows_none_of_the_newer_checkpoints_is_made_again(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of many pages may take longer than the half hour after which vacuum purges what its pages showed."""
    table, store, clock = remembered()
    forget(table, clock)
    write(table)
    list_log = store.list_log

    def torn(*prefixes: str) -> list[Entry]:
        return [it for it in list_log(*prefixes) if prefixes or "_checkpoint_" not in it.path]

    monkeypatch.setattr(store, "list_log", torn)
    monkeypatch.setattr(listing, "_PATH_BYTES", 1)
    monkeypatch.setattr(listing, "_ROOT_BYTES", 1)  # whoever covers markers part by part reads the checkpoint first
    with pytest.raises(StoreError, match="changed under each of"):  # since here each listing is torn
        table.checkpoint()


def test_a_transaction_that_was_decided_since_a_listing_is_not_aborted(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    """When the process that has listed the start marker is about to abort, a checkpoint has forgotten the
    transaction."""
    write(table)
    transaction = table.begin()
    stage(table, transaction)
    clock.advance(3 * DAY)

    def decide(operation: str, path: str) -> None:
        if path == names.committed(transaction.tid):
            store.before = lambda operation, path: None
            transaction.commit()
            clock.advance(HOUR)
            write(table, "overwrite")
            clock.advance(32 * DAY)
            forget(table, clock)
            forget(table, clock)
            assert transaction.tid not in {it.tid for it in table.snapshot().decided}

    store.before = decide
    assert vacuum_table(table, VacuumOptions()).aborted == []
    assert names.committed(transaction.tid) not in store.objects
