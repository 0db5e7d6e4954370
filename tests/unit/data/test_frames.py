"""What becomes of frames of pandas, Polars, Arrow and DuckDB: columns, types, values, and what is refused."""

import sys
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dbio_commit import InvalidInputError
from dbio_commit.data import frames
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.frames import fitted, read_frame
from dbio_commit.data.mapping import map_columns

DAY = date(2026, 11, 20)


def sliced(frame: Any) -> Any:
    """The frame as a slice of one that has its rows before and after, too."""
    match frame:
        case pa.RecordBatch():
            return sliced(pa.table(frame)).to_batches()[0] if frame.num_rows else frame
        case pa.Table():
            return pa.concat_tables([frame] * 3).combine_chunks().slice(frame.num_rows, frame.num_rows)
        case pl.DataFrame():
            return pl.concat([frame] * 3, rechunk=True).slice(frame.height, frame.height)
        case pl.LazyFrame():
            return sliced(frame.collect()).lazy()
        case pd.DataFrame():
            return pd.concat([frame] * 3).iloc[len(frame) : 2 * len(frame)]
    return frame


def in_chunks(frame: Any) -> Any:
    """The frame in two chunks, of which the second does not begin its arrays."""
    match frame:
        case pa.Table():
            whole = frame.combine_chunks()
            return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
        case pl.DataFrame():
            return pl.concat([frame.slice(0, 1), frame.slice(1)], rechunk=False)
        case pl.LazyFrame():
            return in_chunks(frame.collect()).lazy()
    return frame


@pytest.fixture(autouse=True, params=[None, sliced, in_chunks], ids=["whole", "sliced", "in chunks"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with each form of its frames."""
    if request.param is not None:
        monkeypatch.setattr(sys.modules[__name__], "in_form", request.param)


def in_form(frame: Any) -> Any:
    return frame


def written(frame: Any) -> pa.Table:
    """The rows of the frame as a new table would have them."""
    found = read_frame(in_form(frame))
    mapping = map_columns(found.columns, partition_columns=(), table=None, merge=False, where="it")
    target = arrow_schema(mapping.schema, where="it")
    return pa.Table.from_batches(fitted(found.batches(), mapping, target), schema=target)


TABLE = pa.table({"id": pa.array([1, 2, None], pa.int64()), "text": ["a", None, "c"]})


class Capsule:
    """Anything that has rows for others in Arrow's way."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table: Any = TABLE
        return table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "frame",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader,
        TABLE.to_pandas(types_mapper=pd.ArrowDtype),
        pl.from_arrow(TABLE),
        pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
        duckdb.from_arrow(TABLE),
        Capsule(),
    ],
    ids=lambda it: type(it).__name__,
)
def test_the_same_rows_come_from_every_kind_of_frame(frame: Any) -> None:
    assert written(frame() if callable(frame) else frame) == TABLE  # a reader is read once


def test_a_stream_gives_its_rows_once_and_all_other_frames_give_them_again() -> None:
    for frame, once in ((TABLE.to_reader(), True), (Capsule(), True), (TABLE, False), (duckdb.from_arrow(TABLE), False),
                        (pl.from_arrow(TABLE), False), (TABLE.to_pandas(), False)):  # fmt: skip
        found = read_frame(frame)
        assert found.is_stream is once
        assert sum(batch.num_rows for batch in found.batches()) == 3
        if once:
            with pytest.raises(InvalidInputError, match="a stream that was read already"):
                found.batches()
        else:
            assert sum(batch.num_rows for batch in found.batches()) == 3


def test_a_lazy_frame_runs_when_its_rows_are_read_and_not_before() -> None:
    ran: list[int] = []
    lazy = pl.LazyFrame({"a": [1, 2]}).map_batches(lambda df: ran.append(1) or df, schema={"a": pl.Int64})  # type: ignore[func-returns-value]
    found = read_frame(lazy)
    assert (found.columns["fields"][0]["type"], ran) == ("long", [])
    assert sum(batch.num_rows for batch in found.batches()) == 2
    assert ran


# --- pandas -------------------------------------------------------------------------------------------------------


def test_an_index_of_pandas_goes_unless_it_has_a_name() -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=[7, 8])
    assert written(frame).column_names == ["a"]
    assert written(frame.rename_axis("k")).to_pydict() == {"k": [7, 8], "a": [1, 2]}
    both = pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)], names=["x", None]))
    assert written(both).to_pydict() == {"x": [1], "a": [1]}
    with pytest.raises(InvalidInputError, match="two columns or levels of the index are named 'a'"):
        read_frame(frame.rename_axis("a"))


def test_values_of_pandas_become_those_of_a_table() -> None:
    to_datetime: Any = pd.to_datetime
    frame = pd.DataFrame(
        {
            "category": pd.Categorical(["a", None, "a"]),
            "at": to_datetime(["2026-11-20 10:00:00.000001", None, "2026-11-20 00:00:00.000000"]),
            "instant": to_datetime(["2026-11-20", None, "2026-11-20"]).tz_localize("Europe/Berlin"),
            "float": [1.5, float("nan"), 2.5],
            "object": [DAY, None, DAY],
            "decimal": [Decimal("1.50"), None, Decimal("10.25")],
            "nothing": [None, None, None],
        }
    )
    found = read_frame(frame)
    assert [it["type"] for it in found.columns["fields"]] == [
        "string", "timestamp_ntz", "timestamp", "double", "date", "decimal(4,2)", "void",
    ]  # fmt: skip
    rows = written(frame.drop(columns="nothing")).to_pylist()
    assert rows[0]["at"] == datetime(2026, 11, 20, 10, 0, 0, 1)
    assert list(rows[1].values()) == [None] * 6
    assert (rows[2]["category"], rows[2]["object"], rows[2]["decimal"]) == ("a", DAY, Decimal("10.25"))


def test_columns_of_pandas_without_one_type_or_without_a_name_of_text_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"column 'x' cannot be written as it is: .*convert it to one type"):
        read_frame(pd.DataFrame({"x": [1, "a"]}))
    with pytest.raises(InvalidInputError, match="column 7 has no text as its name"):
        read_frame(pd.DataFrame({7: [1]}))
    with pytest.raises(InvalidInputError, match=r"column 'p' of the data is .*, which Spark has no type for"):
        read_frame(pd.DataFrame({"p": [pd.Timedelta(1)]}))
    with pytest.raises(InvalidInputError, match="column 0 has no text as its name"):
        read_frame(pd.DataFrame({"a": [1]}, index=pd.Index([5], name=0)))
    twice = pd.MultiIndex.from_tuples([(1, 2)], names=["x", "x"])
    with pytest.raises(InvalidInputError, match="two columns or levels of the index are named 'x'"):
        read_frame(pd.DataFrame({"a": [1]}, index=twice))


EARLY, IN_UTC = datetime(2020, 1, 1, 5), pd.Timestamp("2020-01-01 05:00", tz="UTC")


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([DAY, EARLY], "is a day, and .* is a time without a zone"),
        ([None, {"x": [DAY, None]}, {"x": [EARLY]}], "is a day, and .* is a time without a zone"),
        ([EARLY, IN_UTC], "is a time without a zone, and .* is a time with a zone"),
        ([IN_UTC, pd.NaT, EARLY], "is a time with a zone, and .* is a time without a zone"),
        ([pd.Timestamp("2020-01-01 00:00:00.000000001")], "is finer than microseconds"),
        ([b"x", None, "y"], "b'x' is bytes, and 'y' is a text"),
        (["y", b"x"], "'y' is a text, and b'x' is bytes"),
        ([DAY, 45292], r"datetime.date\(2026, 11, 20\) is a day, and 45292 is a whole number"),
        ([EARLY, 1704067200], "is a time without a zone, and 1704067200 is a whole number"),
        ([1704067200, EARLY], "1704067200 is a whole number, and .* is a time without a zone"),
        ([1.5, True], "1.5 is a floating-point number, and True is a boolean"),
        ([np.bool_(True), 3], "is a boolean, and 3 is a whole number"),
        ([2, np.nan, False], "2 is a whole number, and False is a boolean"),
        ([[DAY, 45292]], "is a day, and 45292 is a whole number"),
        ([[DAY], [], None, [45292]], "is a day, and 45292 is a whole number"),
        ([{"d": DAY}, {"d": 45292}], "is a day, and 45292 is a whole number"),
        ([{"d": {"e": [1]}}, {"d": {"e": [True]}}], "1 is a whole number, and True is a boolean"),
        ([[1], {"a": 1}], "is a list, and .* is a dictionary"),
        ([Decimal("1.5"), 2.5], "is a decimal, and 2.5 is a floating-point number"),
        ([1, Decimal("1.5"), 2.5], "is a decimal, and 2.5 is a floating-point number"),
        ([np.array([True]), np.array([1])], "is a boolean, and .* is a whole number"),
        ([time(1), 3600], "is a time of day, and 3600 is a whole number"),
        (["a", np.datetime64("2020-01-01")], "'a' is a text, and .* is a datetime64"),
    ],
)
def test_objects_of_two_kinds_are_refused_with_the_first_two_that_differ(objects: list[Any], said: str) -> None:
    series = pd.Series(objects, dtype=object)
    with pytest.raises(InvalidInputError, match=f"column 'x' cannot be written as it is: .*{said}.*one type first"):
        written(pd.DataFrame({"x": series}))


def test_categories_of_two_kinds_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"column 'x' .* is a day, and 45292 is a whole number"):
        written(pd.DataFrame({"x": pd.Categorical([DAY, 45292], categories=pd.Index([DAY, 45292], dtype=object))}))


def test_whole_numbers_are_of_one_kind_with_floats_and_decimals_if_none_changes() -> None:
    given = {"f": [1, 2.5, None], "d": [2, Decimal("1.5"), None], "n": [[1], np.array([1.5]), None]}
    found = written(pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in given.items()}))
    assert found["f"].to_pylist() == [1.0, 2.5, None]
    assert found["d"].to_pylist() == [Decimal("2.0"), Decimal("1.5"), None]
    assert found["n"].to_pylist() == [[1.0], [1.5], None]
    for large in (2**53 + 1, np.int64(2**53 + 1)):
        with pytest.raises(InvalidInputError, match=r"column 'x' cannot be written as it is: .*9007199254740993"):
            written(pd.DataFrame({"x": pd.Series([1.5, large], dtype=object)}))


def test_objects_of_one_kind_are_taken() -> None:
    tokyo = pd.Timestamp("2020-01-01 14:00", tz="Asia/Tokyo")
    given = {
        "at": [IN_UTC, tokyo, pd.NaT],
        "day": [DAY, None, pd.NaT],
        "raw": [b"a", None, b"b"],
        "whole": [np.int8(1), pd.NA, 300],
        "lists": [["a", np.nan], (None,), None],
        "rows": [{"a": 1}, {"b": "x"}, None],
    }
    found = written(pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in given.items()}))
    at, day, raw, whole, lists, rows = (found[name].to_pylist() for name in given)
    assert at == [IN_UTC, IN_UTC, None]
    assert (day, raw) == ([DAY, None, None], [b"a", None, b"b"])
    assert (whole, lists) == ([1, None, 300], [["a", None], [None], None])
    assert rows == [{"a": 1, "b": None}, {"a": None, "b": "x"}, None]


def test_a_large_frame_of_pandas_is_converted_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BATCH_ROWS", 2)
    late = pd.DataFrame({"a": [None, None, None, "x"], "b": [1, 2, 3, 4]})
    assert [batch.num_rows for batch in read_frame(late).batches()] == [2, 2]
    assert written(late).to_pydict() == {"a": [None, None, None, "x"], "b": [1, 2, 3, 4]}


# --- types and values ---------------------------------------------------------------------------------------------


def test_types_that_tables_lack_become_those_that_hold_their_values() -> None:
    given = pa.table(
        {
            "dictionary": pa.array(["a", "b"]).dictionary_encode(),
            "large": pa.array(["a", "b"], pa.large_string()),
            "view": pa.array(["a", "b"], pa.string_view()),
            "unsigned": pa.array([1, 2**64 - 1], pa.uint64()),
            "small": pa.array([1, 255], pa.uint8()),
            "half": pa.array([1.5, 2.5], pa.float16()),
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
            "list": pa.array([[1], [2]], pa.large_list(pa.int32())),
            "nano": pa.array([1000, 2000], pa.timestamp("ns", "America/New_York")),
            "struct": pa.array([{"a": "x"}, {"a": "y"}], pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])),
        }
    )
    found = written(given)
    assert [str(it.type) for it in found.schema] == [
        "string", "string", "string", "decimal128(20, 0)", "int16", "float", "binary", "list<element: int32>",
        "timestamp[us, tz=UTC]", "struct<a: string>",
    ]  # fmt: skip
    assert found.column("unsigned").to_pylist() == [1, 2**64 - 1]
    assert found.column("struct").to_pylist() == [{"a": "x"}, {"a": "y"}]
    assert found.column("nano").cast(pa.int64()).to_pylist() == [1, 2]


def raw(kind: pa.DataType, *parts: Any) -> Any:
    """An array of these buffers, which need not be valid."""
    buffers = [pa.array(it, pa.int32()).buffers()[1] if isinstance(it, list) else pa.py_buffer(it) for it in parts]
    return pa.Array.from_buffers(kind, len(parts[0]) - 1 if len(parts) > 1 else 1, [None, *buffers])


def test_dictionaries_and_views_of_all_kinds_become_their_values() -> None:
    lists = [[1], None, [2, 3], []]
    given = pa.table(
        {
            "polars": pl.Series(["a", "b", None, "a"], dtype=pl.Categorical).to_arrow(),
            "bytes": pa.DictionaryArray.from_arrays(
                pa.array([0, None, 0, 1], pa.uint32()), pa.array([b"x", b"y"], pa.binary_view())
            ),
            "view": pa.array(lists, pa.list_view(pa.int32())),
            "inside": pa.array([[it] for it in lists], pa.list_view(pa.large_list_view(pa.int32()))),
        }
    )
    for rows in (given, given.slice(1), given.slice(2, 1)):
        assert written(rows).to_pydict() == rows.to_pydict()
    frame = pl.DataFrame({"c": pl.Series(["x", None], dtype=pl.Enum(["x", "y"]))})
    assert written(frame).to_pydict() == written(frame.lazy()).to_pydict() == {"c": ["x", None]}


TEXTS: list[Any] = ["a", None, "", "ccc", "dd", "ä" * 20]
LEAVES = {
    "text": pa.array(TEXTS),
    "large text": pa.array(TEXTS, pa.large_string()),
    "view": pa.array(TEXTS, pa.string_view()),
    "view of bytes": pa.array([it and it.encode() for it in TEXTS], pa.binary_view()),
    "fixed": pa.array([b"abc", None, b"def", b"ghi", b"jkl", b"mno"], pa.binary(3)),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 2, 1, 0], pa.uint32()), pa.array(["x", "y", "z"], pa.string_view())
    ),
    "nanoseconds": pa.array([0, None, 1000, 2000, 3000, 4000], pa.timestamp("ns")),
    "half": pa.array([1.0, None, 2.0, 3.0, 4.0, 5.0], pa.float64()).cast(pa.float16()),
    "nothing": pa.nulls(6),
}
arrow: Any = pa  # its stubs lack some of the classes' parameters
SMALL, LARGE = arrow.array([0, 2, None, 3, 6], arrow.int32()), arrow.array([0, 2, None, 3, 6], arrow.int64())
AT, SIZES = arrow.array([3, 0, 0, 5], arrow.int32()), arrow.array([2, 2, 0, 1], arrow.int32())
KEYS = arrow.array([f"k{number}" for number in range(6)])
NULL = arrow.array([False, True, False, False, False, False])
AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": lambda it: it,
    "struct": lambda it: arrow.StructArray.from_arrays([it], ["f"], mask=NULL[: len(it)]),
    "list": lambda it: arrow.ListArray.from_arrays(SMALL, it),
    "large list": lambda it: arrow.LargeListArray.from_arrays(LARGE, it),
    "view of a list": lambda it: arrow.ListViewArray.from_arrays(AT, SIZES, it),
    "large view of a list": lambda it: arrow.LargeListViewArray.from_arrays(AT.cast("int64"), SIZES.cast("int64"), it),
    "lists of one size": lambda it: arrow.FixedSizeListArray.from_arrays(it, 2),
    "map": lambda it: arrow.MapArray.from_arrays(SMALL, KEYS, it),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("leaf", LEAVES)
def test_values_of_each_form_are_written_alone_and_inside_others(leaf: str, around: str) -> None:
    values = AROUND[around](LEAVES[leaf])
    for number in range(len(values) - 1):
        rows = pa.table({"v": values}).slice(number, len(values) - 1)
        assert written(rows)["v"].to_pylist() == rows["v"].to_pylist()
    deep: Any = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays(pa.array([0, 1, len(values)], pa.int32()), values)], ["f"]
    )
    assert written(pa.table({"v": deep}))["v"].to_pylist() == deep.to_pylist()


def test_large_frames_of_polars_have_texts_inside_lists_and_structs() -> None:
    count = 140_000
    frame = pl.DataFrame({"tags": [["a", "b"]] * count, "it": [{"a": "x"}] * count})
    found = written(frame.lazy())
    assert (found.num_rows, found.slice(count - 1).to_pylist()) == (count, [{"tags": ["a", "b"], "it": {"a": "x"}}])


def test_values_around_a_slice_do_not_count() -> None:
    for bad in (pa.array([1, 1000, 1], pa.timestamp("ns")), pa.array([[10**7], [1], [10**7]], pa.list_(pa.date32()))):
        assert written(pa.table({"v": bad.slice(1, 1)})).num_rows == 1


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1], pa.timestamp("ns")), r"column 'v' is timestamp\[ns\], .* would lose data: 1.*round it first"),
        (pa.array([2**62], pa.timestamp("s")), "column 'v' is timestamp"),
        (pa.array([10**6 * 366], pa.date32()), "column 'v' has days outside of the years 1 to 9999"),
        (pa.array([[-(10**6)]], pa.list_(pa.date32())), "column 'v.list.element' has days outside"),
        (pa.array([10**15], pa.timestamp("ms")), "column 'v' has days outside"),
        (raw(pa.string(), [0, 1, 3], b"a\xff\xfe"), "column 'v' holds a value that is no string"),
        (raw(pa.decimal128(3, 0), (1000).to_bytes(16, "little")), "column 'v' holds a value that is no decimal128"),
        (pa.array([[("k", 1)], [("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8())), "'v' has a map with the same"),
        (pa.array([[[(0.0, 1), (-0.0, 2)]]], pa.list_(pa.map_(pa.float64(), pa.int8()))), "'v.list.element' has a map"),
    ],
    ids=lambda it: str(it) if isinstance(it, str) else str(it.type),
)
def test_a_value_that_would_change_is_refused_with_its_column(column: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        written(pa.table({"v": column}))


NEGATIVE, WIDE = pa.decimal128(5, -2), pa.decimal256(50, 1)
UNION: Any = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])


@pytest.mark.parametrize(
    "kind", [pa.time64("us"), pa.duration("s"), pa.month_day_nano_interval(), NEGATIVE, WIDE], ids=str
)
def test_types_without_any_in_a_table_are_refused_by_name(kind: Any) -> None:
    with pytest.raises(InvalidInputError, match="column 'v' of the data is"):
        read_frame(pa.schema([("v", kind)]).empty_table())


@pytest.mark.parametrize(
    "frame",
    [
        pa.table({"v": UNION}),
        pl.DataFrame({"v": pl.Series([object()], dtype=pl.Object)}),
        pl.DataFrame({"v": pl.Series([1], dtype=pl.Int128)}),
        pl.LazyFrame({"v": [[{"a": 1}]]}, schema={"v": pl.List(pl.Struct({"a": pl.Int128}))}),
        duckdb.sql("SELECT 1::UHUGEINT AS v"),
        duckdb.sql("SELECT [{'a': '1'::BIT}] AS v"),
    ],
)
def test_types_of_which_arrow_would_get_other_values_are_refused_by_name(frame: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'v' .* which Spark (lacks|has no type for)"):
        read_frame(frame)


def test_a_type_of_too_many_levels_is_refused_by_name() -> None:
    kind: Any = pa.int64()
    for _ in range(300):
        kind = pa.struct([("x", kind)])
    with pytest.raises(InvalidInputError, match="column 'deep' is nested in more than 64 levels"):
        read_frame(pa.schema([("deep", kind)]).empty_table())


def test_a_single_column_is_no_frame() -> None:
    with pytest.raises(InvalidInputError, match="a Series is no frame of rows with columns"):
        read_frame(pl.Series([1, 2]))


@pytest.mark.parametrize("given", [None, 1, "text", [{"a": 1}], {"a": [1]}, object()], ids=lambda it: type(it).__name__)
def test_what_is_no_frame_is_refused_and_the_message_lists_what_is_one(given: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"is no frame of rows: give a DataFrame of pandas.*from_pylist"):
        read_frame(given)
