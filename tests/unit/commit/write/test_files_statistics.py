"""The statistics of a file are true of its rows. Rules: PROTOCOL.md 7.3."""

import math
import tempfile
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.commit.write import files as task
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.types.bounds import shorten_max
from tests.task_sink import DirectorySink, batch, spec, write

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
long_texts = st.builds(lambda a, b, c: a * b + c, texts, st.integers(1, 40), texts)

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Any]] = {
    "boolean": (pa.bool_(), st.booleans(), bool),
    "byte": (pa.int8(), st.integers(-128, 127), int),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1), int),
    "float": (pa.float32(), st.floats(width=32), float),
    "double": (pa.float64(), st.floats(), float),
    "string": (pa.string(), long_texts, str),
    "large_string": (pa.large_string(), long_texts, str),
    "date": (pa.date32(), st.dates(), date.fromisoformat),
    "timestamp": (
        pa.timestamp("us", "Europe/Berlin"),
        st.datetimes(timezones=st.just(UTC)),
        datetime.fromisoformat,
    ),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes(), datetime.fromisoformat),
    "decimal": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10), Decimal),
    "small decimal": (pa.decimal128(9, 2), st.decimals(-(10**6), 10**6, places=2), Decimal),
}


def statistics(values: Any, kind: pa.DataType | None = None, *, group_rows: int = 100) -> Bounds:
    """Of a column `value` that is written in row groups of so many rows."""
    with pytest.MonkeyPatch.context() as small, tempfile.TemporaryDirectory() as root:
        small.setattr(task, "ROW_GROUP_ROWS", group_rows)
        sink = DirectorySink(Path(root))
        data = batch(before=[[{"a": 1, "b": [2]}]] * len(values), value=pa.array(values, kind))
        [info] = write(sink, data)
        assert info.statistics is not None
        return info.statistics["value"]


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_bounds_enclose_every_value(name: str, data: st.DataObject) -> None:
    kind, strategy, parse = KINDS[name]
    if types.is_floating(kind):
        strategy |= st.just(math.nan)
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=12))
    with pytest.MonkeyPatch.context() as small, tempfile.TemporaryDirectory() as root:
        small.setattr(task, "ROW_GROUP_ROWS", data.draw(st.integers(1, 12)))
        sink = DirectorySink(Path(root))
        infos = write(sink, batch(value=pa.array(values, kind)))
        assert len(infos) == 1 or types.is_floating(kind)
        for info in infos:
            check_bounds(parse, sink.read(info).column("value").to_pylist(), (info.statistics or {})["value"])


def check_bounds(parse: Any, values: list[Any], bounds: Bounds) -> None:
    low, high, nulls = bounds
    known = [value for value in values if value is not None]
    assert nulls == len(values) - len(known)
    if any(isinstance(value, float) and math.isnan(value) for value in known):
        assert (low, high) == (None, None)
        return
    assert low is None or all(parse(low) <= value for value in known)
    assert high is None or all(value <= parse(high) for value in known)
    if known and not any(isinstance(value, float | str) for value in known):
        assert (parse(low), parse(high)) == (min(known), max(known))


def test_text_is_shortened_to_bounds_that_still_hold() -> None:
    assert statistics(["a" * 100, "b" * 64]) == Bounds("a" * 64, "b" * 64, 0)
    assert statistics(["a" * 65]) == Bounds("a" * 64, "a" * 63 + "b", 0)
    assert statistics(["a" + "\U0010ffff" * 64]).max == "b"
    assert statistics(["\U0010ffff" * 65]) == Bounds("\U0010ffff" * 64, None, 0)
    assert statistics(["\ud7ff" * 65]).max == "\ud7ff" * 63 + "\ue000"


@given(long_texts | st.text(st.sampled_from("a\ud7ff\ue000\U0010ffff"), max_size=70))
def test_a_shortened_max_is_text_and_no_less(text: str) -> None:
    short = shorten_max(text.encode())
    assert short is None or (len(short) <= 64 and short >= text and short.encode().decode() == short)
    if len(text) <= 64:
        assert short == text


@pytest.mark.parametrize("group_rows", [1, 100])
def test_a_text_too_long_for_the_footer_leaves_no_bound(group_rows: int) -> None:
    """The row group without bounds must not be passed over, as one of nulls alone is."""
    assert statistics(["b", "z" * 10_000, None], group_rows=group_rows) == Bounds(None, None, 1)


def test_columns_of_nulls_alone_have_no_bounds() -> None:
    assert statistics([None, None], pa.int32()) == Bounds(None, None, 2)
    assert statistics([None, 7], pa.int32(), group_rows=1) == Bounds(7, 7, 1)


def test_infinity_gives_no_bound() -> None:
    assert statistics([1.0, math.inf]) == Bounds(1.0, None, 0)
    assert statistics([1.0, -math.inf]) == Bounds(None, 1.0, 0)


def test_files_with_a_nan_carry_no_min_and_max_anywhere(tmp_path: Path) -> None:
    """By those that Arrow writes, Spark would skip the NaN, which it takes for the largest value."""
    with pytest.MonkeyPatch.context() as small:
        small.setattr(task, "ROW_GROUP_ROWS", 2)
        sink = DirectorySink(tmp_path)
        values = [1.0, 2.0, 3.0, math.nan, 5.0, 6.0]
        infos = write(sink, batch(value=values, other=values[::-1], nested=[{"value": value} for value in values]))
    assert [info.rows for info in infos] == [2, 4]  # the first NaN of a column begins another file
    before, after = (info.statistics or {} for info in infos)
    assert before == {"value": Bounds(1.0, 2.0, 0), "other": Bounds(5.0, 6.0, 0), "nested": Bounds(None, None, 0)}
    assert after == {column: Bounds(None, None, 0) for column in ("value", "other", "nested")}
    for info, has_statistics in zip(infos, [[True, True, False], [False, False, False]], strict=True):
        group = pq.read_metadata(sink.root / info.path).row_group(0)
        assert [group.column(i).is_stats_set for i in range(3)] == has_statistics
        assert [group.column(i).has_column_index for i in range(3)] == has_statistics


def test_dates_and_times_are_iso_8601_and_instants_say_so() -> None:
    moment = datetime(2026, 11, 20, 9, 30, 0, 120)
    assert statistics([moment], pa.timestamp("us")).min == "2026-11-20T09:30:00.000120"
    assert statistics([moment], pa.timestamp("us", "Asia/Tokyo")).min == "2026-11-20T09:30:00.000120Z"
    assert statistics([date(33, 1, 2)], pa.date32()).min == "0033-01-02"
    far = pa.array([-800_000, 0, 3_000_000], pa.int32()).cast(pa.date32())
    assert statistics(far) == Bounds(None, None, 0)


def test_decimals_are_texts_with_their_scale() -> None:
    assert statistics([Decimal("1.5"), Decimal("-20")], pa.decimal128(30, 2)) == Bounds("-20.00", "1.50", 0)
    assert statistics([Decimal("0.0000000001")], pa.decimal128(20, 10)).min == "0.0000000001"
    most = "9" * 38
    assert statistics([Decimal(most), Decimal("-" + most)], pa.decimal128(38, 0)) == Bounds("-" + most, most, 0)


def test_bytes_and_text_that_is_none_have_null_counts_only() -> None:
    assert statistics([b"\x00", None, b"\xff"]) == Bounds(None, None, 1)
    assert statistics(pa.array([b"\xff", b"a"]).view(pa.string())).max is None


def test_nested_columns_count_their_own_nulls_only(tmp_path: Path) -> None:
    data = batch(
        list=[[None, 1], None, []],
        struct=pa.array([{"a": None}, None, None], pa.struct([("a", pa.int32())])),
        map=pa.array([[("k", None)], None, []], pa.map_(pa.string(), pa.int32())),
        after=[1, 2, 3],
    )
    [info] = write(DirectorySink(tmp_path), data)
    assert info.statistics == {
        "list": Bounds(None, None, 1),
        "struct": Bounds(None, None, 2),
        "map": Bounds(None, None, 1),
        "after": Bounds(1, 3, 0),
    }


def test_statistics_cover_all_row_groups_and_no_partition_column(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(task, "ROW_GROUP_ROWS", 2)
        sink = DirectorySink(tmp_path)
        [info] = write(sink, batch(p=[1] * 7, value=[5, 9, None, None, -3, 4, 8]), partition_columns=("p",))
    assert pq.read_metadata(sink.root / info.path).num_row_groups > 1
    assert info.statistics == {"value": Bounds(-3, 9, 2)}


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64(), pa.list_(pa.string())])
def test_a_column_whose_statistics_are_off_has_none(tmp_path: Path, kind: pa.DataType) -> None:
    sink = DirectorySink(tmp_path)
    values: Any = pa.array([None, None], kind)
    plain = spec(tmp_path, columns=((0, "n"), (1, "Who")))
    metadata = plain.terms.metadata._replace(settings={"statistics.who": "off"})
    off = replace(plain, terms=replace(plain.terms, metadata=metadata))
    [info] = task.write_files(off, iter([batch(n=[1, 2], Who=values)]), task=3, attempt=17, files=sink)
    group = pq.ParquetFile(tmp_path / info.path).metadata.row_group(0)
    assert [group.column(i).is_stats_set for i in range(2)] == [True, False]
