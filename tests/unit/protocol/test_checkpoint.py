"""The body of a checkpoint: what is written is read back, hostile bodies are refused, and what is left out.

Rules: PROTOCOL.md 7.4.
"""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, UnsupportedTableError
from dbio_commit.protocol import checkpoint as checkpoint_module
from dbio_commit.protocol import names, versions
from dbio_commit.protocol.checkpoint import Checkpoint, condense, decode_checkpoint, encode_checkpoint, encode_root
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.markers import bodies
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, abort_marker, bounds_in, unpack_files
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files, without_statistics
from dbio_commit.protocol.markers.schema import pack_schema
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.parts import Dropped, Group, Part, State
from dbio_commit.protocol.state import Metadata, live_files
from dbio_commit.protocol.versions import Versions, only_highest, refuse_new_id
from tests.builders import NOW, columns, data, marker, versions_of
from tests.unit.checkpointed import (
    GOOD,
    HEADER,
    LINE,
    OLD,
    line,
    ours,
    packed,
)

WHERE = "memory://table/_checkpoint_00000000000000000007"


# --- the body -----------------------------------------------------------------------------------------------------

TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
COUNTS = st.integers(0, (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIDS = st.from_regex(r"[a-z0-9]{1,19}", fullmatch=True)
SCHEMAS = st.none() | st.sampled_from(
    [columns("a"), columns("a", "b"), {**columns("a"), "é": [None, {"x": None}, 1.5]}]
)
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
        recorded=draw(st.sampled_from(["append", "overwrite", "replace_partitions", "rewrite", "adopt"])),
        commit_id=draw(TEXT),
        timestamp=draw(TIMES),
        turn=draw(st.none() | COUNTS),
        app=draw(st.none() | st.builds(App, id=TEXT.filter(bool), version=COUNTS)),
        metrics=draw(st.dictionaries(TEXT, st.integers(0, 9), max_size=2)),
        schema=pack_schema(draw(SCHEMAS)),
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
        apps=draw(st.dictionaries(TEXT, COUNTS.map(only_highest), max_size=2)),
        metadata=Metadata(draw(SCHEMAS), draw(COUNTS)),
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
    schemas = {id(commit.marker.dbio_commit.schema) for commit in read.commits if commit.marker.dbio_commit}
    assert len(schemas) == 1


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
    assert commit.marker.dbio_commit.files == without_statistics(files)
    assert commit.marker.dbio_commit.files.statistics_left_out
    assert encode_checkpoint(whole, created=NOW, complete=True) != less
    with pytest.raises(InvalidInputError, match=f"does not fit into {size - 1} bytes with its statistics"):
        encode_checkpoint(whole, created=NOW, limit_bytes=size - 1, complete=True)
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
    monkeypatch.setattr(bodies, "MAX_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="no reader could read it"):
        encode_checkpoint(sample([Decided(NOW, "1", marker(["a" * 900]))]), created=NOW)


# --- roots --------------------------------------------------------------------------------------------------------


def part(number: int, *, directories: Sequence[str] = ()) -> Part:
    directory = max(directories, default="")
    first = min(directories, default="")
    group = Group(first=[first, ""], rows=9, at=4, bytes=96, crc=0, directories=sorted(directories))
    name = names.part(1, f"{number:032x}")
    return Part(kind="files", name=name, since=1, until=1, bytes=200, footer=100, crc=0, groups=[group],
                last=[directory, ""])  # fmt: skip


STATE = State(files=0, bytes=0, layouts=[])


def root(**more: Any) -> Checkpoint:
    return Checkpoint(number=7, **{"parts": (part(1),), "state": STATE, **more})


def reread(checkpoint: Checkpoint, *, most: int = MAX_BYTES) -> Checkpoint:
    body = encode_root(checkpoint, created=NOW, limit_bytes=most)
    assert len(body) <= most
    return decode_checkpoint(body, number=7, where=WHERE)


def test_a_root_that_would_be_large_leaves_out_the_directories_of_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tuple(part(number, directories=[f"day={it:05}" for it in range(50)]) for number in (1, 2))
    assert reread(root(parts=parts)).parts == parts
    monkeypatch.setattr(checkpoint_module, "MAX_BYTES", 2500)
    assert reread(root(parts=parts)).parts == tuple(it.without_directories() for it in parts)


def test_a_root_that_would_not_fit_leaves_out_the_parts_that_were_dropped_first() -> None:
    dropped = tuple(Dropped(part=part(number), into=[], by=number // 3) for number in range(10, 200))
    assert reread(root(dropped=dropped)).dropped == dropped
    most = 2 * len(encode_root(root(dropped=dropped[:50]), created=NOW))
    kept = reread(root(dropped=dropped), most=most).dropped
    assert 50 < len(kept) < len(dropped)
    assert kept == dropped[-len(kept) :]
    assert kept[0].by != dropped[-len(kept) - 1].by  # whole merges


@pytest.mark.parametrize("id", ["0", "\0", "id"])
def test_a_root_holds_all_ids_and_ranges_that_a_table_may_have(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are alike, and would be packed more than readers unpack. All bounds are a tenth."""
    for name in ("MOST_ID_BYTES", "MOST_RANGES_IN_ALL"):
        monkeypatch.setattr(versions, name, getattr(versions, name) // 10)
    apps: dict[str, Versions] = {}
    with suppress(InvalidInputError):
        for number in count():
            new = id + f"{number:05}" + id * 990 if len(id) == 1 else f"{id}-{number}"
            if not number % 500:
                refuse_new_id(App(id=new, version=0), apps, where="")
            apps[new] = Versions(ranges=((number, number),))
    many = versions.MOST_RANGES_IN_ALL - len(apps)
    high = Versions(ranges=tuple((it, it) for it in range(1 << 62, (1 << 62) + 2 * many, 2)))
    apps[next(iter(apps))] = high
    assert reread(root(apps=apps), most=MAX_BYTES // 10).apps == apps


def test_a_line_is_packed_no_more_than_readers_unpack() -> None:
    line = b"a" * 8 * MEGABYTE
    body = checkpoint_module._pack_line(line)
    assert gzip.decompress(body) == line
    assert len(line) <= checkpoint_module.max_unpacked(len(body)) < 2 * len(line) * 100 // 8


def test_the_first_line_of_a_root_may_be_longer_than_a_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BYTES", 1000)
    dropped = tuple(Dropped(part=part(number), into=[], by=number) for number in range(10, 50))
    assert reread(root(dropped=dropped)).dropped == dropped


def test_the_first_line_of_another_checkpoint_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions of this software would not read it."""
    apps = {f"{number:0900}": versions_of(1) for number in range(3)}
    encode_checkpoint(Checkpoint(number=7, apps=apps), created=NOW)
    monkeypatch.setattr(checkpoint_module, "MAX_BYTES", 2000)
    with pytest.raises(InvalidInputError, match="no reader could read it"):
        encode_checkpoint(Checkpoint(number=7, apps=apps), created=NOW)


# --- hostile bodies -----------------------------------------------------------------------------------------------

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
        {**HEADER, "schemas": [columns("a")]},
        {**LINE, "table_schema": 1, "marker": {**LINE["marker"], "dbio_commit": ours()}},
    ),
    "negative schema": packed({**HEADER, "schemas": [columns("a")]}, {**LINE, "table_schema": -1}),
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


@pytest.mark.parametrize("version", [3, 10**9])
def test_a_checkpoint_of_a_later_version_asks_for_an_upgrade(version: int) -> None:
    for body in (packed({"version": version, "entirely": "different"}), packed({**HEADER, "version": version}, LINE)):
        with pytest.raises(UnsupportedTableError, match="upgrade"):
            decode_checkpoint(body, number=7, where=WHERE)


ROOT = {**HEADER, "version": 2, "commits": 0, "parts": []}


@pytest.mark.parametrize("header", [ROOT, {**ROOT, "commits": 1}, {**ROOT, "parts": [{"kind": "of later"}]}])
def test_a_root_is_refused_by_name_by_software_that_knows_bodies_alone(
    header: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its message advises to upgrade, not to delete."""
    monkeypatch.setattr(checkpoint_module, "_Header", HeaderOfVersion1)
    with pytest.raises(UnsupportedTableError, match="upgrade dbio-commit") as caught:
        decode_checkpoint(packed(header), number=7, where=WHERE)
    assert str(caught.value) == (
        f"{WHERE} was written by version 2 of the protocol, and this software knows 1; upgrade dbio-commit"
    )


class HeaderOfVersion1(checkpoint_module._Header, frozen=True, kw_only=True):
    """As the software before state in parts reads it."""

    NEWEST: ClassVar[int] = 1

    version: Literal[1] = 1


@pytest.mark.parametrize(
    "header",
    [
        {**ROOT, "commits": 1},
        {**ROOT, "parts": None},
        {**HEADER, "parts": []},
        {**HEADER, "version": 2},
    ],
)
def test_a_checkpoint_that_is_half_a_root_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(CorruptMarkerError, match=WHERE):
        decode_checkpoint(packed(header), number=7, where=WHERE)


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
    with pytest.raises(CorruptMarkerError, match="more bytes than any writer packs"):
        decode_checkpoint(body, number=7, where=WHERE)
    with pytest.raises(InvalidInputError, match="no reader could read it"):
        encode_checkpoint(sample(commits), created=NOW)


def test_a_small_body_unpacks_to_little() -> None:
    """A bomb of 16 KiB with 15 MiB in it took 400 MB."""
    line = {**LINE, "marker": {**LINE["marker"], "x": "a" * 15 * MEGABYTE}}
    body = packed(HEADER, line)
    assert len(body) < 100_000
    with pytest.raises(CorruptMarkerError, match="more bytes than any writer packs"):
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
    info = CommitInfo(recorded="append", commit_id="c", timestamp=NOW, files=pack_files(files))
    marker = CommitMarker(added=paths, removed=[], dbio_commit=info)
    body = encode_checkpoint(sample([Decided(NOW, "1", marker)]), created=NOW)
    (commit,) = decode_checkpoint(body, number=7, where=WHERE).commits
    assert commit.marker.added == paths
    assert commit.marker.dbio_commit
    assert commit.marker.dbio_commit.files
    assert bounds_in(commit.marker) == {}
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
        info = CommitInfo(recorded="append", commit_id=tid, timestamp=NOW, files=pack_files(files))
        commits.append(Decided(NOW, tid, CommitMarker(added=[it.path for it in files], removed=[], dbio_commit=info)))
    body = encode_checkpoint(sample(commits), created=NOW)
    found = decode_checkpoint(body, number=7, where=WHERE).commits
    assert [unpack_files(it.marker) for it in found] == [unpack_files(it.marker) for it in commits]
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
