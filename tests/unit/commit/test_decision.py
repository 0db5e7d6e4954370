"""How transactions are decided: lost answers, failures, turns and leases, on a store in memory and a clock to set.

Numbers I1 to I10: PROTOCOL.md 5. What is committed is in `test_transaction`. Rules: PROTOCOL.md 9.3, 9.4, 9.5.
"""

import json
from datetime import timedelta

import pytest

from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitStateUnknownError,
    CorruptMarkerError,
    StoreError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.turns import LEASE_S
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import Operation, abort_marker, decode_commit
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to, fail_with, heal, once
from tests.writers import WakingClock, contents, data_files, live, stage, write

LOST = StoreError("the answer was lost")
DENIED = AccessDeniedError("no permission")


@pytest.fixture
def clock() -> WakingClock:
    return WakingClock()


def turns(store: MemoryStore) -> dict[int, str]:
    """The holder of each turn."""
    return {
        int(path.removeprefix("_serial_")): json.loads(body)["tid"]
        for path, (body, _) in store.objects.items()
        if path.startswith("_serial_")
    }


def begin_overwrite(table: Table, body: bytes) -> Transaction:
    transaction = table.begin("overwrite")
    stage(table, transaction, body)
    return transaction


def take_turn_and_stall(table: Table, store: MemoryStore, body: bytes) -> Transaction:
    """An overwrite that holds the turn, undecided: its commit failed, and may be tried again."""
    transaction = begin_overwrite(table, body)
    store.before = fail_with(DENIED, "put_if_absent", "_committed_*")
    with pytest.raises(AccessDeniedError):
        transaction.commit()
    heal(store)
    return transaction


# --- answers that are lost, requests that fail -------------------------------------------------------------------


@pytest.mark.parametrize("may_read", [True, False])
def test_a_refusal_may_be_the_answer_to_the_clients_second_attempt_at_what_was_applied(
    table: Table, store: MemoryStore, may_read: bool
) -> None:
    transaction = table.begin()
    path = stage(table, transaction)
    store.after = fail_with(DENIED, "put_if_absent", "_committed_*")  # a token that expired between the two
    if may_read:
        assert transaction.commit().added == [path]
    else:
        store.before = fail_with(DENIED, "get", "_committed_*")
        with pytest.raises(CommitStateUnknownError):
            transaction.commit()
    heal(store)
    assert live(table) == {path}


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("path", ["_dbio_table", "_started_*"])
def test_a_begin_whose_put_fails_raises_and_the_next_one_works(
    table: Table, store: MemoryStore, path: str, applied: bool
) -> None:  # I9
    fault = fail_with(LOST, "put_if_absent", path)
    if applied:
        store.after = fault
    else:
        store.before = fault
    with pytest.raises(StoreError):
        table.begin()
    commit = write(table, "overwrite", bodies=[b"new"])
    assert contents(table) == [b"new"]
    assert table.snapshot().tids == (commit.tid,)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("path", ["_serial_*", "_committed_*"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_put_that_fails_while_committing_is_settled_by_reading_back(
    table: Table, store: MemoryStore, path: str, applied: bool, times: int
) -> None:  # I2, I3
    write(table, bodies=[b"old"])
    transaction = begin_overwrite(table, b"new")
    fault = fail_with(LOST, "put_if_absent", path, times=times)
    if applied:
        store.after = fault
    else:
        store.before = fault
    transaction.commit()
    assert contents(table) == [b"new"]
    assert turns(store) == {1: transaction.tid}


def test_a_put_that_says_lost_although_it_was_ours_is_taken_for_ours(table: Table, store: MemoryStore) -> None:  # I3
    transaction = table.begin()
    path = stage(table, transaction)
    earlier = table.resume(transaction.terms)
    earlier.add([FileInfo(path=path, size=4)])
    store.before = once("put_if_absent", "_committed_*", earlier.commit)  # has the same commit id
    transaction.commit()
    assert live(table) == {path}


def test_a_commit_that_stood_still_for_a_week_finds_what_a_copy_has_committed(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:  # I3
    transaction = table.begin()
    path = stage(table, transaction)
    earlier = table.resume(transaction.terms)
    earlier.add([FileInfo(path=path, size=4)])
    clock.sleep(1800)

    def stand_still() -> None:
        earlier.commit()
        clock.sleep(8 * 24 * 3600)

    store.before = once("stat", "_started_*", stand_still)
    assert transaction.commit().tid == transaction.tid
    assert live(table) == {path}


def test_a_commit_that_fails_does_not_deny_what_a_copy_has_committed(table: Table) -> None:  # I3
    long, text = ({"type": "struct", "fields": [{"name": "v", "type": it, "nullable": True, "metadata": {}}]}
                  for it in ("long", "string"))  # fmt: skip
    write(table, schema=long)
    transaction = table.begin()
    path = stage(table, transaction)
    earlier = table.resume(transaction.terms)
    earlier.add([FileInfo(path=path, size=4)])
    earlier.commit()
    write(table, "overwrite", schema=text)
    with pytest.raises(CommitStateUnknownError, match=r"has committed it, and this one failed: .*dbio show"):
        transaction.commit()
    assert transaction.tid in table.snapshot().tids


def test_an_overwrite_that_was_interrupted_after_it_landed_is_found_committed_by_a_second_commit(
    table: Table, store: MemoryStore
) -> None:  # I3
    write(table, bodies=[b"old"])
    transaction = begin_overwrite(table, b"new")
    store.after = fail_with(KeyboardInterrupt(), "put_if_absent", "_committed_*")
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    assert contents(table) == [b"new"]
    commit = transaction.commit()
    assert commit.tid == transaction.tid
    assert contents(table) == [b"new"]


@pytest.mark.parametrize("operation", ["append", "overwrite"])
@pytest.mark.parametrize("applied", [True, False])
def test_an_unreadable_read_back_is_reported_as_unknown_and_abort_settles_it(
    table: Table, store: MemoryStore, operation: str, applied: bool
) -> None:  # I3, I9
    write(table, bodies=[b"old"])
    transaction = table.begin("append" if operation == "append" else "overwrite")
    path = stage(table, transaction, b"new")
    fault = fail_with(LOST, "put_if_absent", "_committed_*")
    unreadable = fail_with(StoreError("503"), "get", f"_committed_{transaction.tid}")
    if applied:
        store.after, store.before = fault, unreadable
    else:

        def both(called: str, at: str) -> None:
            fault(called, at)
            unreadable(called, at)

        store.before = both
    with pytest.raises(CommitStateUnknownError, match=f"{transaction.tid}.*503.*dbio log"):
        transaction.commit()
    heal(store)
    with pytest.raises(TransactionStateError, match="of unknown outcome"):
        transaction.new_file()
    if applied:
        with pytest.raises(TransactionStateError, match="is committed"):
            transaction.abort()
        assert path in live(table)
    else:
        transaction.abort()
        assert contents(table) == [b"old"]
        assert path not in data_files(store)


def test_a_commit_that_never_lands_is_unknown_in_the_end(table: Table, store: MemoryStore) -> None:
    transaction = table.begin()
    stage(table, transaction)
    store.before = fail_with(StoreError("500"), "put_if_absent", "_committed_*", times=None)
    with pytest.raises(CommitStateUnknownError, match="500"):
        transaction.commit()
    heal(store)
    transaction.abort()
    assert not data_files(store)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_a_commit_of_unknown_outcome_may_be_called_again_and_commits_once(
    table: Table, store: MemoryStore, operation: Operation, applied: bool
) -> None:
    write(table, bodies=[b"old"])
    transaction = table.begin(operation)
    path = stage(table, transaction, b"new")
    marker = names.committed(transaction.tid)
    if applied:
        store.after = fail_with(LOST, "put_if_absent", marker, times=None)
        store.before = fail_with(LOST, "get", marker, times=None)
    else:
        store.before = fail_with(LOST, "put_if_absent", marker, times=None)
    for _ in range(2):
        with pytest.raises(CommitStateUnknownError):
            transaction.commit()
    heal(store)
    assert transaction.commit().added == [path]
    assert contents(table) == ([b"new", b"old"] if operation == "append" else [b"new"])
    with pytest.raises(TransactionStateError, match="is committed"):
        transaction.commit()


def test_a_commit_of_unknown_outcome_that_somebody_aborted_meanwhile_says_so(table: Table, store: MemoryStore) -> None:
    transaction = table.begin()
    stage(table, transaction)
    store.before = fail_with(LOST, "put_if_absent", "_committed_*", times=None)
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(store)
    table.abort(transaction.tid)
    with pytest.raises(TransactionAbortedError):
        transaction.commit()


@pytest.mark.parametrize("is_explicit", [True, False])
def test_a_commit_that_is_refused_like_its_abort_may_still_land_and_is_not_called_failed(
    table: Table, store: MemoryStore, is_explicit: bool
) -> None:
    """Credentials that expire: the client repeats the request by itself, and its first attempt is still under way."""
    under_way: list[tuple[str, bytes]] = []
    put_if_absent = store.put_if_absent

    def refuse(path: str, body: bytes) -> bool:
        if path.startswith("_committed_"):
            under_way.append((path, body))
            raise DENIED
        return put_if_absent(path, body)

    store.put_if_absent = refuse  # type: ignore[method-assign]

    def work() -> None:
        with table.begin() as transaction:
            stage(table, transaction)
            if is_explicit:
                transaction.commit()

    with pytest.raises(CommitStateUnknownError, match=r"may be applied.*dbio abort"):
        work()
    assert put_if_absent(*under_way[0])
    assert contents(table) == [b"rows"]


def test_a_commit_that_is_refused_and_aborted_is_failed_and_cannot_land(table: Table, store: MemoryStore) -> None:
    store.before = fail_with(DENIED, "put_if_absent", "_committed_*")
    with pytest.raises(AccessDeniedError), table.begin() as transaction:
        stage(table, transaction)
    assert not store.put_if_absent(names.committed(transaction.tid), b"late")
    assert contents(table) == []


def test_a_block_that_ends_with_an_unknown_outcome_deletes_nothing(table: Table, store: MemoryStore) -> None:  # I9
    def work() -> None:
        with table.begin() as transaction:
            stage(table, transaction)
            transaction.commit()

    store.after = fail_with(LOST, "put_if_absent", "_committed_*")
    store.before = fail_with(LOST, "get", "_committed_*")
    with pytest.raises(CommitStateUnknownError):
        work()
    heal(store)
    assert contents(table) == [b"rows"]


def test_a_refused_commit_stays_open_and_may_be_tried_again(table: Table, store: MemoryStore) -> None:
    transaction = take_turn_and_stall(table, store, b"new")
    transaction.commit()
    assert contents(table) == [b"new"]
    assert turns(store) == {1: transaction.tid}


def test_a_turn_that_never_lands_leaves_the_transaction_open(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    transaction = begin_overwrite(table, b"new")
    store.before = fail_with(LOST, "put_if_absent", "_serial_*", times=None)
    with pytest.raises(StoreError):
        transaction.commit()
    heal(store)
    transaction.commit()
    assert contents(table) == [b"new"]
    assert clock.monotonic() == 0


@pytest.mark.parametrize("operation", ["list_log", "get"])
def test_a_read_that_fails_while_committing_leaves_the_transaction_open(
    table: Table, store: MemoryStore, operation: str
) -> None:
    write(table, bodies=[b"old"])
    transaction = begin_overwrite(table, b"new")
    reads = 0
    for number in range(20):
        seen = [0]

        def fail(called: str, path: str, number: int = number, seen: list[int] = seen) -> None:
            if called == operation:
                seen[0] += 1
                if seen[0] == number + 1:
                    raise LOST

        store.before = fail
        try:
            transaction.commit()
            break
        except StoreError:
            reads += 1
    heal(store)
    assert reads
    assert contents(table) == [b"new"]


@pytest.mark.parametrize("applied", [True, False])
def test_an_abort_whose_put_fails_may_be_tried_again(table: Table, store: MemoryStore, applied: bool) -> None:
    transaction = table.begin()
    stage(table, transaction)
    fault = fail_with(LOST, "put_if_absent", "_committed_*")
    if applied:
        store.after = fault
    else:
        store.before = fault
    with pytest.raises(StoreError):
        transaction.abort()
    assert data_files(store)  # nothing is deleted before it is decided
    transaction.abort()
    assert not data_files(store)
    with pytest.raises(TransactionStateError):
        transaction.commit()


def test_files_that_an_abort_cannot_delete_stay_for_vacuum(table: Table, store: MemoryStore) -> None:
    transaction = table.begin()
    stage(table, transaction)
    store.before = fail_with(DENIED, "delete", "part-*", times=None)
    transaction.abort()
    assert live(table) == set()
    assert len(data_files(store)) == 1


def test_the_error_of_the_block_is_raised_even_where_the_abort_fails(table: Table, store: MemoryStore) -> None:
    def fail() -> None:
        with table.begin():
            store.before = fail_with(LOST, "put_if_absent", "_committed_*", times=None)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_a_commit_marker_of_a_stranger_under_our_tid_is_an_error_that_commits_nothing_of_ours(
    table: Table, store: MemoryStore
) -> None:  # I3
    transaction = table.begin()
    stage(table, transaction)
    store.put(f"_committed_{transaction.tid}", b'{"added": [], "removed": []}')
    with pytest.raises(CorruptMarkerError, match="another writer"):
        transaction.commit()
    assert live(table) == set()


# --- turns (I7) --------------------------------------------------------------------------------------------------


def test_turns_are_numbered_one_by_one_and_each_has_one_holder(table: Table, store: MemoryStore) -> None:  # I7
    tids = [write(table, "overwrite").tid for _ in range(3)]
    assert turns(store) == {1: tids[0], 2: tids[1], 3: tids[2]}
    numbers = [commit.marker.dbio_commit and commit.marker.dbio_commit.turn for commit in table.history()]
    assert sorted(number or 0 for number in numbers) == [1, 2, 3]


def test_a_transaction_began_before_its_start_marker_was_there(table: Table, store: MemoryStore) -> None:
    """However long the process is suspended then: for a minute from its beginning, it does not look for the marker."""
    store.after = once("put_if_absent", "_started_*", lambda: table.clock.sleep(300))
    transaction = table.begin()
    _, modified = store.objects[names.started(transaction.tid)]
    assert transaction.terms.began.wall <= modified


def test_blind_appends_take_no_turn_and_do_not_wait(table: Table, store: MemoryStore, clock: WakingClock) -> None:
    take_turn_and_stall(table, store, b"new")
    write(table, bodies=[b"append"])
    assert contents(table) == [b"append"]
    assert clock.monotonic() == 0
    assert len(turns(store)) == 1


def test_a_writer_that_is_overtaken_at_its_turn_takes_the_next_one(table: Table, store: MemoryStore) -> None:  # I7
    write(table, bodies=[b"old"])
    slow = begin_overwrite(table, b"slow")
    fast = begin_overwrite(table, b"fast")
    store.before = once("put_if_absent", "_serial_*", fast.commit)
    commit = slow.commit()
    assert turns(store) == {1: fast.tid, 2: slow.tid}
    assert set(commit.removed) == set(fast._staged)
    assert contents(table) == [b"slow"]


def test_a_waiter_waits_until_the_holder_is_decided(table: Table, store: MemoryStore, clock: WakingClock) -> None:
    holder = take_turn_and_stall(table, store, b"holder")
    clock.at(30, holder.commit)
    waiter = begin_overwrite(table, b"waiter")
    commit = waiter.commit()
    assert 30 <= clock.monotonic() < 32
    assert set(commit.removed) == set(holder._staged)
    assert contents(table) == [b"waiter"]


def test_a_waiter_goes_on_when_the_holder_aborts(table: Table, store: MemoryStore, clock: WakingClock) -> None:
    holder = take_turn_and_stall(table, store, b"holder")
    clock.at(10, holder.abort)
    commit = begin_overwrite(table, b"waiter").commit()
    assert 10 <= clock.monotonic() < 12
    assert not commit.removed


def test_the_lease_of_a_dead_holder_ends_after_a_minute_of_the_waiters_own_clock(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:  # I7, I9
    write(table, bodies=[b"old"])
    holder = take_turn_and_stall(table, store, b"holder")
    clock.advance(timedelta(hours=1))  # before anybody watched
    start_s = clock.monotonic()
    begin_overwrite(table, b"waiter").commit()
    assert LEASE_S <= clock.monotonic() - start_s < LEASE_S + 2
    assert decode_commit(store.get(f"_committed_{holder.tid}"), where="").is_abort
    assert contents(table) == [b"waiter"]


def test_an_empty_commit_marker_of_a_dead_holder_makes_room(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    """A disk that failed left it: it counts as absent (PROTOCOL.md 8.1)."""
    holder = take_turn_and_stall(table, store, b"holder")
    store.put(names.committed(holder.tid), b"")
    begin_overwrite(table, b"waiter").commit()
    assert decode_commit(store.get(names.committed(holder.tid)), where="").is_abort
    assert contents(table) == [b"waiter"]


def test_of_two_that_abort_at_an_empty_commit_marker_the_second_leaves_the_abort_of_the_first(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    """PROTOCOL.md 9.4, step 1; else a commit could come between the two, of files that the first has deleted (I3)."""
    tid = take_turn_and_stall(table, store, b"holder").tid
    path = names.committed(tid)
    store.put(path, b"")

    def abort_first(operation: str, deleted: str) -> None:
        if (operation, deleted) == ("delete", path):
            store.put(path, encode(abort_marker(commit_id="first", timestamp=clock.now())))
            store.before = lambda operation, path: None

    store.before = abort_first
    table.abort(tid)
    info = decode_commit(store.get(path), where="").dbio_commit
    assert info is not None
    assert info.commit_id == "first"


def test_a_commit_fails_at_an_empty_commit_marker_and_aborts(table: Table, store: MemoryStore) -> None:
    """PROTOCOL.md 9.3, step 3: it counts as absent, but the name is taken."""
    transaction = begin_overwrite(table, b"mine")
    store.put(names.committed(transaction.tid), b"")
    with pytest.raises(CorruptMarkerError):
        transaction.commit()
    assert decode_commit(store.get(names.committed(transaction.tid)), where="").is_abort
    assert contents(table) == []


@pytest.mark.parametrize("act", ["commit", "abort"])
def test_a_holder_whose_lease_ended_learns_that_it_is_aborted(table: Table, store: MemoryStore, act: str) -> None:  # I3
    holder = take_turn_and_stall(table, store, b"holder")
    begin_overwrite(table, b"waiter").commit()
    if act == "commit":
        with pytest.raises(TransactionAbortedError, match="begin again"):
            holder.commit()
    else:
        holder.abort()
    assert contents(table) == [b"waiter"]
    assert len(data_files(store)) == 1


def test_a_holder_that_is_aborted_between_its_snapshot_and_its_commit_does_not_commit(
    table: Table, store: MemoryStore
) -> None:  # I3, I7
    write(table, bodies=[b"old"])
    holder = begin_overwrite(table, b"holder")
    waiter = begin_overwrite(table, b"waiter")

    def wait() -> None:
        waiter.commit()  # sleeps through the lease, and more

    store.before = once("put_if_absent", f"_committed_{holder.tid}", wait)
    with pytest.raises(TransactionAbortedError, match="waited too long"):
        holder.commit()
    assert contents(table) == [b"waiter"]


@pytest.mark.parametrize("by", [timedelta(days=10), timedelta(days=-10)])
def test_a_jump_of_the_time_of_day_does_not_end_the_lease(
    table: Table, store: MemoryStore, clock: WakingClock, by: timedelta
) -> None:
    holder = take_turn_and_stall(table, store, b"holder")
    clock.at(5, lambda: clock.jump(by))
    clock.at(55, holder.commit)
    commit = begin_overwrite(table, b"waiter").commit()
    assert set(commit.removed) == set(holder._staged)
    assert contents(table) == [b"waiter"]


def test_a_waiter_that_slept_with_the_holder_does_not_end_its_lease(
    table: Table, store: MemoryStore, clock: WakingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop on which both run is closed for ten minutes."""
    holder = take_turn_and_stall(table, store, b"holder")
    clock.at(5, lambda: clock.advance(timedelta(minutes=10)))
    clock.at(606, holder.commit)
    begin_overwrite(table, b"waiter").commit()
    assert contents(table) == [b"waiter"]
    assert holder.tid in table.snapshot().tids


def test_where_a_look_takes_longer_than_the_lease_the_holder_has_time_for_many(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:
    """A log so long that to list it takes a minute: the holder must list it several times before it can commit."""
    holder = take_turn_and_stall(table, store, b"holder")
    waiter = begin_overwrite(table, b"waiter")
    looks: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "list_log":
            looks.append(path)
            clock.advance(timedelta(seconds=61))
            if len(looks) == 20:
                store.before = lambda operation, path: None
                holder.commit()
                store.before = before

    store.before = before
    waiter.commit()
    assert contents(table) == [b"waiter"]
    assert holder.tid in table.snapshot().tids


def test_the_lease_counts_anew_for_each_holder(table: Table, store: MemoryStore, clock: WakingClock) -> None:
    first = take_turn_and_stall(table, store, b"first")
    second = begin_overwrite(table, b"second")

    def second_takes_over() -> None:
        first.commit()
        store.before = fail_with(DENIED, "put_if_absent", f"_committed_{second.tid}")
        with pytest.raises(AccessDeniedError):
            second.commit()

    clock.at(50, second_takes_over)
    clock.at(100, second.commit)
    begin_overwrite(table, b"third").commit()
    assert 100 <= clock.monotonic() < 102
    assert contents(table) == [b"third"]


def test_a_holder_that_commits_at_the_last_moment_has_committed(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:  # I3
    holder = take_turn_and_stall(table, store, b"holder")
    waiter = begin_overwrite(table, b"waiter")
    store.before = once("put_if_absent", f"_committed_{holder.tid}", holder.commit)  # the waiter's abort comes second
    commit = waiter.commit()
    assert clock.monotonic() >= LEASE_S
    assert set(commit.removed) == set(holder._staged)
    assert contents(table) == [b"waiter"]
    assert {holder.tid, waiter.tid} == set(table.snapshot().tids)


def test_a_waiter_that_is_aborted_meanwhile_learns_it(table: Table, store: MemoryStore, clock: WakingClock) -> None:
    take_turn_and_stall(table, store, b"holder")
    waiter = begin_overwrite(table, b"waiter")
    clock.at(10, lambda: table.abort(waiter.tid))
    with pytest.raises(TransactionAbortedError):
        waiter.commit()
    assert clock.monotonic() < 15


@pytest.mark.parametrize("applied", [True, False])
def test_a_waiter_whose_abort_of_the_holder_fails_may_try_again(
    table: Table, store: MemoryStore, clock: WakingClock, applied: bool
) -> None:
    holder = take_turn_and_stall(table, store, b"holder")
    waiter = begin_overwrite(table, b"waiter")
    fault = fail_with(LOST, "put_if_absent", f"_committed_{holder.tid}")
    if applied:
        store.after = fault
    else:
        store.before = fault
    with pytest.raises(StoreError):
        waiter.commit()
    waiter.commit()
    assert contents(table) == [b"waiter"]


def test_a_waiter_does_not_flood_the_store_while_it_waits(table: Table, store: MemoryStore, clock: WakingClock) -> None:
    take_turn_and_stall(table, store, b"holder")
    waiter = begin_overwrite(table, b"waiter")
    with calls_to(store) as calls:
        waiter.commit()
    assert len(calls) < 200


def test_a_holder_whose_markers_vacuum_has_purged_was_decided(
    table: Table, store: MemoryStore, clock: WakingClock
) -> None:  # PROTOCOL.md 9.5: start marker and commit marker both gone
    tid = write(table, "overwrite").tid
    del store.objects[f"_started_{tid}"]
    del store.objects[f"_committed_{tid}"]
    write(table, "overwrite")
    assert clock.monotonic() == 0
    assert len(turns(store)) == 2


@pytest.mark.parametrize("body", [b"", b"{}", b'{"tid": "../x"}', b"[1]"])
def test_a_turn_that_cannot_be_read_is_an_error_and_nothing_is_overwritten(
    table: Table, store: MemoryStore, body: bytes
) -> None:
    write(table, bodies=[b"old"])
    store.put("_serial_00000000000000000001", body)
    with pytest.raises(CorruptMarkerError, match="_serial_0"):
        write(table, "overwrite", bodies=[b"new"])
    assert contents(table) == [b"old"]


def test_a_turn_of_a_number_that_no_writer_reaches_is_an_error_and_not_an_endless_wait(
    table: Table, store: MemoryStore
) -> None:
    write(table, bodies=[b"old"])
    store.put("_serial_" + "9" * 20, b'{"tid": "1"}')
    calls: list[str] = []

    def count(called: str, path: str) -> None:
        calls.append(called)
        if len(calls) > 500:
            raise RuntimeError("endless")

    store.before = count
    for _ in range(2):
        with pytest.raises(CorruptMarkerError):
            write(table, "overwrite", bodies=[b"new"])
    heal(store)
    assert contents(table) == [b"old"]


# --- two writers, in every order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", range(8))
def test_an_overwrite_that_another_one_overtakes_at_any_call_leaves_one_of_them(
    table: Table, store: MemoryStore, clock: ManualClock, moment: str, at: int
) -> None:  # I2, I7
    write(table, bodies=[b"old"])
    slow, fast = begin_overwrite(table, b"slow"), begin_overwrite(table, b"fast")
    calls = 0

    def overtake(called: str, path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            heal(store)
            fast.commit()

    if moment == "before":
        store.before = overtake
    else:
        store.after = overtake
    try:
        slow.commit()
        survivor = b"fast" if fast_came_last(store, fast) else b"slow"
    except TransactionAbortedError:
        survivor = b"fast"
    heal(store)
    assert calls > at, "the commit has fewer calls: make the range shorter"
    assert contents(table) == [survivor]


def fast_came_last(store: MemoryStore, fast: Transaction) -> bool:
    holders = turns(store)
    return holders[max(holders)] == fast.tid
