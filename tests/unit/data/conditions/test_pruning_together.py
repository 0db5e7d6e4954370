"""Files are looked at together before each of them is: the same files stay, and fewer are asked about."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from random import Random
from unittest.mock import patch

import pytest

from dbio_commit.data.conditions import pruning
from dbio_commit.protocol import names, state
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns
from tests.tiny_parts import tiny_parts


def table_of(bounds: list[dict[str, Bounds] | None], *, in_parts: bool) -> Table:
    """A table whose log has files with such bounds, written by one transaction; the files do not exist."""
    clock = ManualClock()
    table = Table.over(MemoryStore(clock), clock)
    with table.begin() as transaction:
        terms = transaction.terms
        for i, own in enumerate(bounds):
            name = names.format_data_file(tid=terms.tid, job=terms.job, task=i, attempt=0, number=0, suffix=".parquet")
            transaction.add([FileInfo(path=name, size=1, rows=3, statistics=own)], looked_at=True)
        transaction.vouch_for_rows()
        transaction.commit(columns("a", "b"))
    if in_parts:
        clock.advance(timedelta(minutes=1))
        table.checkpoint()
    return table


def any_bounds(chance: Random) -> dict[str, Bounds] | None:
    if chance.random() < 0.05:
        return None
    low = chance.randrange(100)
    a = Bounds(low, low + chance.randrange(20), chance.choice([0, 0, 1, None]))
    if chance.random() < 0.1:
        a = chance.choice([Bounds(None, None, 3), Bounds(), Bounds(None, 5, 0)])
    return {"a": a} if chance.random() < 0.3 else {"a": a, "b": Bounds(str(low), str(low + 1), 0)}


@contextmanager
def together(count: int) -> Iterator[None]:
    with patch.object(state, "TOGETHER", count), patch.object(pruning, "TOGETHER", count):
        yield


CONDITIONS = ["a < 10", "a = 50 OR a IS NULL", "NOT a > 3", "a IN (1, 99) AND b > '5'", "b IS NULL", "a <=> NULL"]


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_same_files_stay_as_if_each_was_looked_at(seed: int, in_parts: bool) -> None:
    chance = Random(seed)
    with tiny_parts():
        table = table_of([any_bounds(chance) for _ in range(40)], in_parts=in_parts)
        for condition in CONDITIONS:
            kept = []
            for count in (1, 2, 7, 256):
                with together(count):
                    kept.append({file.path for file in table.snapshot().where(condition).files})
            assert kept[1:] == kept[:-1], condition


@pytest.mark.parametrize("seed", range(3))
def test_the_same_files_stay_with_parts_as_without(seed: int) -> None:
    chance = Random(seed)
    bounds = [any_bounds(chance) for _ in range(60)]
    with tiny_parts():
        tables = [table_of(bounds, in_parts=in_parts) for in_parts in (False, True)]
        for condition in CONDITIONS:
            whole, in_parts = (
                {file.path.split("-")[1] for file in it.snapshot().where(condition).files} for it in tables
            )
            assert whole == in_parts, condition


@pytest.mark.parametrize("in_parts", [False, True])
def test_few_files_are_asked_about_one_by_one_if_neighbours_have_similar_values(in_parts: bool) -> None:
    with tiny_parts() if in_parts else nullcontext():
        table = table_of([{"a": Bounds(i, i + 1, 0)} for i in range(500)], in_parts=in_parts)
        snapshot = table.snapshot()
    assert isinstance(snapshot.files, state.FilesInParts) == in_parts
    asked = []
    of_bounds = pruning.facts_of_bounds

    def counted(*given: object) -> object:
        asked.append(given)
        return of_bounds(*given)  # type: ignore[arg-type]

    with together(32), patch.object(pruning, "facts_of_bounds", counted):
        assert len(snapshot.where("a BETWEEN 200 AND 208").files) == 10
    assert len(asked) <= 2 * 32
