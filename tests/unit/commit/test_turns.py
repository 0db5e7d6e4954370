"""How long a holder of a turn has, and what a writer reads before it takes one (PROTOCOL.md 9.5)."""

from datetime import timedelta

import pytest

from dbio_commit.base.errors import AccessDeniedError, StoreError, TransactionAbortedError
from dbio_commit.commit import table_root as table_module
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.turns import LEASE_S, MOST_LEASES, TRUST_S
from dbio_commit.log import object_cache
from dbio_commit.log.object_cache import ObjectCache
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.faults import calls_to, fail_with, give_up_after, heal, once
from tests.writers import WakingClock, contents, stage, write


@pytest.fixture
def clock() -> WakingClock:
    return WakingClock()


def begin_overwrite(table: Table, body: bytes = b"new") -> Transaction:
    transaction = table.begin("overwrite")
    stage(table, transaction, body)
    return transaction


def die_in_its_turn(table: Table, store: MemoryStore) -> float:
    """A writer waits for its turn, takes it, and is heard of no more. Returns how long it waited."""
    began_s = table.clock.monotonic()
    transaction = begin_overwrite(table)
    store.before = fail_with(AccessDeniedError("no permission"), "put_if_absent", f"_committed_{transaction.tid}")
    with pytest.raises(AccessDeniedError):
        transaction.commit()
    heal(store)
    return table.clock.monotonic() - began_s


# --- the lease ----------------------------------------------------------------------------------------------------


def test_a_lease_is_twice_as_long_after_each_turn_that_was_given_up(table: Table, store: MemoryStore) -> None:
    write(table, "overwrite", bodies=[b"old"])
    waits_s = [die_in_its_turn(table, store) for _ in range(7)]
    assert [round(wait_s / LEASE_S) for wait_s in waits_s] == [0, 1, 2, 4, 8, MOST_LEASES, MOST_LEASES]


def test_a_commit_in_a_turn_makes_the_next_lease_a_minute_again(table: Table, store: MemoryStore) -> None:
    for _ in range(3):
        die_in_its_turn(table, store)
    write(table, "overwrite")
    assert die_in_its_turn(table, store) < 1
    assert round(die_in_its_turn(table, store) / LEASE_S) == 1


def test_who_gave_up_its_turn_by_itself_makes_no_lease_longer(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    for _ in range(5):
        transaction = begin_overwrite(table)
        store.before = fail_with(AccessDeniedError("no permission"), "put_if_absent", f"_committed_{transaction.tid}")
        with pytest.raises(AccessDeniedError):
            transaction.commit()
        heal(store)
        clock.advance(timedelta(seconds=1))
        transaction.abort()
    die_in_its_turn(table, store)
    assert round(die_in_its_turn(table, store) / LEASE_S) == 1


def test_who_gave_up_by_itself_in_between_hides_none_whose_lease_was_too_short(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    die_in_its_turn(table, store)
    die_in_its_turn(table, store)
    transaction = begin_overwrite(table)
    store.before = once("put_if_absent", f"_committed_{transaction.tid}", transaction.abort)
    with pytest.raises(TransactionAbortedError):
        transaction.commit()
    die_in_its_turn(table, store)
    began_s = clock.monotonic()
    begin_overwrite(table).commit()
    assert round((clock.monotonic() - began_s) / LEASE_S) == 4


def test_of_turns_that_are_purged_nothing_is_known_and_a_lease_is_a_minute(table: Table, store: MemoryStore) -> None:
    for _ in range(3):
        die_in_its_turn(table, store)
    for number in (1, 2):
        del store.objects[names.turn(number)]
    assert round(die_in_its_turn(table, store) / LEASE_S) == 1


def test_a_holder_whose_work_takes_longer_than_a_lease_gets_through(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    write(table, "overwrite", bodies=[b"old"])
    die_in_its_turn(table, store)  # the lease of the next is 60 s, and it has 110 s to do
    slow = begin_overwrite(table, b"first")
    fast = begin_overwrite(table, b"second")

    def work() -> None:
        heal(store)
        clock.at(clock.monotonic() + 110, slow.commit)
        fast.commit()

    store.before = once("put_if_absent", f"_committed_{slow.tid}", work)
    slow.commit()
    assert contents(table) == [b"second"]


class Blind(MemoryStore):
    """A store of which no listing shows what begins so; such as a directory of this name, on a disk."""

    unlisted = "_serial_"

    def list_log(self, *prefixes: str) -> list[Entry]:
        return [entry for entry in super().list_log(*prefixes) if not entry.path.startswith(self.unlisted)]


def test_a_turn_that_is_taken_and_that_no_listing_shows_is_an_error_and_no_loop(clock: WakingClock) -> None:
    table = Table.over(store := Blind(clock), clock)
    write(table)
    store.put(names.turn(1))
    transaction = begin_overwrite(table)
    store.before = give_up_after(100)
    with pytest.raises(StoreError, match=r"_serial_0*1 exists, but no listing shows it"):
        transaction.commit()


def test_a_turn_that_one_listing_misses_is_waited_for_as_any_other(clock: WakingClock) -> None:
    table = Table.over(store := Blind(clock), clock)
    write(table, bodies=[b"old"])
    store.unlisted = "none"
    die_in_its_turn(table, store)
    store.unlisted = "_serial_"
    clock.at(clock.monotonic() + 1, lambda: setattr(store, "unlisted", "none"))
    transaction = begin_overwrite(table)
    store.before = give_up_after(1000)
    transaction.commit()
    heal(store)
    assert contents(table) == [b"new"]


# --- reading ahead ------------------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers are larger than what a process remembers, and each is much to read."""
    monkeypatch.setattr(object_cache, "CACHE", ObjectCache(limit_bytes=0))
    monkeypatch.setattr(table_module, "AHEAD_BYTES", 0)


def test_what_is_much_is_read_before_the_turn_is_taken_and_not_in_it(
    table: Table, store: MemoryStore, forgetful: None
) -> None:
    others = {names.committed(write(table).tid) for _ in range(5)}
    transaction = begin_overwrite(table)
    table.clock.sleep(TRUST_S + 1)
    with calls_to(store) as calls:
        transaction.commit()
    taken = calls.index(("put_if_absent", names.turn(1)))
    read = [(number, path) for number, (operation, path) in enumerate(calls) if operation == "get" and path in others]
    assert {path for _, path in read} == others
    assert all(number < taken for number, _ in read)


def test_what_is_little_is_read_in_the_turn_alone(table: Table, store: MemoryStore) -> None:
    write(table)
    transaction = begin_overwrite(table)
    table.clock.sleep(TRUST_S + 1)
    with calls_to(store) as calls:
        transaction.commit()
    taken = calls.index(("put_if_absent", names.turn(1)))
    assert [operation for operation, _ in calls[:taken]].count("list_log") == 1


def test_who_waits_for_a_turn_reads_along_what_others_commit_meanwhile(
    table: Table, store: MemoryStore, clock: WakingClock, forgetful: None
) -> None:
    write(table)
    die_in_its_turn(table, store)
    later: list[str] = []
    clock.at(30, lambda: later.append(names.committed(write(table).tid)))
    transaction = begin_overwrite(table)
    with calls_to(store) as calls:
        transaction.commit()
    assert calls.index(("get", later[0])) < calls.index(("put_if_absent", names.turn(2)))
    assert calls.count(("get", later[0])) == 1


def test_what_a_waiter_reads_takes_nothing_off_the_holders_time(
    table: Table, store: MemoryStore, clock: WakingClock, forgetful: None
) -> None:
    committed = names.committed(write(table).tid)
    die_in_its_turn(table, store)
    store.before = once("get", committed, lambda: clock.advance(timedelta(minutes=5)))
    began_s = clock.monotonic()
    begin_overwrite(table).commit()
    assert clock.monotonic() - began_s >= 300 + LEASE_S


def test_a_process_keeps_nothing_of_what_it_read_ahead(table: Table, store: MemoryStore, forgetful: None) -> None:
    committed = names.committed(write(table).tid)
    begin_overwrite(table).commit()
    with calls_to(store) as calls:
        table.snapshot()
    assert ("get", committed) in calls
