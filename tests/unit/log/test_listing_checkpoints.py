"""A table with checkpoints tells the same as one without, or refuses; no checkpoint is ever ignored.

Making a table of a directory is in `test_adopt`. Numbers I1 to I10: PROTOCOL.md section 5. Rules: PROTOCOL.md 9.7.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, UnsupportedTableError
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.table import Table
from tests.builders import NOW, columns, data
from tests.faults import calls_to
from tests.unit.checkpointed import GOOD, HEADER, OLD, World, line, packed

# --- a table with checkpoints, beside the same without ------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A commit, or a vacuum: which of the removed files are gone by then, and whether it purges."""

    pause: timedelta
    commit: dict[str, Any] | None = None
    gone: float = 0.0
    history: timedelta = timedelta(days=30)
    purge: bool = False


PAUSES = st.sampled_from(
    [timedelta(0), timedelta(seconds=1), timedelta(hours=1), timedelta(days=20), timedelta(days=40)]
)


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """A life of a table."""
    life: list[Step] = []
    live_now: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        tid, turn = f"{number:019d}", number + 1
        if draw(st.integers(0, 2)) == 0:
            vacuum = Step(draw(PAUSES), gone=draw(st.sampled_from([0.0, 0.5, 1.0])), purge=draw(st.booleans()))
            life.append(replace(vacuum, history=draw(st.sampled_from([timedelta(), timedelta(days=30)]))))
            continue
        kind = draw(st.sampled_from(["append", "overwrite", "rewrite", "abort", "stranger"]))
        added = [data(tid, i) for i in range(0 if kind == "abort" else draw(st.integers(0, 2)))]
        removed = live_now if kind == "overwrite" else live_now[:1] if kind == "rewrite" else []
        live_now = [path for path in live_now if path not in removed] + added
        commit: dict[str, Any] = {"tid": tid, "added": added, "removed": removed}
        if kind not in ("abort", "stranger"):
            commit["schema"] = columns(*map(str, range(draw(st.integers(1, 3)))))
            commit["schema_turn"] = turn
            commit["app"] = draw(
                st.none() | st.fixed_dictionaries({"id": st.just("job"), "version": st.integers(0, 9)})
            )
        life.append(Step(draw(PAUSES), {**commit, **({} if kind == "stranger" else {"operation": kind})}))
    return life


@given(steps())
def test_a_table_with_checkpoints_tells_the_same_as_without_or_refuses(life: list[Step]) -> None:  # I6
    plain, kept = World(), World()
    now, times = OLD, list[datetime]()
    removed: list[str] = []
    for step in life:
        now += step.pause
        kept.clock.jump(now - kept.clock.now())
        if step.commit:
            for world in (plain, kept):
                world.commit(**step.commit, at=now)
            removed += step.commit["removed"]
            times.append(now)
        else:
            kept.checkpoint(removed[: round(len(removed) * step.gone)], step.history)
            if step.purge:
                kept.purge()
        expected, found = plain.table().snapshot(), kept.table().snapshot()
        assert {file.path: file for file in found.files} == {file.path: file for file in expected.files}
        assert found.app_versions == expected.app_versions
        assert found.metadata == expected.metadata
        if step.commit is None:
            assert_same_past(plain, kept, times)


def assert_same_past(plain: World, kept: World, times: Sequence[datetime]) -> None:
    """What is told of the past is so; and all of it since the last removal of what is gone is told."""
    known = kept.table().snapshot()
    known_since = known.checkpoint.known_since
    asked: list[tuple[datetime | str, datetime]] = [(it.tid, it.modified) for it in plain.table().snapshot().decided]
    asked += [(moment, moment) for time in times for moment in (time, time - timedelta(microseconds=1))]
    for as_of, time in asked:
        try:
            assert kept.seen(as_of=as_of) == plain.seen(as_of=as_of)
        except InvalidInputError:
            is_forgotten = isinstance(as_of, str) and as_of not in {commit.tid for commit in known.decided}
            is_blurred = isinstance(as_of, str) and time == known_since and times.count(time) > 1
            assert is_forgotten or is_blurred or (known_since and time < known_since)
    originals = {commit.tid: commit for commit in plain.table().history()}
    for commit in kept.table().history():
        original = originals[commit.tid]
        assert (commit.timestamp, commit.operation, commit.app, commit.schema) == (
            original.timestamp, original.operation, original.app, original.schema
        )  # fmt: skip
        assert (commit.added_files, commit.removed_files) == (original.added_files, original.removed_files)


def test_the_first_vacuum_of_an_old_table_brings_back_no_removed_file() -> None:
    """Its first checkpoint must not forget a commit whose marker is still there to be read."""
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [data("2")], [data("1")], at=OLD + timedelta(days=1))
    world.commit("3", [data("3")], [data("2")], at=OLD + timedelta(days=2))
    assert world.checkpoint(gone=[data("1"), data("2")])
    assert world.seen() == {data("3")}
    assert world.table().check().ok
    world.purge()
    assert world.seen() == {data("3")}


TIED: dict[str, list[dict[str, Any]]] = {
    "an append and what removes from it, by an older tid": [
        {"tid": "2", "added": ["a", "b"]},
        {"tid": "1", "added": ["c"], "removed": ["a"]},
    ],
    "a removal of which nothing is left": [{"tid": "2", "added": ["a", "b"]}, {"tid": "1", "removed": ["a"]}],
    "a removal of what was there before": [{"tid": "1", "added": ["b"]}, {"tid": "2", "removed": ["a"]}],
}


@pytest.mark.parametrize("commits", TIED.values(), ids=TIED)
def test_states_within_one_second_are_told_as_before_or_refused(commits: list[dict[str, Any]]) -> None:  # I6
    """On stores whose times are whole seconds."""
    plain, kept = World(), World()
    for world in (plain, kept):
        world.commit("0", ["a"] if len(commits[0]["added"]) == 1 else [], at=OLD - timedelta(days=1))
        for commit in commits:
            world.commit(**commit)
    for _ in range(2):
        assert kept.checkpoint(gone=["a"], history=timedelta(days=1))
        kept.purge()
        kept.commit("9", [data("9")], at=NOW)
        plain.commit("9", [data("9")], at=NOW)
        for as_of in (OLD, NOW, "0", "1", "2", "9"):
            with suppress(InvalidInputError):
                assert kept.seen(as_of=as_of) == plain.seen(as_of=as_of)
        assert kept.seen(as_of=OLD) == plain.seen(as_of=OLD)  # all of that second


# --- corrupt and unknown checkpoints ------------------------------------------------------------------------------

REFUSALS = [
    ("no gzip", b"{}", CorruptMarkerError),
    ("cut off", GOOD[:-9], CorruptMarkerError),
    ("of no length", b"", CorruptMarkerError),
    ("hidden file", packed({**HEADER, "number": 1}, line(["_a.parquet"])), CorruptMarkerError),
    ("hidden directory", packed({**HEADER, "number": 1}, line(["_temporary/a"])), CorruptMarkerError),
    ("outside", packed({**HEADER, "number": 1}, line(["../a"])), CorruptMarkerError),
    ("of a later version", packed({"version": 3}), UnsupportedTableError),
]
USES: list[Callable[[Table], object]] = [
    Table.snapshot,
    lambda table: table.snapshot(ignore_corrupt_markers=True),
    Table.history,
    Table.check,
    Table.checkpoint,
    lambda table: table.show("1"),
    lambda table: table.abort("2"),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("body", "error"), [it[1:] for it in REFUSALS], ids=[it[0] for it in REFUSALS])
def test_a_checkpoint_that_cannot_be_read_is_refused_by_name_and_never_ignored(
    body: bytes, error: type[Exception], use: Callable[[Table], object]
) -> None:
    """What it covers is told nowhere else."""
    world = World()
    world.commit("1", [data("1")])
    world.put("_started_2")
    world.put(names.checkpoint(1), body)
    with pytest.raises(error, match=names.checkpoint(1)):
        use(world.table())


def test_only_the_newest_checkpoint_is_read() -> None:
    world = World()
    world.commit("1", [data("1")])
    world.checkpoint()
    world.put(names.checkpoint(0), b"no gzip")
    world.commit("2", [data("2")])
    world.checkpoint()
    world.put(names.checkpoint(1), b"no gzip")
    world.put("_checkpoint_1234567890123456789", b"of the draft")  # 19 digits
    assert world.seen() == {data("1"), data("2")}


def test_a_checkpoint_larger_than_any_writers_is_refused_before_it_is_read() -> None:
    class Vast(World):
        def _entries(self, prefix: str) -> list[Entry]:
            size = MAX_BYTES + 1
            return [e._replace(size=size) if "_checkpoint_" in e.path else e for e in super()._entries(prefix)]

    world = Vast()
    world.commit("1", [data("1")])
    world.put(names.checkpoint(1), GOOD)
    with calls_to(world) as calls, pytest.raises(CorruptMarkerError, match=str(MAX_BYTES)):
        world.seen()
    assert ("get", names.checkpoint(1)) not in calls


@pytest.mark.parametrize("number", [10**15, 10**20 - 1])
def test_a_checkpoint_that_no_writer_reaches_is_corrupt_by_its_name(number: int) -> None:
    """Else no other could ever follow it."""
    world = World()
    world.commit("1", [data("1")])
    world.checkpoint()
    name = f"_checkpoint_{number:020d}"
    world.put(name, packed({**HEADER, "number": number, "commits": 0}))
    for use in (world.seen, world.checkpoint):
        with (
            calls_to(world) as calls,
            pytest.raises(CorruptMarkerError, match=f"{name} has a number that no writer"),
        ):
            use()
        assert ("get", name) not in calls
    world.delete_many([name])
    assert world.seen() == {data("1")}


def test_a_table_whose_descriptor_is_gone_is_no_directory_of_the_directory_scope() -> None:
    world = World()
    world.commit("1", [data("1")])
    world.checkpoint()
    world.put("b.parquet", b"untracked")
    del world.objects["_dbio_table"]
    with pytest.raises(CorruptMarkerError, match=r"_dbio_table is missing, and _checkpoint_0*1 shows"):
        world.table().snapshot()


def test_what_was_purged_by_hand_without_a_checkpoint_is_no_concern_of_the_next_one() -> None:
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [data("2")])
    world.delete_many(["_started_1", "_committed_1"])
    assert world.seen() == {data("2")}
    world.checkpoint()
    assert world.seen() == {data("2")}
    assert isinstance(world.table().snapshot(), Snapshot)
