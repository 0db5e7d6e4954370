"""A marker that somebody deleted and brought back has a new time: earlier states are right or refused (PROTOCOL.md
8.3)."""

from datetime import datetime, timedelta

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import Doubt, add_doubts
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.tiny_parts import in_both_forms
from tests.writers import live, write

pytestmark = in_both_forms

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class History:
    """A table whose every state is known."""

    def __init__(self, table: Table) -> None:
        self.table, self.clock = table, table.clock
        self.states: list[tuple[datetime, str, set[str]]] = []

    def write(self, operation: str = "append") -> str:
        tid = write(self.table, operation).tid  # type: ignore[arg-type]
        self.states.append((self.clock.now(), tid, live(self.table)))
        self.clock.sleep(2 * 3600)
        return tid

    def check(self) -> tuple[int, int]:
        """How many states are right, and how many are refused. No other answer is allowed."""
        right = refused = 0
        for at, tid, files in self.states:
            for as_of in (at, at + HOUR, tid):
                found = self._find(as_of)
                assert found in (None, files), as_of
                right, refused = right + (found is not None), refused + (found is None)
        return right, refused

    def _find(self, as_of: datetime | str) -> set[str] | None:
        """The live files as of then; None if they are not known."""
        try:
            return {it.path for it in self.table.snapshot(as_of).files}
        except InvalidInputError as error:
            if "somebody may have brought the marker back" not in str(error):
                raise
            return None


def bring_back(store: MemoryStore, tid: str, *, modified: datetime | None = None) -> None:
    body, _ = store.objects.pop(names.committed(tid))
    store.put(names.committed(tid), body, modified=modified)


@pytest.fixture
def history(table: Table) -> History:
    return History(table)


@pytest.mark.parametrize("later", ["append", "overwrite"])
@pytest.mark.parametrize("which", [0, 2, 5])
def test_states_around_a_marker_with_a_new_time_are_right_or_refused(
    history: History, store: MemoryStore, clock: ManualClock, later: str, which: int
) -> None:
    tids = [history.write(operation) for operation in ("append", "append", later, "append", later, "append")]
    assert history.check() == (18, 0)
    clock.advance(DAY)
    bring_back(store, tids[which])
    history.states.append((clock.now(), tids[which], live(history.table)))
    clock.advance(2 * HOUR)
    history.write("overwrite")
    right, refused = history.check()
    assert refused >= 3 * (5 - which)
    assert right >= 3 * which + 2
    assert live(history.table) == history.states[-1][2]


def test_a_checkpoint_keeps_what_is_not_known(history: History, store: MemoryStore, clock: ManualClock) -> None:
    tids = [history.write() for _ in range(5)]
    clock.advance(DAY)
    bring_back(store, tids[2])
    clock.advance(2 * HOUR)
    history.write()
    before = history.check()
    assert before[1] > 0
    doubts = history.table.snapshot().doubts
    for _ in range(3):
        clock.advance(HOUR)
        vacuum_table(history.table, VacuumOptions(checkpoint_after=0))
    assert names.committed(tids[2]) not in store.objects
    assert history.check() == before
    assert history.table.snapshot().checkpoint.doubts == doubts


def test_a_marker_with_its_own_time_changes_nothing(history: History, store: MemoryStore, clock: ManualClock) -> None:
    tids = [history.write() for _ in range(4)]
    clock.advance(DAY)
    bring_back(store, tids[1], modified=history.states[1][0])
    assert history.check() == (12, 0)


@pytest.mark.parametrize("off", [-DAY, -HOUR, timedelta(0), DAY], ids=str)
def test_a_writer_whose_clock_is_wrong_makes_no_doubt(store: MemoryStore, clock: ManualClock, off: timedelta) -> None:
    own = ManualClock(clock.now() + off)
    table = Table.over(store, own)
    for _ in range(5):
        write(table)
        for it in (clock, own):
            it.advance(2 * HOUR)
    assert table.snapshot().doubts == ()


def test_a_start_marker_that_was_brought_back_too_shows_no_wrong_clock(
    history: History, store: MemoryStore, clock: ManualClock
) -> None:
    tids = [history.write() for _ in range(4)]
    clock.advance(3 * DAY)
    body, _ = store.objects.pop(names.started(tids[1]))
    store.put(names.started(tids[1]), body)
    bring_back(store, tids[1])
    assert history.check()[1] >= 6


def test_doubts_that_overlap_or_are_many_become_one(clock: ManualClock) -> None:
    def doubt(since: int, until: int) -> Doubt:
        return Doubt(clock.now() + since * HOUR, clock.now() + until * HOUR)

    assert add_doubts([doubt(5, 6)], [doubt(1, 3), doubt(2, 4)]) == (doubt(1, 4), doubt(5, 6))
    assert add_doubts([doubt(5, 6), doubt(1, 3)], known_since=clock.now() + 3 * HOUR) == (doubt(5, 6),)
    many = add_doubts([doubt(2 * i, 2 * i + 1) for i in range(300)])
    assert len(many) == 100
    assert many[-1].until == doubt(598, 599).until
