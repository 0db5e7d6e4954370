"""Attempts at one version of an application: what their start markers say, who aborts them, and tasks that claim a tid.

Numbers I1 to I10: PROTOCOL.md section 5. Rules: PROTOCOL.md 9.1, 9.3.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import Table, Transaction
from dbio_commit.base.errors import (
    CommitConflictError,
    CorruptMarkerError,
    InvalidInputError,
    StoreError,
    TransactionAbortedError,
    UnsupportedTableError,
)
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.request import Terms
from dbio_commit.commit.turns import TRUST_S
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.start import App, StartMarker, decode_start
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import versions_of
from tests.faults import calls_to, fail_with, give_up_after, once, unwatched
from tests.unit.checkpointed import purge
from tests.writers import WakingClock, contents, stage, write, write_days

QUERY = "a0f7bd0a-5f3b-4e6a-9d5c-2f1c1e1f7c11"


def unclaimed(table: Table, batch: int, *, query: str = QUERY) -> Terms:
    """What a driver plans for a batch of a stream; `app` is what only its tasks know."""
    transaction = begin(context_of(table.store, table.clock), Intent(), claims=False)
    return replace(transaction.terms, app=App(id=query, version=batch))


def write_as_task(table: Table, terms: Terms, body: bytes = b"rows") -> FileInfo:
    transaction = table.resume(terms)
    return FileInfo(path=stage(table, transaction, body), size=len(body))


def commit(table: Table, terms: Terms, *files: FileInfo) -> Any:
    transaction = table.resume(terms)
    transaction.add(files)
    return transaction.commit()


def abort_marker(store: MemoryStore, tid: str) -> bool:
    body, _ = store.objects.get(names.committed(tid), (b"{}", None))
    return (json.loads(body).get("dbio_commit") or {}).get("operation") == "abort"


def pending(table: Table) -> set[str]:
    return {*table.snapshot().log.pending}


# --- what a start marker says -------------------------------------------------------------------------------------


def test_a_start_marker_tells_its_table_and_the_application_if_there_is_one(table: Table, store: MemoryStore) -> None:
    plain, ours = table.begin(), table.begin(app=("nightly", 7))
    table_id = table.snapshot().table_id
    told = [decode_start(store.get(names.started(it.tid)), where="here") for it in (plain, ours)]
    assert told == [
        StartMarker(table_id=table_id, provenance=plain.terms.provenance, job=plain.terms.job),
        StartMarker(
            table_id=table_id,
            app=App(id="nightly", version=7),
            takes_turn=True,
            provenance=ours.terms.provenance,
            job=ours.terms.job,
        ),
    ]
    assert ours.terms.begun == store.get(names.started(ours.tid))
    assert decode_start(b"", where="here") is None


@given(st.text(min_size=1, max_size=1000), st.integers(0, 2**63 - 1), st.uuids(version=4).map(str))
def test_what_a_start_marker_says_is_read_back(id: str, version: int, job: str) -> None:
    try:
        app = App(id=id, version=version)
        body = encode(StartMarker(table_id="a table", app=app, job=job))
    except (ValueError, InvalidInputError):
        return  # no text that UTF-8 holds
    assert decode_start(body, where="here") == StartMarker(table_id="a table", app=app, job=job)


HOSTILE = [
    b"{", b"[]", b"null", b"rows", b"\0", b"{}", b'{"app": {"id": "a", "version": 1}}',
    b'{"app": {"id": "", "version": 1}, "job": "j"}', b'{"app": {"id": "a", "version": -1}, "job": "j"}',
    b'{"app": {"id": "a", "version": "1"}, "job": "j"}', b'{"app": ["a", 1], "job": "j"}',
    b'{"app": {"id": "a", "version": 1}, "job": 7}', b'{"version": 0, "app": {"id": "a", "version": 1}, "job": "j"}',
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE)
def test_what_no_writer_writes_into_a_start_marker_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptMarkerError, match="here"):
        decode_start(body, where="here")


def test_a_start_marker_of_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedTableError, match="upgrade"):
        decode_start(b'{"version": 2, "app": {"id": "a", "version": 1}, "job": "j"}', where="here")


def test_keys_that_a_later_version_adds_are_passed_over() -> None:
    body = b'{"version": 1, "app": {"id": "a", "version": 1, "x": 1}, "job": "j", "more": {}}'
    assert decode_start(body, where="here") == StartMarker(app=App(id="a", version=1), job="j")


@pytest.mark.parametrize("body", [*HOSTILE, b'{"version": 2}'])
def test_whatever_a_start_marker_says_the_transaction_is_pending_and_readers_do_not_care(
    table: Table, store: MemoryStore, body: bytes
) -> None:
    write(table)
    store.put("_started_77", body)
    assert pending(table) == {"77"}
    assert [it.tid for it in table.check().pending] == ["77"]
    assert contents(table) == [b"rows"]
    table.abort("77")
    assert pending(table) == set()


# --- attempts that came to nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3, 7])
def test_who_commits_a_version_aborts_pending_attempts_at_committed_ones(table: Table, version: int) -> None:
    left = table.begin(app=("nightly", version))
    for earlier in (0, 3):  # by somebody who could not abort it
        with patch("dbio_commit.commit.table_root.abort_superseded"):
            write(table, app=("nightly", earlier))
    write(table, app=("nightly", 7))
    assert pending(table) == set()
    assert isinstance(table.store, MemoryStore)
    assert abort_marker(table.store, left.tid)


def test_no_other_transaction_is_aborted(table: Table, store: MemoryStore) -> None:
    others = [
        table.begin(),
        table.begin("overwrite"),
        table.begin(app=("nightly", 8)),
        table.begin(app=("nightly", date(1, 1, 1))),
        table.begin(app=("hourly", 1)),
        table.begin(app=("Nightly", 1)),
    ]
    store.put("_started_77")
    write(table, app=("nightly", 7))
    assert pending(table) == {"77", *(it.tid for it in others)}
    for other in others:
        stage(table, other)
        assert not other.commit().skipped


def test_an_append_without_an_application_aborts_nothing_and_reads_no_start_marker(
    table: Table, store: MemoryStore
) -> None:
    left = table.begin(app=("nightly", 1))
    with calls_to(store) as calls:
        write(table, "overwrite")
    assert pending(table) == {left.tid}
    assert not [path for operation, path in calls if operation == "get" and path.startswith("_started_")]


@pytest.mark.parametrize("body", [*HOSTILE, b'{"version": 2}'])
def test_a_start_marker_that_says_nothing_readable_is_left_alone(
    table: Table, store: MemoryStore, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(table)
    store.put("_started_77", body)
    assert not write(table, app=("nightly", 1)).skipped
    assert pending(table) == {"77"}
    assert "could not find out whether 77 is another attempt" in caplog.text


@pytest.mark.parametrize("error", [StoreError("503"), RuntimeError("can't start new thread")], ids=str)
@pytest.mark.parametrize(("operation", "where"), [("get", "_started_*"), ("put_if_absent", "_committed_*")])
def test_a_commit_stands_where_attempts_cannot_be_aborted(
    table: Table, store: MemoryStore, operation: str, where: str, error: Exception
) -> None:
    left = table.begin(app=("nightly", 1))
    ours = table.begin(app=("nightly", 1))
    stage(table, ours)

    def fail_from_now_on() -> None:
        store.before = fail_with(error, operation, where, times=None)

    store.after = once("put_if_absent", names.committed(ours.tid), fail_from_now_on)
    assert not ours.commit().skipped
    with unwatched(store):
        assert pending(table) == {left.tid}


def test_an_attempt_that_was_aborted_so_is_skipped_and_no_error(table: Table, store: MemoryStore) -> None:
    """I8: its rows are in the table, by the other."""
    late = table.begin(app=("nightly", 7))
    path = stage(table, late, b"late")
    write(table, app=("nightly", 7))
    assert late.commit().skipped
    assert contents(table) == [b"rows"]
    assert path not in store.objects
    with table.begin(app=("nightly", 8)) as block:
        stage(table, block)
        write(table, app=("nightly", 8))
    assert len(contents(table)) == 2


def test_an_attempt_that_somebody_aborted_for_nothing_is_an_error(table: Table) -> None:
    write(table, app=("nightly", 6))
    late = table.begin(app=("nightly", 7))
    stage(table, late)
    table.abort(late.tid)
    with pytest.raises(TransactionAbortedError):
        late.commit()


def test_an_attempt_that_is_aborted_while_it_waits_for_its_turn_is_skipped(table: Table, store: MemoryStore) -> None:
    late = table.begin(app=("nightly", 7))
    stage(table, late, b"late")
    store.before = once("put_if_absent", "_serial_*", lambda: write(table, app=("nightly", 7)))
    assert late.commit().skipped
    assert contents(table) == [b"rows"]


def test_of_an_attempt_that_was_aborted_long_ago_the_end_is_the_same(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    late = table.begin(app=("nightly", 7))
    stage(table, late, b"late")
    write(table, app=("nightly", 7))
    table.checkpoint()
    purge(store)
    clock.advance(timedelta(days=6))
    assert late.commit().skipped
    assert contents(table) == [b"rows"]
    assert names.committed(late.tid) not in store.objects


# --- tids that tasks claim ----------------------------------------------------------------------------------------


def test_an_unclaimed_transaction_leaves_nothing_before_its_first_file(table: Table, store: MemoryStore) -> None:
    write(table)
    before = set(store.objects)
    terms = unclaimed(table, 3)
    assert set(store.objects) == before
    write_as_task(table, terms)
    assert store.get(names.started(terms.tid)) == terms.begun


def test_a_start_marker_that_comes_and_goes_is_an_error_and_no_loop(table: Table, store: MemoryStore) -> None:
    write(table)
    terms = unclaimed(table, 3)
    path = names.started(terms.tid)
    bound = give_up_after(100)

    def step(operation: str, called: str) -> None:
        bound(operation, called)
        if operation == "put_if_absent":
            store.put(path, b"")
        elif operation == "get":
            store.objects.pop(path, None)

    store.before = step
    with pytest.raises(StoreError, match="appears and disappears"):
        write_as_task(table, terms)


def test_the_start_marker_comes_before_the_first_file_of_each_task(table: Table, store: MemoryStore) -> None:
    """I5: vacuum must find a pending transaction, and no file of an unknown one."""
    terms = unclaimed(table, 3)
    with calls_to(store) as calls:
        for _ in range(2):
            write_as_task(table, terms)
    made = [path.rstrip("0123456789")[:9] for operation, path in calls if operation in ("put_if_absent", "write")]
    assert made[0] == "_started_"
    assert [path for path in made if path.startswith("part-")] == ["part-0000"] * 2


def test_the_files_of_all_tasks_are_committed_by_who_hears_of_them(table: Table) -> None:
    terms = unclaimed(table, 3)
    files = [write_as_task(table, terms, body) for body in (b"1", b"2")]
    assert not commit(table, terms, *files).skipped
    assert contents(table) == [b"1", b"2"]
    assert table.snapshot().app_versions == {QUERY: versions_of(3)}


def test_a_batch_without_files_is_claimed_by_who_commits_it(table: Table, store: MemoryStore) -> None:
    write(table)
    terms = unclaimed(table, 3)
    assert not commit(table, terms).skipped
    assert names.started(terms.tid) in store.objects
    assert table.snapshot().app_versions == {QUERY: versions_of(3)}


def test_two_drivers_on_one_checkpoint_commit_a_batch_once(table: Table) -> None:
    """I8."""
    one, other = unclaimed(table, 3), unclaimed(table, 3)
    files = [write_as_task(table, one, b"one"), write_as_task(table, other, b"other")]
    assert not commit(table, other, files[1]).skipped
    assert commit(table, one, files[0]).skipped
    assert contents(table) == [b"other"]
    assert pending(table) == set()


def test_a_batch_of_a_driver_that_died_is_aborted_by_the_next_that_commits(table: Table, store: MemoryStore) -> None:
    dead = unclaimed(table, 3)
    write_as_task(table, dead)
    terms = unclaimed(table, 3)
    commit(table, terms, write_as_task(table, terms))
    assert abort_marker(store, dead.tid)


def test_a_tid_that_another_has_claimed_is_not_shared(table: Table, store: MemoryStore) -> None:
    write(table)
    for job in (None, "another job"):
        terms = unclaimed(table, 3)
        body = replace(terms, job=job).begun if job else b""
        store.put(names.started(terms.tid), body)
        with pytest.raises(StoreError, match="from another writer; write again"):
            write_as_task(table, terms)
    assert contents(table) == [b"rows"]


def test_a_claim_whose_answer_is_lost_is_found_by_the_next_task(table: Table, store: MemoryStore) -> None:
    terms = unclaimed(table, 3)
    store.after = fail_with(StoreError("timed out"), "put_if_absent", "_started_*")
    with pytest.raises(StoreError):
        write_as_task(table, terms)
    commit(table, terms, write_as_task(table, terms))
    assert contents(table) == [b"rows"]


@pytest.mark.parametrize("age_s", [TRUST_S - 1, TRUST_S + 1])
def test_a_task_that_claims_late_looks_whether_the_table_is_still_there_as_it_was(
    table: Table, store: MemoryStore, clock: ManualClock, age_s: float
) -> None:
    write(table)
    terms = unclaimed(table, 3)
    clock.advance(timedelta(seconds=age_s))
    with calls_to(store) as calls:
        write_as_task(table, terms)
    assert (("list_log", "_d _serial_") in calls) == (age_s > TRUST_S)


@pytest.mark.parametrize("anew", [False, True])
def test_a_task_writes_nothing_to_a_table_that_was_dropped_meanwhile(
    table: Table, store: MemoryStore, anew: bool
) -> None:
    write(table)
    terms = unclaimed(table, 3)
    table.drop(everything=True)
    if anew:
        write_days(table, d1=b"1")
    before = set(store.objects)
    with pytest.raises(CommitConflictError, match="was dropped"):
        write_as_task(table, terms)
    assert set(store.objects) == before


def test_a_task_that_comes_after_a_week_writes_nothing(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    """I5: an abort marker of its transaction may be purged by then."""
    write(table)
    terms = unclaimed(table, 3)
    clock.advance(timedelta(days=8))
    before = set(store.objects)
    with pytest.raises(TransactionAbortedError):
        write_as_task(table, terms)
    assert set(store.objects) == before


@pytest.mark.parametrize("claims", [True, False])
def test_a_directory_of_the_directory_scope_has_no_place_for_it(table: Table, store: MemoryStore, claims: bool) -> None:
    store.put("a.parquet", b"PAR1....PAR1")
    with pytest.raises(InvalidInputError, match="write to a dbio table"):
        begin(context_of(store, table.clock), Intent(app=(QUERY, 1) if claims else None), claims=claims)


# --- tasks that come too late -------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("purged", [True, False])
def test_a_late_task_cannot_resurrect_a_decided_transaction(
    table: Table, store: MemoryStore, clock: ManualClock, committed: bool, purged: bool
) -> None:
    """I3: its start marker may come back, but not a decision."""
    terms = unclaimed(table, 3)
    file = write_as_task(table, terms, b"first")
    if committed:
        commit(table, terms, file)
    else:
        table.abort(terms.tid)
        winner = unclaimed(table, 3)
        commit(table, winner, write_as_task(table, winner, b"first"))
    table.checkpoint()
    if purged:
        purge(store)
    clock.advance(timedelta(days=2))
    late = write_as_task(table, terms, b"late")
    assert contents(table) == [b"first"]
    assert [it.tid for it in table.check().pending] == []
    for files in ([late], [file, late]):
        try:
            assert commit(table, terms, *files).skipped or not committed
        except CommitConflictError:
            assert committed
        assert contents(table) == [b"first"]


def test_a_late_task_of_the_last_turn_does_not_stop_others(store: MemoryStore) -> None:
    """Its start marker comes back when vacuum has purged both markers: the holder looks undecided, and is not."""
    clock = WakingClock()
    table = Table.over(store, clock)
    terms = unclaimed(table, 3)
    commit(table, terms, write_as_task(table, terms, b"first"))
    table.checkpoint()
    purge(store)
    clock.advance(timedelta(hours=2))
    write_as_task(table, terms, b"late")

    def give_up() -> None:
        raise AssertionError("waits for a transaction that was decided long ago")

    clock.at(clock.monotonic() + 600, give_up)
    write(table, "overwrite", bodies=[b"new"])
    assert contents(table) == [b"new"]
    assert names.committed(terms.tid) not in store.objects


@pytest.mark.parametrize("days", [0, 8])
def test_a_task_under_whose_eyes_its_start_marker_is_purged_comes_late_as_any_other(
    table: Table, store: MemoryStore, clock: ManualClock, days: int
) -> None:
    terms = unclaimed(table, 3)
    commit(table, terms, write_as_task(table, terms, b"first"))
    table.checkpoint()

    def sleep() -> None:
        purge(store)
        clock.advance(timedelta(days=days))

    store.before = once("get", names.started(terms.tid), sleep)
    with pytest.raises(TransactionAbortedError, match="days ago") if days else nullcontext():
        write_as_task(table, terms, b"late")
    assert (names.started(terms.tid) in store.objects) is not bool(days)
    assert contents(table) == [b"first"]
    assert table.check().pending == []


def test_a_late_task_of_a_purged_transaction_is_no_attempt_to_abort(table: Table, store: MemoryStore) -> None:
    terms = unclaimed(table, 3)
    commit(table, terms, write_as_task(table, terms, b"first"))
    write(table, "append", app=("other", 1))
    table.checkpoint()
    purge(store)
    write_as_task(table, terms, b"late")
    following = unclaimed(table, 4)
    commit(table, following, write_as_task(table, following, b"second"))
    assert not abort_marker(store, terms.tid)
    assert contents(table) == [b"first", b"rows", b"second"]


def test_a_transaction_that_leaves_its_block_after_its_abort_counts_as_skipped(table: Table) -> None:
    transaction: Transaction = table.begin(app=("nightly", 1))
    with transaction:
        stage(table, transaction, b"late")
        write(table, app=("nightly", 1), bodies=[b"first"])
    assert contents(table) == [b"first"]
