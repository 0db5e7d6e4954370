"""Checkpoints: their body, what they leave out, and tables read, written and purged across them, on a store in memory.

Making a table of a directory is in `test_adopt`; what vacuum purges, and when, in its own tests. Here a purge is done
by hand, in the order of PROTOCOL.md 10.4. Numbers I1 to I9: section 5.
"""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import transaction as transaction_module
from dbio_commit.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    InvalidInputError,
    StoreError,
    TableExistsError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedTableError,
)
from dbio_commit.protocol import checkpoint as checkpoint_module
from dbio_commit.protocol import markers as markers_module
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import Checkpoint, condense, decode_checkpoint, encode_checkpoint
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers import App, Bounds, CommitInfo, CommitMarker, FileInfo, abort_marker, pack_files
from dbio_commit.protocol.state import TableSchema, live_files
from dbio_commit.snapshot import Scope, Snapshot, read_checkpoint
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from dbio_commit.transaction import Transaction
from dbio_commit.upkeep.checkpoints import write_checkpoint
from tests.writers import calls_to, contents, data_files, fail_with, heal, live, once, stage, write, write_days

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=90)
WHERE = "memory://table/_checkpoint_00000000000000000007"


def data(tid: str, number: int = 0) -> str:
    return f"part-{number:05d}-tid-{tid}-job-0-{number}-c000.parquet"


def columns(*named: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {"comment": None}} for name in named]
    return {"type": "struct", "fields": fields}


# --- the body -----------------------------------------------------------------------------------------------------

TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
COUNTS = st.integers(0, (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIDS = st.from_regex(r"[a-z0-9]{1,19}", fullmatch=True)
SCHEMAS = st.none() | st.sampled_from([columns("a"), columns("a", "b"), {"é": [None, {"x": None}, 1.5]}])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
BOUNDS = st.builds(Bounds, SCALARS, SCALARS, st.none() | COUNTS)


@st.composite
def decided(draw: st.DrawFn, tid: str) -> Decided:
    """A commit of ours, an abort, or a stranger's."""
    kind = draw(st.sampled_from(["ours", "abort", "stranger"]))
    modified = draw(TIMES)
    if kind == "abort":
        return Decided(modified, tid, abort_marker(commit_id=draw(TEXT), timestamp=draw(TIMES)))
    added = [f"day={i}/{data(tid, i)}" for i in range(draw(st.integers(0, 3)))]
    removed = draw(st.lists(st.sampled_from(["a", "day=1/b", "day=é/c d"]), max_size=2))
    forgotten = Forgotten(draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    if kind == "stranger":
        return Decided(modified, tid, CommitMarker(added=added, removed=removed), forgotten)
    files = [
        FileInfo(
            path=path,
            size=draw(COUNTS),
            rows=draw(st.none() | COUNTS),
            partition={"day": draw(st.none() | TEXT)},
            statistics=draw(st.dictionaries(st.sampled_from(["x", "ÿ"]), BOUNDS, max_size=2)),
        )
        for path in added
    ]
    info = CommitInfo(
        operation=draw(st.sampled_from(["append", "overwrite", "replace_partitions", "rewrite", "adopt"])),
        commit_id=draw(TEXT),
        timestamp=draw(TIMES),
        turn=draw(st.none() | COUNTS),
        app=draw(st.none() | st.builds(App, id=TEXT.filter(bool), version=COUNTS)),
        metrics=draw(st.dictionaries(TEXT, st.integers(0, 9), max_size=2)),
        table_schema=draw(SCHEMAS),
        schema_turn=draw(st.none() | COUNTS),
        files=draw(st.sampled_from([None, pack_files(files)])),
    )
    return Decided(modified, tid, CommitMarker(added=added, removed=removed, dbio_commit=info), forgotten)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    tids = draw(st.lists(TIDS, max_size=4, unique=True))
    return Checkpoint(
        number=draw(st.integers(1, 10**15)),
        commits=tuple(draw(decided(tid)) for tid in tids),
        apps=draw(st.dictionaries(TEXT, COUNTS, max_size=2)),
        schema=TableSchema(draw(SCHEMAS), draw(COUNTS)),
        known_since=draw(st.none() | TIMES),
    )


@given(checkpoints(), TIMES)
def test_a_checkpoint_is_read_back_as_it_was_written(checkpoint: Checkpoint, created: datetime) -> None:
    body = encode_checkpoint(checkpoint, created=created)
    placed = tuple(commit._replace(place=i) for i, commit in enumerate(checkpoint.commits))
    assert decode_checkpoint(body, number=checkpoint.number, where=WHERE) == replace(checkpoint, commits=placed)
    assert encode_checkpoint(checkpoint, created=created) == body  # so that a lost answer can be recognised


def test_commits_share_one_copy_of_a_schema_in_the_body_and_in_memory() -> None:
    wide = columns(*map(str, range(1000)))
    one = Decided(NOW, "1", marker(["a"], schema=wide, schema_turn=1))
    few, many = (
        encode_checkpoint(sample([one._replace(tid=str(tid)) for tid in range(count)]), created=NOW)
        for count in (1, 100)
    )
    assert len(gzip.decompress(many)) < 2 * len(gzip.decompress(few))
    read = decode_checkpoint(many, number=7, where=WHERE)
    schemas = {id(commit.marker.dbio_commit.table_schema) for commit in read.commits if commit.marker.dbio_commit}
    assert len(schemas) == 1


def marker(added: Sequence[str] = (), removed: Sequence[str] = (), **info: Any) -> CommitMarker:
    ours = CommitInfo(**{"operation": "append", "commit_id": "c", "timestamp": NOW, **info}) if info else None
    return CommitMarker(added=list(added), removed=list(removed), dbio_commit=ours)


def sample(commits: Sequence[Decided] = ()) -> Checkpoint:
    return Checkpoint(7, tuple(commits or [Decided(NOW, "1", marker([data("1")], schema=columns("a")))]))


def test_statistics_go_first_where_a_checkpoint_does_not_fit_and_then_it_is_refused() -> None:
    bounds = {f"column {i}": Bounds("x" * i, "y" * i, i) for i in range(100)}
    files = pack_files([FileInfo(path=data("1"), size=5, rows=2, partition={"day": "1"}, statistics=bounds)])
    whole = sample([Decided(NOW, "1", marker([data("1")], files=files))])
    size = len(encode_checkpoint(whole, created=NOW))
    less = encode_checkpoint(whole, created=NOW, limit_bytes=size - 1)
    [file] = live_files(decode_checkpoint(less, number=7, where=WHERE).commits)
    assert (file.path, file.size) == (data("1"), 5)
    [commit] = decode_checkpoint(less, number=7, where=WHERE).commits
    assert commit.marker.dbio_commit is not None
    assert commit.marker.dbio_commit.files == files.model_copy(update={"statistics": {}})
    with pytest.raises(InvalidInputError, match=f"1 commits would have {len(less)} bytes"):
        encode_checkpoint(whole, created=NOW, limit_bytes=len(less) - 1)


@pytest.mark.parametrize(
    "commit",
    [
        Decided(NOW, "1", marker(["a\nb.parquet"])),
        Decided(NOW, "1", marker([], ["../a.parquet"])),
        Decided(NOW, "1", marker(["\udcff.parquet"])),
        Decided(NOW, "A", marker()),
    ],
)
def test_what_no_reader_could_read_back_is_not_written(commit: Decided) -> None:
    """Or the table could not be read any more."""
    with pytest.raises(InvalidInputError, match="no reader could read it"):
        encode_checkpoint(sample([commit]), created=NOW)


def test_a_line_that_is_longer_than_any_marker_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers_module, "MAX_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="no reader could read it"):
        encode_checkpoint(sample([Decided(NOW, "1", marker(["a" * 900]))]), created=NOW)


# --- hostile bodies -----------------------------------------------------------------------------------------------

HEADER: dict[str, Any] = {
    "version": 1,
    "number": 7,
    "created": "2026-11-20T00:00:00Z",
    "commits": 1,
    "apps": {},
    "schemas": [],
    "schema_turn": 0,
}
LINE: dict[str, Any] = {"tid": "1", "modified": "2026-11-20T00:00:00Z", "marker": {"added": ["a"], "removed": []}}


def packed(*lines: Mapping[str, Any] | bytes) -> bytes:
    return gzip.compress(b"".join(it if isinstance(it, bytes) else json.dumps(it).encode() + b"\n" for it in lines))


def ours(**info: Any) -> dict[str, Any]:
    return {"version": 1, "operation": "append", "commit_id": "c", "timestamp": "2026-11-20T00:00:00Z", **info}


def line(added: Sequence[str] = (), removed: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {**LINE, "marker": {"added": list(added), "removed": list(removed)}, **more}


GOOD = packed(HEADER, LINE)
WHOLE = len(GOOD)
BAD_BODIES: dict[str, bytes] = {
    "empty": b"",
    "no gzip": b"{}",
    "zlib, not gzip": b"x\x9c\x03\x00\x00\x00\x00\x01",
    "wrong checksum": GOOD[:-8] + b"\0\0\0\0" + GOOD[-4:],
    "wrong length": GOOD[:-1] + b"\1",
    "trailing byte": GOOD + b"\0",
    "two members": GOOD + GOOD,
    "nothing in it": gzip.compress(b""),
    "no last line break": packed(HEADER, json.dumps(LINE).encode()),
    "data after the last line": packed(HEADER, LINE, b" "),
    "an empty line": packed(HEADER, LINE, b"\n"),
    "no header": packed(LINE),
    "header only": packed(HEADER),
    "fewer commits": packed({**HEADER, "commits": 2}, LINE),
    "more commits": packed({**HEADER, "commits": 0}, LINE),
    "a tid twice": packed({**HEADER, "commits": 2}, LINE, LINE),
    "a tid twice, counted once": packed(HEADER, LINE, LINE),
    "another number": packed({**HEADER, "number": 8}, LINE),
    "no number": packed({**HEADER, "number": None}, LINE),
    "negative count": packed({**HEADER, "commits": -1}, LINE),
    "no tid": packed(HEADER, {**LINE, "tid": "../x"}),
    "empty tid": packed(HEADER, {**LINE, "tid": ""}),
    "no time zone": packed(HEADER, {**LINE, "modified": "2026-11-20T00:00:00"}),
    "no marker": packed(HEADER, {**LINE, "marker": None}),
    "an empty marker": packed(HEADER, {**LINE, "marker": {}}),
    "an abort that adds": packed(
        HEADER, line(marker={**line(["a"])["marker"], "dbio_commit": ours(operation="abort")})
    ),
    "sizes of other files": packed(
        HEADER, line(marker={**line(["a"])["marker"], "dbio_commit": ours(files={"size": [1, 2], "rows": [1, 2]})})
    ),
    "schema out of range": packed(
        {**HEADER, "schemas": [{}]}, {**LINE, "table_schema": 1, "marker": {**LINE["marker"], "dbio_commit": ours()}}
    ),
    "negative schema": packed({**HEADER, "schemas": [{}]}, {**LINE, "table_schema": -1}),
    "the table's schema out of range": packed({**HEADER, "table_schema": 0}, LINE),
    "nested beyond measure": packed(b"[" * 100_000 + b"\n"),
    "not UTF-8": packed(HEADER, b'{"tid": "\xff"}\n'),
    "an app below zero": packed({**HEADER, "apps": {"a": -1}}, LINE),
    "forgotten below zero": packed(HEADER, {**LINE, "forgotten_added": -1}),
}
HOSTILE_PATHS = ["../x", "/x", "a/../../x", "a//b", "./a", "a/", "", "a\0b", "a\nb", "..\\x", "x" * 5000]


def test_the_hostile_bodies_are_made_of_a_good_one() -> None:
    assert decode_checkpoint(GOOD, number=7, where=WHERE).covered == {"1"}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_is_no_checkpoint_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(CorruptMarkerError, match=WHERE):
        decode_checkpoint(body, number=7, where=WHERE)


@pytest.mark.parametrize("length", range(WHOLE))
def test_a_body_that_breaks_off_is_refused(length: int) -> None:
    with pytest.raises(CorruptMarkerError, match=WHERE):
        decode_checkpoint(GOOD[:length], number=7, where=WHERE)


@pytest.mark.parametrize("key", ["added", "removed"])
@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_checkpoint_with_a_path_outside_the_table_is_refused(key: str, path: str) -> None:
    with pytest.raises(CorruptMarkerError, match=WHERE):
        decode_checkpoint(packed(HEADER, line(**{key: [path]})), number=7, where=WHERE)


@pytest.mark.parametrize("version", [2, 10**9])
def test_a_checkpoint_of_a_later_version_asks_for_an_upgrade(version: int) -> None:
    for body in (packed({"version": version, "entirely": "different"}), packed({**HEADER, "version": version}, LINE)):
        with pytest.raises(UnsupportedTableError, match="upgrade"):
            decode_checkpoint(body, number=7, where=WHERE)


def test_keys_that_we_do_not_know_are_ignored() -> None:
    extended = packed({**HEADER, "color": "blue"}, {**LINE, "size": 7, "marker": {**LINE["marker"], "note": 1}})
    assert decode_checkpoint(extended, number=7, where=WHERE) == decode_checkpoint(GOOD, number=7, where=WHERE)


@given(st.binary(max_size=50), st.integers(0, WHOLE), st.integers(0, WHOLE))
def test_garbage_anywhere_in_a_body_is_read_as_before_or_refused(junk: bytes, start: int, end: int) -> None:
    with suppress(CorruptMarkerError):
        found = decode_checkpoint(GOOD[:start] + junk + GOOD[end:], number=7, where=WHERE)
        assert found.commits == decode_checkpoint(GOOD, number=7, where=WHERE).commits


MEGABYTE = 1 << 20
BOMBS: dict[str, Callable[[], Iterator[bytes]]] = {
    "one long line": lambda: iter([b'{"version": 1, "x": "', *[b" " * MEGABYTE] * 100]),
    "zeros": lambda: iter([b"\0" * MEGABYTE] * 100),
    "line breaks": lambda: iter([b"\n" * MEGABYTE] * 100),
    "line breaks after the header": lambda: iter([json.dumps(HEADER).encode() + b"\n", *[b"\n" * MEGABYTE] * 100]),
    "a commit a million times": lambda: iter(
        [
            json.dumps({**HEADER, "commits": 1_000_000}).encode() + b"\n",
            *[json.dumps(LINE).encode() + b"\n"] * 1_000_000,
        ]
    ),
    "a commit with too many paths": lambda: iter(
        [json.dumps(HEADER).encode() + b'\n{"tid": "1", "marker": {"added": [', *[b'"a",' * (MEGABYTE // 4)] * 100]
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_small_body_that_unpacks_to_a_large_one_takes_no_memory(
    bomb: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    packer = checkpoint_module.zlib.compressobj(wbits=31)  # type: ignore[attr-defined]
    body = b"".join([*map(packer.compress, bomb()), packer.flush()])
    assert len(body) < MEGABYTE
    monkeypatch.setattr(checkpoint_module, "MAX_UNPACKED_BYTES", 40 * MEGABYTE)
    monkeypatch.setattr(checkpoint_module, "MAX_BYTES", 4 * MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMarkerError, match=WHERE):
            decode_checkpoint(body, number=7, where=WHERE)
        assert tracemalloc.get_traced_memory()[1] < 50 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_a_body_of_many_lines_is_not_unpacked_beyond_what_a_writer_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [Decided(NOW, str(tid), marker([data(str(tid))])) for tid in range(1000)]
    body = encode_checkpoint(sample(commits), created=NOW)
    monkeypatch.setattr(checkpoint_module, "_PIECE_BYTES", 1000)  # they end within lines
    assert decode_checkpoint(body, number=7, where=WHERE).covered == {it.tid for it in commits}
    monkeypatch.setattr(checkpoint_module, "MAX_UNPACKED_BYTES", len(gzip.decompress(body)) - 1)
    with pytest.raises(CorruptMarkerError, match="more than any writer packs"):
        decode_checkpoint(body, number=7, where=WHERE)
    with pytest.raises(InvalidInputError, match="no reader could read it"):
        encode_checkpoint(sample(commits), created=NOW)


def test_a_small_body_unpacks_to_little() -> None:
    """A bomb of 16 KiB with 15 MiB in it took 400 MB."""
    line = {**LINE, "marker": {**LINE["marker"], "x": "a" * 15 * MEGABYTE}}
    body = packed(HEADER, line)
    assert len(body) < 100_000
    with pytest.raises(CorruptMarkerError, match="more than any writer packs"):
        decode_checkpoint(body, number=7, where=WHERE)


@pytest.mark.parametrize("size", [0, 1000, MEGABYTE])
def test_what_any_body_may_unpack_to_is_given_by_its_size(size: int) -> None:
    allowed = checkpoint_module.max_unpacked(size)
    assert allowed == MEGABYTE + 100 * size
    assert checkpoint_module.max_unpacked(1 << 40) == 1 << 30


def test_statistics_that_say_nothing_are_left_out_where_they_would_unpack_to_too_much() -> None:
    said = {f"c{number:03d}": Bounds(None, None, None) for number in range(500)}
    paths = [data("1", number) for number in range(3000)]
    files = [FileInfo(path=path, size=1, rows=1, statistics=said) for path in paths]
    info = CommitInfo(operation="append", commit_id="c", timestamp=NOW, files=pack_files(files))
    marker = CommitMarker(added=paths, removed=[], dbio_commit=info)
    body = encode_checkpoint(sample([Decided(NOW, "1", marker)]), created=NOW)
    (commit,) = decode_checkpoint(body, number=7, where=WHERE).commits
    assert commit.marker.added == paths
    assert commit.marker.dbio_commit
    assert commit.marker.dbio_commit.files
    assert commit.marker.dbio_commit.files.statistics == {}
    assert len(gzip.decompress(body)) <= checkpoint_module.max_unpacked(len(body))


def test_ordinary_checkpoints_keep_their_statistics() -> None:
    """50 commits of 100 files with 30 columns, all of which have bounds."""
    commits: list[Decided] = []
    for tid in map(str, range(50)):
        files = [
            FileInfo(
                path=f"day={tid}/{data(tid, number)}",
                size=100_000 + number,
                rows=number,
                statistics={f"c{column:02d}": Bounds(number, number + column, 0) for column in range(30)},
            )
            for number in range(100)
        ]
        info = CommitInfo(operation="append", commit_id=tid, timestamp=NOW, files=pack_files(files))
        commits.append(Decided(NOW, tid, CommitMarker(added=[it.path for it in files], removed=[], dbio_commit=info)))
    body = encode_checkpoint(sample(commits), created=NOW)
    found = decode_checkpoint(body, number=7, where=WHERE).commits
    assert [it.marker for it in found] == [it.marker for it in commits]
    assert 20 * len(gzip.decompress(body)) < checkpoint_module.max_unpacked(len(body)) * 10


# --- what is left out ---------------------------------------------------------------------------------------------

HISTORY_TIDS = [str(number) for number in range(6)]
HISTORY_PATHS = [f"{place}{data(tid)}" for place in ("", "day=1/") for tid in HISTORY_TIDS[:3]]


@st.composite
def histories(draw: st.DrawFn) -> list[Decided]:
    tids = draw(st.lists(st.sampled_from(HISTORY_TIDS), unique=True))
    some = st.lists(st.sampled_from(HISTORY_PATHS), max_size=4, unique=True)
    bodies = st.builds(marker, some, some) | st.just(abort_marker(commit_id="c", timestamp=NOW))
    return [Decided(OLD + timedelta(days=draw(st.integers(0, 3))), tid, draw(bodies)) for tid in tids]


@given(histories(), st.data())
def test_what_is_left_out_changes_no_live_file(history: list[Decided], choice: st.DataObject) -> None:
    removed = sorted({path for commit in history for path in commit.marker.removed})
    live_before = {file.path for file in live_files(history)}
    known_since = None
    for _ in range(3):
        gone = choice.draw(st.sets(st.sampled_from(removed))) if removed else set()
        keep_since = OLD + timedelta(days=choice.draw(st.integers(-1, 5)))
        history, known_since = condense(history, gone=gone, noted=(), keep_since=keep_since, known_since=known_since)
        assert {file.path for file in live_files(history)} == live_before


def test_a_transaction_is_forgotten_when_it_is_old_enough_nothing_is_left_of_it_and_its_markers_are_purged() -> None:
    young = Decided(NOW, "9", marker())
    history = [
        Decided(OLD, "1", abort_marker(commit_id="c", timestamp=OLD)),
        Decided(OLD, "2", marker(["a", "b"])),
        Decided(OLD, "3", marker(["c"])),
        Decided(OLD + timedelta(days=1), "4", marker([], ["a", "c"])),
        Decided(OLD + timedelta(days=2), "5", marker([], ["unknown"])),
        young,
    ]

    def left(gone: Collection[str], noted: Collection[str] = (), keep_since: datetime = NOW) -> list[str]:
        kept, _ = condense(history, gone=gone, noted=noted, keep_since=keep_since, known_since=None)
        return [commit.tid for commit in kept]

    assert left([], keep_since=OLD) == ["1", "2", "3", "4", "5", "9"]
    assert left([]) == ["2", "3", "4", "5", "9"]  # an abort names nothing
    assert left([], ["1"]) == ["1", "2", "3", "4", "5", "9"]
    assert left(["a"]) == ["2", "3", "4", "5", "9"]
    assert left(["a", "c"]) == ["2", "4", "5", "9"]  # b is live; 4 says since when states are known
    assert left(["a", "c", "unknown"]) == ["2", "5", "9"]
    assert left(["a", "c", "unknown"], ["3"]) == ["2", "3", "5", "9"]


def test_what_is_left_out_is_counted_and_its_sizes_go_with_it() -> None:
    files = [FileInfo(path=path, size=i, rows=i) for i, path in enumerate("abc")]
    history = [
        Decided(OLD, "1", marker(["a", "b", "c"], files=pack_files(files))),
        Decided(NOW, "2", marker([], ["a", "c"]), Forgotten(5, 6)),
    ]
    [first, second], known_since = condense(history, gone=["a"], noted=(), keep_since=OLD, known_since=None)
    assert (first.marker.added, first.forgotten) == (["b", "c"], Forgotten(1, 0))
    assert first.marker.dbio_commit is not None
    assert first.marker.dbio_commit.files == pack_files(files[1:])
    assert (second.marker.removed, second.forgotten, known_since) == (["c"], Forgotten(5, 7), NOW)
    assert condense(history, gone=(), noted=(), keep_since=NOW, known_since=OLD) == (history, OLD)


# --- a table with checkpoints, beside the same without ------------------------------------------------------------


class World(MemoryStore):
    """A store with a table to which commits are put by hand, with times to choose."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        super().__init__(self.clock)
        descriptor = {"version": 1, "id": "t", "created": "2026-11-20T00:00:00Z", "partition_columns": []}
        self.put("_dbio_table", json.dumps(descriptor).encode(), modified=OLD)

    def commit(
        self, tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, at: datetime = OLD, **info: Any
    ) -> None:
        """Ours where it says more than DBIO does."""
        body: dict[str, Any] = {"added": list(added), "removed": list(removed)}
        if info:
            files = {} if info.get("operation") == "abort" else {"size": [5] * len(added), "rows": [1] * len(added)}
            body["dbio_commit"] = {**ours(**info), **({"files": files} if files else {})}
        for path in added:
            self.put(path, b"12345", modified=at)
        self.put(f"_started_{tid}", modified=at)
        self.put(f"_committed_{tid}", json.dumps(body).encode(), modified=at)

    def table(self) -> Table:
        return Table.over(self, self.clock)

    def seen(self, **how: Any) -> set[str]:
        return {file.path for file in self.table().snapshot(**how).files}

    def checkpoint(self, gone: Collection[str] = (), history: timedelta = timedelta(days=30)) -> str | None:
        self.delete_many(list(gone))
        return write_checkpoint(self, self.clock, self.table().snapshot(), gone=gone, history=history)

    def purge(self) -> None:
        purge(self)


def purge(store: MemoryStore) -> None:
    """All that vacuum may ever take because of the newest checkpoint, in its order."""
    with unwatched(store):
        log = parse_log(store.list_log())
        covered = read_checkpoint(store, log).covered
        store.delete_many([entry.path for tid, entry in log.started.items() if tid in covered])
        store.delete_many([entry.path for tid, entry in log.committed.items() if tid in covered])
        store.delete_many([entry.path for number, entry in log.checkpoints.items() if number < log.last_checkpoint])
        store.delete_many([entry.path for number, entry in log.turns.items() if number < log.last_turn])


class unwatched:
    """What is done within is not counted, watched or failed."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._steps = self._store.before, self._store.after
        heal(self._store)

    def __exit__(self, *_: object) -> None:
        self._store.before, self._store.after = self._steps


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
        assert found.table_schema == expected.table_schema
        if step.commit is None:
            assert_same_past(plain, kept, times)


def assert_same_past(plain: World, kept: World, times: Sequence[datetime]) -> None:
    """What is told of the past is so; and all of it since the last removal of what is gone is told."""
    known = kept.table().snapshot()
    known_since = known.checkpoint.known_since
    asked: list[tuple[datetime | str, datetime]] = [(it.tid, it.modified) for it in plain.table().snapshot().commits]
    asked += [(moment, moment) for time in times for moment in (time, time - timedelta(microseconds=1))]
    for as_of, time in asked:
        try:
            assert kept.seen(as_of=as_of) == plain.seen(as_of=as_of)
        except InvalidInputError:
            is_forgotten = isinstance(as_of, str) and as_of not in {commit.tid for commit in known.commits}
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


# --- read across checkpoints --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "_PROBED", set())


def busy_table(store: MemoryStore | None = None) -> Table:
    """All kinds of commits to a table that is partitioned by day, an hour apart; an abort, and a pending one."""
    clock = ManualClock()
    store = store or MemoryStore()
    store._clock = clock
    table = Table.over(store, clock)
    write_days(table, d1=b"1", d2=b"2")
    later(table)
    with table.begin(app=("job", 7)) as transaction:
        stage(table, transaction, b"app", {"day": "d3"})
        transaction.commit(columns("a", "b"))
    later(table)
    aborted = table.begin()
    stage(table, aborted, b"aborted", {"day": "d1"})
    aborted.abort()
    store.put(f"day=d1/{data(aborted.tid)}", b"zombie")
    later(table)
    write_days(table, "replace_partitions", d1=b"1 again")
    later(table)
    rewrite = table.begin("rewrite")
    rewrite.remove(path for path in live(table) if "day=d3" in path)
    stage(table, rewrite, b"app, rewritten", {"day": "d3"})
    rewrite.commit()
    later(table)
    stage(table, table.begin(), b"pending", {"day": "d2"})
    later(table)
    return table


def later(table: Table) -> None:
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(hours=1))


def memory(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


OPENED = datetime(2026, 11, 20, tzinfo=UTC)
READS: dict[str, Callable[[Table], object]] = {
    "snapshot": lambda table: (
        (it := table.snapshot()).files, it.partition_columns, it.table_schema, it.app_versions, it.tids,
        [commit._replace(place=None) for commit in it.commits],
    ),
    "history": lambda table: [(commit, commit.added_files) for commit in table.history()],
    "check": lambda table: table.check(),
    "as of a time": lambda table: table.snapshot(as_of=OPENED + timedelta(hours=1)).files,
    "as of a tid": lambda table: table.snapshot(as_of=tid_of(table, "replace_partitions")).files,
    "inspect a commit": lambda table: inspected(table, "rewrite"),
    "inspect an abort": lambda table: inspected(table, "abort"),
    "inspect a pending transaction": lambda table: inspected(table, "pending"),
}  # fmt: skip


def inspected(table: Table, operation: str) -> tuple[object, ...]:
    report = table.inspect(tid_of(table, operation))
    commit = report.commit and (report.commit.timestamp, report.commit.added, report.commit.removed_files)
    return report.state, report.started, report.decided, report.files, list(report.undecided), commit


def tid_of(table: Table, operation: str) -> str:
    """Of the only transaction of the kind; looked up unwatched."""
    with unwatched(memory(table)):
        snapshot = table.snapshot()
        told: dict[str, str] = {c.tid: c.marker.dbio_commit.operation for c in snapshot.commits if c.marker.dbio_commit}
        told |= {tid: "pending" for tid in snapshot.log.started if tid not in told}
    [tid] = [tid for tid, told_operation in told.items() if told_operation == operation]
    return tid


every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


@every_read
def test_a_table_reads_the_same_after_a_checkpoint_and_after_a_purge(read: Callable[[Table], object]) -> None:  # I6
    table = busy_table()
    before = read(table)
    assert table.checkpoint() == f"_checkpoint_{1:020d}"
    assert read(table) == before
    purge(memory(table))
    assert read(table) == before
    assert sorted(path for path in memory(table).objects if "/" not in path) == [
        f"_checkpoint_{1:020d}", "_dbio_table", f"_serial_{3:020d}", f"_started_{tid_of(table, 'pending')}",
    ]  # fmt: skip
    assert table.checkpoint() is None


def test_a_second_checkpoint_takes_over_what_the_first_covers() -> None:
    table, plain = busy_table(), busy_table()
    for _ in range(3):
        assert table.checkpoint()
        purge(memory(table))
        for it in (table, plain):
            write_days(it, "replace_partitions", d2=b"2 again")
            later(it)
        assert contents(table) == contents(plain)
        assert [commit.operation for commit in table.history()] == [commit.operation for commit in plain.history()]
        assert table.check().ok


def test_reading_a_thousand_commits_after_a_checkpoint_takes_four_calls() -> None:
    world = World()
    for number in range(1000):
        world.commit(f"{number:019d}", [data(f"{number:019d}")], operation="append")
    table = world.table()
    before = table.snapshot()
    world.checkpoint()
    for _ in range(2):
        with calls_to(world) as calls:
            assert table.snapshot().files == before.files
        assert calls == [("list_log", ""), ("get", f"_checkpoint_{1:020d}"), ("list_log", ""), ("get", "_dbio_table")]
        purge(world)
    with calls_to(world) as calls:
        table.begin()
    assert [call for call in calls if call[0] != "put_if_absent"] == [
        ("list_log", ""), ("get", "_dbio_table"),
        ("list_log", ""), ("get", f"_checkpoint_{1:020d}"), ("list_log", ""), ("get", "_dbio_table"),
    ]  # fmt: skip


# --- who reads while somebody checkpoints and purges --------------------------------------------------------------


@dataclass
class Interruptions:
    """Before its nth call to the store, the one at work is overtaken by others."""

    store: MemoryStore
    actions: Sequence[tuple[int, Callable[[], object]]]
    calls: int = 0

    def __post_init__(self) -> None:
        self.store.before = self._before

    def _before(self, operation: str, path: str) -> None:
        call, self.calls = self.calls, self.calls + 1
        for at, action in self.actions:
            if at == call:
                with unwatched(self.store):
                    action()


def pairs(calls: int) -> Iterator[tuple[int, int]]:
    """Of (first, second): at the same call, and ever further apart."""
    return ((first, first + apart) for apart in (0, 1, 2, 3, 5, 8, 13) for first in range(calls - apart))


def count_calls(make: Callable[[], Table], work: Callable[[Table], object]) -> int:
    table = make()
    with calls_to(memory(table)) as calls:
        work(table)
    return len(calls)


@every_read
def test_a_reader_that_a_checkpoint_and_a_purge_overtake_reads_the_same(read: Callable[[Table], object]) -> None:
    """The checkpoint before any of its calls, the purge before the same or any later one."""  # I6
    expected = read(busy_table())
    for first, second in pairs(count_calls(busy_table, read) + 3):
        table = busy_table()
        Interruptions(memory(table), [(first, table.checkpoint), (second, partial(purge, memory(table)))])
        assert read(table) == expected


@every_read
def test_a_reader_that_a_newer_checkpoint_overtakes_reads_the_same(read: Callable[[Table], object]) -> None:  # I6
    def older() -> Table:
        table = busy_table()
        table.checkpoint()
        purge(memory(table))
        write_days(table, d9=b"9")
        return table

    expected = read(older())
    for first, second in pairs(count_calls(older, read) + 3):
        table = older()
        Interruptions(memory(table), [(first, table.checkpoint), (second, partial(purge, memory(table)))])
        assert read(table) == expected


def test_a_reader_that_commits_and_checkpoints_overtake_again_and_again_sees_a_state_that_was() -> None:  # I6
    for start in range(10):
        table = busy_table()
        states = [contents(table)]

        def overtake(table: Table = table, states: list[list[bytes]] = states) -> None:
            write_days(table, "overwrite", d1=b"%d" % len(states))
            states.append(contents(table))
            table.checkpoint()
            purge(memory(table))

        Interruptions(memory(table), [(start + 2 * i, overtake) for i in range(5)])
        snapshot = table.snapshot()
        heal(memory(table))
        assert sorted(table.store.get(file.path) for file in snapshot.files) in states


# --- who writes meanwhile -----------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: write_days(table, d1=b"new"),
    "append once": lambda table: append_once(table, 8),
    "append again": lambda table: append_once(table, 7),
    "append with another schema": lambda table: append_once(table, 8, columns("a", "b", "c")),
    "overwrite": lambda table: write_days(table, "overwrite", d1=b"new"),
    "replace partitions": lambda table: write_days(table, "replace_partitions", d2=b"new", d4=b"new"),
    "rewrite": lambda table: rewrite(table),
    "begin and abort": lambda table: table.begin().abort(),
}
every_write = pytest.mark.parametrize("work", WRITES.values(), ids=WRITES)


def append_once(table: Table, version: int, schema: Mapping[str, Any] | None = None) -> None:
    transaction = table.begin(app=("job", version))
    stage(table, transaction, b"once", {"day": "d5"})
    assert transaction.commit(schema or columns("a", "b")).skipped == (version <= 7)


def rewrite(table: Table) -> None:
    transaction = table.begin("rewrite")
    transaction.remove(path for path in live(table) if "day=d1" in path)
    stage(table, transaction, b"rewritten", {"day": "d1"})
    transaction.commit()


def outcome(table: Table) -> tuple[object, ...]:
    snapshot = table.snapshot()
    history = [(commit.operation, commit.added_files, commit.removed_files) for commit in snapshot.history()]
    return contents(table), history, snapshot.schema, dict(snapshot.app_versions)


def settled(table: Table) -> Table:
    """Without the transaction that is pending: nobody has to wait for it, but turns would be held by it."""
    table.abort(tid_of(table, "pending"))
    return table


@every_write
def test_a_writer_that_a_checkpoint_and_a_purge_overtake_writes_the_same(work: Callable[[Table], object]) -> None:
    plain = busy_table()
    work(plain)
    expected = outcome(plain)  # I2, I7, I8
    for first, second in pairs(count_calls(busy_table, work)):
        table = busy_table()
        Interruptions(memory(table), [(first, table.checkpoint), (second, partial(purge, memory(table)))])
        work(table)
        heal(memory(table))
        assert outcome(table) == expected
        assert table.check().ok
        table.checkpoint()
        purge(memory(table))
        assert outcome(table) == expected


@every_write
def test_a_table_whose_log_is_purged_is_written_to_like_any_other(work: Callable[[Table], object]) -> None:
    plain, table = busy_table(), busy_table()
    for _ in range(2):
        table.checkpoint()
        purge(memory(table))
        for it in (plain, table):
            if work is not WRITES["append once"] and work is not WRITES["append with another schema"]:
                work(it)
        assert outcome(table) == outcome(plain)
        assert table.check().ok


def checkpointed(table: Table) -> None:
    """All of the log that can be is in a checkpoint, and nowhere else."""
    table.checkpoint()
    purge(memory(table))


def test_a_version_of_an_application_commits_once_however_long_ago_that_was() -> None:  # I8
    clock = ManualClock()
    table = Table.over(MemoryStore(clock), clock)
    write(table, app=("job", 5))
    write(table, "overwrite", app=("other", 1))
    for _ in range(3):  # the commit itself is forgotten; its version is not
        later(table)
        memory(table).delete_many([path for path in data_files(memory(table)) if path not in live(table)])
        snapshot = table.snapshot()
        gone = [path for commit in snapshot.commits for path in commit.marker.removed]
        write_checkpoint(table.store, table.clock, snapshot, gone=gone, history=timedelta())
        purge(memory(table))
        write(table, "overwrite", app=("other", len(snapshot.commits) + 2))
    assert "job" not in {commit.app[0] for commit in table.history() if commit.app}
    for version in (4, 5):
        assert write(table, app=("job", version)).skipped
    assert not write(table, app=("job", 6)).skipped


def test_a_table_whose_commits_are_purged_still_exists_for_who_must_create_it() -> None:
    table = busy_table()
    checkpointed(table)
    with pytest.raises(TableExistsError):
        table.begin(must_create=True)


def test_a_table_that_is_created_checkpointed_and_purged_meanwhile_is_not_created_twice() -> None:
    first, second = (Table.over(store, ManualClock(seed=seed)) for store in [MemoryStore()] for seed in (1, 2))
    transaction = first.begin(must_create=True)
    stage(first, transaction)
    write(second)
    checkpointed(second)
    with pytest.raises(TableExistsError):
        transaction.commit()
    assert contents(second) == [b"rows"]


def test_a_change_of_schema_is_known_when_its_commit_is_purged() -> None:
    table = busy_table()
    stale = table.begin()
    stage(table, stale, b"stale", {"day": "d1"})
    append_once(table, 8, columns("a", "b", "c"))
    checkpointed(table)
    assert table.snapshot().schema == columns("a", "b", "c")
    with pytest.raises(CommitConflictError, match="schema"):
        stale.commit(columns("x"))
    append = table.begin()
    assert append.terms.schema.json == columns("a", "b", "c")
    append.commit(columns("a", "b", "c"))
    write_days(table, "overwrite", d1=b"1")
    assert table.snapshot().schema == columns("a", "b", "c")


# --- turns --------------------------------------------------------------------------------------------------------


class ForgetfulStore(MemoryStore):
    """Listings of the log show no turns, as many times as it is told."""

    blind = 0

    def list_log(self) -> list[Entry]:
        entries = super().list_log()
        self.blind -= 1
        return [e for e in entries if not (self.blind >= 0 and e.path.startswith("_serial_"))]


@pytest.mark.parametrize("work", ["overwrite", "replace_partitions"])
def test_a_writer_that_was_shown_no_turns_still_comes_after_the_last(work: Any) -> None:  # I7
    """Its first listing in the turn was overtaken by the purge of all turns but the last, and missed that too."""
    store = ForgetfulStore()
    table = busy_table(store)
    checkpointed(table)
    transaction = table.begin(work)
    stage(table, transaction, b"new", {"day": "d1"})
    store.blind = 1
    commit = transaction.commit()
    assert commit.marker.dbio_commit is not None
    assert commit.marker.dbio_commit.turn == 4  # 3 was the last
    assert b"new" in contents(table)
    assert table.check().ok
    assert not set(commit.removed) & live(table)


def test_the_first_turn_after_a_purge_is_the_next_one() -> None:  # I7
    table = busy_table()
    for turn in range(4, 8):
        checkpointed(table)
        assert [path for path in memory(table).objects if path.startswith("_serial_")] == [names.turn(turn - 1)]
        write_days(table, "replace_partitions", d1=b"%d" % turn)
        assert names.turn(turn) in memory(table).objects


def test_a_turn_whose_holder_is_purged_is_not_waited_for() -> None:  # I7
    table = busy_table()
    checkpointed(table)
    before_s = table.clock.monotonic()
    write_days(table, "overwrite", d1=b"new")
    assert table.clock.monotonic() == before_s


# --- late writers -------------------------------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_and_whose_marker_was_purged_is_committed_once() -> None:  # I3, I9
    """Its writer finds no marker, and puts it again: that changes nothing, then or later."""
    table = busy_table()
    transaction = table.begin()
    stage(table, transaction, b"new", {"day": "d1"})

    def purge_then_fail(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == names.committed(transaction.tid):
            with unwatched(memory(table)):
                heal(memory(table))
                checkpointed(table)
            heal(memory(table))
            raise StoreError("the answer was lost")

    memory(table).after = purge_then_fail
    transaction.commit()
    heal(memory(table))
    assert names.committed(transaction.tid) in memory(table).objects
    assert contents(table).count(b"new") == 1
    assert table.snapshot().tids.count(transaction.tid) == 1
    write_days(table, "overwrite", d1=b"newer")
    checkpointed(table)
    assert names.committed(transaction.tid) not in memory(table).objects
    assert contents(table) == [b"newer"]


@pytest.mark.parametrize("body", [b"", b"no JSON", json.dumps(line([data("7")], [data("8")])["marker"]).encode()])
def test_a_marker_of_a_purged_transaction_that_turns_up_again_is_not_even_read(body: bytes) -> None:  # I3
    table = busy_table()
    before = outcome(table)
    tids = table.snapshot().tids
    checkpointed(table)
    for tid in tids:
        memory(table).put(names.started(tid))
        memory(table).put(names.committed(tid), body)
    assert outcome(table) == before
    assert table.check().ok


def test_a_transaction_that_is_decided_and_purged_cannot_be_aborted() -> None:  # I3
    table = busy_table()
    tids = table.snapshot().tids
    checkpointed(table)
    before = outcome(table)
    for tid in (*tids, tid_of(table, "abort")):
        with pytest.raises(TransactionStateError, match="cannot be aborted"):
            table.abort(tid)
    assert outcome(table) == before
    table.abort(tid_of(table, "pending"))
    assert outcome(table) == before


def test_a_transaction_that_was_aborted_is_never_committed_whatever_was_checkpointed() -> None:  # I3, I5
    """Vacuum keeps the abort marker: only then can its writer know."""
    table = busy_table()
    late = table.begin()
    stage(table, late, b"late", {"day": "d1"})
    table.abort(late.tid)
    table.checkpoint()
    with pytest.raises(TransactionAbortedError):
        late.commit()
    assert b"late" not in contents(table)


def unknown_commit(table: Table) -> Transaction:
    """It has landed, but its writer has been told neither so nor otherwise."""
    transaction = table.begin()
    stage(table, transaction, b"new", {"day": "d1"})
    path = names.committed(transaction.tid)
    memory(table).before = fail_with(StoreError("unreachable"), "get", path, times=None)
    memory(table).after = fail_with(StoreError("the answer was lost"), "put_if_absent", path)
    with pytest.raises(CommitStateUnknownError):
        transaction.commit()
    heal(memory(table))
    assert b"new" in contents(table)
    return transaction


def test_a_writer_that_does_not_know_and_aborts_after_a_purge_deletes_no_live_file() -> None:  # I3, I4
    table = busy_table()
    transaction = unknown_commit(table)
    checkpointed(table)
    with pytest.raises(TransactionStateError):
        transaction.abort()
    assert b"new" in contents(table)
    assert table.check().ok


def test_a_writer_that_does_not_know_and_aborts_before_a_purge_is_told_that_it_is_committed() -> None:  # I3, I4
    table = busy_table()
    transaction = unknown_commit(table)
    table.checkpoint()
    with pytest.raises(TransactionStateError, match="committed"):
        transaction.abort()
    assert b"new" in contents(table)


def test_an_abort_that_a_newer_checkpoint_overtakes_goes_on() -> None:
    table = busy_table()
    checkpointed(table)
    write_days(table, d1=b"new")
    tid = tid_of(table, "pending")
    memory(table).before = once("get", "_checkpoint_*", lambda: checkpointed(table))
    table.abort(tid)


# --- who writes checkpoints ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """SIGKILL: no handler runs to any effect."""


def kill_at(store: MemoryStore, call: int, *, after: bool) -> None:
    calls = 0

    def step(operation: str, path: str) -> None:
        nonlocal calls
        calls += 1
        if calls > call:
            raise Killed

    if after:
        store.after = step
    else:
        store.before = step


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("already", [False, True])
def test_a_checkpoint_that_is_killed_at_any_call_changes_nothing_and_is_written_the_next_time(
    after: bool, already: bool
) -> None:  # I9
    def make() -> Table:
        table = busy_table()
        if already:
            checkpointed(table)
            write_days(table, d9=b"9")
        return table

    expected = outcome(make())
    calls = count_calls(make, Table.checkpoint)
    assert calls >= 6
    for call in range(calls):
        transaction_module._PROBED.clear()
        table = make()
        kill_at(memory(table), call, after=after)
        with pytest.raises(Killed):
            table.checkpoint()
        heal(memory(table))
        assert outcome(table) == expected
        is_written = parse_log(table.store.list_log()).last_checkpoint == 1 + already
        assert is_written == (after and call == calls - 1)
        assert table.checkpoint() == (None if is_written else names.checkpoint(1 + already))
        purge(memory(table))
        assert outcome(table) == expected
        assert table.check().ok


def test_of_two_that_write_a_checkpoint_at_once_one_wins_and_both_do_no_harm() -> None:
    for between in (lambda table: None, lambda table: write_days(table, d9=b"9")):
        for call in range(count_calls(busy_table, Table.checkpoint)):
            table = busy_table()
            written: list[str | None] = []

            def other(
                table: Table = table,
                written: list[str | None] = written,
                between: Callable[[Table], object] = between,
            ) -> None:
                between(table)
                later(table)  # so that their bodies differ
                written.append(table.checkpoint())
                later(table)

            Interruptions(memory(table), [(call, other)])
            mine = table.checkpoint()
            heal(memory(table))
            assert (written, mine) == ([names.checkpoint(1)], None)
            expected = busy_table()
            between(expected)
            assert outcome(table) == outcome(expected)
            purge(memory(table))
            assert outcome(table) == outcome(expected)
            assert table.check().ok


def test_a_checkpoint_of_an_old_snapshot_loses_or_is_ignored() -> None:  # I6
    """Its writer was suspended for so long that its number was used, or even used and purged."""
    table = busy_table()
    stale = table.snapshot()
    write_days(table, "overwrite", d1=b"new")
    assert table.checkpoint() == names.checkpoint(1)
    assert write_checkpoint(table.store, table.clock, stale) is None
    purge(memory(table))
    write_days(table, d2=b"more")
    assert table.checkpoint() == names.checkpoint(2)
    purge(memory(table))
    before = outcome(table)
    assert write_checkpoint(table.store, table.clock, stale) == names.checkpoint(1)
    assert outcome(table) == before
    assert table.check().ok
    write_days(table, d3=b"last")
    assert table.checkpoint() == names.checkpoint(3)
    purge(memory(table))
    assert sorted(it for it in memory(table).objects if it.startswith("_checkpoint")) == [names.checkpoint(3)]
    assert contents(table) == [b"last", b"more", b"new"]


def test_a_checkpoint_whose_answer_was_lost_is_there_and_is_found() -> None:
    table = busy_table()
    before = outcome(table)
    memory(table).after = fail_with(StoreError("the answer was lost"), "put_if_absent", "_checkpoint_*")
    with pytest.raises(StoreError, match="lost"):
        table.checkpoint()
    heal(memory(table))
    assert table.checkpoint() is None
    purge(memory(table))
    assert outcome(table) == before


def test_a_checkpoint_that_the_clients_own_retry_reports_as_there_already_is_ours() -> None:
    class Retrying(MemoryStore):
        """The first answer is lost; the client tries again by itself, and is told that it is there."""

        def put_if_absent(self, path: str, body: bytes) -> bool:
            return super().put_if_absent(path, body) and not path.startswith("_checkpoint_")

    assert busy_table(Retrying()).checkpoint() == names.checkpoint(1)


def test_only_a_table_of_ours_has_checkpoints() -> None:
    store = MemoryStore()
    store.put("a.parquet", b"rows")
    with pytest.raises(InvalidInputError, match="adopt"):
        Table.over(store).checkpoint()
    assert set(store.objects) == {"a.parquet"}
    table = Table.over(MemoryStore(), ManualClock())
    table.begin()
    assert table.checkpoint() is None  # nothing is decided yet


def test_a_checkpoint_leaves_out_the_pending_and_what_commits_meanwhile() -> None:  # I1
    table = busy_table()
    pending = tid_of(table, "pending")
    committed: list[str] = []
    memory(table).before = once(
        "put_if_absent", "_checkpoint_*", lambda: committed.append(write_days(table, d7=b"7").tid)
    )
    assert table.checkpoint()
    heal(memory(table))
    covered = table.snapshot().checkpoint.covered
    assert covered
    assert not {pending, *committed} & covered
    purge(memory(table))
    assert b"7" in contents(table)
    assert b"pending" not in contents(table)


# --- corrupt and unknown checkpoints ------------------------------------------------------------------------------

REFUSALS = [
    ("no gzip", b"{}", CorruptMarkerError),
    ("cut off", GOOD[:-9], CorruptMarkerError),
    ("of no length", b"", CorruptMarkerError),
    ("hidden file", packed({**HEADER, "number": 1}, line(["_a.parquet"])), CorruptMarkerError),
    ("hidden directory", packed({**HEADER, "number": 1}, line(["_temporary/a"])), CorruptMarkerError),
    ("outside", packed({**HEADER, "number": 1}, line(["../a"])), CorruptMarkerError),
    ("of a later version", packed({"version": 2}), UnsupportedTableError),
]
USES: list[Callable[[Table], object]] = [
    Table.snapshot,
    lambda table: table.snapshot(ignore_corrupt_markers=True),
    Table.history,
    Table.check,
    Table.checkpoint,
    lambda table: table.inspect("1"),
    lambda table: table.abort("2"),
    Table.begin,
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
            size = markers_module.MAX_BYTES + 1
            return [e._replace(size=size) if "_checkpoint_" in e.path else e for e in super()._entries(prefix)]

    world = Vast()
    world.commit("1", [data("1")])
    world.put(names.checkpoint(1), GOOD)
    with calls_to(world) as calls, pytest.raises(CorruptMarkerError, match=str(markers_module.MAX_BYTES)):
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
    for use in (world.seen, world.checkpoint, lambda: write(world.table())):
        with (
            calls_to(world) as calls,
            pytest.raises(CorruptMarkerError, match=f"{name} is a checkpoint that"),
        ):
            use()
        assert ("get", name) not in calls
    world.delete_many([name])
    assert world.seen() == {data("1")}


def test_a_checkpoint_of_a_directory_that_is_no_table_of_ours_decides_nothing() -> None:
    """An adoption that was killed leaves one."""
    world = World()
    world.commit("1", [data("1")])
    world.checkpoint()
    world.put("b.parquet", b"untracked")
    del world.objects["_dbio_table"]
    snapshot = world.table().snapshot()
    assert snapshot.scope is Scope.DIRECTORY
    assert {file.path for file in snapshot.files} == {data("1"), "b.parquet"}


def test_what_was_purged_by_hand_without_a_checkpoint_is_no_concern_of_the_next_one() -> None:
    world = World()
    world.commit("1", [data("1")])
    world.commit("2", [data("2")])
    world.delete_many(["_started_1", "_committed_1"])
    assert world.seen() == {data("2")}
    world.checkpoint()
    assert world.seen() == {data("2")}
    assert isinstance(world.table().snapshot(), Snapshot)
