"""Which parts a checkpoint merges: pure arithmetic over 1,000 checkpoints. Rules: PROTOCOL.md 7.7, 9.7.

A model stands for the merges: the rows of a part are spread evenly between its first and its last key.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import NamedTuple

import pytest

from dbio_commit.protocol import names, parts
from dbio_commit.protocol.parts import LIMITS, Cut, Group, Key, Limits, Merge, Part, plan_cut, plan_merges

NEWS = 100_000
"""The new rows of a checkpoint: 100 commits of 1,000 files."""

ROUNDS = 1_000


class Rows(NamedTuple):
    """Rows of one part, between two places on the line of keys from 0 to 1."""

    many: int
    low: float
    high: float

    def below(self, place: float) -> float:
        width = self.high - self.low
        return self.many * (min(max((place - self.low) / width, 0), 1) if width else float(place > self.low))


def key(place: float) -> Key:
    return [f"{place:.9f}", ""]


class Model:
    """What becomes of the parts of a table."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.parts: list[Part] = []
        self.cuts: list[Key] = []
        self.rows: dict[str, Rows] = {}
        self.new = self.written = self.worst = self.loose = self.ranged = self.depth = 0

    def round(self, number: int, news: Sequence[Rows]) -> None:
        work = 0
        for it in news:
            work += it.many
            self.new += it.many
            self._add([it], plan_cut(it.many, self.cuts, self.limits), number, number)
        for merge in plan_merges(self.parts, self.cuts, self.limits):
            work += self._merge(merge)
        self.written += work
        self.worst = max(self.worst, work)
        by_range: dict[int | None, int] = {}
        for part in self.parts:
            where = parts._range_of(part, self.cuts)
            by_range[where] = by_range.get(where, 0) + 1
        loose = by_range.pop(None, 0)
        self.loose = max(self.loose, loose)
        self.ranged = max(self.ranged, *by_range.values(), 0)
        self.depth = max(self.depth, loose + max(by_range.values(), default=0))

    @property
    def amplification(self) -> float:
        return self.written / self.new

    def _merge(self, merge: Merge) -> int:
        gone = {it.name for it in merge.parts}
        self.parts = [it for it in self.parts if it.name not in gone]
        merged = [self.rows.pop(name) for name in gone]
        since, until = min(it.since for it in merge.parts), max(it.until for it in merge.parts)
        self._add(merged, Cut(merge.pieces, merge.cuts), since, until)
        return sum(it.many for it in merged)

    def _add(self, merged: Sequence[Rows], cut: Cut, since: int, until: int) -> None:
        low, high = min(it.low for it in merged), max(it.high for it in merged)
        count = sum(it.many for it in merged)
        new = [_place(merged, low, high, count * i / cut.pieces) for i in range(1, cut.pieces)]
        self.cuts = sorted([*self.cuts, *map(key, new)])
        edges = sorted({*new, *(place for it in cut.cuts if low < (place := float(it[0])) <= high)})
        for start, end in zip([low, *edges], [*edges, None], strict=True):
            till = count if end is None else sum(it.below(end) for it in merged)
            rows = round(till - sum(it.below(start) for it in merged))
            if rows:
                self._put(Rows(rows, start, high if end is None else max(start, end - 1e-9)), since, until)

    def _put(self, it: Rows, since: int, until: int) -> None:
        name = names.part(until, f"{len(self.rows) + self.written:032x}")
        while name in self.rows:
            name = names.part(until, f"{int(name[-32:], 16) + 1:032x}")
        self.rows[name] = it
        group = Group(first=key(it.low), rows=it.many, at=0, bytes=1, crc=0)
        self.parts.append(
            Part(kind="files", name=name, since=since, until=until, bytes=9, footer=8, crc=0, groups=[group],
                 last=key(it.high))
        )  # fmt: skip


def _place(merged: Sequence[Rows], low: float, high: float, wanted: float) -> float:
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(it.below(middle) for it in merged) < wanted else (low, middle)
    return round(high, 9)


SHAPES: dict[str, Callable[[int], list[Rows]]] = {
    "in all directories": lambda number: [Rows(NEWS, 0, 1)],
    "in a new directory each": lambda number: [Rows(NEWS, number / ROUNDS, (number + 0.5) / ROUNDS)],
    "in one directory": lambda number: [Rows(NEWS, 0.4, 0.41)],
    "after twenty million at once": lambda number: [Rows(20_000_000 if number == 1 else NEWS, 0, 1)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_merges_rewrite_each_row_a_few_times_and_leave_few_parts(shape: str) -> None:
    model = Model()
    for number in range(1, ROUNDS + 1):
        model.round(number, SHAPES[shape](number))
    assert sum(it.many for it in model.rows.values()) == pytest.approx(model.new, rel=1e-3)
    assert model.amplification <= 8
    assert model.depth <= 16  # parts that one key lies in
    assert max(model.loose, model.ranged) <= 12 < 2 * log2(ROUNDS)
    most = 3_000_000 if shape != "after twenty million at once" else 20_000_000  # which are written, not merged
    assert model.worst <= most
    assert max(it.many for it in model.rows.values()) <= LIMITS.split


def test_without_ranges_a_round_rewrites_half_of_the_table() -> None:
    """So the numbers above can fail."""
    model = Model(LIMITS._replace(split=1 << 60))
    for number in range(1, ROUNDS + 1):
        model.round(number, [Rows(NEWS, 0, 1)])
    assert model.worst > ROUNDS * NEWS / 3


def test_only_the_youngest_parts_are_merged_that_are_not_smaller_than_the_older_one() -> None:
    model = Model()
    for number, rows in enumerate((400, 200, 90, 100), start=1):
        model._add([Rows(rows, 0, 1)], Cut(1, ()), number, number)
    [merge] = plan_merges(model.parts, [])
    assert [it.rows for it in merge.parts] == [90, 100]
    model._add([Rows(120, 0, 1)], Cut(1, ()), 5, 5)
    [merge] = plan_merges(model.parts, [])
    assert [it.rows for it in merge.parts] == [400, 200, 90, 100, 120]
