"""Writes to directories that DBIO wrote: what they leave is what DBIO would, and its own rules read it (section 11).

The rules are written down here once more, independently of the package. Rules: PROTOCOL.md 11.1, 11.3.
"""

import json
import re
from collections.abc import Mapping
from functools import partial

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DbioError,
    InvalidInputError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TransactionAbortedError,
    TransactionStateError,
)
from dbio_commit.commit import directory_root as directory_module
from dbio_commit.commit.transaction import Transaction
from dbio_commit.protocol.markers.commit import Operation, encode_commit
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.faults import calls_to, fail_with, heal, once
from tests.unit.dbio_model import at, file_of
from tests.unit.dbio_model import visible as dbio_sees
from tests.writers import contents, data_files, live, stage

LOST = StoreError("the answer was lost")
OLD = "7000000000000000001"  # a tid of DBIO's: decimal, not one of ours by its time
DAYS = ("day=1", "day=2", "day=3")


# --- DBIO --------------------------------------------------------------------------------------------------------


class DbioWriter:
    """Appends a file to each directory, step by step, as DBIO does."""

    def __init__(self, store: MemoryStore, tid: str = OLD, directories: tuple[str, ...] = DAYS) -> None:
        self.store, self.tid, self.directories = store, tid, directories

    def write(self) -> None:
        for directory in self.directories:
            self.store.put(at(directory, f"_started_{self.tid}"))
            self.store.put(at(directory, file_of(self.tid)), f"{directory} {self.tid}".encode())

    def commit(self) -> None:
        for directory in self.directories:
            body = {"added": [file_of(self.tid)], "removed": []}
            self.store.put(at(directory, f"_committed_{self.tid}"), json.dumps(body).encode())


def dbio_wrote(store: MemoryStore, directories: tuple[str, ...] = DAYS) -> set[str]:
    """A committed append to each directory; returns the files."""
    writer = DbioWriter(store, directories=directories)
    writer.write()
    writer.commit()
    return {at(directory, file_of(OLD)) for directory in directories}


def begin(table: Table, operation: Operation = "append", **days: bytes) -> Transaction:
    """A transaction with a file in each of the days, written."""
    transaction = table.begin(operation)
    for day, body in days.items():
        stage(table, transaction, body, {"day": day.removeprefix("d")})
    return transaction


def directories_of(objects: Mapping[str, object], name: str) -> set[str]:
    return {path.rpartition("/")[0] for path in objects if path.rpartition("/")[2] == name}


# --- append ------------------------------------------------------------------------------------------------------


def test_append_is_seen_by_dbio_and_by_us_with_what_dbio_wrote(table: Table, store: MemoryStore) -> None:
    old = dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d4=b"new 4")
    assert transaction.terms.scope is Scope.DIRECTORY
    assert transaction.terms.partition_columns == ("day",)
    assert dbio_sees(store.objects) == live(table) == old  # I1
    commit = transaction.commit()
    assert dbio_sees(store.objects) == live(table) == old | set(commit.added)
    assert contents(table) == [b"day=1 " + OLD.encode(), b"day=2 " + OLD.encode(), b"day=3 " + OLD.encode(),
                               b"new 1", b"new 4"]  # fmt: skip


def test_append_to_a_flat_directory_is_seen_by_dbio_and_by_us(table: Table, store: MemoryStore) -> None:
    old = dbio_wrote(store, directories=("",))
    transaction = table.begin()
    new = {stage(table, transaction, b"1"), stage(table, transaction, b"2")}
    assert dbio_sees(store.objects) == live(table) == old
    transaction.commit()
    assert dbio_sees(store.objects) == live(table) == old | new


def test_append_to_a_directory_of_plain_files_keeps_them(table: Table, store: MemoryStore) -> None:
    store.put("a.parquet", b"plain")
    transaction = table.begin()
    stage(table, transaction, b"new")
    transaction.commit()
    assert contents(table) == [b"new", b"plain"]
    assert dbio_sees(store.objects) == live(table)
    assert "_dbio_table" not in store.objects


def test_the_start_marker_of_each_directory_comes_before_its_first_data_file(
    table: Table, store: MemoryStore
) -> None:  # I1
    dbio_wrote(store)
    with calls_to(store) as calls:
        transaction = begin(table, d1=b"new 1", d4=b"new 4")
        transaction.commit()
    writes = [path for operation, path in calls if operation in ("put_if_absent", "write")]
    for directory in ("day=1", "day=4"):
        inside = list(dict.fromkeys(path.rpartition("/")[2] for path in writes if path.startswith(directory)))
        assert inside[0] == f"_started_{transaction.tid}"
        assert inside[1].startswith("part-")
        assert inside[-1] == f"_committed_{transaction.tid}"
        assert store.get(f"{directory}/_started_{transaction.tid}") == b""


def test_markers_hold_names_of_their_own_directory_and_nothing_but_dbios_keys_and_ours(
    table: Table, store: MemoryStore
) -> None:
    dbio_wrote(store)
    transaction = begin(table, "overwrite", d1=b"new 1", d4=b"new 4")
    commit = transaction.commit()
    for directory in (*DAYS, "day=4"):
        body = json.loads(store.get(f"{directory}/_committed_{transaction.tid}"))
        assert set(body) == {"added", "removed", "dbio_commit"}
        added = [path.rpartition("/")[2] for path in commit.added if path.startswith(f"{directory}/")]
        assert body["added"] == added
        assert body["removed"] == ([file_of(OLD)] if directory in DAYS else [])
        assert body["dbio_commit"]["operation"] == "overwrite"
    assert not {path for path in store.objects if path.startswith("_")}  # no marker at the root, no descriptor, no turn


def test_an_append_leaves_directories_that_it_does_not_write_to_alone(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    before = dict(store.objects)
    begin(table, d1=b"new").commit()
    assert {path for path in store.objects if path not in before and not path.startswith("day=1/")} == set()
    assert all(store.objects[path] == body for path, body in before.items())


def test_an_empty_append_leaves_nothing(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    before = dict(store.objects)
    table.begin().commit()
    assert store.objects == before


def test_names_are_matched_as_dbio_would(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store, directories=("",))
    path = table.begin().new_file(".snappy.parquet").removeprefix(f"{table.url}/")
    assert re.fullmatch(r"part-\d{5}-tid-\d{19}-[0-9a-f-]{36}-\d+-\d+-c000\.snappy\.parquet", path)


def test_a_task_attempt_that_failed_leaves_a_hidden_file(table: Table, store: MemoryStore) -> None:  # I1
    dbio_wrote(store)
    transaction = begin(table, d1=b"named")
    store.put(f"day=1/{file_of(transaction.tid, attempt=7)}", b"of an attempt that failed")
    transaction.commit()
    assert dbio_sees(store.objects) == live(table)
    assert b"of an attempt that failed" not in contents(table)


# --- overwrite, replacement, rewrite -----------------------------------------------------------------------------


def test_overwrite_hides_everything_that_was_visible_and_deletes_nothing(table: Table, store: MemoryStore) -> None:
    old = dbio_wrote(store)
    store.put("day=2/plain.parquet", b"plain")
    transaction = begin(table, "overwrite", d1=b"new 1", d4=b"new 4")
    assert live(table) == old | {"day=2/plain.parquet"}
    commit = transaction.commit()
    assert set(commit.removed) == old | {"day=2/plain.parquet"}
    assert dbio_sees(store.objects) == live(table) == set(commit.added)
    assert old <= set(store.objects)


def test_overwrite_of_a_flat_directory_is_one_marker(table: Table, store: MemoryStore) -> None:  # I2
    dbio_wrote(store, directories=("",))
    transaction = table.begin("overwrite")
    new = stage(table, transaction, b"new")
    before = set(store.objects)
    transaction.commit()
    assert set(store.objects) - before == {f"_committed_{transaction.tid}"}
    assert dbio_sees(store.objects) == live(table) == {new}


def test_overwrite_does_not_touch_the_pending_files_of_a_dbio_writer(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    theirs = DbioWriter(store, tid="7000000000000000002")
    theirs.write()
    transaction = begin(table, "overwrite", d1=b"new 1")
    transaction.commit()
    assert dbio_sees(store.objects) == live(table)
    assert contents(table) == [b"new 1"]
    theirs.commit()  # after us: it survives, as an append that came later
    assert dbio_sees(store.objects) == live(table)
    assert len(live(table)) == 4


def test_overwrite_removes_what_a_dbio_writer_committed_after_it_began(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    theirs = DbioWriter(store, tid="7000000000000000002")
    transaction = begin(table, "overwrite", d1=b"new 1")
    theirs.write()
    theirs.commit()
    transaction.commit()
    assert contents(table) == [b"new 1"]
    assert dbio_sees(store.objects) == live(table)


def test_replacement_replaces_the_partitions_that_it_writes_to(table: Table, store: MemoryStore) -> None:
    old = dbio_wrote(store)
    commit = begin(table, "overwrite_partitions", d1=b"new 1", d4=b"new 4").commit()
    assert set(commit.removed) == {at("day=1", file_of(OLD))}
    assert dbio_sees(store.objects) == live(table) == old - set(commit.removed) | set(commit.added)


def test_static_replacement_of_a_partition_without_new_files_removes_it(table: Table, store: MemoryStore) -> None:
    old = dbio_wrote(store)
    transaction = table.begin("overwrite_partitions")
    transaction.overwrite_partition({"day": "2"})
    transaction.commit()
    assert dbio_sees(store.objects) == live(table) == old - {at("day=2", file_of(OLD))}


def test_rewrite_of_a_file_that_is_not_live_any_more_is_a_conflict(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    transaction = begin(table, "rewrite", d1=b"rewritten")
    transaction.remove([at("day=1", file_of(OLD))])
    begin(table, "overwrite", d2=b"theirs").commit()
    with pytest.raises(CommitConflictError):
        transaction.commit()
    assert contents(table) == [b"theirs"]
    assert dbio_sees(store.objects) == live(table)


def test_appends_of_ours_and_of_dbio_at_once_are_all_seen(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    theirs = DbioWriter(store, tid="7000000000000000002")
    first, second = begin(table, d1=b"first"), begin(table, d1=b"second", d2=b"second")
    theirs.write()
    second.commit()
    theirs.commit()
    first.commit()
    assert dbio_sees(store.objects) == live(table) == data_files(store)


# --- what it cannot do -------------------------------------------------------------------------------------------


def test_an_application_version_is_refused_before_anything_is_written(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    before = dict(store.objects)
    with pytest.raises(InvalidInputError, match="_dbio_table"):
        table.begin(app=("job", 1))
    assert store.objects == before


def test_must_be_empty_is_refused_before_anything_is_written(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    before = dict(store.objects)
    with pytest.raises(TableExistsError):
        table.begin(must_be_empty=True)
    assert store.objects == before


def test_other_partition_columns_are_refused(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    with pytest.raises(SchemaMismatchError, match=r"partitioned by \['day'\]"):
        table.begin(partition_by=["hour"])


def test_partition_columns_for_a_flat_directory_with_files_are_refused(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store, directories=("",))
    with pytest.raises(SchemaMismatchError):
        table.begin(partition_by=["day"])


def test_a_directory_that_holds_a_table_further_down_is_refused(table: Table, store: MemoryStore) -> None:
    store.put("inner/_dbio_table", b"{}")
    store.put("plain.parquet", b"plain")
    with pytest.raises(InvalidInputError, match="inner"):
        table.begin()


# --- failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("directory", ["day=1", "day=2"])
def test_a_put_of_a_commit_marker_that_fails_once_is_settled(
    table: Table, store: MemoryStore, directory: str, applied: bool
) -> None:
    old = dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d2=b"new 2")
    fault = fail_with(LOST, "put_if_absent", f"{directory}/_committed_*")
    if applied:
        store.after = fault
    else:
        store.before = fault
    commit = transaction.commit()
    assert dbio_sees(store.objects) == live(table) == old | set(commit.added)


def test_a_commit_that_cannot_mark_a_directory_that_only_loses_files_commits_nothing(
    table: Table, store: MemoryStore
) -> None:
    old = dbio_wrote(store)
    transaction = begin(table, "overwrite", d1=b"new 1")
    store.before = fail_with(LOST, "put_if_absent", "day=2/_started_*", times=None)
    with pytest.raises(StoreError):
        transaction.commit()
    heal(store)
    assert dbio_sees(store.objects) == live(table) == old
    assert set(transaction.commit().removed) == old


def test_a_commit_that_gets_half_way_says_how_far(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    transaction = begin(table, "overwrite", d1=b"new 1")  # day=2 and day=3 only lose files
    store.before = fail_with(LOST, "put_if_absent", "day=2/_committed_*", times=None)
    with pytest.raises(CommitStateUnknownError, match=r"in 1 of 3 directories.*not yet in day=2.*each directory only"):
        transaction.commit()
    heal(store)
    assert contents(table) == [b"day=2 " + OLD.encode(), b"day=3 " + OLD.encode(), b"new 1"]
    assert dbio_sees(store.objects) == live(table)


def half_commit(table: Table, store: MemoryStore) -> Transaction:
    """Committed in day=1; the marker of day=2 never landed."""
    dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d2=b"new 2")
    store.before = fail_with(LOST, "put_if_absent", "day=2/_committed_*", times=None)
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(store)
    return transaction


def check_nothing_is_lost(table: Table, store: MemoryStore) -> None:  # I9
    assert not table.check().missing
    named = {
        at(path.rpartition("/")[0], name)
        for path, (body, _) in store.objects.items()
        if "_committed_" in path
        for name in json.loads(body)["added"]
    }
    assert named <= set(store.objects)
    assert dbio_sees(store.objects) == live(table)


def test_abort_after_half_a_commit_keeps_the_files_of_the_committed_half(table: Table, store: MemoryStore) -> None:
    transaction = half_commit(table, store)
    with pytest.raises(TransactionStateError, match="committed"):
        transaction.abort()
    check_nothing_is_lost(table, store)
    assert b"new 1" in contents(table)


def test_abort_by_somebody_else_after_half_a_commit_decides_the_other_half(table: Table, store: MemoryStore) -> None:
    transaction = half_commit(table, store)
    table.abort(transaction.tid)
    check_nothing_is_lost(table, store)
    assert b"new 1" in contents(table)
    assert b"new 2" not in contents(table)


def test_abort_after_a_commit_whose_answers_were_lost_deletes_no_live_file(
    table: Table, store: MemoryStore
) -> None:  # I4, I9
    dbio_wrote(store, directories=("",))
    transaction = table.begin()
    path = stage(table, transaction, b"new")
    store.after = fail_with(LOST, "put_if_absent", "_committed_*")
    store.before = fail_with(LOST, "get", f"_committed_{transaction.tid}")
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(store)
    assert path in live(table)
    with pytest.raises(TransactionStateError, match="committed"):
        transaction.abort()
    check_nothing_is_lost(table, store)
    assert b"new" in contents(table)


def test_an_interrupt_after_the_commit_landed_deletes_no_live_file(table: Table, store: MemoryStore) -> None:  # I9
    dbio_wrote(store, directories=("",))

    def work() -> None:
        with table.begin() as transaction:
            stage(table, transaction, b"new")
            transaction.commit()

    store.after = fail_with(KeyboardInterrupt(), "put_if_absent", "_committed_*")
    with pytest.raises(KeyboardInterrupt):
        work()
    check_nothing_is_lost(table, store)
    assert b"new" in contents(table)


def test_a_commit_that_is_aborted_half_way_keeps_the_files_of_the_committed_half(
    table: Table, store: MemoryStore
) -> None:  # I9
    dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d2=b"new 2")
    store.after = once("put_if_absent", "day=1/_committed_*", lambda: table.abort(transaction.tid))
    with pytest.raises(DbioError) as error:
        transaction.commit()
    check_nothing_is_lost(table, store)
    assert b"new 1" in contents(table)
    assert not isinstance(error.value, TransactionAbortedError)  # which promises that nothing was committed


def test_a_marker_that_no_put_holds_is_refused_before_any_directory_commits(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = dbio_wrote(store)
    monkeypatch.setattr(directory_module, "encode_commit", partial(encode_commit, limit_bytes=2000))
    transaction = begin(table, d1=b"new 1")
    for _ in range(50):
        stage(table, transaction, b"new 2", {"day": "2"})
    with pytest.raises(InvalidInputError, match="one PUT"):
        transaction.commit()
    assert live(table) == old
    check_nothing_is_lost(table, store)


def test_abort_hides_and_deletes_the_files(table: Table, store: MemoryStore) -> None:  # I1, I3
    old = dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d4=b"new 4")
    transaction.abort()
    assert dbio_sees(store.objects) == live(table) == data_files(store) == old
    assert directories_of(store.objects, f"_committed_{transaction.tid}") == {"day=1", "day=4"}
    with pytest.raises(TransactionStateError):
        transaction.commit()


def test_an_aborted_file_stays_hidden_where_it_cannot_be_deleted(table: Table, store: MemoryStore) -> None:  # I1
    old = dbio_wrote(store)
    transaction = begin(table, d1=b"new 1")
    store.before = fail_with(LOST, "delete", "*", times=None)
    transaction.abort()
    heal(store)
    del store.objects[f"day=1/_started_{transaction.tid}"]  # as vacuum does with those of decided transactions
    assert dbio_sees(store.objects) == live(table) == old


def test_an_exception_in_the_block_aborts(table: Table, store: MemoryStore) -> None:
    old = dbio_wrote(store)

    def fail() -> None:
        with table.begin() as transaction:
            stage(table, transaction, b"new", {"day": "1"})
            raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    assert data_files(store) == old


def test_the_error_of_the_block_is_raised_even_where_the_abort_fails(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)

    def fail() -> None:
        with table.begin() as transaction:
            stage(table, transaction, b"new", {"day": "1"})
            store.before = fail_with(LOST, "put_if_absent", "*_committed_*", times=None)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_abort_by_somebody_else_decides_every_directory(table: Table, store: MemoryStore) -> None:  # I3
    old = dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d4=b"new 4")
    table.abort(transaction.tid)
    with pytest.raises(TransactionAbortedError):
        transaction.commit()
    assert dbio_sees(store.objects) == live(table) == old
    assert data_files(store) == old
    transaction.abort()  # done already


def test_a_transaction_that_committed_everywhere_cannot_be_aborted(table: Table, store: MemoryStore) -> None:
    dbio_wrote(store)
    transaction = begin(table, d1=b"new 1", d4=b"new 4")
    transaction.commit()
    for abort in (transaction.abort, lambda: table.abort(transaction.tid)):
        with pytest.raises(TransactionStateError, match="committed"):
            abort()
    check_nothing_is_lost(table, store)
    assert b"new 4" in contents(table)
