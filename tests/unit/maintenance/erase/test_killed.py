"""An erasure that is killed at a call of the store is finished by the next; others beside it lose nothing.

Rules: NOTES.md, Erasures.
"""

from collections.abc import Callable

import pytest

from dbio_commit import Table
from dbio_commit.testing import MemoryStore
from tests.erasing import NUMBER, later, people, traces, write
from tests.faults import Killed, Killer, act_before_call, calls_to, heal, unwatched
from tests.tiny_parts import in_both_forms
from tests.unit.maintenance.erase.test_run import LEFT, assert_erased, erase_person, with_history

pytestmark = in_both_forms


def _calls(build: Callable[[], Table]) -> int:
    table = build()
    store = table.store
    assert isinstance(store, MemoryStore)
    with calls_to(store) as calls:
        erase_person(table)
    return len(calls)


def _killed_at(build: Callable[[], Table], call: int, *, after: bool) -> None:
    table = build()
    store = table.store
    assert isinstance(store, MemoryStore)
    Killer(store, call, after)
    with pytest.raises(Killed):
        erase_person(table)
    heal(store)
    assert set(people(table)) - {NUMBER} == {*LEFT}
    later(table, minutes=1)
    report = erase_person(table)
    if report.pending:  # what the killed one had begun
        for it in report.pending:
            table.abort(it.tid)
        report = erase_person(table)
    assert_erased(table, report)


@pytest.mark.long_for("tiny-parts")
def test_an_erasure_that_is_killed_at_some_call_is_finished_by_the_next() -> None:
    def build() -> Table:
        return with_history(by_day=True, publish="delta")

    calls = _calls(build)
    for call in range(calls // 5, calls, max(calls // 4, 1)):
        _killed_at(build, call, after=bool(call % 2))


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("publish", ["", "delta,spark,symlink,iceberg"], ids=["plain", "published"])
def test_an_erasure_that_is_killed_at_any_call_is_finished_by_the_next(publish: str, after: bool) -> None:
    def build() -> Table:
        return with_history(by_day=bool(publish), publish=publish)

    step = 5 if publish else 1  # the calls of a publication are many, and alike
    for call in range(2 * after if publish else 0, _calls(build), step):
        _killed_at(build, call, after=after)


@pytest.mark.long_for("tiny-parts")
def test_writers_and_readers_beside_an_erasure_lose_nothing() -> None:
    calls = _calls(lambda: with_history(by_day=False))
    for call in range(3, calls, max(calls // 3, 1)):
        table = with_history(by_day=False)
        store = table.store
        assert isinstance(store, MemoryStore)

        def act(store: MemoryStore = store, table: Table = table) -> None:
            with unwatched(store):
                write(table, {50: "flo"}, day="d6")
                table.checkpoint()
                assert people(table)[50] == "flo"

        act_before_call(store, call, act)
        report = erase_person(table)
        heal(store)
        if not report.ok:
            report = erase_person(table)
        assert report.ok
        assert traces(store) == []
        assert people(table) == {**LEFT, 50: "flo"}
