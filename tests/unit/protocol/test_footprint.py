"""What markers and checkpoints take in memory, as it is counted and as Python's allocator sees it."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from dbio_commit.log import listing, object_cache
from dbio_commit.log.listing import read_markers
from dbio_commit.log.object_cache import ObjectCache
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.footprint import checkpoint_bytes, marker_bytes
from dbio_commit.protocol.markers.commit import decode_commit
from dbio_commit.protocol.scope import Scope
from dbio_commit.testing import MemoryStore
from tests.builders import columns

N = 3000
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def path(number: int) -> str:
    job = "6def5b7b-0608-4299-b0fd-163011e8c988"
    return f"day=2026-11-20/part-{number:05d}-tid-3764747161343079266-{job}-{number}-0-c000.snappy.parquet"


PATHS = [path(number) for number in range(N)]


def files(count: int = N, **more: Any) -> dict[str, Any]:
    numbers = [1000 * number for number in range(count)]
    return {"size": numbers, "rows": numbers, "partition": {"day": ["2026-11-20"] * count}, **more}


def body(added: list[str], removed: list[str], **info: Any) -> bytes:
    told = {"operation": "append", "commit_id": "c", "timestamp": "2026-11-20T10:00:00Z", **info}
    return json.dumps({"added": added, "removed": removed, "dbio_commit": told}).encode()


def bounds(count: int, columns: int) -> dict[str, Any]:
    values = [1000 * number for number in range(count)]
    return {f"column_{i}": {"min": values, "max": values, "nulls": [0] * count} for i in range(columns)}


SHAPES: dict[str, Callable[[], bytes]] = {
    "many short paths": lambda: body([], [f"a{i}" for i in range(10 * N)]),
    "many long paths": lambda: body(PATHS, [], files=files()),
    "paths of many letters": lambda: body([f"{i}é\U0001f600" * 10 for i in range(N)], []),
    "many partitions": lambda: body(PATHS, [], files=files(partition={"day": [f"value-{i}" for i in range(N)]})),
    "rows that nobody counted": lambda: body(PATHS, [], files=files(rows=[None, *(1000 * i for i in range(1, N))])),
    "many statistics": lambda: body(PATHS, [], files=files(statistics=bounds(N, 10))),
    "many settings": lambda: body(["a"], [], settings={f"s{i}": "x" * 4000 for i in range(100)}),
    "many metrics": lambda: body(["a"], [], metrics={f"m{i}": 1000 * i for i in range(N)}),
    "many transactions": lambda: body([], [], version=2, removed_tids=[str(10**18 + i) for i in range(N)]),
    "whole files": lambda: body(PATHS, [], whole=PATHS),
    "many columns of partitions": lambda: body(
        ["a"], [], files={"size": [1], "rows": [1], "partition": {f"c{i}": ["x"] for i in range(N)}}
    ),
    "a large schema": lambda: body(["a"], [], schema=columns(*(f"column_{i}" for i in range(N)))),
    "of another writer": lambda: json.dumps({"added": PATHS, "removed": []}).encode(),
}


def traced(make: Callable[[], object]) -> tuple[Any, int]:
    """What is made, and how many bytes of memory it holds."""
    make()  # what a first call leaves in caches is none of it
    gc.freeze()  # what other tests have left in this process takes a second to go through
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        return made, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


@pytest.mark.long_for(*SHAPES.keys() - {"many transactions", "many columns of partitions"})
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_marker_counts_for_is_about_what_it_takes_in_memory(shape: str) -> None:
    text = SHAPES[shape]()
    marker, size = traced(lambda: decode_commit(text, where="the marker"))
    assert 0.8 * size <= marker_bytes(marker) <= 1.5 * size


@pytest.mark.parametrize(
    ("commits", "files_each"), [(100, 30), *(pytest.param(*it, marks=pytest.mark.long) for it in [(1, N), (1000, 1)])]
)
def test_what_a_checkpoint_counts_for_is_about_what_it_takes_in_memory(commits: int, files_each: int) -> None:
    decided = []
    for number in range(commits):
        paths = [path(files_each * number + i) for i in range(files_each)]
        text = body(paths, [], files=files(files_each, statistics=bounds(files_each, 1)), schema=columns("id", "day"))
        decided.append(Decided(NOW, str(10**18 + number), decode_commit(text, where="the marker")))
    packed = encode_checkpoint(Checkpoint(1, commits=tuple(decided)), created=NOW)

    def read() -> Checkpoint:
        checkpoint = decode_checkpoint(packed, number=1, where="the checkpoint")
        assert len(checkpoint.covered) == commits
        return checkpoint

    checkpoint, size = traced(read)
    assert 0.8 * size <= checkpoint_bytes(checkpoint) <= 1.5 * size


def test_the_cache_of_logs_holds_no_more_than_its_limit_of_markers_that_take_many_times_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_cache, "CACHE", memory := ObjectCache(limit_bytes=4_000_000))
    store = MemoryStore()
    for number in range(6):
        store.put(names.committed(str(number)), SHAPES["many short paths"]())  # 0.4 MB; 1.9 MB in memory

    def fill() -> None:
        read_markers(store, store.list_log("_committed_"), scope=Scope.TABLE, table_id="t")

    _, size = traced(fill)
    assert len(memory._kept) == 2
    assert size < 5_000_000


def test_of_markers_that_are_read_without_statistics_only_what_is_kept_stays_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    text = body(PATHS[:100], [], files=files(100, statistics=bounds(100, 300)))
    for number in range(20):
        store.put(names.committed(str(number)), text)

    def read() -> object:
        return read_markers(store, store.list_log("_committed_"), scope=Scope.TABLE).valid

    _, whole = traced(read)
    monkeypatch.setattr(listing, "STATISTICS_BYTES", len(text))
    _, kept = traced(read)
    assert 0.8 * 20 * len(text) < whole < 1.2 * 20 * len(text)  # no body besides the statistics in it
    assert kept < 0.05 * whole
