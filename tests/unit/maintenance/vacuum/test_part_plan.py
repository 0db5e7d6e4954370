"""Which parts of checkpoints a vacuum deletes: each rule with both sides of its horizon. Pure: PROTOCOL.md 10.5."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from dbio_commit.maintenance.vacuum.plan import Horizons
from dbio_commit.maintenance.vacuum.table_plan import parts, takes_number
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason, useless_parts
from dbio_commit.protocol.log import REFUSAL, Log, parse_log
from dbio_commit.protocol.parts import Dropped, Group, Part, Statistics
from vacuum import VacuumOptions

NOW = datetime(2026, 11, 20, tzinfo=UTC)
TICK = timedelta(microseconds=1)
HORIZONS = Horizons.at(NOW, VacuumOptions())
OLD, YOUNG = HORIZONS.data - TICK, HORIZONS.data
"""Just outside, and just inside, of the retention."""
LONG_AGO = NOW - timedelta(days=90)

age = pytest.mark.parametrize(("at", "is_old"), [(OLD, True), (YOUNG, False)], ids=["old", "young"])


def name(number: int, which: int = 0) -> str:
    """The name of an object that was written for the checkpoint with this number."""
    return names.part(number, f"{which:032x}")


def part(number: int, which: int = 0, *, statistics: int | None = None) -> Part:
    told = None if statistics is None else Statistics(name=name(number, statistics), bytes=20, footer=8, crc=0)
    groups = [Group(first=["", ""], rows=1, at=0, bytes=10, crc=0)]
    return Part(
        kind="files", name=name(number, which), since=number, until=number, bytes=20, footer=8, crc=0, groups=groups,
        last=["", ""], statistics=told,
    )  # fmt: skip


def root(number: int, named: Sequence[Part] = (), dropped: Sequence[Dropped] = ()) -> Checkpoint:
    return Checkpoint(number, parts=tuple(named), dropped=tuple(dropped))


def drop(it: Part, *, by: int, at: datetime | None = None) -> Dropped:
    return Dropped(part=it, into=[], by=by, at=at)


def log(*objects: str, at: datetime = LONG_AGO, checkpoints: Sequence[int] = (7,), top_at: datetime = LONG_AGO) -> Log:
    """A listing of these parts, and of checkpoints."""
    entries = [Entry(path, 3, at) for path in objects]
    return parse_log([*entries, *(Entry(names.checkpoint(number), 100, top_at) for number in checkpoints)])


def due(listed: Log, newest: Checkpoint, *, taken: int = 0) -> set[str]:
    return {it.path for it in parts(listed, newest, HORIZONS, taken=taken) if it.due}


def kept(listed: Log, newest: Checkpoint, *, taken: int = 0) -> set[str]:
    return {it.path for it in parts(listed, newest, HORIZONS, taken=taken) if not it.due}


# --- what the newest checkpoint names -----------------------------------------------------------------------------


def test_a_part_that_the_newest_checkpoint_names_is_not_useless_however_old() -> None:
    named = part(3, 1, statistics=2)
    listed = log(name(3, 1), name(3, 2))
    assert parts(listed, root(7, [named]), HORIZONS, taken=8) == []
    assert due(listed, root(7)) == {name(3, 1), name(3, 2)}


def test_what_is_no_part_is_no_useless_part() -> None:
    listed = parse_log(Entry(path, 3, LONG_AGO) for path in ("_part_", "_part_1-2", f"{name(1)}0", "_part-0.parquet"))
    assert parts(listed, root(7), HORIZONS) == []


# --- what it has dropped ------------------------------------------------------------------------------------------


@age
def test_a_dropped_part_is_due_once_it_was_dropped_longer_ago_than_the_retention(at: datetime, is_old: bool) -> None:
    it = drop(part(3, 1, statistics=2), by=5, at=at)
    listed, objects = log(name(3, 1), name(3, 2)), {name(3, 1), name(3, 2)}
    assert due(listed, root(7, dropped=[it])) == (objects if is_old else set())
    assert kept(listed, root(7, dropped=[it])) == (set() if is_old else objects)


@age
def test_a_part_that_the_newest_checkpoint_itself_has_dropped_counts_from_its_time(at: datetime, is_old: bool) -> None:
    listed = log(name(3), top_at=at)
    newest = root(7, dropped=[drop(part(3), by=7)])
    assert bool(due(listed, newest)) is is_old
    assert [(it.since, it.size, it.reason) for it in parts(listed, newest, HORIZONS)] == [(at, 3, Reason.PART)]


@pytest.mark.parametrize(("older", "is_due"), [([], True), ([5], True), ([6], True), ([4], False), ([4, 6], False)])
def test_a_dropped_part_stays_while_a_checkpoint_is_left_that_may_name_it(older: list[int], is_due: bool) -> None:
    listed = log(name(3), checkpoints=[7, *older])
    newest = root(7, dropped=[drop(part(3), by=5, at=OLD)])
    assert bool(due(listed, newest)) is is_due
    assert not kept(listed, newest), "what a checkpoint needs is no garbage"


def test_a_refused_checkpoint_keeps_no_part() -> None:
    refused = Entry(names.checkpoint(4), len(REFUSAL), LONG_AGO)
    listed = parse_log([Entry(name(3), 3, LONG_AGO), refused, Entry(names.checkpoint(7), 100, LONG_AGO)])
    assert due(listed, root(7, dropped=[drop(part(3), by=5, at=OLD)])) == {name(3)}


def test_a_dropped_part_that_was_just_dropped_stays_although_it_is_old_and_its_number_is_taken() -> None:
    """A reader may hold the root before. Only what no root names goes by its own age."""
    assert not due(log(name(3), top_at=YOUNG), root(7, dropped=[drop(part(3), by=7)]), taken=8)


# --- what it neither names nor has dropped ------------------------------------------------------------------------


@age
@pytest.mark.parametrize("number", [3, 7])
def test_a_part_of_no_checkpoint_is_due_once_it_is_old_and_its_number_is_taken(
    number: int, at: datetime, is_old: bool
) -> None:
    assert bool(due(log(name(number), at=at), root(7))) is is_old
    assert bool(kept(log(name(number), at=at), root(7))) is not is_old


def test_a_part_of_a_checkpoint_that_may_still_come_is_never_due() -> None:
    assert due(log(name(8)), root(7)) == set()
    assert kept(log(name(8)), root(7)) == {name(8)}
    assert due(log(name(1), checkpoints=[]), NO_CHECKPOINT) == set()


@age
def test_the_number_of_an_old_part_is_taken(at: datetime, is_old: bool) -> None:
    assert takes_number(log(name(8), at=at), root(7), HORIZONS) is is_old
    assert takes_number(log(name(1), at=at, checkpoints=[]), NO_CHECKPOINT, HORIZONS) is is_old


@age
def test_once_its_number_is_taken_an_old_part_is_due(at: datetime, is_old: bool) -> None:
    assert bool(due(log(name(8), at=at), root(7), taken=8)) is is_old
    assert not due(log(name(9), at=at), root(7), taken=8)


def test_no_number_is_taken_for_parts_that_need_none() -> None:
    newest = root(7, [part(7, 1)], [drop(part(3), by=5, at=OLD)])
    assert not takes_number(log(name(7, 1), name(7, 2), name(3)), newest, HORIZONS)


def test_a_number_that_no_writer_of_now_can_have_makes_no_vacuum_write_a_checkpoint() -> None:
    """Else each vacuum would write one, and come no nearer."""
    assert not takes_number(log(name(10**14)), root(7), HORIZONS)
    assert kept(log(name(10**14)), root(7), taken=8) == {name(10**14)}


def test_the_number_counts_from_the_highest_that_is_listed_whoever_wrote_it() -> None:
    """A writer takes the number after the highest, also after that of another table's checkpoint."""
    listed = log(name(10), checkpoints=[7, 9])
    assert takes_number(listed, root(7), HORIZONS)
    assert due(listed, root(7), taken=listed.checkpoint_after(7)) == {name(10)}
    assert not due(listed, root(7), taken=9)


def test_each_useless_part_is_told_once_with_what_may_still_name_it() -> None:
    listed = log(name(3), name(7), name(8), checkpoints=[7])
    found = list(useless_parts(listed, root(7, dropped=[drop(part(3), by=5, at=OLD)])))
    assert [(it.entry.path, it.since, it.number) for it in found] == [
        (name(3), OLD, None),
        (name(7), LONG_AGO, None),
        (name(8), LONG_AGO, 8),
    ]
