"""Parts of a large table's checkpoint, and which of them a new checkpoint merges. Pure.

A checkpoint of version 2, the *root*, names its parts. Parts never change. They are Parquet files, which `log/parts`
encodes and reads. The *news* of a root are what differs from the root before it. Format and rules: PROTOCOL.md 7.7 and
9.7.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, structs

from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import Body, Count, in_utc_of_a_clock, written

PartKind = Literal["files", "commits"]
"""`files` has a row for each path that a transaction added or removed, `commits` a row for each transaction."""

Crc = Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]

Key = list[str]
"""The beginning of a row's sort key: [directory, tid in the name or ""] of a file, [] of a commit."""


class Group(Body, frozen=True, kw_only=True):
    """A row group of a part: the bytes that a reader fetches together."""

    first: Key
    """The key of its first row."""
    rows: Count
    at: Count
    """Where its bytes begin in the object."""
    bytes: Count
    crc: Crc
    """The CRC-32 of these bytes."""
    directories: list[str] | None = None
    """The directories of its files, sorted; None if the list would be long."""


class Statistics(Body, frozen=True, kw_only=True):
    """The object with the statistics of a part's files, row by row in the same order, in row groups of its own."""

    name: str
    bytes: Count
    footer: Count
    """The bytes of its footer, which is its end, with the CRC-32 of each column chunk before it."""
    crc: Crc
    """The CRC-32 of the footer."""

    def __post_init__(self) -> None:
        _check_object(self.name, self.bytes, self.footer)


class Part(Body, frozen=True, kw_only=True):
    """A part, as the root names it."""

    kind: PartKind
    name: str
    """Its object, at the root of the table."""
    since: Count
    """The lowest number of the checkpoints whose news it has."""
    until: Count
    """The highest number of these checkpoints."""
    bytes: Count
    footer: Count
    """The bytes of its footer, which is its end."""
    crc: Crc
    """The CRC-32 of the footer."""
    groups: list[Group]
    last: Key
    """The key of its last row."""
    statistics: Statistics | None = None

    def __post_init__(self) -> None:
        _check_object(self.name, self.bytes, self.footer)
        if self.since > self.until:
            raise ValueError(f"part {self.name} has news since {self.since} until {self.until}")
        if not self.groups:
            raise ValueError(f"part {self.name} has no rows")
        at = 0
        for group in self.groups:
            if group.at < at or not group.rows:
                raise ValueError(f"the row groups of part {self.name} are in disorder")
            at = group.at + group.bytes
        if at > self.bytes - self.footer:
            raise ValueError(f"the row groups of part {self.name} reach into its footer")
        length = 2 if self.kind == "files" else 0
        keys = [*(group.first for group in self.groups), self.last]
        if any(len(key) != length for key in keys) or any(a > b for a, b in pairwise(keys)):
            raise ValueError(f"the keys of part {self.name} are in disorder")

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def first(self) -> Key:
        return self.groups[0].first

    @property
    def objects(self) -> list[str]:
        """The names of its objects."""
        return [self.name, *([self.statistics.name] if self.statistics else [])]

    def without_directories(self) -> "Part":
        """The same part, without lists of directories. Its readers skip fewer row groups."""
        return structs.replace(self, groups=[structs.replace(group, directories=None) for group in self.groups])


class State(Body, frozen=True, kw_only=True):
    """Totals of the files in all parts of a root."""

    files: Count
    """How many are live."""
    bytes: Count
    """The size of the live ones together, as far as it is known."""
    unknown: Count = written(0)
    """How many live files have no known size."""
    layouts: list[list[str]]
    """The layouts (partition columns) that the table has, and had before."""
    absent: list[str] = written([])
    """Transactions that no part has, and all of whose files the transactions in the parts remove."""
    hides: bool = written(False)
    """Whether a path is removed that no transaction in the parts adds."""


class Dropped(Body, frozen=True, kw_only=True):
    """A part that the root does not name any more. Readers of earlier roots may still read it, and so may a rebuild."""

    part: Part
    into: list[str]
    """The names of the parts that have its rows now."""
    by: Count
    """The number of the first root that does not name it."""
    at: datetime | None = None
    """The time of that root on the store. None in that root itself, whose own time it is."""

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "at")


def _check_object(name: str, size: int, footer: int) -> None:
    if names.part_number(name) is None:
        raise ValueError(f"{name[:100]!r} is not the name of a part")
    if not 8 <= footer <= size:
        raise ValueError(f"part {name} has a footer of {footer} bytes in {size}")


def check_parts(parts: Sequence[Part], dropped: Sequence[Dropped], cuts: Sequence[Key], *, number: int) -> None:
    """Raises ValueError if an object is named twice, a part is newer than the root with this number, or the cuts are in
    disorder."""
    objects = [name for part in (*parts, *(it.part for it in dropped)) for name in part.objects]
    if len({*objects}) != len(objects):
        raise ValueError("a part is named twice")
    if any((names.part_number(name) or 0) > number for name in objects) or any(it.until > number for it in parts):
        raise ValueError("a part is newer than the root that names it")
    if any(len(cut) != 2 for cut in cuts) or any(a >= b for a, b in pairwise(cuts)):
        raise ValueError("the cuts are in disorder")


# --- merges -------------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """When parts are merged, in rows."""

    split: int = 1_600_000
    """Rows that lie in no range are cut into ranges if there are so many: those of merged parts, and those of a new
    part."""
    budget: int = 1_000_000
    """About how many rows the merges of ranges in one checkpoint may have. The first merge may have any size."""
    most: int = 500_000
    """A merge with more rows than twice this is cut into parts of about this size, each of a new range."""


LIMITS = Limits()


class Merge(NamedTuple):
    """Some parts of one kind become one, or one for each of several ranges."""

    parts: Sequence[Part]
    is_whole: bool
    """Whether rows of forgotten paths and transactions may be left out: no other part has what these rows hide."""
    pieces: int = 1
    """Into how many ranges of about the same size the rows are cut. The cuts are new ones."""
    cuts: Sequence[Key] = ()
    """The existing cuts at which the rows are cut, too."""


class Cut(NamedTuple):
    """`Merge.pieces` and `Merge.cuts`."""

    pieces: int
    cuts: Sequence[Key]


def plan_cut(rows: int, cuts: Sequence[Key], limits: Limits = LIMITS) -> Cut:
    """How `rows` rows that lie in no range are cut: those of a merge, or those that one checkpoint adds."""
    if rows < limits.split:
        return Cut(1, ())
    return Cut(1 if cuts else _pieces(rows, limits), cuts)


def plan_merges(parts: Sequence[Part], cuts: Sequence[Key], limits: Limits = LIMITS) -> list[Merge]:
    """The merges that a checkpoint with these parts, oldest first, does before it is written.

    A part is merged with the younger ones if it has no more rows than these together. So all merges together rewrite
    each row a few times only, and there are few parts. Parts of large tables lie in ranges of keys. Each range is
    merged by itself, so that no checkpoint rewrites a large table as a whole.
    """
    commits = [part for part in parts if part.kind == "commits"]
    loose: list[Part] = []
    ranged: dict[int, list[Part]] = {}
    for part in parts:
        if part.kind == "files":
            where = _range_of(part, cuts)
            (loose if where is None else ranged.setdefault(where, [])).append(part)
    merges: list[Merge] = []
    if due := _due(commits):
        merges.append(Merge(due, _is_whole(due, parts)))
    if due := _due(loose):
        merges.append(Merge(due, _is_whole(due, parts), *plan_cut(_rows(due), cuts, limits)))
    left = limits.budget
    for where in sorted(ranged, key=lambda it: (-len(ranged[it]), it)):
        due = _due(ranged[where])
        rows = _rows(due)
        if due and (rows <= left or left == limits.budget):
            merges.append(Merge(due, _is_whole(due, parts), pieces=_pieces(rows, limits)))
            left -= rows
    return merges


def plan_cuts_of_all(parts: Sequence[Part], cuts: Sequence[Key], limits: Limits = LIMITS) -> list[Merge]:
    """The merge after which each part with files lies in one range; empty if none is needed."""
    loose = [part for part in parts if part.kind == "files" and _range_of(part, cuts) is None]
    return [Merge(loose, _is_whole(loose, parts), cuts=cuts)] if cuts and loose else []


def plan_merges_of_forgotten(
    parts: Sequence[Part], cuts: Sequence[Key], forgetful: Collection[str], limits: Limits = LIMITS
) -> list[Merge]:
    """The merges after which no part has rows of forgotten paths. The merge of `plan_cuts_of_all` must come first.

    `forgetful` names the parts with a row that is `gone`. Such a row and the rows that it hides have one key, and so
    they lie in one range. Ranges without such parts stay as they are.
    """
    ranged: dict[int | None, list[Part]] = {}
    for part in parts:
        if part.kind == "files":
            ranged.setdefault(_range_of(part, cuts), []).append(part)
    due = [where for where, each in ranged.items() if any(part.name in forgetful for part in each)]
    found: list[Merge] = []
    for where in sorted(due, key=lambda it: -1 if it is None else it):
        pieces = (
            plan_cut(_rows(ranged[where]), cuts, limits).pieces
            if where is None
            else _pieces(_rows(ranged[where]), limits)
        )
        found.append(Merge(ranged[where], _is_whole(ranged[where], parts), pieces=pieces))
    return found


def tighten_cuts(parts: Sequence[Part], cuts: Sequence[Key]) -> list[Key]:
    """The cuts, each moved up to the next key that a part begins with, so that no cut names a forgotten path. Each part
    with files must lie in one range, as after the merge of `plan_cuts_of_all`."""
    firsts: dict[int, Key] = {}
    for part in parts:
        if part.kind == "files" and (where := _range_of(part, cuts)):
            firsts[where] = min(part.first, firsts.get(where, part.first))
    return sorted(firsts.values())


def _range_of(part: Part, cuts: Sequence[Key]) -> int | None:
    """The range between two cuts in which the part lies; None if it lies in several, or if there are no cuts.

    Range i has the keys from cut i-1 on, and below cut i.
    """
    first, last = bisect_right(cuts, part.first), bisect_right(cuts, part.last)
    return first if cuts and first == last else None


def _is_whole(merged: Sequence[Part], parts: Iterable[Part]) -> bool:
    """Whether no other part has a row that a row of the merged parts hides: what is hidden came before, or with it."""
    first, last = min(part.first for part in merged), max(part.last for part in merged)
    until = max(part.until for part in merged)
    chosen = {part.name for part in merged}
    return not any(
        part.kind == merged[0].kind and part.name not in chosen and part.since <= until
        and part.first <= last and part.last >= first
        for part in parts
    )  # fmt: skip


def _rows(parts: Iterable[Part]) -> int:
    return sum(part.rows for part in parts)


def _pieces(rows: int, limits: Limits) -> int:
    return -(-rows // limits.most) if rows > 2 * limits.most else 1


def _due(parts: Sequence[Part]) -> list[Part]:
    """The youngest parts that are merged; none if there is nothing to do. `parts` are oldest first."""
    count, total = 1, parts[-1].rows if parts else 0
    while count < len(parts) and parts[-count - 1].rows <= total:
        total += parts[-count - 1].rows
        count += 1
    return [*parts[-count:]] if count > 1 else []
