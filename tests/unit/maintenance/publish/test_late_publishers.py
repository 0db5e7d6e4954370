"""A publisher that sleeps while its table is dropped and another one takes its place. Rules: NOTES.md, Order."""

from contextlib import suppress
from datetime import timedelta

import pyarrow as pa
import pytest

from dbio_commit.base.errors import CommitConflictError, CorruptMarkerError, UnsupportedTableError
from dbio_commit.commit import probe as probe_module
from dbio_commit.data.footers import inspect_files
from dbio_commit.maintenance.publish import context_of
from dbio_commit.maintenance.publish.places import DIRECTORIES
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, act_before_call, count_calls, heal, once, unwatched
from tests.unit.maintenance.publish.test_publish import commit, each_format, memory_of, new_table, shown
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)
from tests.writers import live

pytestmark = each_format


def published_twice(to: Format) -> Table:
    """A table with two publications, which a third one would follow."""
    probe_module._PROBED.clear()
    forget()
    table = new_table()
    for _ in range(2):
        commit(table)
        table.publish(to)
    commit(table)
    return table


def made_anew(table: Table, to: Format | None) -> Table:
    """Another table in its place, which is published in this format."""
    clock = table.clock
    assert isinstance(clock, ManualClock)
    table.drop(everything=True)
    clock.advance(timedelta(seconds=5))
    other = Table.over(table.store, clock)
    commit(other)
    if to is not None:
        other.publish(to)
    return other


def intruded(table: Table, to: Format, call: int, *, again: bool) -> list[Table]:
    """Before this call of the table's next publication, another table takes its place. It is in the list then."""
    others: list[Table] = []

    def other() -> None:
        with unwatched(memory_of(table)):
            others.append(made_anew(table, to if again else None))

    act_before_call(memory_of(table), call, other)
    return others


@pytest.mark.parametrize("again", [True, False])
def test_what_a_late_publisher_shows_is_not_left(to: Format, again: bool) -> None:
    first = published_twice(to)
    calls = count_calls(memory_of(first), lambda: first.publish(to))
    for call in range(calls):
        table = published_twice(to)
        others = intruded(table, to, call, again=again)
        with suppress(CommitConflictError):
            table.publish(to)
        heal(memory_of(table))
        (other,) = others
        left = shown(memory_of(table), to)
        # Known limit: just before its end, a publisher deletes the list of the number that its second list had.
        assert left == live(other) or (left is None and (not again or to is Format.SPARK)), call
        assert other.check().ok
        forget()
        other.publish(to)
        assert shown(memory_of(table), to) == live(other)


@pytest.mark.parametrize("again", [True, False])
def test_what_a_late_publisher_shows_that_is_killed_is_named_or_replaced(to: Format, again: bool) -> None:
    first = published_twice(to)
    for call in range(count_calls(memory_of(first), lambda: first.publish(to))):
        table = published_twice(to)
        store = memory_of(table)
        others = intruded(table, to, call, again=again)

        def die(operation: str, path: str, others: list[Table] = others) -> None:
            if others:
                raise Killed

        store.after = die
        with suppress(Killed, CommitConflictError):
            table.publish(to)
        heal(store)
        forget()
        (other,) = others
        try:
            left = shown(store, to)
        except (AssertionError, KeyError):  # versions of Delta with a gap; no manifests of the first table
            left = set()
        if left not in (live(other), None):
            found = "".join(other.check().publications)
            assert "move it elsewhere" in found or "`dbio publish --to" in found, (call, left)
        refusal = None
        try:
            other.publish(to)
        except (UnsupportedTableError, CorruptMarkerError) as error:
            refusal = str(error)
        if refusal is not None:
            assert "move it elsewhere, and publish again" in refusal
            for path in [path for path in store.objects if path.startswith(DIRECTORIES[to])]:
                store.objects.pop(path)
            forget()
            other.publish(to)
        assert shown(store, to) == live(other)
        assert other.check().ok


@pytest.mark.parametrize("sleeps_s", [0.0, 40 * 24 * 3600.0], ids=["at once", "after a purge"])
def test_a_publication_is_not_left_at_the_state_before_a_commit_that_brought_the_published_files_back(
    to: Format, sleeps_s: float
) -> None:
    """The publisher of that commit has nothing to do, and another one, of the commit before, comes after it."""
    clock = ManualClock()
    store = MemoryStore(clock, url="s3://lake/t")

    def seen_by(who: str) -> Table:
        return Table.over(store.seen_by(who), clock, inspector=inspect_files)

    def bring_back() -> None:
        other = seen_by("other")
        other.delete("id = 2")
        assert not other.publish(to)[0].is_new or to is Format.SYMLINK
        if sleeps_s:
            clock.sleep(sleeps_s)
            for _ in range(2):
                vacuum_table(other, VacuumOptions(checkpoint_after=0))
                clock.sleep(3600)

    table = seen_by("owner")
    table.write(pa.table({"id": [1]}))
    table.publish(to)
    clock.sleep(300)
    table.write(pa.table({"id": [2]}))
    late = store.seen_by("late")
    late.before = once("put_if_absent", f"{DIRECTORIES[to]}/*", bring_back)
    assert Table.over(late, clock, inspector=inspect_files).publish(to)[0].is_new
    assert not seen_by("reader").publish(to)[0].is_new


@pytest.mark.parametrize("remembered", [True, False])
def test_a_commit_that_brought_the_published_files_back_looks_again_at_what_was_published_before_it(
    to: Format, remembered: bool
) -> None:
    """It has looked beside its commit marker. Between that look and the marker, another one published the commit
    before."""
    clock = ManualClock()
    store = MemoryStore(clock, url="s3://lake/table")
    table = Table.over(store, clock, inspector=inspect_files)
    table.write(pa.table({"id": [1]}))
    table.publish(to)
    table.write(pa.table({"id": [2]}))
    if not remembered:
        forget()
    steps = context_of(store, clock).follow_up(store, clock, {"publish": to})
    next(steps)
    assert table.publish(to)[0].is_new
    table.delete("id = 2")
    assert not list(steps)[1:]
    assert shown(store, to) == live(table)
