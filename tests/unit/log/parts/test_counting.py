"""Counts of rows and nulls of a table with parts are those of the same table in one body."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbio_commit.data.counts import CountsByPartition, count_rows
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.state import FilesInParts
from tests.builders import DESCRIPTOR, World, data
from tests.tiny_parts import in_parts, in_slices

DAYS = [None, "2026-11-20", "2026-11-21"]

ROWS = st.integers(3, 9)
FILE = st.tuples(st.sampled_from(DAYS), ROWS, st.integers(0, 4), st.integers(0, 3))
COMMITS = st.lists(st.tuples(st.sampled_from(["id", "ID"]), st.lists(FILE, max_size=4)), min_size=1, max_size=5)


def world_of(commits: list[Any], *, removes: int, in_markers: int) -> World:
    """The last commits are in no checkpoint. Of each file: its day, rows, and nulls of `id` and `other`."""
    world = World(descriptor=False)
    world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": ["day"]})
    added: list[str] = []
    for number, (spelled, files) in enumerate(commits, 1):
        tid = f"{number:019}"
        paths = [f"day={day or '__HIVE_DEFAULT_PARTITION__'}/{data(tid, i)}" for i, (day, *_) in enumerate(files)]
        days, rows, ids, others = ([*it] for it in zip(*files, strict=True)) if files else ([], [], [], [])
        bounds = {
            name: {"min": [None] * len(files), "max": [None] * len(files), "nulls": nulls}
            for name, nulls in ((spelled, ids), ("other", others))
        }
        told = {"size": [5] * len(files), "rows": rows, "partition": {"day": days}, "statistics": bounds}
        world.commit(tid, paths, files=told)
        added += paths
        if number == len(commits) - in_markers:
            world.table().checkpoint()
    world.commit("0000000000000000999", [], removed=added[:removes])
    return world


@contextmanager
def both(world: World) -> Iterator[tuple[Snapshot, Snapshot]]:
    with in_slices():
        found = in_parts(world.table()).snapshot()
        assert isinstance(found.files, FilesInParts)
        yield world.snapshot(), found


def counts(snapshot: Snapshot, columns: list[str]) -> CountsByPartition | None:
    return count_rows(snapshot.files, snapshot.of_files, columns)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(COMMITS, st.integers(0, 3), st.integers(0, 1), st.sampled_from([[], ["id"], ["id", "Other"]]))
def test_counts_are_those_of_one_body(commits: list[Any], removes: int, in_markers: int, columns: list[str]) -> None:
    """Some files have more nulls than rows, and then nothing is known."""
    with both(world_of(commits, removes=removes, in_markers=min(in_markers, len(commits) - 1))) as (body, parts):
        assert counts(parts, columns) == counts(body, columns)
        assert counts(parts, ["missing"]) == (None if len(body.files) else {})


def test_what_no_writer_recorded_is_not_known() -> None:
    known = [("id", [(DAYS[1], 3, 1, 0), (None, 4, 4, 0)])]
    nothing = [("id", [(DAYS[1], None, None, 0), (None, 4, 1, 0)])]
    for commits, in_markers, expected in (
        (known, 0, {(DAYS[1],): [3, 2], (None,): [4, 0]}),
        (nothing, 0, None),
        ([*known, *nothing], 1, None),
    ):
        with both(world_of(commits, removes=0, in_markers=in_markers)) as (body, parts):
            assert counts(parts, ["id"]) == expected == counts(body, ["id"])
