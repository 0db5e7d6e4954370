"""The bodies in `markers`: round trips, DBIO's own bodies, and bodies that no writer wrote. No store, no file.

Rules: PROTOCOL.md 7.1, 7.2, 7.5, 13.
"""

import copy
import json
import pickle
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dbio_commit.base.errors import CorruptMarkerError, DbioError, InvalidInputError, UnsupportedTableError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import MAX_BYTES, encode
from dbio_commit.protocol.markers.commit import (
    CommitInfo,
    CommitMarker,
    abort_marker,
    as_recorded,
    bounds_in,
    check_statistics,
    decode_commit,
    encode_commit,
    is_lean,
    lean,
    select_files,
    unpack_files,
)
from dbio_commit.protocol.markers.descriptor import Descriptor, decode_descriptor
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.markers.schema import MOST_NESTED, Schemas, pack_schema
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.markers.turn import Turn, decode_turn
from tests.builders import DESCRIPTOR, OLD, World, columns, data

relaxed = settings(deadline=None)  # machines that run tests are noisy

WHERE = "s3://bucket/t/_committed_42"
NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
STAMP = "2026-11-20T10:00:00Z"
DECODERS: list[Callable[..., object]] = [decode_commit, decode_descriptor, decode_turn]


def info(**more: Any) -> CommitInfo:
    if "schema" in more:
        more["schema"] = pack_schema(more["schema"])
    more["recorded"] = as_recorded(more.pop("operation", "append"))
    return CommitInfo(**{"commit_id": "c1", "timestamp": NOW, **more})


def commit_of(files: list[FileInfo]) -> CommitMarker:
    return CommitMarker(added=[file.path for file in files], removed=[], dbio_commit=info(files=pack_files(files)))


def decode(body: bytes | str | dict[str, Any]) -> CommitMarker:
    raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    return decode_commit(raw, where=WHERE)


def body_with(*, added: int = 0, **more: Any) -> dict[str, Any]:
    """A commit marker as JSON, with these keys in its `dbio_commit`."""
    ours = {"version": 1, "operation": "append", "commit_id": "c1", "timestamp": STAMP, **more}
    return {"added": [f"f{i}" for i in range(added)], "removed": [], "dbio_commit": ours}


def columns_of(kind: Any) -> dict[str, Any]:
    """A schema with a column of this type."""
    return {"type": "struct", "fields": [{"name": "x", "type": kind}]}


# --- round trips --------------------------------------------------------------------------------------------------

COUNTS = st.integers(0, (1 << 63) - 1)
CLOCKS = st.datetimes(datetime(1900, 1, 1), datetime(8999, 12, 31), timezones=st.just(UTC))
SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
) | st.text(max_size=8)
BOUNDS = st.builds(Bounds, SCALARS, SCALARS, st.none() | COUNTS)
PATHS = st.from_regex(r"[a-z]=[a-zé% ]{1,5}/[a-z0-9-]{1,8}\.parquet", fullmatch=True)


@st.composite
def file_lists(draw: st.DrawFn) -> list[FileInfo]:
    """Files of one commit: the same partition columns, and statistics of the same columns, in each."""
    partition_columns = draw(st.lists(st.text(max_size=5), max_size=3, unique=True))
    columns = draw(st.lists(st.text(max_size=5), max_size=3, unique=True))
    return [
        FileInfo(
            path=path,
            size=draw(COUNTS),
            rows=draw(st.none() | COUNTS),
            partition={column: draw(st.none() | st.text(max_size=5)) for column in partition_columns},
            statistics={column: draw(BOUNDS) for column in columns} or None,
        )
        for path in draw(st.lists(PATHS, max_size=4, unique=True))
    ]


@relaxed
@given(file_lists())
def test_files_come_back_as_they_were_packed(files: list[FileInfo]) -> None:
    marker = commit_of(files)
    again = decode(encode_commit(marker))
    assert unpack_files(again) == files
    assert again == marker


@relaxed
@given(
    st.builds(
        info,
        operation=st.sampled_from(["append", "overwrite", "overwrite_partitions", "rewrite"]),
        commit_id=st.text(),
        timestamp=CLOCKS,
        turn=st.none() | COUNTS,
        app=st.none() | st.builds(App, id=st.text(min_size=1, max_size=50), version=COUNTS),
        metrics=st.dictionaries(st.text(), st.integers()),
        schema_turn=st.none() | COUNTS,
    ),
    st.lists(PATHS),
    st.lists(PATHS),
)
def test_commit_marker_round_trips(dbio_commit: CommitInfo, added: list[str], removed: list[str]) -> None:
    marker = CommitMarker(added=added, removed=removed, dbio_commit=dbio_commit)
    assert decode(encode_commit(marker)) == marker


def test_null_partition_values_survive_beside_the_text_null() -> None:
    files = [
        FileInfo(path=f"p/{i}", size=1, partition={"a": value, "b": None})
        for i, value in enumerate([None, "", "null", "None", "__HIVE_DEFAULT_PARTITION__"])
    ]
    assert unpack_files(decode(encode_commit(commit_of(files)))) == files


def test_schema_keeps_its_nulls_and_its_key() -> None:
    schema = {
        "type": "struct",
        "fields": [{"name": "a", "type": "long", "later": {"it": None, "n": [None, 1.5, True]}}],
    }
    body = encode_commit(CommitMarker(added=[], removed=[], dbio_commit=info(schema=schema)))
    assert json.loads(body)["dbio_commit"]["schema"] == schema
    again = decode(body).dbio_commit
    assert again is not None
    assert again.table_schema == schema


def _schema(value: object) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": "a", "type": "long", "later": {"a": value}}]}


def test_markers_that_are_read_together_share_equal_schemas_and_no_others() -> None:
    def read(value: object, schemas: Schemas | None) -> object:
        body = encode(CommitMarker(added=[], removed=[], dbio_commit=info(schema=_schema(value))))
        found = decode_commit(body, where=WHERE, schemas=schemas).dbio_commit
        assert found
        assert repr(found.table_schema) == repr(_schema(value))
        return found.schema

    schemas: Schemas = {}
    assert read(1, schemas) is read(1, schemas)
    assert (
        len({id(it) for it in [read(value, schemas) for value in (1, True, 1.0, "1")]}) == 4
    )  # which Python calls equal
    assert read(1, None) is not read(1, None)


def test_body_is_compact_and_says_nothing_about_what_is_unknown() -> None:
    assert encode(CommitMarker(added=["a"], removed=[])) == b'{"added":["a"],"removed":[]}'


def test_file_without_statistics_beside_one_with_them_has_unknown_bounds() -> None:
    files = [
        FileInfo(path="a", size=1, statistics={"x": Bounds(1, 2, 0)}),
        FileInfo(path="b", size=1),
        FileInfo(path="c", size=1, statistics={"y": Bounds("p", "q")}),
    ]
    found = [file.statistics for file in unpack_files(decode(encode_commit(commit_of(files))))]
    assert found == [
        {"x": Bounds(1, 2, 0), "y": Bounds()},
        {"x": Bounds(), "y": Bounds()},
        {"x": Bounds(), "y": Bounds("p", "q")},
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_bound_that_json_cannot_hold_is_written_as_unknown(value: float) -> None:
    body = encode_commit(commit_of([FileInfo(path="a", size=1, statistics={"x": Bounds(value, value, 0)})]))
    json.loads(body, parse_constant=pytest.fail)  # called for NaN and the infinities
    assert unpack_files(decode(body))[0].statistics == {"x": Bounds(None, None, 0)}


def test_commit_of_a_hundred_thousand_files_round_trips() -> None:
    files = [FileInfo(path=f"day={i % 365}/part-{i}.parquet", size=i, rows=i) for i in range(100_000)]
    assert unpack_files(decode(encode_commit(commit_of(files)))) == files


@relaxed
@given(
    st.builds(
        Descriptor,
        id=st.text(),
        created=CLOCKS,
        partition_columns=st.lists(st.sampled_from(["day", "hour", "é x", "a/b"]), unique=True),
        properties=st.dictionaries(st.text(), st.text()),
    )
)
def test_descriptor_round_trips(descriptor: Descriptor) -> None:
    assert decode_descriptor(encode(descriptor), where=WHERE) == descriptor


def test_turn_round_trips() -> None:
    turn = Turn(tid="0123456789012345678")
    assert decode_turn(encode(turn), where=WHERE) == turn


def test_abort_marker_decides_and_changes_nothing() -> None:
    marker = decode(encode(abort_marker(commit_id="c1", timestamp=NOW)))
    assert marker.is_abort
    assert (marker.added, marker.removed) == ([], [])


# --- the limit of one PUT -----------------------------------------------------------------------------------------


def test_statistics_go_first_when_the_marker_would_be_too_large() -> None:
    files = [
        FileInfo(path=f"p/{i}", size=i, rows=1, partition={"a": None}, statistics={"x": Bounds("y" * 60, "z" * 60, 0)})
        for i in range(100)
    ]
    marker = commit_of(files)
    full = len(encode_commit(marker))
    assert len(encode_commit(marker, limit_bytes=full)) == full
    small = encode_commit(marker, limit_bytes=full - 1)
    assert len(small) < full / 2
    bare = [FileInfo(path=file.path, size=file.size, rows=file.rows, partition=file.partition) for file in files]
    assert unpack_files(decode(small)) == bare
    assert is_lean(decode(small))
    assert encode_commit(marker, limit_bytes=len(small)) == small


def test_a_marker_that_leaves_out_its_statistics_warns_with_the_numbers_and_the_next_step() -> None:
    statistics = {"x": Bounds("y" * 60, "z" * 60, 0), "w": Bounds(1, 2, 0)}
    marker = commit_of([FileInfo(path=f"p/{i}", size=i, statistics=statistics) for i in range(100)])
    warnings: list[str] = []
    full = len(encode_commit(marker, warn=warnings.append))
    assert not warnings
    small = encode_commit(marker, limit_bytes=full - 1, warn=warnings.append)
    [warning] = warnings
    for fact in ("2 columns", "100 files", f"{full} bytes", f"holds {full - 1}.", "fewer and larger files"):
        assert fact in warning
    with pytest.raises(InvalidInputError):
        encode_commit(marker, limit_bytes=len(small) - 1, warn=warnings.append)
    assert len(warnings) == 1  # nothing is committed without statistics then
    assert not is_lean(decode(encode_commit(commit_of([FileInfo(path="a", size=1)]))))


def test_an_older_marker_and_a_newer_one_say_nothing_of_statistics_that_were_not_left_out() -> None:
    """The key is only there if it is true, and older versions ignore it."""
    marker = commit_of([FileInfo(path="a", size=1, statistics={"x": Bounds(1, 2, 0)})])
    assert b"statistics_left_out" not in encode(marker)
    assert json.loads(encode(lean(marker)))["dbio_commit"]["files"]["statistics_left_out"] is True
    assert lean(lean(marker)) == lean(marker)
    assert is_lean(select_files(lean(marker), added=[], removed=[]))


def test_marker_too_large_even_so_is_refused_with_its_size_and_numbers() -> None:
    marker = CommitMarker(added=[f"a{i}" for i in range(70)], removed=[f"r{i}" for i in range(30)])
    size = len(encode(marker))
    with pytest.raises(InvalidInputError) as caught:
        encode_commit(marker, limit_bytes=size - 1)
    for fact in (f"{size} bytes", "70 added", "30", f"{size - 1};"):
        assert fact in str(caught.value)


def test_body_above_the_limit_is_refused_unparsed_and_one_at_the_limit_is_read() -> None:
    body = b'{"added":[],"removed":[]}'
    assert decode(body.ljust(MAX_BYTES)) == CommitMarker(added=[], removed=[])
    with pytest.raises(CorruptMarkerError, match=str(MAX_BYTES + 1)):
        decode(body.ljust(MAX_BYTES + 1))


# --- what a writer must not be able to write ----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "../x", "/x", "a\nb", "x" * 5000, "\udcff"], ids=lambda path: repr(path[:10]))
@pytest.mark.parametrize("key", ["added", "removed"])
def test_path_that_no_reader_accepts_is_refused_before_it_is_written(key: str, path: str) -> None:
    """A marker that was committed and cannot be decoded makes the whole table unreadable."""
    added, removed = ([path], []) if key == "added" else ([], [path])
    marker = CommitMarker(added=added, removed=removed)
    with pytest.raises(DbioError):
        encode_commit(marker)


def test_schema_too_deep_to_be_read_back_is_refused_before_it_is_written() -> None:
    """As above: some readers take a depth of 200, and a struct within a struct takes three of them."""
    column_type: Any = "long"
    for _ in range(80):
        column_type = {"type": "struct", "fields": [{"name": "a", "type": column_type}]}
    with pytest.raises(InvalidInputError, match="190 levels"):
        pack_schema(column_type)


@pytest.mark.parametrize(
    "partitions",
    [[{}, {"a": "1"}], [{"a": "1"}, {}], [{"a": "1"}, {"b": "1"}], [{"a": "1"}, {"a": "1", "b": "2"}]],
)
def test_files_of_different_partition_columns_are_refused(partitions: list[dict[str, str | None]]) -> None:
    files = [FileInfo(path=f"f{i}", size=1, partition=partition) for i, partition in enumerate(partitions)]
    with pytest.raises(InvalidInputError):
        pack_files(files)


# --- bodies of other DBIO writers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"version": 2},
        {"version": "14.3.x-scala2.12"},
        {"metadata": {"dbio_commit": {"version": 9}}, "": None, "é": [1e300]},
        {"Added": ["x"], "files": {"size": [1, 2, 3]}},
    ],
)
def test_body_as_databricks_wrote_it_is_accepted_with_any_other_keys(extra: dict[str, Any]) -> None:
    name = "part-00000-tid-42-5d9a6a6e-6f43-4a2a-8b8f-0d5b6a7f1c11-0-0-c000.snappy.parquet"
    marker = decode({"added": [name], "removed": ["part-00000.parquet", "_committed_41"], **extra})
    assert marker == CommitMarker(added=[name], removed=["part-00000.parquet", "_committed_41"])
    assert not marker.is_abort
    assert unpack_files(marker) == []


def test_unknown_keys_are_ignored_at_every_level() -> None:
    files, app = {"size": [1], "rows": [None]}, {"id": "a", "version": 0}
    later = {"later": [1, {"a": None}]}
    body = body_with(added=1, files=files | later, app=app | later, **later)
    assert decode(body) == decode(body_with(added=1, files=files, app=app))


@pytest.mark.parametrize("body", ["{}", '{"error":"AccessDenied"}', '{"Added":["f"],"Removed":[]}'])
def test_body_with_neither_added_nor_removed_is_corrupt(body: str) -> None:
    """Every writer writes both. Taken for a commit of nothing, it would have vacuum delete the transaction's files."""
    with pytest.raises(CorruptMarkerError):
        decode(body)


# --- later versions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        body_with(version=4),
        body_with(version="4"),
        body_with(version=4.0),
        body_with(version=4, operation="zorder", commit_id=None, timestamp=0),
        body_with(version=4, files="elsewhere"),
        {"added": {"pages": 3}, "removed": [], "dbio_commit": {"version": 4}},
        {"added": [], "removed": [], "dbio_commit": {"version": 4}, "version": "14.3.x"},
    ],
)
def test_commit_of_a_later_version_asks_for_an_upgrade(body: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedTableError, match=r"version 4(\.0)? .*upgrade") as caught:
        decode(body)
    assert WHERE in str(caught.value)


@pytest.mark.parametrize(
    "body", [{"version": 2}, {"version": 2, "id": "a", "created": STAMP}, {"version": 2, "partition_columns": "a"}]
)
def test_descriptor_of_a_later_version_asks_for_an_upgrade(body: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedTableError, match=r"version 2 .*upgrade"):
        decode_descriptor(json.dumps(body).encode(), where=WHERE)


@pytest.mark.parametrize("version", [0, -1, None, "x", 1.5, [], {}])
def test_version_that_never_was_is_corrupt(version: object) -> None:
    with pytest.raises(CorruptMarkerError):
        decode(body_with(version=version))


def test_another_writers_version_does_not_make_a_corrupt_marker_a_later_one() -> None:
    """`version` beside `added` is one of the unknown keys; ours is in `dbio_commit`."""
    with pytest.raises(CorruptMarkerError):
        decode({"version": 7, "added": 3, "removed": []})


# --- bodies that no writer wrote ----------------------------------------------------------------------------------

JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(json.dumps)

FIELD_VALUES: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(["", "a", "abort", "append", STAMP, "../a"])
    | st.lists(st.sampled_from([None, 1, -1, "a", "/", 1.5, []]), max_size=2)
)
# fmt: off
KEYS = st.sampled_from([
    "added", "removed", "dbio_commit", "version", "operation", "commit_id", "timestamp", "turn", "app",
    "id", "metrics", "schema", "files", "size", "rows", "partition", "partition_columns", "properties",
    "created", "statistics", "min", "max", "nulls", "tid", "x"
])
# fmt: on
NEAR_BODIES = st.recursive(FIELD_VALUES, lambda inner: st.dictionaries(KEYS, inner, max_size=6), max_leaves=20)


def assert_only_our_errors(body: bytes) -> None:
    for decoder in DECODERS:
        message = WHERE
        try:
            decoder(body, where=WHERE)
        except (CorruptMarkerError, UnsupportedTableError) as error:
            message = str(error)
        assert WHERE in message


@settings(deadline=None, max_examples=300)
@given(st.binary() | JSON_TEXT.map(str.encode))
@example(b"")
@example(b"\xef\xbb\xbf{}")
@example("{}".encode("utf-16"))
def test_arbitrary_body_raises_nothing_but_our_errors(body: bytes) -> None:
    assert_only_our_errors(body)


@settings(deadline=None, max_examples=500)
@given(st.dictionaries(KEYS, NEAR_BODIES, max_size=6))
def test_body_with_our_keys_and_wrong_values_raises_nothing_but_our_errors(body: dict[str, Any]) -> None:
    assert_only_our_errors(json.dumps(body).encode())


FIELDS = ["version", "operation", "commit_id", "timestamp", "turn", "app", "metrics", "schema", "schema_turn", "files"]


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(FIELDS), NEAR_BODIES, min_size=1, max_size=2))
def test_marker_with_a_wrong_field_unpacks_or_is_refused(wrong: dict[str, Any]) -> None:
    try:
        marker = decode(body_with(added=1, **wrong))
    except (CorruptMarkerError, UnsupportedTableError):
        return
    assert [file.path for file in unpack_files(marker)] in ([], ["f0"])


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"x":' * 100_000,
        '{"x":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"dbio_commit":' * 100_000 + "{}" + "}" * 100_000,
        '{"dbio_commit":' * 150 + "{}" + "}" * 150,
        '{"added":["\\ud800"],"removed":[]}',
        '{"version":' + "9" * 4300 + ',"added":1}',
        '{"version":"' + "9" * 5000 + '","added":1}',
        '{"version":1e999,"added":1}',
        '{"added":[' + "1," * 10_000 + "1]}",
        '{"added":[' + '"../a",' * 10_000 + '"a"]}',
        '{"added":null,"removed":null}',
        '{"added":NaN}',
        '{"added":{}}',
        '{"added":["a"],"removed":[]}x',
        '{"added":["a"],"removed":[],}',
        '{"added":["a"],"removed":[]',
        "\0",
    ],
    ids=lambda body: body[:30],
)
def test_hostile_body_is_refused(body: str) -> None:
    assert_only_our_errors(body.encode(errors="surrogatepass"))
    with pytest.raises(DbioError):
        decode(body.encode(errors="surrogatepass"))


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "1"])
def test_of_a_key_that_is_unknown_no_value_matters(number: str) -> None:
    assert decode('{"added":["a"],"removed":[],"x":' + number + "}").added == ["a"]


def test_million_entries_are_read() -> None:
    body = b'{"added":[' + b'"a",' * 999_999 + b'"a"],"removed":[]}'
    assert len(decode(body).added) == 1_000_000


def test_first_wrong_entry_ends_the_validation() -> None:
    """Else a body of 64 MiB of wrong entries collects an error of almost 1 kB for each."""
    with pytest.raises(CorruptMarkerError) as caught:
        decode('{"added":[' + "1," * 1_000_000 + '1],"removed":[]}')
    assert len(str(caught.value)) < 1000


def test_last_of_duplicate_keys_counts() -> None:
    marker = decode('{"added":["a"],"added":["b"],"removed":[]}')
    assert marker.added == ["b"]


@pytest.mark.parametrize("path", ["", "..", "../x", "/x", "a//b", "a\\b", "a\0", "a\n", "x" * 5000])
@pytest.mark.parametrize("key", ["added", "removed"])
def test_path_outside_the_table_is_refused(key: str, path: str) -> None:
    with pytest.raises(CorruptMarkerError, match="which is not inside the table") as caught:
        decode({"added": ["a"], "removed": ["b"], key: ["c", path]})
    assert WHERE in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp": "2026-11-20T10:00:00"},
        {"timestamp": 0},
        {"timestamp": "yesterday"},
        {"timestamp": None},
        {"operation": "delete"},
        {"operation": "APPEND"},
        {"commit_id": 1},
        {"turn": -1},
        {"turn": 1 << 63},
        {"turn": "1"},
        {"turn": 1.0},
        {"app": {"id": "", "version": 1}},
        {"app": {"id": "a", "version": -1}},
        {"app": {"id": "a"}},
        {"metrics": {"rows": "1"}},
        {"files": {"size": [1], "rows": [1, 2]}},
        {"files": {"size": [1, 2], "rows": [1, 2]}},
        {"files": {"size": [-1], "rows": [1]}},
        {"files": {"size": [None], "rows": [1]}},
        {"files": {"size": [1 << 63], "rows": [1]}},
        {"files": {"size": [1], "rows": [1], "partition": {"a": []}}},
        {"files": {"size": [1], "rows": [1], "partition": {"a": [1]}}},
    ],
)
def test_marker_with_one_wrong_field_is_corrupt(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {"files": {"size": [1], "rows": [1]}}
    assert decode(body_with(added=1, **right)).added == ["f0"]
    with pytest.raises(CorruptMarkerError):
        decode(body_with(added=1, **(right | wrong)))


WRONG_COUNTS = [-1, 1 << 63, -(1 << 63) - 1, True, 1.0, "1", []]


@pytest.mark.parametrize("wrong", WRONG_COUNTS, ids=repr)
@pytest.mark.parametrize("beside", [[], [3], [None, 3], [3] * 40, [None] * 40], ids=lambda it: f"{len(it)}{it[:1]}")
def test_one_wrong_count_among_any_is_corrupt(beside: list[int | None], wrong: object) -> None:
    for rows in ([*beside, wrong], [wrong, *beside]):
        with pytest.raises(CorruptMarkerError):
            decode(body_with(added=len(rows), files={"size": [1] * len(rows), "rows": rows}))


@pytest.mark.parametrize("rows", [[], [0], [None], [(1 << 63) - 1, 0], [5, None] * 20, [*range(40)]], ids=str)
def test_counts_come_back_as_they_are(rows: list[int | None]) -> None:
    marker = decode(body_with(added=len(rows), files={"size": [7] * len(rows), "rows": rows}))
    assert [file.rows for file in unpack_files(marker)] == rows
    assert decode(json.loads(encode_commit(marker))) == marker


@pytest.mark.parametrize(
    "values",
    [["a"] * 40, ["a", None] * 20, [None] * 40, [*map(str, range(40))], ["a"]],
    ids=["one text", "some null", "all null", "many texts", "few files"],
)
def test_partition_values_come_back_as_they_are(values: list[str | None]) -> None:
    count = len(values)
    marker = decode(
        body_with(added=count, files={"size": [7] * count, "rows": [1] * count, "partition": {"p": values}})
    )
    assert [file.partition["p"] for file in unpack_files(marker)] == values
    assert decode(json.loads(encode_commit(marker))) == marker


@pytest.mark.parametrize("wrong", [1, True, 1.5, ["a"], {}], ids=repr)
@pytest.mark.parametrize("count", [0, 1, 40])
def test_partition_values_that_are_no_texts_are_corrupt(wrong: object, count: int) -> None:
    files = {"size": [1] * (count + 1), "rows": [1] * (count + 1), "partition": {"p": ["a"] * count + [wrong]}}
    with pytest.raises(CorruptMarkerError):
        decode(body_with(added=count + 1, files=files))


@pytest.mark.parametrize("wrong", ["a", None, 1, {"0": "a"}], ids=repr)
def test_partition_values_that_are_no_list_are_corrupt(wrong: object) -> None:
    with pytest.raises(CorruptMarkerError):
        decode(body_with(added=1, files={"size": [1], "rows": [1], "partition": {"p": wrong}}))


@pytest.mark.parametrize("timestamp", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_timestamp_that_utc_cannot_hold_is_corrupt(timestamp: str) -> None:
    """It compares, but `astimezone(UTC)` raises OverflowError in whoever shows the history."""
    with pytest.raises(CorruptMarkerError):
        decode(body_with(timestamp=timestamp))


@pytest.mark.parametrize(
    "bounds",
    [
        {"min": [1], "max": [1], "nulls": ["0"]},
        {"min": [1], "max": [1], "nulls": [-1]},
        {"min": [1], "max": [1], "nulls": [0.5]},
        {"min": [1], "max": [1], "nulls": []},
        {"min": [1, 2], "max": [1, 2], "nulls": [0, 0]},
        {"min": [1], "max": [1]},
        [],
        None,
    ],
)
def test_statistics_of_a_wrong_type_say_nothing(bounds: Any) -> None:
    """Readers skip files by them: what passes here is compared with the reader's own values."""
    marker = decode(body_with(added=1, files={"size": [7], "rows": [1], "statistics": {"x": bounds}}))
    assert bounds_in(marker) == {}
    assert unpack_files(marker) == [FileInfo(path="f0", size=7, rows=1)]
    with pytest.raises(CorruptMarkerError, match=f"statistics in {WHERE} cannot be read: .*none is skipped"):
        check_statistics(marker, where=WHERE)


def test_statistics_of_a_column_are_read_beside_such_as_cannot_be() -> None:
    right = {"min": [1], "max": [2], "nulls": [0]}
    marker = decode(body_with(added=1, files={"size": [7], "rows": [1], "statistics": {"X": right, "y": 5}}))
    assert {name: it.max for name, it in bounds_in(marker, lower={"x"}).items()} == {"X": [2]}
    assert bounds_in(marker, lower=set()) == {}


@pytest.mark.parametrize("statistics", [5, "a", None, ["a"], {"x": 5}])
def test_statistics_that_nobody_can_read_stop_nobody_and_are_shown_and_forgotten(statistics: Any) -> None:
    world = World()
    body = body_with(
        added=1, files={"size": [7], "rows": [1], "statistics": statistics}, schema=columns("x"), schema_turn=1
    )
    path = names.committed("1")
    world.put_json("_dbio_table", DESCRIPTOR)
    world.put_json(path, body | {"added": [data("1")]})
    world.put(data("1"), b"1234567", modified=OLD)
    table = world.table()
    for snapshot in (table.snapshot(), table.snapshot().where("x = 1")):
        assert [file.size for file in snapshot.files] == [7]
    report = table.check()
    assert report.ok
    assert "none is skipped by them" in report.useless_statistics[path]
    assert table.checkpoint()
    world.objects.pop(path)
    assert [file.size for file in table.snapshot().where("x = 1").files] == [7]
    assert not table.check().useless_statistics


@pytest.mark.parametrize("indent", [None, 1], ids=["compact", "indented"])
def test_a_marker_that_has_line_breaks_comes_into_a_checkpoint_as_another_does(indent: int | None) -> None:
    world = World()
    files = {"size": [7], "rows": [1], "statistics": {"x": {"min": ["a\nb"], "max": ["c"], "nulls": [0]}}}
    body = body_with(added=1, files=files, schema=columns("x"), schema_turn=1) | {"added": [data("1")]}
    world.put_json("_dbio_table", DESCRIPTOR)
    world.put(names.committed("1"), json.dumps(body, indent=indent).encode(), modified=OLD)
    before = world.table().snapshot()
    assert world.table().checkpoint()
    world.objects.pop(names.committed("1"))
    after = world.table().snapshot()
    assert [commit.files for commit in after.history()] == [commit.files for commit in before.history()]
    assert after.schema == before.schema == columns("x")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
@pytest.mark.parametrize("schema", [None, columns("x")], ids=["no schema", "schema"])
def test_a_copy_of_a_marker_says_the_same(schema: Any, again: Callable[[CommitMarker], CommitMarker]) -> None:
    files = [FileInfo(path="a", size=1, statistics={"x": Bounds(1, 2, 0)})]
    marker = CommitMarker(added=["a"], removed=[], dbio_commit=info(files=pack_files(files), schema=schema))
    for it in (marker, decode(encode(marker))):
        assert again(it) == it
        assert encode(again(it)) == encode(marker)


def test_what_a_user_does_with_a_commit_changes_no_other() -> None:
    first, second = (decode(body_with()).dbio_commit for _ in range(2))
    assert first
    assert second
    cast(dict[str, int], first.metrics)["mine"] = 1
    assert second.metrics == {}


def test_a_marker_keeps_no_more_of_its_body_than_it_says() -> None:
    files = {"size": [7], "rows": [1], "statistics": {"x": {"min": [1], "max": [2], "nulls": [0]}}}
    body = json.dumps(body_with(added=1, files=files, schema=columns("x")) | {"unknown": "x" * 1_000_000}).encode()
    decode(body)  # what it makes once
    tracemalloc.start()
    marker = decode(body)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 10_000
    assert bounds_in(marker)["x"].max == [2]


def test_a_schema_of_too_many_levels_is_corrupt_however_much_the_stack_has_left() -> None:
    def nested(levels: int) -> bytes:
        inside = '{"a":' * (levels - 3) + "{}" + "}" * (levels - 3)
        schema = f'{{"type":"struct","fields":[{{"name":"a","type":"long","later":{inside}}}]}}'
        return json.dumps(body_with(schema={})).replace('"schema": {}', f'"schema": {schema}').encode()

    def deep(frames: int, call: Callable[[], object]) -> object:
        return deep(frames - 1, call) if frames else call()

    for frames in (0, 500):
        found = deep(frames, lambda: decode(nested(MOST_NESTED)))
        assert isinstance(found, CommitMarker)
        assert found.dbio_commit
        schema = found.dbio_commit.table_schema
        assert schema
        assert deep(frames, partial(pack_schema, schema)) == found.dbio_commit.schema
        for levels in (201, 400, 100_000):
            with pytest.raises(CorruptMarkerError):
                deep(frames, partial(decode, nested(levels)))


WRONG_FIELDS: list[Any] = ["abc", {}, [7], [{"name": "x"}], [{"type": "long"}]]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "struct"},
        {"type": "array", "elementType": "long"},
        *({"type": "struct", "fields": it} for it in WRONG_FIELDS),
        *(columns_of(kind) for kind in (None, 7, ["long"], {}, {"type": 7}, {"type": "array"}, {"type": "struct"})),
        *(columns_of(kind) for kind in ({"type": "map", "keyType": "long"}, {"type": "struct", "fields": [{}]})),
        *(columns_of({"type": "array", "elementType": kind}) for kind in (None, {"type": "array"})),
        {"type": "struct", "fields": [{"name": 7, "type": "long"}]},
    ],
    ids=json.dumps,
)
def test_a_schema_that_has_not_the_form_of_one_is_corrupt(schema: Any) -> None:
    with pytest.raises(CorruptMarkerError, match="has a schema that cannot be read"):
        decode(body_with(schema=schema))


@pytest.mark.parametrize("kind", ["geometry", "decimal(99,-9)", {"type": "udt", "class": "x"}])
def test_a_type_that_is_not_known_is_no_reason_to_refuse_a_marker(kind: Any) -> None:
    found = decode(body_with(schema=columns_of(kind))).dbio_commit
    assert found
    assert found.table_schema == columns_of(kind)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1899-12-31T23:59:59Z", "9000-01-01T00:00:00Z"])
def test_a_time_that_no_clock_has_is_corrupt(time: str) -> None:
    with pytest.raises(CorruptMarkerError, match="timestamp is a time of no clock"):
        decode({**body_with(), "dbio_commit": {**body_with()["dbio_commit"], "timestamp": time}})


@pytest.mark.parametrize("bound", [{"a": 1}, [1]])
def test_bound_that_is_no_single_value_is_unknown(bound: Any) -> None:
    statistics = {"x": {"min": [bound], "max": [bound], "nulls": [0]}}
    (file,) = unpack_files(decode(body_with(added=1, files={"size": [1], "rows": [1], "statistics": statistics})))
    assert file.statistics == {"x": Bounds(None, None, 0)}


def test_bound_that_is_not_a_number_hides_no_file() -> None:
    """NaN compares false with everything, so a reader might skip the file: refused, or unknown."""
    statistics = {"x": {"min": [float("nan")], "max": [float("nan")], "nulls": [0]}}
    try:
        marker = decode(body_with(added=1, files={"size": [1], "rows": [1], "statistics": statistics}))
    except CorruptMarkerError:
        return
    assert unpack_files(marker)[0].statistics == {"x": Bounds(None, None, 0)}


@pytest.mark.parametrize("key", ["added", "removed"])
def test_abort_that_changes_something_is_corrupt(key: str) -> None:
    with pytest.raises(CorruptMarkerError, match="abort"):
        decode(body_with(operation="abort") | {key: ["a"]})


@pytest.mark.parametrize(
    "body",
    [
        {"id": "a", "created": "2026-11-20T10:00:00"},
        {"id": "a"},
        {"created": STAMP},
        {"id": "a", "created": STAMP, "partition_columns": ["_a"]},
        {"id": "a", "created": STAMP, "partition_columns": ["a", "A"]},
        {"id": "a", "created": STAMP, "partition_columns": [""]},
        {"id": "a", "created": STAMP, "partition_columns": "a"},
        {"id": "a", "created": STAMP, "properties": {"a": 1}},
        {"id": "a", "created": STAMP, "version": 0},
    ],
)
def test_descriptor_that_no_writer_wrote_is_corrupt(body: dict[str, Any]) -> None:
    with pytest.raises(CorruptMarkerError) as caught:
        decode_descriptor(json.dumps(body).encode(), where=WHERE)
    assert WHERE in str(caught.value)


@pytest.mark.parametrize("tid", ["", "../1", "A", "1\n", "1/2", "1" * 256, "1" * 10_000 + "!", 1, None])
def test_turn_that_names_no_tid_is_corrupt(tid: object) -> None:
    with pytest.raises(CorruptMarkerError) as caught:
        decode_turn(json.dumps({"tid": tid}).encode(), where=WHERE)
    assert WHERE in str(caught.value)


@pytest.mark.parametrize("timestamp", [datetime(2026, 11, 20)])
def test_naive_timestamp_is_refused_by_the_writer_too(timestamp: datetime) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        abort_marker(commit_id="c1", timestamp=timestamp)
    with pytest.raises(ValueError, match="no time zone"):
        Descriptor(id="a", created=timestamp)


DIGITS = "9" * 4301  # Python converts no more to or from text
NUMBERS = [DIGITS, f"-{DIGITS}", f"{DIGITS}.5", f"1.{DIGITS}", f"1e{DIGITS}", "9" * 4299, "1e400"]
PLACES = [
    '"turn":%s', '"schema_turn":%s', '"version":%s', '"app":{"id":"a","version":%s}', '"metrics":{"numFiles":%s}',
    '"schema":{"x":[%s]}', '"unknown":%s', '"files":{"size":[%s],"rows":[1]}',
    '"files":{"size":[1],"rows":[1],"statistics":{"x":{"min":[%s],"max":[1],"nulls":[0]}}}',
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number[:3]}({len(number)})")
def test_numbers_of_any_length_are_read_written_and_shown_or_refused(place: str, number: str) -> None:
    body = '{"added":["a"],"removed":[],"dbio_commit":{"operation":"append","commit_id":"c","timestamp":"%s",%s}}'
    try:
        marker = decode(body % (STAMP, place % number))
        unpack_files(marker)
    except DbioError:
        return
    assert decode_commit(encode(marker), where=WHERE).added == ["a"]
    assert json.dumps([file.statistics for file in unpack_files(marker)])


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: f"{number[:3]}({len(number)})")
@pytest.mark.parametrize("decode_any", [decode_descriptor, decode_turn])
def test_numbers_of_any_length_are_refused_in_the_place_of_texts(number: str, decode_any: Any) -> None:
    keys = ["tid", "id", "created", "version", "properties"]
    for key in keys:
        with pytest.raises(DbioError):
            decode_any(f'{{"{key}":{number}}}'.encode(), where=WHERE)


# --- messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"added": "hunter2"},
        {"added": [], "removed": [], "password": "hunter2", "dbio_commit": {"commit_id": ["hunter2"]}},
        body_with(operation="hunter2"),
        body_with(timestamp="hunter2"),
        body_with(app={"id": "a", "version": "hunter2"}),
    ],
)
def test_message_names_the_marker_and_repeats_no_value_from_it(body: dict[str, Any]) -> None:
    with pytest.raises(CorruptMarkerError) as caught:
        decode(body)
    assert WHERE in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "body",
    [
        body_with(metrics={"a\nERROR all is lost": "x"}),
        body_with(metrics={"k" * 100_000: "x"}),
        body_with(version=10**4000),
        {"added": ["x" * 100_000 + "\n"], "removed": []},
    ],
    ids=["newline", "long key", "long version", "long path"],
)
def test_message_stays_short_and_on_one_line(body: dict[str, Any]) -> None:
    with pytest.raises(DbioError) as caught:
        decode(body)
    assert len(str(caught.value)) < 2000
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("columns", [["_" * 100_000], [f"c{i}" for i in range(100_000)] + ["c0"]])
def test_message_about_a_descriptor_stays_short(columns: list[str]) -> None:
    body = json.dumps({"id": "a", "created": STAMP, "partition_columns": columns}).encode()
    with pytest.raises(CorruptMarkerError) as caught:
        decode_descriptor(body, where=WHERE)
    assert len(str(caught.value)) < 2000


def test_message_about_a_turn_stays_short() -> None:
    with pytest.raises(CorruptMarkerError) as caught:
        decode_turn(json.dumps({"tid": "!" * 100_000}).encode(), where=WHERE)
    assert len(str(caught.value)) < 2000
