"""A transaction that creates the table: alone, beside others that do, and on stores that cannot decide.

Numbers I1 to I10: PROTOCOL.md 5. Rules: PROTOCOL.md 9.1.
"""

from datetime import timedelta

import pytest

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError, StoreError, TableExistsError
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.transaction import Transaction
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import RootFirstStore, fail_with, once
from tests.writers import contents, live, stage, write, write_days

# --- a new table -------------------------------------------------------------------------------------------------


def test_must_be_empty_refuses_a_table_with_commits(table: Table) -> None:
    write(table)
    with pytest.raises(TableExistsError):
        table.begin(must_be_empty=True)


def test_must_be_empty_takes_a_table_whose_only_transactions_were_aborted(table: Table) -> None:
    table.begin().abort()
    with table.begin(must_be_empty=True) as transaction:
        stage(table, transaction)
    assert len(live(table)) == 1


def test_the_first_commit_may_set_settings(table: Table) -> None:
    sets = {"change_data": "true", "check.positive": "id > 0"}

    def begun() -> Transaction:
        return begin(context_of(table.store, table.clock), Intent(must_be_empty=True, sets=sets))

    with pytest.raises(InvalidInputError, match=r"check\.positive"), begun() as transaction:
        stage(table, transaction)  # its statistics prove nothing
    with begun() as transaction:
        transaction.commit()
    assert (table.settings(), [it.operation for it in table.history()]) == (sets, ["append"])
    with pytest.raises(TableExistsError):
        begun()


def test_of_twins_that_want_the_table_empty_exactly_one_wins(table: Table) -> None:
    twins = [table.begin(must_be_empty=True) for _ in range(2)]
    for number, twin in enumerate(twins):
        stage(table, twin, f"twin {number}".encode())
    twins[1].commit()
    with pytest.raises(TableExistsError):
        twins[0].commit()
    assert contents(table) == [b"twin 1"]


def test_must_be_empty_loses_against_a_blind_append_that_commits_first(table: Table) -> None:
    transaction = table.begin(must_be_empty=True)
    stage(table, transaction, b"mine")
    write(table, bodies=[b"theirs"])
    with pytest.raises(TableExistsError):
        transaction.commit()
    assert contents(table) == [b"theirs"]


def test_of_two_beginners_one_creates_the_table_and_both_write_to_it(table: Table, store: MemoryStore) -> None:
    other = Table.over(store, ManualClock(seed=1))
    store.before = once("put_if_absent", "_dbio_table", lambda: write_days(other, a=b"theirs"))
    write_days(table, b=b"mine")
    assert contents(table) == [b"mine", b"theirs"]


def test_of_two_beginners_with_other_partition_columns_the_second_is_refused(table: Table, store: MemoryStore) -> None:
    other = Table.over(store, ManualClock(seed=1))
    store.before = once("put_if_absent", "_dbio_table", lambda: write_days(other, a=b"theirs"))
    with pytest.raises(SchemaMismatchError, match=r"\['day'\].*\['hour'\]"):
        table.begin(partition_by=["hour"])
    assert contents(table) == [b"theirs"]


def test_a_table_that_is_created_between_the_two_listings_of_a_beginner_is_written_as_a_table(
    table: Table, store: MemoryStore
) -> None:  # I2: in the directory scope its files would be committed where no reader of the table looks
    other = Table.over(store, ManualClock(seed=1))
    store.before = once("list_files", "*", lambda: write_days(other, a=b"theirs"))
    transaction = table.begin(partition_by=["day"])
    assert transaction.terms.scope is Scope.TABLE
    stage(table, transaction, b"mine", {"day": "b"})
    transaction.commit()
    assert contents(table) == [b"mine", b"theirs"]


def test_a_table_that_is_created_between_two_pages_of_a_beginners_listing_is_written_as_a_table(
    clock: ManualClock,
) -> None:
    store = RootFirstStore(clock)
    table, other = Table.over(store, clock), Table.over(store, ManualClock(seed=1))
    store.between = lambda: write_days(other, a=b"theirs")
    transaction = table.begin(partition_by=["day"])
    assert transaction.terms.scope is Scope.TABLE
    stage(table, transaction, b"mine", {"day": "b"})
    transaction.commit()
    assert contents(table) == [b"mine", b"theirs"]


@pytest.mark.parametrize("paged", [False, True])
def test_a_reader_that_is_overtaken_by_the_creation_of_the_table_sees_no_pending_file(
    clock: ManualClock, paged: bool
) -> None:  # I1
    store = RootFirstStore(clock)
    table, other = Table.over(store, clock), Table.over(store, ManualClock(seed=1))

    def begin_and_stage() -> None:
        stage(other, other.begin(partition_by=["day"]), b"pending", {"day": "a"})

    if paged:
        store.between = begin_and_stage
    else:
        store.before = once("list_files", "*", begin_and_stage)
    assert contents(table) == []


def test_other_partition_columns_than_the_tables_are_refused(table: Table) -> None:
    write_days(table, a=b"a1")
    for partition_by in (["hour"], ["day", "hour"]):
        with pytest.raises(SchemaMismatchError, match=r"by \['day'\].* write with these columns, in this order"):
            table.begin(partition_by=partition_by)
    for partition_by in ([], ["day"], ["DAY"]):  # case makes no difference
        assert table.begin(partition_by=partition_by).terms.partition_columns == ("day",)


@pytest.mark.parametrize("partition_by", [["_day"], [""], [".d"], ["a", "A"], ["a\0"]])
def test_partition_columns_that_readers_would_skip_are_refused_and_nothing_is_written(
    table: Table, store: MemoryStore, partition_by: list[str]
) -> None:
    with pytest.raises(InvalidInputError):
        table.begin(partition_by=partition_by)
    assert not store.objects


def test_a_tid_that_somebody_else_has_is_not_taken(store: MemoryStore) -> None:  # I3
    tids = {Table.over(store, ManualClock(seed=3)).begin().tid for _ in range(3)}  # the same time and chance
    assert len(tids) == 3


def test_tids_sort_by_the_time_of_begin(table: Table, clock: ManualClock) -> None:
    tids = []
    for _ in range(5):
        tids.append(table.begin().tid)
        clock.advance(timedelta(milliseconds=1))
    assert tids == sorted(tids)


def test_files_outside_of_the_tables_partitions_are_refused_since_no_reader_would_read_the_table(table: Table) -> None:
    write_days(table, a=b"1")
    transaction = table.begin()
    name = f"part-00000-tid-{transaction.tid}-x-0-0-c000.parquet"
    for path, partition in ((name, {}), (f"hour=1/{name}", {"hour": "1"}), (f"Day=1/{name}", {"Day": "1"})):
        with pytest.raises(InvalidInputError, match="in no partition"):
            transaction.add([FileInfo(path=path, size=4, partition=partition)])
    transaction.add([FileInfo(path=f"day=1/{name}", size=4, partition={"day": "1"})])


@pytest.mark.parametrize("asked", [[], ["Day"], ["hour"]])
def test_who_loses_the_race_to_create_the_table_with_other_columns_is_told_before_anything_is_written(
    table: Table, store: MemoryStore, asked: list[str]
) -> None:
    def create() -> None:
        write_days(table, a=b"1")

    store.before = once("put_if_absent", "_dbio_table", create)
    with pytest.raises(SchemaMismatchError, match="just now"):
        table.begin(partition_by=asked)  # whose tasks may know the columns already
    assert contents(table) == [b"1"]
    assert table.begin(partition_by=[] if asked == ["hour"] else asked).terms.partition_columns == ("day",)


def test_a_version_that_is_skipped_is_skipped_also_where_its_abort_fails(table: Table, store: MemoryStore) -> None:
    write(table, app=("nightly", 1))
    with table.begin(app=("nightly", 1)) as transaction:
        store.after = fail_with(StoreError("timed out"), "put_if_absent", f"_committed_{transaction.tid}")
        assert transaction.commit().skipped
    assert len(table.history()) == 1
