"""Vacuums of random directories, beside the model of them in `dbio_model`. PROTOCOL.md 11.2 and 11.4."""

import json
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.dbio_model import (
    ABORT,
    DAY,
    EVER,
    HOUR,
    MINUTE,
    NOW,
    OLD,
    A,
    B,
    World,
    at,
    commit,
    deleted,
    file_of,
    left_in_the_end,
    plan,
    queue,
    queues,
)
from vacuum import Reason, VacuumReport

# --- random directories ------------------------------------------------------------------------------------------

TIDS = [A, B, "ab12", "7"]
AGES = [
    NOW,
    5 * MINUTE,
    29 * MINUTE,
    30 * MINUTE,
    31 * MINUTE,
    HOUR,
    47 * HOUR,
    48 * HOUR,
    49 * HOUR,
    29 * DAY,
    31 * DAY,
]
PLACES = ["", "day=1", "day=1/hour=2", "plain", "_tmp"]
FILES = [file_of(tid, attempt) for tid in TIDS for attempt in range(2)]
OTHERS = [
    "plain.parquet",
    "_SUCCESS",
    "_metadata",
    ".hidden.parquet",
    "part-1-tid-AB-1",
    "_committed_ABC",
    "x._COPYING_",
]
MARKERS = [f"_{kind}_{tid}" for kind in ("started", "committed") for tid in TIDS]
CHECKSUMS = [f".{name}.crc" for name in (FILES[0], FILES[3], MARKERS[0], MARKERS[-1], "plain.parquet")]
STRANGE = ["_committed_vacuum2", "_committed_vacuum1", "_dbio_table", f"_serial_{1:020}", "nobody"]

ages = st.sampled_from(AGES)


def subsets(of: list[str], at_most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(of), max_size=at_most, unique=True)


commits = st.one_of(
    st.builds(commit, subsets(FILES, 4), st.just([])),
    st.builds(commit, subsets(FILES, 4), subsets([*FILES, "plain.parquet"], 4)),
    st.builds(commit, subsets([*FILES, *OTHERS], 3), subsets([*FILES, *OTHERS, *MARKERS], 4)),
    st.just(b""),
    st.just(ABORT),
)
queued = st.one_of(subsets(MARKERS, 4), subsets([*MARKERS, *FILES, *OTHERS, *STRANGE], 6)).map(lambda it: queue(*it))
bodies = {
    "_started_": st.just(b""),
    "_committed_": commits,
    "_committed_vacuum": st.one_of(queued, queued, queued, st.just(b"")),
}


@st.composite
def objects(draw: st.DrawFn) -> list[tuple[str, bytes, timedelta]]:
    """A directory tree: path, body and age of each object."""
    found = [("keep.parquet", b"rows", OLD)]
    for place in draw(subsets(PLACES, 3)):
        names = draw(subsets([*FILES, *OTHERS, *CHECKSUMS], 6)) + draw(subsets(MARKERS, 5))
        names += draw(subsets(["_committed_vacuum1", "_committed_vacuum2", "_committed_vacuum3"], 2))
        for name in names:
            kind = next((kind for kind in reversed(bodies) if name.startswith(kind) and "ABC" not in name), None)
            found.append((at(place, name), draw(bodies[kind]) if kind else b"rows", draw(ages)))
    return found


steps = st.lists(
    st.tuples(
        st.sampled_from([NOW, 10 * MINUTE, 31 * MINUTE, 49 * HOUR]),
        st.sampled_from([48.0, 48.0, 1.0, 0.1]),
    ),
    max_size=4,
)


def world_of(found: list[tuple[str, bytes, timedelta]]) -> World:
    world = World()
    for path, body, age in found:
        world.put(path, body, age=age)
    return world


def vacuum_as_planned(world: World, retention_hours: float) -> VacuumReport:
    """Checked against the model, and against a dry run."""
    before = dict(world.store.objects)
    deleted_, queued = plan(before, world.clock.now(), timedelta(hours=retention_hours))
    dry = world.vacuum(retention_hours, dry_run=True)
    assert world.store.objects == before
    report = world.vacuum(retention_hours)
    assert (dry.deleted, dry.kept, dry.queued) == (report.deleted, report.kept, report.queued)
    assert deleted(report) == before.keys() - world.paths == deleted_
    assert set(report.queued) == queued
    new = world.paths - before.keys()
    said = {at(path.rpartition("/")[0], name) for path in new for name in json.loads(world.store.get(path))["removed"]}
    assert new == queues(new)
    assert said == queued | new
    again = world.vacuum(retention_hours)
    if not any(it.reason is Reason.QUEUED and "_started_" in it.path for it in report.deleted):  # a stranger's queue
        assert (again.deleted, again.queued) == ([], [])
    return report


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(objects(), steps)
def test_a_random_directory_is_vacuumed_as_the_rules_say(
    found: list[tuple[str, bytes, timedelta]], times: list[tuple[timedelta, float]]
) -> None:
    world = world_of(found)
    seen, left = world.visible(), left_in_the_end(world.store.objects)
    for time, retention_hours in [*times, (EVER, 48.0), (EVER, 48.0), (EVER, 48.0)]:
        world.clock.advance(time)
        vacuum_as_planned(world, retention_hours)
    assert world.visible() == seen
    assert world.settle().keys() == left
