"""An erasure leaves no byte of the rows below the root, whatever happened to them before; the table stays whole.

Rules: NOTES.md, Erasures.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import (
    AccessDeniedError,
    Commit,
    CommitConflictError,
    HistoryLostError,
    InvalidInputError,
    ObjectNotFoundError,
    Table,
)
from dbio_commit.commit import state_after
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.maintenance.erase.report import EraseReport
from dbio_commit.maintenance.erase.run import erase
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.history import History
from dbio_commit.protocol.parts import Part
from dbio_commit.testing import ManualClock, MemoryStore
from tests.erasing import (
    COLUMNS,
    NUMBER,
    PERSON,
    WHERE,
    create,
    deleting,
    later,
    open_table,
    people,
    put_file,
    rewrite,
    traces,
    write,
)
from tests.faults import fail_with, heal, once
from tests.tiny_parts import in_both_forms
from vacuum import vacuum_table

pytestmark = in_both_forms

layouts = pytest.mark.parametrize("by_day", [False, True], ids=["flat", "by-day"])


def erase_person(table: Table, **how: object) -> EraseReport:
    how = {"delete": deleting(table), **how}
    return erase(table.store, table.clock, WHERE, **how)  # type: ignore[arg-type]


def with_history(*, by_day: bool, publish: str = "") -> Table:
    """A table in which the person was written, copied, changed, and written again; with checkpoints in between."""
    clock = ManualClock()
    table = open_table(MemoryStore(clock, url="s3://lake/table"), clock)
    create(table, by_day=by_day)
    if publish:
        table.set({"publish": publish})
    write(table, {1: "ann", NUMBER: PERSON})
    write(table, {3: "bob"}, day="d2")
    table.checkpoint()
    rewrite(table)
    later(table, minutes=5)
    table.checkpoint()
    rewrite(table, who=f"{PERSON} the second")
    write(table, {NUMBER: PERSON}, day="d3")
    table.checkpoint()
    write(table, {4: "cy"}, day="d4")
    return table


LEFT = {1: "ann", 3: "bob", 4: "cy"}


def assert_erased(table: Table, report: EraseReport) -> None:
    assert report.ok, (report.failed, report.pending)
    assert traces(table.store) == []
    assert people(table) == LEFT
    check = table.check()
    assert check.ok
    table.checkpoint()
    assert people(table) == LEFT


@layouts
def test_nothing_of_the_rows_is_left_below_the_root(by_day: bool) -> None:
    table = with_history(by_day=by_day)
    assert len(traces(table.store)) > 5
    report = erase_person(table)
    assert report.tid == table.history()[0].tid
    assert report.files == 2
    assert_erased(table, report)


@layouts
def test_nothing_is_left_of_change_files(by_day: bool) -> None:
    table = with_history(by_day=by_day)
    report = erase_person(table, delete=deleting(table, records=True))
    assert_erased(table, report)


@layouts
def test_nothing_is_left_in_publications(by_day: bool) -> None:
    table = with_history(by_day=by_day, publish="delta,spark,symlink,iceberg")
    assert any(path.startswith("_delta_log/") for path in traces(table.store))
    assert any(path.startswith("_iceberg/") and path.endswith(".avro") for path in traces(table.store))
    report = erase_person(table)
    assert set(report.published) == {"delta", "spark", "symlink", "iceberg"}
    assert_erased(table, report)
    write(table, {5: "dan"}, day="d5")
    assert [it.is_new for it in table.publish(["delta", "spark", "symlink", "iceberg"])] == [False] * 4
    assert table.check().ok


def test_a_publication_that_is_not_set_any_more_is_made_anew_too() -> None:
    table = with_history(by_day=False, publish="delta")
    table.set({"publish": ""})
    assert_erased(table, erase_person(table))


@layouts
def test_rows_that_were_deleted_before_are_erased_without_another_commit(by_day: bool) -> None:
    table = with_history(by_day=by_day)
    deleting(table)(WHERE)
    report = erase_person(table, delete=_must_not)
    assert report.tid is None
    assert_erased(table, report)


@pytest.mark.parametrize("checkpoint_after", [0, 20], ids=["forgotten", "named"])
def test_rows_that_vacuum_has_deleted_are_erased_from_markers_and_checkpoints(checkpoint_after: int) -> None:
    table = with_history(by_day=False)
    deleting(table)(WHERE)
    later(table, minutes=1)
    vacuum_table(table, VacuumOptions(retention_hours=0, force=True, checkpoint_after=checkpoint_after))
    assert any(path.startswith("_committed_") for path in traces(table.store))
    assert_erased(table, erase_person(table, delete=_must_not))


@pytest.mark.parametrize("files", [9, 40], ids=["one-range", "many-ranges"])
def test_a_part_that_no_merge_is_due_for_is_written_anew_without_the_rows(files: int) -> None:
    table = open_table()
    create(table, by_day=True)
    transaction = table.begin()
    for i in range(files):
        rows = {100 + i: f"x{i}"} | ({NUMBER: PERSON} if i in (1, files // 2, files - 1) else {})
        put_file(table, transaction.new_file(partition={"day": f"e{i % 7}"}), rows, None)
    transaction.commit(COLUMNS)
    table.checkpoint()
    report = erase_person(table)
    assert report.ok
    assert traces(table.store) == []
    assert people(table) == {1: "ann"} | {100 + i: f"x{i}" for i in range(files)}
    assert table.check().ok
    write(table, {2: "bea"}, day="e1")
    table.checkpoint()
    assert people(table).keys() == {1, 2} | {100 + i for i in range(files)}


def files_parts(table: Table) -> dict[str, Part]:
    return {part.name: part for part in table.snapshot().checkpoint.parts if part.kind == "files"}


def in_many_ranges() -> Table:
    """With one file each day, and a checkpoint whose parts with files lie in several ranges."""
    table = open_table()
    create(table, by_day=True)
    transaction = table.begin()
    for i in range(24):
        put_file(table, transaction.new_file(partition={"day": f"day-{i:02}"}), {100 + i: f"x{i}"}, None)
    transaction.commit(COLUMNS)
    table.checkpoint()
    return table


def test_parts_that_have_nothing_of_the_rows_stay(state_form: str) -> None:
    table = in_many_ranges()
    had = files_parts(table)
    write(table, {NUMBER: PERSON, 124: "x24"}, day="day-17")
    table.checkpoint()
    report = erase_person(table)
    assert report.ok
    assert traces(table.store) == []
    assert people(table) == {1: "ann"} | {100 + i: f"x{i}" for i in range(25)}
    assert table.check().ok
    if state_form == "tiny parts":
        stayed = had.keys() & files_parts(table).keys()
        assert len(stayed) == len(had) - 1 > 2, "of the ranges without the person"


def test_the_cuts_between_parts_name_no_partition_that_was_erased(state_form: str) -> None:
    """A cut is the key of a row. If that row goes, so does the cut."""
    table = in_many_ranges()
    cuts = table.snapshot().checkpoint.cuts
    assert bool(cuts) == (state_form == "tiny parts")
    day = names.parse_partition(cuts[0][0])["day"] if cuts else "day-07"
    number = 100 + int(str(day)[-2:])
    report = erase(table.store, table.clock, f"day = '{day}'", delete=deleting(table, number))
    assert report.ok
    assert traces(table.store, [str(day)]) == []
    assert len(table.snapshot().checkpoint.cuts) == len(cuts)
    assert table.check().ok


def test_a_marker_with_values_goes_together_with_the_removed_files_that_only_it_shows() -> None:
    """DBIO's readers, who know markers only, would take such a file for live."""
    table = with_history(by_day=False)
    other = write(table, {30: "hal"}, day="d9").added
    with table.begin("rewrite") as transaction:
        transaction.remove(other)
        put_file(table, transaction.new_file(), {30: "hal", NUMBER: PERSON}, "d9")
    report = erase_person(table)
    assert report.ok
    assert traces(table.store) == []
    assert table.store.stat_many(other) == [None]
    assert people(table) == {**LEFT, 30: "hal"}


def _must_not(where: str) -> Commit:
    raise AssertionError("there is nothing to delete")


def test_names_of_directories_go_with_the_values_in_them() -> None:
    table = open_table()
    for who, number in [("ann", 1), (PERSON, NUMBER), ("bob", 3)] * 3:
        transaction = table.begin(partition_by=["who"])
        put_file(table, transaction.new_file(partition={"who": who}), {number: who}, "d")
        transaction.commit(COLUMNS)
        table.checkpoint()
    table.set({"publish": "delta,spark,symlink"})
    report = erase(table.store, table.clock, f"who = '{PERSON}'", delete=deleting(table))
    assert report.ok
    assert traces(table.store) == []
    assert len(table.snapshot().files) == 6
    assert any("names of directories" in it for it in report.remains)


def test_files_of_aborted_and_failed_writes_go_too() -> None:
    table = with_history(by_day=False)
    transaction = table.begin()
    put_file(table, transaction.new_file(), {NUMBER: PERSON}, "d")
    transaction.inspector = None
    path = transaction.new_file()
    transaction.abort()
    put_file(table, path, {NUMBER: PERSON}, "d")  # by a late task
    assert_erased(table, erase_person(table))


def test_another_run_has_nothing_to_do_but_new_checkpoints() -> None:
    table = with_history(by_day=True)
    erase_person(table)
    report = erase_person(table, delete=_must_not)
    assert_erased(table, report)
    assert {it.reason for it in report.deleted} <= {"older than the newest checkpoint", "part that no checkpoint needs"}


def test_a_dry_run_changes_nothing_and_names_what_would_go() -> None:
    table = with_history(by_day=False)
    before = dict(table.store.objects)  # type: ignore[attr-defined]
    report = erase_person(table, dry_run=True, delete=_must_not)
    assert table.store.objects == before  # type: ignore[attr-defined]
    assert report.dry_run
    assert report.files == 2
    assert {it.path for it in report.deleted if it.path.endswith(".parquet")}


def test_removed_files_that_never_held_the_rows_stay_for_their_readers() -> None:
    table = with_history(by_day=False)
    write(table, {20: "eve"}, day="d9")
    rewrite(table, 20)
    removed = {path for commit in table.history() for path in commit.removed if table.store.stat_many([path])[0]}
    kept = {path for path in removed if b"eve" in table.store.get(path)}
    assert kept
    report = erase_person(table)
    assert report.ok
    assert all(table.store.stat_many(sorted(kept)))
    assert traces(table.store) == []


def test_rows_are_read_where_statistics_do_not_exclude_them() -> None:
    table = open_table()
    create(table, by_day=False)
    around = write(table, {2: "ann", NUMBER * 2: "zed"}).added
    rewrite(table, 2)
    assert table.history()[0].removed == around
    write(table, {NUMBER: PERSON})
    report = erase_person(table)
    assert report.ok
    assert all(table.store.stat_many(around))


def test_states_before_the_erasure_say_that_they_are_erased() -> None:
    table = with_history(by_day=False)
    earlier = table.history()[2]
    later(table, hours=1)
    erase_person(table)
    for as_of in (earlier.tid, earlier.timestamp):
        with pytest.raises(InvalidInputError, match="dbio erase"):
            table.snapshot(as_of)
    assert table.snapshot(table.history()[0].tid).files


def test_changes_that_read_erased_rows_are_refused() -> None:
    table = with_history(by_day=False)
    first = table.history()[-1]
    erase_person(table)
    with pytest.raises(HistoryLostError):
        table.changes(first.tid)


def test_transactions_that_began_before_are_named_with_their_end() -> None:
    table = with_history(by_day=False)
    transaction = table.begin()
    put_file(table, transaction.new_file(), {NUMBER: PERSON}, "d")
    report = erase_person(table)
    assert not report.ok
    (pending,) = report.pending
    assert pending.tid == transaction.tid
    assert pending.until - pending.since == timedelta(hours=48)
    transaction.abort()
    assert_erased(table, erase_person(table, delete=_must_not))


def test_rows_that_an_append_brings_meanwhile_are_reported_and_erased_by_the_next_run() -> None:
    table = with_history(by_day=False)

    def delete(where: str) -> Commit:
        transaction = table.begin()
        put_file(table, transaction.new_file(), {NUMBER: PERSON}, "d")
        commit = deleting(table)(where)
        transaction.commit()
        return commit

    report = erase_person(table, delete=delete)
    assert not report.ok
    assert "erase again" in report.failed[0].message
    assert_erased(table, erase_person(table))


def test_an_erasure_whose_files_another_one_erases_meanwhile_asks_for_another_run() -> None:
    table = with_history(by_day=False)
    with pytest.raises(CommitConflictError, match=r"another process removed or erased rows of .*; run `dbio erase`"):
        erase_person(table, delete=_overtaken(table, erase_person))
    assert_erased(table, erase_person(table, delete=_must_not))


def test_an_erasure_that_cannot_find_a_live_file_says_which() -> None:
    table = with_history(by_day=False)
    lose = _overtaken(table, lambda table: table.store.delete_many([it.path for it in table.snapshot().files]))
    with pytest.raises(ObjectNotFoundError, match=r"cannot read .*/part-"):
        erase_person(table, delete=lose)


def _overtaken(table: Table, by: Callable[[Table], object]) -> Callable[[str], Commit]:
    """A deletion that reads its files once the other has ended."""

    def delete(where: str) -> Commit:
        seen = table.snapshot().files
        by(table)
        raise AssertionError([table.store.get(file.path) for file in seen])

    return delete


@pytest.mark.parametrize("at", [0, 1], ids=["before the first checkpoint", "before the second"])
def test_an_erasure_that_others_overtake_and_whose_checkpoint_they_purge_begins_again(at: int) -> None:
    """Its number is free again, and the newest checkpoint knows nothing of what it forgets."""
    table = with_history(by_day=False)
    deleting(table)(WHERE)
    later(table, minutes=5)
    table.checkpoint()
    number = table.snapshot().checkpoint.number
    assert isinstance(table.store, MemoryStore)

    def overtake() -> None:
        for _ in range(2):
            assert erase(table.store, table.clock, "user_id = 77", delete=_must_not).ok

    table.store.before = once("put_if_absent", "_checkpoint_*", overtake, nth=1 + at)
    report = erase_person(table, delete=_must_not)
    heal(table.store)
    assert table.snapshot().checkpoint.number >= number + 6
    assert_erased(table, report)


def test_a_checkpoint_that_another_process_writes_late_is_reported() -> None:
    table = with_history(by_day=False)
    assert isinstance(table.store, MemoryStore)
    name = max(path for path in table.store.objects if path.startswith("_checkpoint_"))
    old = table.store.get(name)

    def write_late() -> None:
        table.store.put_if_absent(name, old)

    table.store.before = once("list_files", "_delta_log", write_late, nth=2)
    report = erase_person(table)
    heal(table.store)
    assert [it.path for it in report.failed] == [name]
    assert_erased(table, erase_person(table, delete=_must_not))


def test_what_the_store_does_not_delete_is_reported_and_deleted_by_the_next_run() -> None:
    table = with_history(by_day=False)
    store = table.store
    assert isinstance(store, MemoryStore)
    store.before = fail_with(AccessDeniedError("no"), "delete", "part-*", times=2)
    report = erase_person(table)
    assert len(report.failed) == 2
    heal(store)
    assert_erased(table, erase_person(table, delete=_must_not))


@pytest.mark.parametrize("changes", [False, True], ids=["appends", "changes"])
def test_a_stream_that_is_behind_fails_and_reads_no_wrong_rows(changes: bool) -> None:
    table = with_history(by_day=False)
    at = Feed(history_of(table), FeedOptions(changes=changes, ignore_changes=not changes)).newest()
    write(table, {7: "gus", NUMBER: PERSON}, day="d7")
    later(table, hours=1)
    erase_person(table)
    feed = Feed(history_of(table), FeedOptions(changes=changes, ignore_changes=not changes))
    with pytest.raises(HistoryLostError, match="erased"):
        feed.between(at, Feed(history_of(table), FeedOptions(changes=changes)).newest())


def history_of(table: Table) -> History:
    return Follower(table.store, table.clock).history()


def test_a_compaction_that_had_read_the_rows_cannot_bring_them_back() -> None:
    table = with_history(by_day=False)
    held = [it for it in table.snapshot().files if NUMBER in _numbers(table, it.path)]
    transaction = table.begin("rewrite", data_change=False)
    transaction.remove([it.path for it in held])
    put_file(table, transaction.new_file(), {NUMBER: PERSON}, "d")
    assert not erase_person(table).ok
    with pytest.raises(CommitConflictError):
        transaction.commit()
    assert_erased(table, erase_person(table, delete=_must_not))


def _numbers(table: Table, path: str) -> set[int]:
    from tests.erasing import read_file

    return {*read_file(table, path)}


def test_markers_younger_than_a_minute_are_not_deleted() -> None:
    """A transaction that is younger may commit without a look at its markers."""
    table = with_history(by_day=False)
    write(table, {NUMBER: PERSON}, day="d8")
    deleting(table)(WHERE)
    before, since = dict(table.store.objects), table.clock.now()  # type: ignore[attr-defined]
    report = erase_person(table, delete=_must_not)
    assert report.ok
    gone = [before[it.path][1] for it in report.deleted if it.path.startswith(("_started_", "_committed_"))]
    assert since - max(gone) < timedelta(seconds=60)
    assert table.clock.now() - max(gone) > timedelta(seconds=60)


def test_what_cannot_be_understood_without_spark_erases_all_removed_files() -> None:
    table = with_history(by_day=False)
    report = erase(table.store, table.clock, f"lower(who) LIKE '{PERSON}%'", delete=deleting(table))
    assert report.ok
    assert traces(table.store) == []
    assert any("without Spark" in it for it in report.remains)


def test_texts_that_people_wrote_into_the_log_stay_and_are_named() -> None:
    table = with_history(by_day=False)
    assert not any("messages" in it or "settings" in it or "comments" in it for it in erase_person(table).remains)
    fields: Any = COLUMNS["fields"]
    columns = {**COLUMNS, "fields": [{**it, "metadata": {"comment": PERSON}} for it in fields]}
    with table.begin(message=f"all about {PERSON}") as transaction:
        put_file(table, transaction.new_file(), {5: "di"}, "d5")
        transaction.commit(columns)
    table.set({"default.who": f"'{PERSON}'"})
    table.set({"default.who": ""})
    report = erase_person(table)
    assert traces(table.store)
    for what in ("messages and labels of 1 commits", "default.who", "comments of columns"):
        assert any(what in it for it in report.remains), what


def test_a_directory_that_is_no_table_is_refused() -> None:
    table = open_table()
    table.store.put_if_absent("part-00000-tid-1-j-0-0-c000.parquet", b"PAR1")
    with pytest.raises(InvalidInputError, match="adopt"):
        erase_person(table)


def test_a_condition_on_no_column_of_the_table_is_refused_before_anything_is_done() -> None:
    table = with_history(by_day=False)
    before = dict(table.store.objects)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="no column"):
        erase(table.store, table.clock, "nobody = 1", delete=_must_not)
    assert {*table.store.objects} == {*before}  # type: ignore[attr-defined]


def _drop_who(table: Table) -> None:
    by_day = bool(table.snapshot().partition_columns)
    with table.begin("overwrite") as transaction:
        path = transaction.new_file(partition={"day": "d1"} if by_day else None)
        with table.store.open_write(path.removeprefix(f"{table.url}/")) as file:
            pq.write_table(pa.table({"user_id": [1], "age": [7]}), file)


def test_a_condition_on_a_column_that_an_overwrite_dropped_says_that_vacuum_deletes_its_values() -> None:
    table = with_history(by_day=False)
    _drop_who(table)
    for where in (f"WHO = '{PERSON}'", f"user_id = 1 AND upper(who) = '{PERSON}' OR day = 'd1'"):
        with pytest.raises(InvalidInputError, match=r"no column .*'who' any more, .*overwrite dropped it.*dbio vacuum"):
            erase(table.store, table.clock, where, delete=_must_not)
    with pytest.raises(InvalidInputError, match="'nobody', which is no column"):
        erase(table.store, table.clock, "nobody = 1", delete=_must_not)


def test_a_condition_on_a_column_that_no_overwrite_dropped_says_that_live_files_have_its_values() -> None:
    table = with_history(by_day=False)
    user_id, _, day = COLUMNS["fields"]
    with patch.object(state_after, "find_misfit", lambda *columns: None):  # as in earlier versions
        table.begin().commit({**COLUMNS, "fields": [user_id, day]})
    with pytest.raises(InvalidInputError, match=r"no column 'who' any more, but live files .*merge_schema=True"):
        erase(table.store, table.clock, f"who = '{PERSON}'", delete=_must_not)


@layouts
def test_values_of_a_dropped_column_are_erased_once_the_table_has_the_column_again(by_day: bool) -> None:
    table = with_history(by_day=by_day)
    _drop_who(table)
    table.checkpoint()
    live = {file.path for file in table.snapshot().files}
    table.write(
        pa.table({"who": pa.array([], pa.string()), "day": pa.array([], pa.string())}), merge_schema=True
    )  # as CHANGE_ROWS.md says
    report = erase(table.store, table.clock, f"who = '{PERSON}' OR who > '{PERSON}'", delete=_must_not)
    assert (report.ok, traces(table.store)) == (True, [])
    assert {file.path for file in table.snapshot().files} == live
