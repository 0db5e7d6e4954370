"""The formats of what is published, decided purely: names, values, statistics, what is superseded and what is due.

Rules: NOTES.md, Delta, Spark and Manifests.
"""

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.maintenance.publish import delta_checkpoint
from dbio_commit.maintenance.publish.delta_checkpoint import CheckpointWriter, decode_checkpoint
from dbio_commit.maintenance.publish.delta_log import (
    GUARD,
    DeltaChange,
    DeltaFile,
    DeltaListing,
    DeltaState,
    Mark,
    checkpoint_is_due,
    checkpoint_path,
    decode_version,
    encode_version,
    file_path,
    is_same_metadata,
    is_same_protocol,
    metadata_of,
    protocol_of,
    superseded,
    version_path,
)
from dbio_commit.maintenance.publish.delta_schema import (
    DeltaSchema,
    FileStatistics,
    bound_text,
    delta_schema,
    partition_values,
    statistics,
)
from dbio_commit.maintenance.publish.places import is_published, parse_formats, root_url
from dbio_commit.maintenance.publish.sink_log import decode_list, encode_list
from dbio_commit.maintenance.publish.spark import STEP
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import open_store, parse_location
from dbio_commit.store.location import Location
from tests.builders import columns

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
values = texts.filter(lambda it: it != names.HIVE_NULL and not it.endswith("._COPYING_"))
partitions = st.dictionaries(texts.filter(lambda it: it[0] not in "_."), values | st.none(), max_size=3)
paths = partitions.map(lambda it: names.join(names.format_partition(it), "part-00000-tid-1-a-0-0-c000.parquet"))


def schema(**kinds: Any) -> DeltaSchema:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return delta_schema({"type": "struct", "fields": fields}, [], where="t")


def file(path: str, **more: Any) -> DeltaFile:
    return DeltaFile(**{"path": path, "size": 1, "modified_ms": 2, "partition": {}, "statistics": None, **more})


# --- names --------------------------------------------------------------------------------------------------------


@given(paths)
def test_a_path_is_one_relative_url_that_gives_it_back(path: str) -> None:
    url = file_path(path)
    assert unquote(url) == path
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("", "", "", "")
    assert url.isascii()


@given(st.lists(paths, unique=True), st.lists(paths, unique=True), st.none() | texts)
def test_a_version_says_what_it_was_made_of(added: list[str], removed: list[str], tid: str | None) -> None:
    meta = metadata_of("t", schema(id="long"), ["id"])
    change = DeltaChange(
        added=[file(path) for path in added], removed=removed, metadata=meta, protocol=protocol_of((), {})
    )
    body = encode_version(change, Mark("t", tid), tids=["1"], engine="dbio-commit/1", now=NOW)
    version = decode_version(io.BytesIO(body), where="v")
    assert (version.added, version.removed) == (frozenset(added), frozenset(removed))
    assert (version.mark, version.engine) == (Mark("t", tid), "dbio-commit/1")
    assert version.metadata
    assert is_same_metadata(version.metadata, meta)
    assert version.protocol == protocol_of((), {})


@given(st.lists(paths, unique=True), st.dictionaries(paths, st.integers(0, 2**40)), st.integers(0, 9))
def test_a_checkpoint_says_what_it_was_made_of(live: list[str], removed: dict[str, int], cut: int) -> None:
    meta, protocol = metadata_of("t", schema(id="long"), ["id"]), protocol_of(["timestampNtz"], {})
    files = [file(path, partition={"k": None, "l": "x"}, statistics="{}") for path in live]
    with patch.object(delta_checkpoint, "_GROUP_ROWS", 2):
        writer = CheckpointWriter(metadata=meta, protocol=protocol)
        writer.add(files[:cut], {})
        writer.add(files[cut:], removed)
        count, body = writer.finish()
    assert count == 2 + len(files) + len(removed)
    state = decode_checkpoint(body, where="c")
    assert state.paths == set(live)
    assert {key: state.metadata[key] for key in ("id", "schemaString", "partitionColumns")} == {
        key: meta[key] for key in ("id", "schemaString", "partitionColumns")
    }
    assert is_same_protocol(state.protocol, protocol)


@given(st.lists(paths, unique=True), texts)
def test_a_list_of_sparks_says_what_it_was_made_of(live: list[str], where: str) -> None:
    root = f"file:///tmp/{where}"
    body = encode_list(root, [DataFile(path, 1, None, {}) for path in live]).encode()
    listed = decode_list(io.BytesIO(body), root, where="here")
    assert (listed.paths, listed.elsewhere, listed.is_streams) == (frozenset(live), None, False)
    assert (decode_list(io.BytesIO(body), f"{root}2", where="here").elsewhere is None) == (not live)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda it: st.lists(it, max_size=3) | st.dictionaries(st.sampled_from(["path", "table_id", "tid", "x"]), it),
    max_leaves=5,
)
actions = st.dictionaries(st.sampled_from(["add", "remove", "metaData", "protocol", "commitInfo", "x"]), anything)
bodies = st.binary(max_size=50) | st.lists(actions | anything, max_size=4).map(
    lambda it: b"\n".join(json.dumps(line).encode() for line in it)
)


@given(bodies)
@example(b'{"add":' + b"[" * 100_000)
def test_a_hostile_body_is_read_or_refused_with_an_error_of_ours(body: bytes) -> None:
    for decode in (
        lambda: decode_version(io.BytesIO(body), where="v"),
        lambda: decode_list(io.BytesIO(b"v1\n" + body), "file:///t", where="l"),
        lambda: decode_checkpoint(body, where="c"),
    ):
        with suppress(CorruptMarkerError):
            decode()


def test_versions_add_up_to_what_was_added_and_not_removed() -> None:
    state = DeltaState()
    for number, (added, removed) in enumerate([(["a", "b"], []), (["c"], ["a"]), ([], ["b"])]):
        change = DeltaChange(added=[file(path) for path in added], removed=removed, metadata=None, protocol=None)
        body = encode_version(change, Mark("t", str(number)), tids=[], engine="e", now=NOW)
        state = state.then([decode_version(io.BytesIO(body), where="v")], where="log")
    assert state.paths == {"c"}
    assert state.mark == Mark("t", "2")


@pytest.mark.parametrize(
    "path", ["_delta_log/0.json", "_spark_metadata/9.compact", "_symlink_format_manifest/k=1/manifest"]
)
def test_what_is_published_is_hidden_from_readers_of_data(path: str) -> None:
    assert is_published(path)
    assert not names.is_data_file(path)


@pytest.mark.parametrize("path", ["_delta_log", "k=1/_delta_log/0.json", "_delta_log2/0", "part-0.parquet"])
def test_what_lies_elsewhere_is_not_of_a_publication(path: str) -> None:
    assert not is_published(path)


def test_formats_are_named_one_by_one_or_together() -> None:
    assert parse_formats("delta") == ("delta",)
    assert parse_formats(("spark", "delta", "spark")) == ("spark", "delta")


@pytest.mark.parametrize("number", range(9, 100_000, 990))
def test_the_number_of_a_list_is_one_that_spark_takes_for_a_whole_list(number: int) -> None:
    assert (number + 1) % STEP == 0


# --- columns, partitions, statistics ------------------------------------------------------------------------------


def test_the_columns_are_sparks_json_with_no_metadata_but_comments() -> None:
    recorded = columns("id", "kind")
    recorded["fields"][0]["metadata"] = {
        "comment": "c",
        "delta.columnMapping.id": 3,
        "CURRENT_DEFAULT": "current_user()",
    }
    recorded["fields"][1]["type"] = "varchar(3)"
    found = delta_schema(recorded, ["KIND"], where="t")
    assert json.loads(found.text)["fields"] == [
        {"name": "id", "type": "long", "nullable": True, "metadata": {"comment": "c"}},
        {"name": "kind", "type": "string", "nullable": True, "metadata": {"comment": "of a test"}},
    ]
    assert found.partition_columns == ("kind",)  # as the columns spell it


@pytest.mark.parametrize("kind", ["void", "variant", "interval day to second", {"type": "udt"}, "time(6)", 3])
def test_types_that_delta_has_not_are_refused_with_their_column(kind: Any) -> None:
    inside = {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}
    with pytest.raises(InvalidInputError, match=r"'m\.value' of t is .*which Delta has no type for"):
        schema(m=inside)


def test_a_partition_column_that_the_recorded_columns_lack_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="lack the partition column 'day'"):
        delta_schema(columns("id"), ["day"], where="t")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "a%b", "a%b"),
        ("string", None, None),
        ("string", "", None),  # of adopted directories alone; all of Delta's readers take it for null
        ("timestamp", "2026-11-20 10:00:00", "2026-11-20T10:00:00Z"),
        ("timestamp", "2026-11-20 10:00:00.5", "2026-11-20T10:00:00.5Z"),
        ("timestamp", "2026-11-20", "2026-11-20T00:00:00Z"),
        ("timestamp_ntz", "2026-11-20 10:00:00", "2026-11-20 10:00:00"),
        ("date", "2026-11-20", "2026-11-20"),
        ("decimal(5,2)", "1.50", "1.50"),
        ("boolean", "true", "true"),
    ],
)
def test_partition_values_are_in_deltas_formats(kind: str, value: str | None, expected: str | None) -> None:
    fields = {"type": "struct", "fields": [{"name": "p", "type": kind, "nullable": True, "metadata": {}}]}
    found = delta_schema(fields, ["p"], where="t")
    assert partition_values({"p": value}, found) == {"p": expected}


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31, 23, 59, 58)), st.booleans())
def test_bounds_of_instants_are_milliseconds_that_hold_ours(moment: datetime, zoned: bool) -> None:
    text = moment.isoformat() + ("Z" if zoned else "")
    kind = "timestamp" if zoned else "timestamp_ntz"
    low, high = (json.loads(bound_text(text, kind, up=up) or "") for up in (False, True))
    assert low.endswith("Z") == high.endswith("Z") == zoned
    least, most = (datetime.fromisoformat(it.removesuffix("Z")) for it in (low, high))
    assert least <= moment <= most
    assert most - least <= timedelta(milliseconds=1)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**10), max_value=10**10))
def test_bounds_of_decimals_are_numbers_that_doubles_hold(value: Decimal) -> None:
    text = bound_text(format(value, "f"), "decimal(12,2)", up=True)
    assert text is not None
    assert Decimal(text) == value
    assert Decimal(str(json.loads(text))) == value


def test_bounds_of_longer_decimals_and_of_the_last_millisecond_hold_the_value() -> None:
    text, kind = "-12345678901234567890.1234567891", "decimal(38,10)"
    assert [bound_text(text, kind, up=up) for up in (False, True)] == ["-12345678901234600000", "-12345678901234500000"]
    assert bound_text("12345678901234500000.0000000000", kind, up=True) == "12345678901234500000"
    last = "9999-12-31T23:59:59.999999"
    assert bound_text(f"{last}Z", "timestamp", up=True) == '"9999-12-31T23:59:59.999Z"'
    assert bound_text(last, "timestamp_ntz", up=True) == '"9999-12-31T23:59:59.999"'


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        ("decimal(38,0)", "9" * 38), ("decimal(3,2)", "10.00"), ("boolean", True), ("binary", "x"), ("long", "1"),
        ("long", 1.5), ("double", float("inf")), ("double", True), ("string", 3), ("date", 3), ("timestamp", "soon"),
        ("timestamp", 3),
        ("timestamp", "9999-13-31T23:59:59.999999Z"), ("decimal(3,0)", "1e3"), ("decimal(3,0)", "NaN"), ("long", None),
        ("long", 1 << 63), ("date", "20"), ("timestamp", "2026-11-20T10:00:00"),
        ("timestamp_ntz", "2026-11-20T10:00:00Z"),
    ],
)  # fmt: skip
def test_a_bound_that_delta_might_take_for_another_is_left_out(kind: str, bound: Any) -> None:
    assert bound_text(bound, kind, up=True) is None


def test_statistics_count_rows_and_nulls_and_name_columns_as_the_table_does() -> None:
    bounds = {"ID": Bounds(1, 2, 0), "s": Bounds(None, None, 3), "gone": Bounds(1, 1, 0), "half": Bounds(1, None, None)}
    found = statistics(5, bounds, schema(id="long", s=columns("x"), half="long"))
    assert found is not None
    assert json.loads(found.text) == {
        "numRecords": 5, "minValues": {"id": 1}, "maxValues": {"id": 2}, "nullCount": {"id": 0},
    }  # fmt: skip
    assert found.bounded == {"id"}
    assert statistics(None, bounds, schema(id="long")) is None
    assert statistics(0, {}, schema(id="long")) == FileStatistics('{"numRecords":0}', frozenset({"id"}))
    nulls = statistics(
        5, {"id": Bounds(None, None, 5), "other": Bounds(None, None, 4)}, schema(id="long", other="long")
    )
    assert nulls is not None
    assert nulls.bounded == {"id"}
    assert schema(**{"id": "long", "a b": "long", "yes": "boolean", "raw": "binary"}).ordered == {"id"}


def test_a_feature_once_needed_stays() -> None:
    before = protocol_of(["timestampNtz"], {})
    assert before["minReaderVersion"] == 3
    assert before["readerFeatures"] == ["timestampNtz"]
    assert protocol_of([], before) == before
    assert set(before["writerFeatures"]) > {"timestampNtz", GUARD}


def test_a_log_asks_nothing_of_readers_and_of_writers_a_feature_that_none_of_them_has() -> None:
    guarded = protocol_of([], {})
    assert (guarded["minReaderVersion"], guarded["minWriterVersion"]) == (1, 7)
    assert "readerFeatures" not in guarded
    assert set(guarded["writerFeatures"]) == {GUARD, "appendOnly", "invariants"}


@pytest.mark.parametrize(
    "before",
    [
        {"minReaderVersion": 1, "minWriterVersion": 2},
        {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": None, "writerFeatures": None},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timestampNtz"],
         "writerFeatures": ["timestampNtz"]},
    ],
)  # fmt: skip
def test_the_protocol_of_an_earlier_version_is_raised_and_keeps_its_features(before: dict[str, Any]) -> None:
    raised = protocol_of([], before)
    assert not is_same_protocol(before, raised)
    assert set(raised["writerFeatures"]) >= {GUARD, "appendOnly", "invariants", *(before.get("writerFeatures") or ())}
    assert raised.get("readerFeatures", []) == (before.get("readerFeatures") or [])
    assert raised["minReaderVersion"] == before["minReaderVersion"]
    assert is_same_protocol(protocol_of([], raised), raised)


# --- when ---------------------------------------------------------------------------------------------------------


def log(versions: range, checkpoints: Mapping[int, int], size: int = 100) -> list[Entry]:
    """Version n is n hours old on the day 2026-11-20."""
    start = NOW - timedelta(hours=100)
    return [
        *(Entry(version_path(it), size, start + timedelta(hours=it)) for it in versions),
        *(Entry(checkpoint_path(it), bytes, start + timedelta(hours=it)) for it, bytes in checkpoints.items()),
        Entry("_delta_log/_last_checkpoint", 1, start),
        Entry("_delta_log/00000000000000000001.crc", 1, start),
    ]


def listed(versions: range, checkpoints: Mapping[int, int]) -> DeltaListing:
    return DeltaListing.of(log(versions, checkpoints), root="t")


@pytest.mark.parametrize(
    ("versions", "checkpoints", "due"),
    [
        (9, {}, False),  # version 9 comes
        (10, {}, True),
        (20, {10: 1000}, True),
        (20, {10: 2000}, False),
        (30, {10: 2000}, True),
        (110, {10: 10**9}, True),
        (109, {10: 10**9}, False),
    ],
)
def test_a_checkpoint_is_due_when_the_versions_outweigh_the_last(
    versions: int, checkpoints: dict[int, int], due: bool
) -> None:
    assert checkpoint_is_due(listed(range(versions), checkpoints), versions, 100) is due


def test_superseded_is_what_comes_before_a_checkpoint_of_before_the_horizon() -> None:
    horizon = NOW - timedelta(hours=100 - 25)  # checkpoint 20 is older
    last, old = superseded(listed(range(40), {10: 1, 20: 1, 30: 1}), horizon)
    assert last == 20
    assert {entry.path for entry in old} == {*(version_path(it) for it in range(20)), checkpoint_path(10)}
    assert superseded(listed(range(40), {}), NOW).entries == []
    assert superseded(listed(range(40), {10: 1}), NOW - timedelta(hours=95)).entries == []


# --- absolute URLs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("/data/a b", {}, "file:///data/a b"),
        ("s3://bucket/x/y", {}, "s3a://bucket/x/y"),
        ("s3://bucket", {}, "s3a://bucket"),
        ("abfss://c@acc.dfs.core.windows.net/x", {}, "abfss://c@acc.dfs.core.windows.net/x"),
        ("az://c/x", {"account_name": "acc"}, "abfss://c@acc.dfs.core.windows.net/x"),
        ("az://c/x", {"connection_string": "AccountName=acc;AccountKey=k"}, "abfss://c@acc.dfs.core.windows.net/x"),
    ],
)
def test_the_root_is_an_absolute_url_of_hadoops(url: str, options: dict[str, Any], expected: str) -> None:
    assert root_url(open_store(parse_location(url), options), s3="s3a") == expected


def test_a_container_of_no_known_account_has_no_absolute_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InvalidInputError, match="account_name"):
        root_url(open_store(Location("az", "c", "x"), {}), s3="s3a")
