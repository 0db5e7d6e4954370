"""States of tables with very many files, made directly as the parts of a checkpoint. The files do not exist.

Commits of 1,000 files: 10 in each of 100 partitions, out of PARTITIONS.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

import dbio_commit as dbio
from dbio_commit.log.parts import parquet, rows
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, encode_checkpoint, encode_root
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.markers.schema import pack_schema
from dbio_commit.protocol.parts import LIMITS, Key, Part, PartKind, State
from dbio_commit.store import Store

PARTITIONS = 2_000
PER_COMMIT = 1_000
TASKS = 10
SPREAD = PER_COMMIT // TASKS
"""How many partitions a commit adds to. Each task writes a file into each of them."""

_EVERY = timedelta(seconds=30)
_NUMBER = 5
"""The checkpoint's number."""

_CATEGORIES = np.array([f"category-{i:05}" for i in range(1000)])
_TYPES = ("long", "long", "string", "double")


def directories() -> list[str]:
    """Of all partitions, sorted."""
    return sorted(f"region={'abcdefgh'[i % 8]}/shop={i}" for i in range(PARTITIONS))


def columns(statistics: int) -> dict[str, Any]:
    """The columns of the table: as many as have statistics, and those of the partitions."""
    types = [(f"c{i:02}", _TYPES[i % 4]) for i in range(statistics)] + [("region", "string"), ("shop", "integer")]
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types],
    }


@dataclass(frozen=True, slots=True)
class _Commits:
    """All commits of a state, oldest first."""

    at_ms: Any
    tids: list[str]
    jobs: list[str]

    @classmethod
    def made(cls, count: int, until: datetime, seed: int) -> "_Commits":
        random = np.random.default_rng((1, seed))
        last = int(until.timestamp() * 1000)
        at_ms = last - np.arange(count, dtype=np.int64)[::-1] * (_EVERY // timedelta(milliseconds=1))
        tids = [f"{tid:019d}" for tid in (at_ms << 21) + random.integers(0, 1 << 21, count)]
        jobs = [str(UUID(bytes=it.tobytes())) for it in random.integers(0, 256, (count, 16), dtype=np.uint8)]
        return cls(at_ms, tids, jobs)

    def __len__(self) -> int:
        return len(self.tids)


def make_state(root: Path, files: int, statistics: int = 0) -> None:
    """A table with so many live files, and with statistics of so many columns."""
    shutil.rmtree(root, ignore_errors=True)
    with dbio.Table(root).begin(partition_by=["region", "shop"]) as transaction:
        transaction.commit(columns(statistics))
    first = dbio.Table(root).snapshot()
    commits = _Commits.made(files // PER_COMMIT, datetime.now(UTC) - timedelta(days=1), seed=0)
    parts: list[Part] = []
    total = 0
    cuts = _cuts(len(commits) * PER_COMMIT)
    levels = [*enumerate(_levels(len(commits), cuts), 1)]
    for number, (some, _) in levels:
        table = _commit_rows(commits, some, number, statistics)
        if number == 1:
            begun = rows.commits_table([(it, _key(it.modified), rows.Counts(0, 0)) for it in first.decided], number, {})
            table = pa.concat_tables([table, begun]).sort_by([("at", "ascending"), ("rank", "ascending")])
        parts.append(_put(root, table, "commits", number))
    wanted = [it for number, (some, is_cut) in levels for it in _wanted(some, cuts if is_cut else [], number)]
    for part, size in _in_processes(lambda it: _file_part(root, commits, it, statistics), wanted):
        parts.append(part)
        total += size
    parts.sort(key=lambda part: part.since)
    checkpoint = Checkpoint(
        _NUMBER,
        apps=first.app_versions,
        metadata=first.metadata,
        table_id=first.table_id,
        parts=tuple(parts),
        cuts=tuple(cuts),
        state=State(files=len(commits) * PER_COMMIT, bytes=total, layouts=[["region", "shop"]]),
    )
    (root / names.checkpoint(_NUMBER)).write_bytes(encode_root(checkpoint, created=datetime.now(UTC)))


def make_version_1(root: Path, source: Path) -> None:
    """A table with the same state as the table at `source`, in a checkpoint of version 1, without parts."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root, ignore=lambda _, found: [it for it in found if names.part_number(it) is not None])
    checkpoint = dbio.Table(source).snapshot().checkpoint
    plain = Checkpoint(
        _NUMBER,
        commits=checkpoint.commits,
        apps=checkpoint.apps,
        metadata=checkpoint.metadata,
        table_id=checkpoint.table_id,
    )
    (root / names.checkpoint(_NUMBER)).write_bytes(encode_checkpoint(plain, created=datetime.now(UTC)))


def _cuts(files: int) -> list[Key]:
    """Between ranges of whole partitions; none if the product would not cut so few files."""
    if files < LIMITS.split:
        return []
    ranges = -(-files // LIMITS.most)
    texts = directories()
    return [[texts[PARTITIONS * i // ranges], ""] for i in range(1, ranges)]


def _levels(count: int, cuts: Sequence[Key]) -> Iterator[tuple[range, bool]]:
    """The commits of the oldest parts, and so on to the newest; and whether the parts are cut into ranges.

    So merges leave them: each level has more files than the newer ones together, and the newest lie in no range.
    """
    most = min(count, 10_000_000 // PER_COMMIT)
    sizes = [*([most * 16 // 100] if cuts else []), most * 8 // 100, most * 3 // 100, most // 100]
    start = 0
    for i, size in enumerate([count - sum(sizes), *sizes]):
        if size:
            yield range(start, start + size), bool(cuts) and i < 2
        start += size


# --- files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The files of a part: the commit, directory and file number of each task's files, sorted."""

    commit: Any
    directory: Any
    spread: Any
    number: int
    range: int


def _wanted(some: range, cuts: Sequence[Key], number: int) -> Iterator[_Wanted]:
    """The parts with the files of some commits, one for each range between the cuts."""
    commit, directory, spread = _runs(some)
    texts = directories()
    places = [0, *(texts.index(cut[0]) for cut in cuts), PARTITIONS]
    for i, (start, stop) in enumerate(pairwise(np.searchsorted(directory, places))):
        if start < stop:
            yield _Wanted(commit[start:stop], directory[start:stop], spread[start:stop], number, i)


def _file_part(root: Path, commits: _Commits, it: _Wanted, statistics: int) -> tuple[Part, int]:
    """Writes a part. Returns it, and the size of its files."""
    random = np.random.default_rng((it.number, it.range))
    table = _file_rows(commits, it.commit, it.directory, it.spread, random)
    told = _statistics(np.repeat(it.commit, TASKS), statistics, random) if statistics else None
    size = pc.sum(table["size"]).as_py()
    return _put(root, table, "files", it.number, told), int(size or 0)


_function: Any = None
"""What forked processes do: they have it, and all that it refers to, without a copy."""


def _call(argument: Any) -> Any:
    return _function(argument)


def _in_processes(function: Callable[[_Wanted], tuple[Part, int]], items: list[_Wanted]) -> Iterator[tuple[Part, int]]:
    """The function's results in order. Nothing is measured meanwhile, so all processors take part."""
    global _function
    if len(items) < 8:
        yield from map(function, items)
        return
    _function = lambda i: function(items[i])  # noqa: E731
    with get_context("fork").Pool() as pool:
        yield from pool.imap(_call, range(len(items)))


def _runs(some: range) -> tuple[Any, Any, Any]:
    """Of some commits, the commit, directory and file number of each task's files, sorted by directory and commit."""
    random = np.random.default_rng((2, some.start))
    count = len(some)
    commit = np.repeat(np.arange(some.start, some.stop, dtype=np.int32), SPREAD)
    spread = np.tile(np.arange(SPREAD, dtype=np.int32), count)
    # a stride that shares no factor with the number of partitions: each commit's partitions differ
    stride = random.integers(0, PARTITIONS // 10, count, dtype=np.int32) * 10 + 3
    begin = random.integers(0, PARTITIONS, count, dtype=np.int32)
    directory = (np.repeat(begin, SPREAD) + np.repeat(stride, SPREAD) * spread) % PARTITIONS
    order = np.argsort(directory, kind="stable")
    return commit[order], directory[order].astype(np.int32), spread[order]


def _file_rows(commits: _Commits, commit: Any, directory: Any, spread: Any, random: np.random.Generator) -> pa.Table:
    count = len(commit) * TASKS
    task = np.tile(np.arange(TASKS, dtype=np.int32), len(commit))
    number = np.repeat(spread, TASKS)
    of: Any = pa.array(np.repeat(commit, TASKS))
    size = np.exp(random.normal(15, 1, count)).astype(np.int64) + 500
    join: Any = pc.binary_join_element_wise
    begins = np.array([f"part-{it:05d}" for it in range(TASKS)])
    ends = np.array([f"-0-{it}-c000.snappy.parquet" for it in range(SPREAD)])
    middles = pa.array([f"-tid-{tid}-{job}" for tid, job in zip(commits.tids, commits.jobs, strict=True)])
    columns_: dict[str, Any] = {
        "directory": _encoded(directories(), np.repeat(directory, TASKS)),
        "name": join(pa.array(begins[task]), middles.take(of), pa.array(ends[number]), ""),
        "tid": _encoded(commits.tids, np.repeat(commit, TASKS)),
        "writer": pa.nulls(count, rows.FILES.field("writer").type),
        "added": pa.array(task * SPREAD + number),
        "removed": pa.nulls(count, pa.int32()),
        "size": pa.array(size),
        "rows": pa.array(size // 97 + random.integers(0, 50, count)),
        "whole": pa.repeat(False, count),
        "gone": pa.repeat(False, count),
    }
    return pa.table(columns_, schema=rows.FILES)


def _encoded(texts: Any, index: Any) -> Any:
    """The texts at these places, with a dictionary of those that occur."""
    occur, places = np.unique(index, return_inverse=True)
    indices: Any = pa.array(places.astype(np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([texts[it] for it in occur.tolist()], pa.string()))


def _statistics(commit: Any, count: int, random: np.random.Generator) -> Iterator[pa.Table]:
    """The statistics of files of these commits, some rows at a time."""
    for start in range(0, len(commit), parquet.STATISTICS_ROWS):
        some = commit[start : start + parquet.STATISTICS_ROWS]
        found: dict[str, Any] = {}
        for i in range(count):
            kind, low, high = _bounds(i, some, random)
            nulls = np.where(random.random(len(some)) < 0.9, 0, random.integers(0, 1000, len(some)))
            found |= {
                f"min.{kind}.c{i:02}": pa.array(low),
                f"max.{kind}.c{i:02}": pa.array(high),
                f"nulls.int.c{i:02}": pa.array(nulls),
            }
        yield pa.table(found)


def _bounds(column: int, commit: Any, random: np.random.Generator) -> tuple[str, Any, Any]:
    """The kind, and the lowest and highest values: what grows with time, large random numbers, texts, or doubles."""
    count = len(commit)
    if column % 4 == 0:
        low = commit.astype(np.int64) * 30_000_000 + random.integers(0, 10_000_000, count)
        return "int", low, low + random.integers(0, 20_000_000, count)
    if column % 4 == 1:
        return "int", random.integers(0, 5000, count), random.integers(10**6, 10**6 + 5000, count)
    if column % 4 == 2:
        low, high = random.integers(0, 50, count), random.integers(950, 1000, count)
        return "text", pa.array(_CATEGORIES).take(pa.array(low)), pa.array(_CATEGORIES).take(pa.array(high))
    return "float", np.round(random.random(count) * 10, 4), np.round(1000 + random.random(count) * 10, 4)


# --- commits ------------------------------------------------------------------------------------------------------


def _key(at: datetime) -> rows.Key:
    return rows.Key((at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), 0)


def _commit_rows(commits: _Commits, some: range, number: int, statistics: int) -> pa.Table:
    schema = bytes(pack_schema(columns(statistics))).decode()
    each: list[dict[str, Any]] = []
    for i in some:
        at = datetime.fromtimestamp(int(commits.at_ms[i]) / 1000, UTC)
        metrics = {"numFiles": PER_COMMIT}
        info = CommitInfo(recorded="append", commit_id=commits.jobs[i], timestamp=at, schema_turn=1, metrics=metrics)
        each.append(
            {
                "tid": commits.tids[i],
                "modified": at,
                "at": at,
                "rank": 0,
                "number": number,
                "first": number,
                "forgotten": False,
                "info": encode(info).decode(),
                "schema": schema,
                "has_files": True,
                "statistics_left_out": False,
                "has_whole": False,
                "columns": [f"c{i:02}" for i in range(statistics)],
                "added": PER_COMMIT,
                "removed": 0,
                "forgotten_added": 0,
                "forgotten_removed": 0,
            }
        )
    return pa.Table.from_pylist(each, rows.COMMITS)


def _put(
    root: Path, table: pa.Table, kind: PartKind, number: int, statistics: Iterator[pa.Table] | None = None
) -> Part:
    body, part = parquet.encode_part(table, kind=kind, name=_new_name(number), since=number, until=number)
    (root / part.name).write_bytes(body)
    if statistics:
        body, described = parquet.encode_statistics(statistics, name=_new_name(number))
        (root / described.name).write_bytes(body)
        part = structs.replace(part, statistics=described)
    return part


def _new_name(number: int) -> str:
    return names.part(number, uuid4().hex)


# --- new commits --------------------------------------------------------------------------------------------------


def new_commits(store: Store, count: int, statistics: int, *, seed: int) -> list[str]:
    """Puts the markers of new commits. Returns their tids."""
    random = np.random.default_rng((3, seed))
    commits = _Commits.made(count, datetime.now(UTC), seed + 1)
    texts = directories()
    schema = pack_schema(columns(statistics))
    for i, tid in enumerate(commits.tids):
        job = commits.jobs[i]
        begin = int(random.integers(0, PARTITIONS))
        added: list[FileInfo] = []
        for task in range(TASKS):
            for number in range(SPREAD):
                directory = texts[(begin + 7 * number) % PARTITIONS]
                name = names.format_data_file(
                    tid=tid, job=job, task=task, attempt=0, number=number, suffix=".snappy.parquet"
                )
                size = int(random.integers(500, 10**7))
                added.append(
                    FileInfo(
                        path=f"{directory}/{name}",
                        size=size,
                        rows=size // 97,
                        partition=names.parse_partition(directory),
                        statistics={f"c{i:02}": _bound(i, size) for i in range(statistics)} or None,
                    )
                )
        info = CommitInfo(
            recorded="append",
            commit_id=job,
            timestamp=datetime.fromtimestamp(int(commits.at_ms[i]) / 1000, UTC),
            schema_turn=1,
            schema=schema,
            metrics={"numFiles": PER_COMMIT},
            files=pack_files(added),
        )
        marker = CommitMarker(added=[it.path for it in added], removed=[], dbio_commit=info)
        store.put_if_absent(names.committed(tid), encode(marker))
    return commits.tids


def _bound(column: int, size: int) -> Bounds:
    low: Any = size if column % 4 < 2 else f"category-{size % 50:05}" if column % 4 == 2 else size / 8
    high: Any = "category-00990" if column % 4 == 2 else low * 3
    return Bounds(low, high, size % 7)
