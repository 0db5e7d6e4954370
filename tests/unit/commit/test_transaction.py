"""Transactions in the table scope, from begin to decision, on a store in memory. Numbers I1 to I10: PROTOCOL.md 5.

How lost answers, turns and leases are settled is in `test_decision`; crashes, call by call, in `test_crash_points`.
Rules: PROTOCOL.md 9.2, 9.3.
"""

import gzip
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, cast

import pytest

from dbio_commit.base.errors import (
    AppVersionError,
    CommitConflictError,
    InvalidInputError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit import table_root as table_module
from dbio_commit.commit.isolation import Read
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.doubtful import DECIDING
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.markers.commit import Operation, decode_commit, encode_commit
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.names import HIVE_NULL
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.faults import DurableStore, calls_to, once
from tests.writers import contents, data_files, live, stage, write, write_days
from vacuum import VacuumOptions, vacuum_table

# --- append -------------------------------------------------------------------------------------------------------


def test_append_makes_all_its_files_live_in_all_partitions_at_once(table: Table) -> None:  # I1, I2
    transaction = table.begin(partition_by=["day"])
    paths = {stage(table, transaction, partition={"day": day}) for day in ("1", "2", "3")}
    assert table.snapshot().files == ()
    commit = transaction.commit()
    assert live(table) == paths == set(commit.added)
    assert table.snapshot().tids == (transaction.tid,)


def test_files_that_no_commit_names_are_never_live(table: Table, store: MemoryStore) -> None:  # I1
    write(table)
    transaction = table.begin()
    path = stage(table, transaction, b"named")
    store.put(path.replace("-c000", "-c001"), b"of a task attempt that failed")
    transaction.commit()
    assert contents(table) == [b"named", b"rows"]


def test_new_file_gives_every_file_a_name_of_its_own_with_the_tid(table: Table) -> None:
    transaction = table.begin(partition_by=["day", "hour"])
    urls = [transaction.new_file(".zstd.parquet", {"hour": "1", "day": None}) for _ in range(3)]
    assert len(set(urls)) == 3
    for url in urls:
        assert url.startswith(f"{table.url}/day={HIVE_NULL}/hour=1/part-00000-tid-{transaction.tid}-")
        assert url.endswith("-c000.zstd.parquet")


def test_copies_of_a_transaction_that_resume_it_elsewhere_take_different_new_files(table: Table) -> None:
    transaction = table.begin()
    copies = [table.resume(transaction.terms) for _ in range(3)]
    assert len({copy.new_file() for copy in (transaction, *copies)}) == 4


def test_commit_records_size_rows_partition_and_statistics_of_each_file(table: Table) -> None:
    transaction = table.begin(partition_by=["day"])
    new = stage(table, transaction, b"12345", {"day": "a/b"})
    given = FileInfo(
        path=f"day=2/part-00001-tid-{transaction.tid}-x-7-0-c000.parquet",
        size=9,
        rows=4,
        partition={"day": "2"},
        statistics={"n": Bounds(1, 5, 0)},
    )
    transaction.add([given])
    commit = transaction.commit()
    by_path = {file.path: file for file in commit.files}
    assert (by_path[new].size, by_path[new].rows, by_path[new].partition) == (5, None, {"day": "a/b"})
    assert by_path[given.path] == given
    assert commit.metrics["numFiles"] == 2
    assert commit.metrics["numOutputBytes"] == 14
    assert commit.metrics["numParts"] == 2
    assert "numOutputRows" not in commit.metrics  # not known of each file
    assert {(file.path, file.size) for file in table.snapshot().files} == {(new, 5), (given.path, 9)}


def test_empty_append_is_a_commit_without_files(table: Table) -> None:
    with table.begin() as transaction:
        pass
    assert table.snapshot().tids == (transaction.tid,)
    assert live(table) == set()


def test_data_is_durable_before_the_marker_that_names_it(clock: ManualClock) -> None:  # I2, PROTOCOL.md 9.2
    store = DurableStore(clock)
    table = Table.over(store, clock)
    transaction = table.begin()
    path = stage(table, transaction)
    with calls_to(store) as calls:
        transaction.commit()
    assert [call for call in calls if call[0] in ("make_durable", "put_if_absent")] == [
        ("make_durable", path),
        ("put_if_absent", f"_committed_{transaction.tid}"),
    ]


# --- overwrite, replacement, rewrite (I7) ------------------------------------------------------------------------


def test_overwrite_removes_what_was_live_and_nothing_else_shows(table: Table) -> None:  # I2
    old = {*write(table).added, *write(table).added}
    commit = write(table, "overwrite", bodies=[b"new"])
    assert set(commit.removed) == old
    assert contents(table) == [b"new"]


def test_overwrite_removes_what_was_committed_after_it_began(table: Table) -> None:  # I7
    write(table, bodies=[b"before"])
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    write(table, bodies=[b"between"])
    transaction.commit()
    assert contents(table) == [b"new"]


def test_overwrite_keeps_what_commits_after_it(table: Table) -> None:
    write(table, bodies=[b"before"])
    late = table.begin()
    stage(table, late, b"late")
    write(table, "overwrite", bodies=[b"new"])
    late.commit()
    assert contents(table) == [b"late", b"new"]


def test_two_overwrites_at_once_leave_exactly_one_of_them(table: Table) -> None:  # I7
    write(table, bodies=[b"old"])
    first, second = table.begin("overwrite"), table.begin("overwrite")
    stage(table, first, b"first")
    stage(table, second, b"second")
    second.commit()
    first.commit()
    assert contents(table) == [b"first"]


def test_empty_overwrite_empties_the_table(table: Table) -> None:
    write(table)
    write(table, "overwrite", bodies=[])
    assert live(table) == set()


def test_dynamic_replacement_replaces_just_the_partitions_that_it_writes_to(table: Table) -> None:
    write_days(table, a=b"a1", b=b"b1", c=b"c1")
    write_days(table, a=b"a2")
    commit = write_days(table, "overwrite_partitions", a=b"a3", d=b"d3")
    assert contents(table) == [b"a3", b"b1", b"c1", b"d3"]
    assert len(commit.removed) == 2


def test_dynamic_replacement_without_files_removes_nothing(table: Table) -> None:
    write_days(table, a=b"a1")
    commit = write_days(table, "overwrite_partitions")
    assert not commit.removed
    assert contents(table) == [b"a1"]


def test_replacement_of_the_null_partition_leaves_other_partitions(table: Table) -> None:
    transaction = table.begin(partition_by=["day"])
    stage(table, transaction, b"null", {"day": None})
    stage(table, transaction, b"text", {"day": "null"})
    transaction.commit()
    replacing = table.begin("overwrite_partitions")
    stage(table, replacing, b"new", {"day": None})
    replacing.commit()
    assert contents(table) == [b"new", b"text"]


def test_static_replacement_empties_the_named_partition_even_if_nothing_is_written_there(table: Table) -> None:
    write_days(table, a=b"a1", b=b"b1")
    transaction = table.begin("overwrite_partitions")
    transaction.overwrite_partition({"day": "a"})
    transaction.commit()
    assert contents(table) == [b"b1"]


def test_static_replacement_by_some_columns_replaces_all_partitions_below_them(table: Table) -> None:
    transaction = table.begin(partition_by=["day", "hour"])
    for day, hour in ("11", "12", "21", "22"):
        stage(table, transaction, f"{day}{hour}".encode(), {"day": day, "hour": hour})
    transaction.commit()
    replacing = table.begin("overwrite_partitions")
    replacing.overwrite_partition({"day": "1"})
    replacing.overwrite_partition({"hour": "2"})
    stage(table, replacing, b"new", {"day": "1", "hour": "3"})
    replacing.commit()
    assert contents(table) == [b"21", b"new"]


def test_static_replacement_keeps_what_was_live_in_a_partition_that_it_only_writes_to(table: Table) -> None:
    write_days(table, a=b"a1", b=b"b1")
    transaction = table.begin("overwrite_partitions")
    transaction.overwrite_partition({"day": "a"})
    stage(table, transaction, b"b2", {"day": "b"})
    transaction.commit()
    assert contents(table) == [b"b1", b"b2"]


@pytest.mark.parametrize("partition", [{}, {"month": "1"}, {"day": "a", "month": "1"}])
def test_replacing_what_is_no_partition_of_the_table_is_refused(table: Table, partition: dict[str, str]) -> None:
    transaction = table.begin("overwrite_partitions", partition_by=["day"])
    with pytest.raises(InvalidInputError, match="day"):
        transaction.overwrite_partition(partition)


def test_rewrite_swaps_exactly_the_files_that_it_names(table: Table) -> None:
    small = [*write(table, bodies=[b"1"]).added, *write(table, bodies=[b"2"]).added]
    write(table, bodies=[b"3"])
    transaction = table.begin("rewrite")
    transaction.remove(small)
    stage(table, transaction, b"1+2")
    commit = transaction.commit()
    assert sorted(commit.removed) == sorted(small)
    assert contents(table) == [b"1+2", b"3"]


@pytest.mark.parametrize("rival", ["overwrite", "rewrite"])
def test_rewrite_of_a_file_that_is_not_live_any_more_is_a_conflict(
    table: Table, store: MemoryStore, rival: Operation
) -> None:  # I7
    small = list(write(table, bodies=[b"1"]).added)
    transaction = table.begin("rewrite")
    transaction.remove(small)
    mine = stage(table, transaction, b"mine")
    other = table.begin(rival)
    if rival == "rewrite":
        other.remove(small)
    stage(table, other, b"theirs")
    other.commit()
    with pytest.raises(CommitConflictError, match="are not live any more"):
        transaction.commit()
    assert contents(table) == [b"theirs"]
    assert mine not in data_files(store)
    with pytest.raises(TransactionStateError, match="aborted"):
        transaction.commit()


def test_rewrite_of_a_file_that_never_was_is_a_conflict(table: Table) -> None:
    write(table)
    transaction = table.begin("rewrite")
    transaction.remove(["part-00000-tid-1-x-0-0-c000.parquet"])
    with pytest.raises(CommitConflictError):
        transaction.commit()


# --- idempotent (I8) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["append", "overwrite"])
@pytest.mark.parametrize("version", [3, 5])
def test_a_version_that_is_committed_already_is_skipped_and_its_files_deleted(
    table: Table, store: MemoryStore, operation: Operation, version: int
) -> None:
    for earlier in (3, 5):
        write(table, bodies=[b"once"], app=("job", earlier))
    before = data_files(store)
    again = write(table, operation, bodies=[b"twice"], app=("job", version))
    assert again.skipped
    assert not again.added
    assert contents(table) == [b"once"] * 2
    assert data_files(store) == before
    assert again.tid not in table.snapshot().tids


def test_later_versions_and_other_applications_are_committed(table: Table) -> None:
    for app in (("job", 0), ("job", 1), ("other", 0)):
        assert not write(table, bodies=[repr(app).encode()], app=app).skipped
    assert len(live(table)) == 3


def test_a_version_stays_committed_when_its_files_are_overwritten(table: Table) -> None:
    write(table, bodies=[b"once"], app=("job", 5))
    write(table, "overwrite", bodies=[b"new"])
    assert write(table, bodies=[b"twice"], app=("job", 5)).skipped
    assert contents(table) == [b"new"]


def test_an_aborted_version_is_not_committed(table: Table) -> None:
    table.begin(app=("job", 5)).abort()
    assert not write(table, app=("job", 5)).skipped


def test_retries_of_a_version_that_is_committed_already_leave_nothing_in_the_log(
    table: Table, store: MemoryStore
) -> None:
    write(table, app=("job", 5))
    before = set(store.objects)
    for retry in range(3):
        transaction = table.begin(app=("job", 5))
        stage(table, transaction)
        assert transaction.tid in parse_log(store.list_log()).pending  # which hides its files from DBIO's readers
        if retry == 2:
            transaction.abort()
        else:
            assert transaction.commit().skipped
    assert set(store.objects) == before


def test_a_retry_that_was_killed_is_cleared_away_like_any_writer(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table, app=("job", 5))
    stage(table, table.begin(app=("job", 5)))
    clock.advance(timedelta(days=3))
    (aborted,) = vacuum_table(table, VacuumOptions()).aborted
    assert aborted in parse_log(store.list_log()).committed
    assert len(data_files(store)) == 1


def test_of_concurrent_twins_with_one_version_one_commits_and_the_other_is_skipped(table: Table) -> None:
    twins = [table.begin(app=("job", 1)) for _ in range(2)]
    for number, twin in enumerate(twins):
        stage(table, twin, f"twin {number}".encode())
    commits = [twin.commit() for twin in reversed(twins)]
    assert [commit.skipped for commit in commits] == [False, True]
    assert contents(table) == [b"twin 1"]


def test_a_skip_is_a_warning_that_names_the_version_and_the_commit(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    write(table, app=("other", 9))
    commit = write(table, app=("job", 7))
    write(table, app=("job", 7))
    (record,) = [it for it in caplog.records if it.levelno >= logging.WARNING]
    assert f"version 7 of application 'job' is skipped: it is committed, by transaction {commit.tid};" in (
        record.getMessage()
    )


def test_a_skip_for_a_version_that_only_a_checkpoint_knows_is_a_warning_too(
    table: Table, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As somebody who may write markers can forge it."""
    write(table)
    forged = {"version": 1, "number": 1, "created": "2026-11-20T11:20:04Z", "commits": 0, "apps": {"job": 2**63 - 1}}
    body = json.dumps({**forged, "schemas": [], "schema_turn": 0}) + "\n"
    store.put("_checkpoint_00000000000000000001", gzip.compress(body.encode()))
    assert write(table, app=("job", 2**63 - 1)).skipped
    assert "version 9223372036854775807 of application 'job' is skipped: it is committed" in caplog.text
    assert "checkpoint" in caplog.text
    with pytest.raises(AppVersionError, match="see `dbio check`"):
        write(table, app=("job", 1))


def test_a_skipped_transaction_leaves_the_turn_free(table: Table, clock: ManualClock) -> None:
    write(table, app=("job", 1))
    write(table, app=("job", 1))
    write(table, "overwrite")
    assert clock.monotonic() == 0


class Job(StrEnum):
    NIGHTLY = "nightly"


def test_an_application_may_be_any_kind_of_text(table: Table) -> None:
    commit = write(table, app=(Job.NIGHTLY, 1))
    assert commit.app is not None
    assert [type(it) for it in commit.app] == [str, int]
    assert write(table, app=("nightly", 1)).skipped


@pytest.mark.parametrize(
    "app",
    [
        ("", 1),
        ("job", -1),
        ("job", "1"),
        ("job", 1.5),
        ("job",),
        7,
        ("job", True),
        (b"job", 1),
        ("\ud800", 1),
        ("x" * 1001, 1),
        ("job", 1 << 63),
    ],
)
def test_what_is_no_application_and_version_is_refused_and_nothing_is_written(
    table: Table, store: MemoryStore, app: Any
) -> None:
    with pytest.raises(InvalidInputError, match="application id, version"):
        table.begin(app=app)
    assert not store.objects


# --- abort -------------------------------------------------------------------------------------------------------


def test_abort_decides_first_and_then_deletes_the_files(table: Table, store: MemoryStore) -> None:  # I3
    transaction = table.begin()
    path = stage(table, transaction)
    with calls_to(store) as calls:
        transaction.abort()
    assert calls == [  # what a checkpoint covers, a marker does not decide any more: hence the look in between
        ("stat", "_dbio_table"),
        ("stat", f"_started_{transaction.tid}"),
        ("put_if_absent", f"_committed_{transaction.tid}"),
        ("list_log", "_d _purged_"),
        ("list_log", "_checkpoint_"),
        ("delete", path),
    ]
    marker = decode_commit(store.get(f"_committed_{transaction.tid}"), where="")
    assert marker.is_abort
    assert not marker.added
    assert not marker.removed
    assert live(table) == set()
    assert table.history() == []


def test_abort_twice_is_fine(table: Table, store: MemoryStore) -> None:
    transaction = table.begin()
    transaction.abort()
    with calls_to(store) as calls:
        transaction.abort()
    assert not calls


def test_an_exception_in_the_block_aborts_and_deletes_the_files(table: Table, store: MemoryStore) -> None:
    def fail() -> None:
        with table.begin() as transaction:
            stage(table, transaction)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert not data_files(store)
    assert table.snapshot().tids == ()


def test_the_end_of_the_block_commits_once(table: Table) -> None:
    with table.begin() as transaction:
        stage(table, transaction)
        commit = transaction.commit()
    with table.begin() as aborted:
        stage(table, aborted)
        aborted.abort()
    assert live(table) == set(commit.added)


def test_a_transaction_that_somebody_else_aborts_cannot_commit(table: Table, store: MemoryStore) -> None:  # I3, I5
    transaction = table.begin()
    path = stage(table, transaction)
    table.abort(transaction.tid)
    table.abort(transaction.tid)
    with pytest.raises(TransactionAbortedError, match="aborted at 2026"):
        transaction.commit()
    assert live(table) == set()
    assert path not in data_files(store)


def test_a_committed_transaction_cannot_be_aborted_by_anybody(table: Table) -> None:  # I3
    transaction = table.begin()
    path = stage(table, transaction)
    transaction.commit()
    for abort in (transaction.abort, lambda: table.abort(transaction.tid), table.resume(transaction.terms).abort):
        with pytest.raises(TransactionStateError, match="is committed"):
            abort()
    assert live(table) == {path}


def test_abort_of_an_unknown_tid_is_refused(table: Table, store: MemoryStore) -> None:
    write(table)
    before = dict(store.objects)
    with pytest.raises(InvalidInputError, match="no marker"):
        table.abort("123")
    assert store.objects == before


# --- misuse and bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decide", ["commit", "abort"])
def test_a_decided_transaction_takes_nothing_more(table: Table, decide: str) -> None:
    transaction = table.begin()
    getattr(transaction, decide)()
    misuses: list[Callable[[], object]] = [
        transaction.new_file,
        transaction.commit,
        lambda: transaction.add([]),
        lambda: transaction.remove([]),
        lambda: transaction.overwrite_partition({}),
    ]
    for misuse in misuses:
        with pytest.raises(TransactionStateError, match="begin a new one"):
            misuse()


def test_only_a_rewrite_removes_and_only_a_replacement_replaces(table: Table) -> None:
    with pytest.raises(TransactionStateError, match="'append'"):
        table.begin("append").remove(["x"])
    with pytest.raises(TransactionStateError, match="'overwrite'"):
        table.begin("overwrite").overwrite_partition({"day": "1"})


def test_an_unknown_operation_is_refused(table: Table, store: MemoryStore) -> None:
    with pytest.raises(InvalidInputError, match="'merge'"):
        table.begin("merge")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        table.begin("abort")
    assert not store.objects


def test_a_new_file_that_was_not_written_is_named_and_nothing_commits(table: Table) -> None:
    transaction = table.begin()
    stage(table, transaction)
    url = transaction.new_file()
    with pytest.raises(TransactionStateError) as error:
        transaction.commit()
    assert url in str(error.value)
    assert "1 of the files" in str(error.value)
    assert live(table) == set()


@pytest.mark.parametrize(
    "partition", [{}, {"day": ""}, {"day": HIVE_NULL}, {"day": "a\0"}, {"hour": "1"}, {"day": "1", "hour": "1"}]
)
def test_partitions_that_a_directory_cannot_hold_are_refused(table: Table, partition: dict[str, str]) -> None:
    transaction = table.begin(partition_by=["day"])
    with pytest.raises(InvalidInputError, match="day"):
        transaction.new_file(partition=partition)


def test_a_partition_of_an_unpartitioned_table_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="partition columns are"):
        table.begin().new_file(partition={"day": "1"})


@pytest.mark.parametrize("value", ["..", ".", "a/b", "../../etc", "%2F", "a=b", "\n", "ü 漢", "_x", " "])
def test_partition_values_stay_inside_the_table_and_come_back_equal(table: Table, value: str) -> None:
    transaction = table.begin(partition_by=["day"])
    path = stage(table, transaction, partition={"day": value})
    transaction.commit()
    (file,) = table.snapshot().files
    assert (file.path, file.partition) == (path, {"day": value})
    assert path.count("/") == 1


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/x.parquet", "a//x.parquet", "_x.parquet", "_d/x.parquet", ""])
def test_add_refuses_paths_that_no_reader_would_take_for_data_as_bad_input(table: Table, path: str) -> None:
    with pytest.raises(InvalidInputError):
        table.begin().add([FileInfo(path=path, size=1)])


@pytest.mark.parametrize("decide", ["commit", "abort"])
def test_a_file_of_another_transaction_is_not_taken_and_so_never_deleted_with_ours(
    table: Table, decide: str
) -> None:  # I4: an abort deletes what was staged
    theirs = list(write(table).added)
    transaction = table.begin()
    with pytest.raises(InvalidInputError):
        transaction.add([FileInfo(path=theirs[0], size=4)])
    getattr(transaction, decide)()
    assert contents(table) == [b"rows"]


@pytest.mark.parametrize("suffix", ["/../x.parquet", "\n.parquet", "/"])
def test_a_suffix_that_leads_elsewhere_is_refused_as_bad_input(table: Table, suffix: str) -> None:
    with pytest.raises(InvalidInputError):
        table.begin().new_file(suffix)


def test_a_file_of_a_resumed_transaction_counts_like_any_other(table: Table) -> None:
    transaction = table.begin()
    path = stage(table, transaction)
    elsewhere = table.resume(transaction.terms)
    elsewhere.add([FileInfo(path=path, size=4)])
    elsewhere.commit()
    assert live(table) == {path}


# --- the life of a transaction -----------------------------------------------------------------------------------


def test_no_transaction_commits_after_seven_days(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    transaction = table.begin()
    stage(table, transaction)
    clock.advance(timedelta(days=7, seconds=1))
    with pytest.raises(TransactionAbortedError, match="7 days"):
        transaction.commit()
    assert not data_files(store)
    assert decode_commit(store.get(f"_committed_{transaction.tid}"), where="").is_abort


def test_a_transaction_commits_until_seven_days_by_its_own_clock_whatever_the_time_of_day_says(
    table: Table, clock: ManualClock
) -> None:
    transaction = table.begin()
    clock.advance(timedelta(days=7))
    clock.jump(timedelta(days=300))
    transaction.commit()
    assert table.snapshot().tids == (transaction.tid,)


def test_a_transaction_that_grows_too_old_while_it_waits_for_its_turn_does_not_commit(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table, bodies=[b"old"])
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new")
    store.after = once("put_if_absent", "_serial_*", lambda: clock.advance(timedelta(days=8)))
    with pytest.raises(TransactionAbortedError, match="7 days"):
        transaction.commit()
    assert contents(table) == [b"old"]


def test_a_commit_that_took_very_long_is_one_as_long_as_its_start_marker_is_there(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    transaction = table.begin()
    stage(table, transaction)
    store.after = once("put_if_absent", "_committed_*", lambda: clock.advance(timedelta(days=8)))
    transaction.commit()
    assert contents(table) == [b"rows"]


# --- size of the marker ------------------------------------------------------------------------------------------


def test_a_marker_that_would_be_too_large_leaves_its_statistics_out(table: Table, store: MemoryStore) -> None:
    transaction = table.begin()
    path = stage(table, transaction)
    huge = Bounds("x" * MAX_BYTES, "y", 0)
    transaction.add([FileInfo(path=path, size=4, rows=1, statistics={"text": huge})])
    transaction.commit()
    (file,) = table.history()[0].files
    assert (file.size, file.rows, file.statistics) == (4, 1, None)
    assert len(store.get(f"_committed_{transaction.tid}")) < 2000
    assert live(table) == {path}


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_a_marker_that_no_put_holds_is_refused_with_the_number_of_files(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    write(table, bodies=[b"old"])
    monkeypatch.setattr(table_module, "encode_commit", partial(encode_commit, limit_bytes=2000))
    with pytest.raises(InvalidInputError, match="50 added"):
        write(table, operation, bodies=[b"new"] * 50)
    assert contents(table) == [b"old"]
    assert len(data_files(store)) == 1
    write(table, "overwrite", bodies=[b"new"])  # the turn is free
    assert contents(table) == [b"new"]


@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions"])
def test_only_a_rewrite_goes_by_rows_and_tells_changes(table: Table, operation: Any) -> None:
    read = Read(tids=frozenset(), may_match=lambda now: now.files, isolation="serializable")
    transaction = table.begin(operation)
    with pytest.raises(TransactionStateError, match=f"operation '{operation}' reads no rows"):
        transaction.depends_on(read)
    with pytest.raises(TransactionStateError, match=f"operation '{operation}' records no changes"):
        transaction.record_changes([])
    transaction.abort()


def test_what_is_no_isolation_is_refused_where_it_is_given() -> None:
    with pytest.raises(InvalidInputError, match="isolation 'snapshot' is none of write_serializable, serializable"):
        Read(tids=frozenset(), may_match=lambda now: now.files, isolation=cast(Any, "snapshot"))


def test_who_has_looked_at_the_rows_vouches_for_them(table: Table) -> None:
    write(table, schema=columns("a"))
    table.set({"check.a": "a LIKE '%x%'"})
    transaction = table.begin()
    stage(table, transaction)
    with pytest.raises(InvalidInputError, match=r"do not prove that its rows keep check\.a .*vouch_for_rows"):
        transaction.commit()
    transaction = table.begin()
    stage(table, transaction)
    transaction.vouch_for_rows()
    assert transaction.commit().added_files == 1


def rewrite_with_changes(table: Table, old: str) -> tuple[str, Transaction]:
    """A rewrite of a file, and the path of its file of changes."""
    transaction = table.begin("rewrite")
    transaction.remove([old])
    name = names.format_data_file(
        tid=transaction.tid, job=transaction.terms.job, task=0, attempt=0, number=0, suffix=".parquet", changes=True
    )
    table.store.put_if_absent(name, b"PAR1 changes PAR1")
    transaction.add([FileInfo(path=name, size=17, rows=2)])
    stage(table, transaction)
    return name, transaction


def test_files_of_changes_stay_dead_where_a_marker_names_transactions(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, schema=columns("a"))
    (old,) = live(table)
    monkeypatch.setattr(table_module.TableRoot, "refer_above", 10)
    name, transaction = rewrite_with_changes(table, old)
    transaction.record_changes([])
    commit = transaction.commit()
    assert live(table) == {*commit.added}
    assert name not in live(table)
    marker = decode_commit(table.store.get(names.committed(commit.tid)), where="it")
    assert (marker.removed, len(marker.removed_tids)) == ([name], 1)


def test_a_file_with_such_a_name_is_data_where_no_changes_are_told(table: Table) -> None:
    write(table, schema=columns("a"))
    (old,) = live(table)
    name, transaction = rewrite_with_changes(table, old)
    commit = transaction.commit()
    assert name in live(table)
    assert commit.metrics["numFiles"] == 2


def test_a_checkpoint_that_forgets_files_of_changes_has_lost_nothing_that_was_added(
    table: Table, clock: ManualClock
) -> None:
    write(table, schema=columns("a"))
    (old,) = live(table)
    _, transaction = rewrite_with_changes(table, old)
    transaction.record_changes([])
    transaction.commit()
    clock.advance(timedelta(days=3))
    vacuum_table(table, VacuumOptions(checkpoint_after=1))
    commit = table.history()[0]
    assert (commit.added_files, len(commit.added)) == (1, 1)
    assert commit.forgotten.added == 0
    assert commit.forgotten.removed == 2


def test_files_of_changes_are_told_and_are_not_live(table: Table) -> None:
    write(table, schema=columns("a"))
    (old,) = live(table)
    name, transaction = rewrite_with_changes(table, old)
    transaction.record_changes([])
    commit = transaction.commit()
    assert (commit.change_files, commit.removed, commit.metrics["numFiles"]) == ([name], [old], 1)
    assert live(table) == {*commit.added}
    assert name not in commit.added


@pytest.mark.parametrize("name", DECIDING)
def test_a_caller_gives_no_metric_by_which_readers_decide(name: str) -> None:
    table = Table.over(MemoryStore())
    with pytest.raises(InvalidInputError, match=f"{name} is counted by dbio itself"), table.begin() as transaction:
        transaction.commit(metrics={name: 1})
    assert not table.snapshot().tids
