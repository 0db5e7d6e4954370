"""States of the past of a large table: those of the same table in one body, and refused where that refuses."""

from collections import Counter
from datetime import datetime, timedelta

import pytest

from dbio_commit import InvalidInputError
from dbio_commit.log.settled import Settled
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_state import table_snapshot
from dbio_commit.protocol.state import DataFile
from dbio_commit.protocol.subtrees import Subtrees
from tests.faults import calls_to
from tests.tiers import long
from tests.unit.large_tables import DAYS, ByChance, flat, several_slices, unread

SECOND = timedelta(seconds=1)


def as_of(made: ByChance, settled: Settled, then: datetime | str) -> Snapshot | str:
    try:
        return table_snapshot(made.store, settled, as_of=then)
    except InvalidInputError as error:
        return str(error)


def moments(made: ByChance, settled: Settled) -> list[datetime | str]:
    times = [it.modified for it in settled.decided]
    known = settled.checkpoint.known_since
    near = [time + by for time in [*times, *([known] if known else [])] for by in (SECOND * 0, SECOND, -SECOND)]
    return [*made.chance.sample(made.tids, 4), *made.chance.sample(near, 6)]


def check(found: Snapshot, expected: Snapshot) -> None:
    files = {file.path: file for file in expected.files}
    with unread():
        assert {file.path: file for file in found.files} == files
        assert len(found.files) == len(files)
        assert repr(found) == repr(expected)
        assert found.tids == expected.tids
        assert {*expected.etag.split(",")} <= {*found.etag.split(",")}  # by outlines, fewer surely came before
        assert (found.schema, found.settings) == (expected.schema, expected.settings)
        assert (found.partition_columns, found.layouts) == (expected.partition_columns, expected.layouts)
        for day in DAYS:
            assert {*found.where(f"day = '{day}'").urls()} == {*expected.where(f"day = '{day}'").urls()}
            inside = found.below(Subtrees([f"day={day}"]))
            assert {file.path for file in inside.files} == {path for path in files if path.startswith(f"day={day}/")}
        slices = [*found.slices()]
        assert Counter(file for some in slices for file in map(hashable, some.files)) == Counter(
            map(hashable, expected.files)
        )
        assert all({it.tid for it in some.decided} == {it.tid for it in expected.decided} for some in slices)
        plain = [it.tid for it in found.transactions if not it.marker.removed_tids]
        assert [(it.tid, it.marker.added, it.marker.removed) for it in found.whole(plain)] == [
            (it.tid, it.marker.added, it.marker.removed) for it in expected.decided if it.tid in plain
        ]
    assert [it._replace(place=None) for it in found.decided] == [it._replace(place=None) for it in expected.decided]


def hashable(file: DataFile) -> DataFile:
    return file._replace(partition=tuple(file.partition.items()))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 5, *long(1, 2, 3, 4, 6)])
def test_a_state_of_the_past_is_that_of_the_same_table_in_one_body(seed: int) -> None:
    with several_slices():
        made = ByChance(seed)
        made.run(20)
        settled = made.settled()
        for then in moments(made, settled):
            expected = as_of(made, flat(settled), then)
            with unread():
                found = as_of(made, settled, then)
            if isinstance(expected, str) or isinstance(found, str):
                assert found == expected
            else:
                check(found, expected)


def test_a_file_that_vacuum_has_deleted_refuses_the_state() -> None:
    """A checkpoint does not know it yet."""
    with several_slices():
        for seed in range(4):
            made = ByChance(seed)
            made.run(8)
            made.append()
            made.checkpoint()
            then = made.tids[-1]
            live = sorted(file.path for file in made.table.snapshot().files)
            made.overwrite()
            made.checkpoint() if seed % 2 else None
            made.store.delete_many(live[:2])
            settled = made.settled()
            expected, found = as_of(made, flat(settled), then), as_of(made, settled, then)
            assert found == expected
            assert "vacuumed or erased since, first" in str(found)


def test_where_nothing_was_removed_since_a_state_reads_only_what_may_match() -> None:
    with several_slices():
        made = ByChance(0)
        for _ in range(12):
            made.append()
        made.checkpoint()
        files = [part for part in made.settled().checkpoint.parts if part.kind == "files"]
        with calls_to(made.store) as calls:
            then = made.table.snapshot(made.tids[5])
            assert len(then.tids) == 6
            assert not {path for _, path in calls} & {part.name for part in files}
            some = then.where("day = 'd1'").files
        hopeful = [group for part in files for group in part.groups if "day=d1" in (group.directories or ())]
        assert sum(path in {part.name for part in files} for _, path in calls) <= 2 * len(hopeful)
        assert {file.path for file in some} == {it.path for it in then.files if it.partition == {"day": "d1"}}
