"""A footer that is recognized gives what reading it would give; all others are read. Rules: PROTOCOL.md 6.4."""

import io
import json
import random
from dataclasses import replace
from datetime import date
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.data import footers
from dbio_commit.data.footers import Footer, inspect_files, look_at
from dbio_commit.data.known_footers import KnownFooters
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.log.schema_drift import look_at_all
from dbio_commit.store import Store
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to

ROWS = pa.table(
    {
        "x": [1, None, 3],
        "n": pa.array([None] * 3, pa.int64()),
        "s": ["a", "b" * 1000, None],
        "l": [[1], [], None],
        "t": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "d": pa.array([1, 2, None], pa.date32()),
        "b": pa.array([b"1234"] * 3, pa.binary(4)),
        "f": [1.5, float("nan"), 3.0],
        "dec": pa.array([1, 2, 3], pa.decimal128(38, 2)),
        "m": pa.array([[("k", {"f": True})]] * 3, pa.map_(pa.string(), pa.struct([("f", pa.bool_())]))),
    }
)
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"row_group_size": 1},
    {"store_schema": False, "write_page_index": True},
    {"use_deprecated_int96_timestamps": True},
    {"write_statistics": False},
    {"metadata": {"a": "b" * 300, ROW_METADATA: "[]"}},
    {"compression": "zstd", "data_page_version": "2.0", "use_dictionary": False},
)


def written(rows: pa.Table, **how: Any) -> bytes:
    body = io.BytesIO()
    pq.write_table(rows.replace_schema_metadata(how.pop("metadata", rows.schema.metadata)), body, **how)
    return body.getvalue()


def look(store: Store, body: bytes, known: KnownFooters | None = None) -> Footer:
    store.replace("a.parquet", body)
    footer = look_at(store, "a.parquet", statistics=False, known=known)
    assert footer is not None
    return replace(footer, problems=tuple(footer.problems))


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_damaged_footer_is_recognized_only_if_it_reads_the_same(store: Store, way: int) -> None:
    body, known, chance = written(ROWS, **WAYS[way]), KnownFooters(), random.Random(way)
    look(store, body, known)
    start, recognized = len(body) - 8 - int.from_bytes(body[-8:-4], "little"), 0
    for _ in range(600):
        damaged, at = bytearray(body), chance.randrange(start, len(body) - 8)
        if chance.random() < 0.8:
            damaged[at] ^= 1 << chance.randrange(8)
        else:
            damaged[at : at + chance.randrange(2)] = bytes(chance.choices(range(256), k=chance.randrange(2)))
            damaged[-8:-4] = (len(damaged) - 8 - start).to_bytes(4, "little")
        if known.find(bytes(damaged)) is not None:
            recognized += 1
            assert look(store, bytes(damaged), known) == look(store, bytes(damaged))
    assert recognized > 20


@pytest.mark.parametrize("how", WAYS)
def test_files_with_other_rows_are_recognized(
    store: Store, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownFooters()
    look(store, written(ROWS, **how), known)
    others = [written(rows, **how) for rows in (ROWS.slice(0, 1), pa.concat_tables([ROWS.slice(1)] * 300))]
    read = [look(store, body) for body in others]
    for body in others:  # nulls and long texts give some chunks fields of their own, which are learned
        look(store, body, known)
    monkeypatch.setattr(footers, "parse_footer", None)
    assert [look(store, body, known) for body in others] == read


def test_a_text_of_more_bytes_than_the_footer_has_is_not_recognized(store: Store) -> None:
    body, known = written(pa.table({"s": ["a", "bb"]}), store_schema=False), KnownFooters()
    look(store, body, known)
    assert known.find(body) is not None
    footer = body[-8 - int.from_bytes(body[-8:-4], "little") : -8].replace(b"\x02bb", b"\xff" * 9 + b"\x7fbb")
    assert known.find(footer + len(footer).to_bytes(4, "little") + b"PAR1") is None


def test_metadata_that_decides_nothing_may_differ(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pandas writes the number of rows into it, also into its schema in Arrow."""
    known, bodies = KnownFooters(), [io.BytesIO() for _ in range(3)]
    for rows, body in enumerate(bodies, 1):
        pd.DataFrame({"id": range(rows), "s": ["x"] * rows}).to_parquet(body)
    first, *others = (look(store, body.getvalue(), known) for body in bodies)
    look(store, written(pa.table({"id": [1], "s": ["x"]})), known)  # its texts are of another type of Arrow's
    monkeypatch.setattr(footers, "parse_footer", None)
    assert [look(store, body.getvalue(), known).rows for body in bodies] == [1, 2, 3]
    assert {it.ids for it in others} == {first.ids}
    assert all(it.columns == first.columns for it in others)


def test_another_schema_in_arrow_or_of_spark_is_read(store: Store) -> None:
    known, rows = KnownFooters(), pa.table({"x": pa.array([1], pa.int64())})
    spark = {"type": "struct", "fields": [{"name": "x", "type": "interval day", "nullable": True, "metadata": {}}]}
    spans, marked = rows.set_column(0, "x", pa.array([1], pa.duration("us"))), json.dumps(spark, separators=(",", ":"))
    look(store, written(rows), known)
    for other in (spans, rows.replace_schema_metadata({ROW_METADATA: marked})):
        assert "plain number" in look(store, written(other), known).refusal("a")


def test_a_file_whose_days_no_reader_has_is_refused_after_files_like_it(store: Store) -> None:
    known = KnownFooters()
    fine, infinite = (written(pa.table({"d": pa.array([day], pa.int32()).cast(pa.date32())})) for day in (1, 2**31 - 1))
    assert look(store, fine, known).refusal("a") == ""
    assert "days outside of the years 1 to 9999" in look(store, infinite, known).refusal("a")
    assert look(store, written(pa.table({"d": [date.max]})), known).refusal("a") == ""


def test_a_codec_that_spark_lacks_is_found_after_files_with_another(store: Store) -> None:
    known = KnownFooters()
    for codec, is_refused in (("snappy", False), ("brotli", True), ("zstd", False), ("brotli", True)):
        assert ("BROTLI" in look(store, written(ROWS, compression=codec), known).refusal("a")) is is_refused


def test_an_earlier_shape_is_recognized_after_others(store: Store) -> None:
    known, shapes = KnownFooters(), [written(pa.table({f"c{i}": [i]})) for i in range(12)]
    first = [look(store, body, known) for body in shapes]
    assert [known.find(body) is not None for body in shapes] == [True] * 12
    assert [look(store, body, known) for body in shapes] == first


def test_the_footers_of_a_directory_are_read_once_for_each_shape(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(40):
        rows = pa.table({"x": [i], "s": ["y" * i * 9]}) if i % 2 else pa.table({"x": [float(i)]})
        table.store.replace(f"{i}.parquet", written(rows))
    paths = [f"{i}.parquet" for i in range(40)]
    calls: list[str] = []
    parse = footers.parse_footer

    def counting(end: bytes, path: str, **how: Any) -> Footer:
        calls.append(path)
        return parse(end, path, **how)

    plain = {path: look_at(table.store, path, statistics=False) for path in paths}
    monkeypatch.setattr(footers, "parse_footer", counting)
    monkeypatch.setattr(table.store, "ask_each", lambda function, items: [function(item) for item in items])
    found = dict(look_at_all(table.store, paths))
    assert len(calls) <= 4
    assert {path: it and (it.rows, it.columns, it.ids) for path, it in found.items()} == {
        path: it and (it.rows, it.columns, it.ids) for path, it in plain.items()
    }


def test_an_adoption_asks_for_each_footer_once() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock, inspector=inspect_files)
    for i in range(60):
        store.replace(f"p={i % 3}/{i}.parquet", written(ROWS.slice(i % 3)))
    with calls_to(store) as calls:
        assert len(table.adopt().added) == 60
    assert sum(path.endswith(".parquet") for _, path in calls) == 60
    assert len(calls) < 2 * 60
