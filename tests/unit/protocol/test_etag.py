"""Writes that go by a snapshot: `if_match` lets them commit only where nothing was committed since.

Rules: PROTOCOL.md 9.5.
"""

import pickle
from typing import Any

import pytest

from dbio_commit import CommitConflictError, InvalidInputError, Table
from dbio_commit.commit.operations import RULES
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.testing import ManualClock, MemoryStore
from tests.garbage import AT_ONCE, DAY, empty, run
from tests.writers import contents, live, stage, write

EVERY = pytest.mark.parametrize("operation", RULES)


def later(clock: ManualClock) -> None:
    """So much that nobody doubts the order."""
    clock.sleep(10)


def try_to(table: Table, operation: Operation = "overwrite", *, if_match: str, body: bytes = b"mine") -> None:
    transaction = table.begin(operation, if_match=if_match)
    stage(table, transaction, body)
    transaction.commit()


@EVERY
def test_a_write_commits_where_nothing_was_committed_since(table: Table, operation: Operation) -> None:
    write(table, bodies=[b"old"])
    try_to(table, operation, if_match=table.snapshot().etag)
    assert b"mine" in contents(table)


@EVERY
@pytest.mark.parametrize("other", RULES)
def test_a_write_fails_where_anything_was_committed_since_and_names_it(
    table: Table, clock: ManualClock, operation: Operation, other: Operation
) -> None:
    write(table, bodies=[b"old"])
    seen = table.snapshot().etag
    later(clock)
    tid = write(table, other, bodies=[b"other"]).tid
    before = contents(table)
    with pytest.raises(CommitConflictError, match=rf"{tid} committed to .* after {seen}, .*Snapshot\.etag"):
        try_to(table, operation, if_match=seen)
    assert contents(table) == before


def test_what_commits_between_begin_and_commit_is_since(table: Table, clock: ManualClock) -> None:
    write(table)
    transaction = table.begin("overwrite", if_match=table.snapshot().etag)
    stage(table, transaction)
    later(clock)
    write(table, bodies=[b"other"])
    with pytest.raises(CommitConflictError):
        transaction.commit()
    assert b"other" in contents(table)


def test_of_two_writers_that_go_by_the_same_commit_exactly_one_wins(table: Table) -> None:
    write(table)
    seen = table.snapshot().etag
    twins = [table.begin("overwrite", if_match=seen) for _ in range(2)]
    for number, twin in enumerate(twins):
        stage(table, twin, b"%d" % number)
    twins[1].commit()
    with pytest.raises(CommitConflictError, match=twins[1].tid):
        twins[0].commit()
    assert contents(table) == [b"1"]


def test_settings_and_commits_that_leave_the_rows_as_they_were_are_no_conflict(
    table: Table, clock: ManualClock
) -> None:
    write(table)
    seen = table.snapshot().etag
    later(clock)
    table.set({"publish": "symlink"})
    table.begin().commit()
    table.begin().abort()
    try_to(table, if_match=seen)
    assert contents(table) == [b"mine"]


def test_an_append_that_came_a_moment_before_and_was_not_seen_is_a_conflict(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    """It stands before the commit that was seen, where the store's times are as coarse as that of this test."""
    early = table.begin()
    stage(table, early, b"unseen")
    write(table, bodies=[b"seen"])
    seen = table.snapshot().etag
    early.commit()
    assert table.snapshot().tids.index(early.tid) == 0
    with pytest.raises(CommitConflictError, match=rf"{early.tid} committed to .* after {seen} or beside it"):
        try_to(table, if_match=seen)
    try_to(table, if_match=table.snapshot().etag)
    assert contents(table) == [b"mine"]


def test_a_snapshot_names_what_came_within_a_moment_and_may_have_come_later(table: Table, clock: ManualClock) -> None:
    first = write(table).tid
    clock.sleep(0.5)
    second = write(table).tid
    assert table.snapshot().etag == f"{first},{second}"
    later(clock)
    assert write(table).tid == table.snapshot().etag


def test_a_snapshot_does_not_name_what_its_last_commit_rests_on(table: Table, clock: ManualClock) -> None:
    write(table)
    clock.sleep(0.5)
    overwrite = write(table, "overwrite").tid  # has removed what the first added
    assert table.snapshot().etag == overwrite
    clock.sleep(0.5)
    append = write(table).tid  # began under the overwrite's turn
    assert table.snapshot().etag == append


def test_no_commits_are_a_state_too(table: Table) -> None:
    table.begin().abort()
    assert table.snapshot().etag == ""
    twins = [table.begin(if_match="") for _ in range(2)]
    for twin in twins:
        stage(table, twin)
    twins[0].commit()
    with pytest.raises(CommitConflictError, match="had no commits"):
        twins[1].commit()


def test_a_commit_that_the_table_does_not_know_is_a_conflict(table: Table) -> None:
    write(table)
    with pytest.raises(CommitConflictError, match="does not know the commit 42"):
        try_to(table, if_match="42")
    assert contents(table) == [b"rows"]


def test_where_there_is_no_table_a_commit_of_it_is_a_conflict_and_none_is_created(
    table: Table, store: MemoryStore
) -> None:
    with pytest.raises(CommitConflictError, match="no table"):
        table.begin("overwrite", if_match="42")
    assert not store.objects


def test_after_a_purge_the_history_is_told_by_the_checkpoint(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table, bodies=[b"old"])
    seen = table.snapshot().etag
    later(clock)
    other = write(table, bodies=[b"other"]).tid
    later(clock)
    table.checkpoint()
    for tid in (seen, other):
        del store.objects[f"_committed_{tid}"], store.objects[f"_started_{tid}"]
    with pytest.raises(CommitConflictError, match=other):
        try_to(table, if_match=seen)
    try_to(table, if_match=table.snapshot().etag)
    assert contents(table) == [b"mine"]


def test_what_was_forgotten_since_is_a_conflict_and_a_new_snapshot_is_none() -> None:
    scene = empty()
    kept = write(scene.table, bodies=[b"kept"]).tid
    later(scene.clock)
    came = write(scene.table, bodies=[b"came and went"]).tid
    later(scene.clock)
    transaction = scene.table.begin("rewrite")
    transaction.remove(path for path in live(scene.table) if kept not in path)
    transaction.commit()
    for _ in range(3):
        scene.clock.advance(40 * DAY)
        write(scene.table, bodies=[])
        run(scene, AT_ONCE)
    assert came not in scene.table.snapshot().tids
    with pytest.raises(CommitConflictError, match="has forgotten commits since"):
        try_to(scene.table, if_match=kept)
    try_to(scene.table, if_match=scene.table.snapshot().etag)
    assert contents(scene.table) == [b"mine"]


def test_an_application_that_has_committed_is_skipped_and_finds_no_conflict(table: Table, clock: ManualClock) -> None:
    seen = (write(table), table.snapshot().etag)[1]
    later(clock)
    transaction = table.begin("overwrite", app=("nightly", 1), if_match=seen)
    stage(table, transaction, b"once")
    transaction.commit()
    again = table.begin("overwrite", app=("nightly", 1), if_match=seen)
    stage(table, again, b"twice")
    assert again.commit().skipped
    assert contents(table) == [b"once"]


def test_an_answer_that_was_lost_is_no_conflict_with_itself(table: Table, store: MemoryStore) -> None:
    write(table)
    transaction = table.begin("overwrite", if_match=table.snapshot().etag)
    stage(table, transaction, b"mine")
    copy = table.resume(pickle.loads(pickle.dumps(transaction.terms)))
    transaction.commit()
    copy.add(table.snapshot().history()[0].files)
    assert copy.commit().tid == transaction.tid
    assert contents(table) == [b"mine"]


def test_the_tid_of_a_snapshot_is_a_tid_also_where_the_order_of_its_last_commits_is_not_known(
    table: Table, clock: ManualClock
) -> None:
    write(table, bodies=[b"old"])
    later(clock)
    twins = [table.begin() for _ in range(2)]
    for number, twin in enumerate(twins):
        stage(table, twin, b"twin %d" % number)
        twin.commit()
    seen = table.snapshot()
    assert set(seen.etag.split(",")) == {twin.tid for twin in twins}
    assert seen.tid == seen.history()[0].tid == seen.tids[-1]
    later(clock)
    write(table, "overwrite", bodies=[b"new"])
    assert table.snapshot(as_of=seen.tid).files == seen.files
    assert table.changes(str(seen.tid))[0].tid == seen.tid
    table.restore(seen.tid)
    assert contents(table) == [b"old", b"twin 0", b"twin 1"]


def test_a_table_without_commits_has_no_tid_and_an_etag(table: Table) -> None:
    table.begin().abort()
    seen = table.snapshot()
    assert (seen.tid, seen.etag) == (None, "")
    try_to(table, if_match=seen.etag)
    with pytest.raises(CommitConflictError, match="had no commits"):
        try_to(table, if_match=seen.etag)


@pytest.mark.parametrize("wrong", [7, b"1", ("1",), "no tid", "1,", "2026-11-20T10:00:00Z"])
def test_what_is_no_etag_is_refused_before_anything_is_written(table: Table, store: MemoryStore, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"give Snapshot\.etag"):
        table.begin(if_match=wrong)
    assert not store.objects


def test_a_directory_without_a_descriptor_is_to_be_adopted_first(table: Table, store: MemoryStore) -> None:
    with store.open_write("part-0.parquet") as stream:
        stream.write(b"PAR1")
    with pytest.raises(InvalidInputError, match="dbio adopt"):
        table.begin("overwrite", if_match="")
