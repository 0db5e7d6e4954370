"""Arrow data comes back from the task writer's files as it was, in Parquet's own types."""

import tempfile
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.commit.write.files import write_files
from dbio_commit.data import arrow
from dbio_commit.spark.transfer.arrow import with_decimals
from tests.task_sink import DirectorySink, batch, spec, write

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def decimals(precision: int, scale: int) -> Typed:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return pa.decimal128(precision, scale), unscaled.map(lambda value: Decimal(f"{value}E-{scale}"))


PRIMITIVES: list[Typed] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), texts),
    (pa.large_string(), texts),
    (pa.string_view(), texts),
    (pa.binary(), st.binary(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.binary_view(), st.binary(max_size=5)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    *(decimals(p, s) for p, s in [(1, 0), (9, 2), (10, 10), (18, 0), (19, 5), (38, 38)]),
]


def nested(inner: Typed) -> st.SearchStrategy[Typed]:
    kind, values = inner
    values = st.none() | values
    lists = st.lists(values, max_size=3)
    keyed = st.dictionaries(st.integers(0, 5), values, max_size=3).map(lambda d: list(d.items()))
    return st.sampled_from(
        [
            (pa.list_(kind), lists),
            (pa.large_list(kind), lists),
            (pa.struct([("a", kind), ("b.c", pa.int32())]),
             st.fixed_dictionaries({"a": values, "b.c": st.none() | st.just(1)})),
            (pa.map_(pa.int32(), kind), keyed),
        ]
    )  # fmt: skip


columns = st.recursive(st.sampled_from(PRIMITIVES), lambda inner: inner.flatmap(nested), max_leaves=4).flatmap(
    lambda typed: st.tuples(st.just(typed[0]), st.lists(st.none() | typed[1], min_size=1, max_size=6))
)


@given(st.lists(columns, min_size=1, max_size=3))
def test_every_type_comes_back_through_pyarrow(drawn: list[tuple[pa.DataType, list[Any]]]) -> None:
    rows = max(len(values) for _, values in drawn)
    arrays = {f"c{i}": pa.array([*v, *[None] * (rows - len(v))], kind) for i, (kind, v) in enumerate(drawn)}
    data = pa.record_batch(arrays)
    with tempfile.TemporaryDirectory() as root:
        sink = DirectorySink(Path(root))
        [info] = write(sink, data.slice(0, 1), data.slice(1))
        assert sink.read(info).to_pylist() == pa.Table.from_batches([data]).to_pylist()


def test_columns_are_the_tables_and_all_of_them_optional(tmp_path: Path) -> None:
    strange: pa.Field[Any] = pa.field("b", pa.int32(), nullable=False, metadata={"PARQUET:field_id": "7"})
    schema = pa.schema([strange, pa.field("p", pa.int32()), pa.field("A b.c", pa.string())], metadata={"k": "v"})
    sink = DirectorySink(tmp_path)
    data = pa.RecordBatch.from_pydict({"b": [1], "p": [2], "A b.c": ["x"]}, schema)
    table = spec(sink.root, columns=((2, "a B.c"), (1, "P"), (0, "b")), partition_columns=("P",))
    [info] = write_files(table, [data], task=0, attempt=0, files=sink)
    found = pq.read_metadata(sink.root / info.path)
    assert str(found.schema.to_arrow_schema()) == "a B.c: string\nb: int32"
    assert not found.metadata


@pytest.mark.parametrize(
    ("kind", "physical", "logical"),
    [
        (pa.decimal128(9, 2), "INT32", "Decimal(precision=9, scale=2)"),
        (pa.decimal128(18, 2), "INT64", "Decimal(precision=18, scale=2)"),
        (pa.decimal128(38, 2), "FIXED_LEN_BYTE_ARRAY", "Decimal(precision=38, scale=2)"),
        (pa.timestamp("us", "Europe/Berlin"), "INT64", "isAdjustedToUTC=true, timeUnit=microseconds"),
        (pa.timestamp("us"), "INT64", "isAdjustedToUTC=false, timeUnit=microseconds"),
        (pa.int8(), "INT32", "Int(bitWidth=8, isSigned=true)"),
        (pa.large_string(), "BYTE_ARRAY", "String"),
        (pa.binary(), "BYTE_ARRAY", "None"),
    ],
)
def test_parquet_types_are_those_that_spark_writes(
    tmp_path: Path, kind: pa.DataType, physical: str, logical: str
) -> None:
    sink = DirectorySink(tmp_path)
    [info] = write(sink, batch(value=pa.array([None], kind)))
    column = pq.read_metadata(sink.root / info.path).schema.column(0)
    assert column.physical_type == physical
    assert logical in str(column.logical_type)


def test_nested_columns_are_laid_out_as_the_format_prescribes(tmp_path: Path) -> None:
    sink = DirectorySink(tmp_path)
    kind = pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.int32())])))
    [info] = write(sink, batch(value=pa.array([[("k", [{"x": 1}])]], kind)))
    footer = pq.read_metadata(sink.root / info.path)
    assert [footer.row_group(0).column(i).path_in_schema for i in range(footer.num_columns)] == [
        "value.key_value.key",
        "value.key_value.value.list.element.x",
    ]


def test_only_columns_that_repeat_themselves_get_a_dictionary(tmp_path: Path) -> None:
    rows = range(80_000)
    data = batch(
        few=[f"{i % 7}" for i in rows],
        many=[f"{i * 7919 % 80_000}" for i in rows],
        sorted=[i // 4 * 10 for i in rows],  # repeats itself, but only among neighbours
        nulls=pa.array([i if i % 100 == 0 else None for i in rows]),
        nested=[{"few": [i % 3, 1], "many": i} for i in rows],
        map=pa.array([[("k", i)] for i in rows], pa.map_(pa.string(), pa.int64())),
    )
    sink = DirectorySink(tmp_path)
    [info] = write(sink, data)
    group = pq.read_metadata(sink.root / info.path).row_group(0)
    found = [group.column(i) for i in range(group.num_columns)]
    assert [column.path_in_schema for column in found if column.has_dictionary_page] == [
        "few",
        "nested.few.list.element",
        "map.key_value.key",
    ]


def test_plain_data_is_passed_on_uncopied() -> None:
    data = batch(a=[1, 2], b=["x", None], c=[[1], []])
    assert arrow.plain_batch(data) is data


def test_fields_that_are_never_null_may_lie_in_what_is(tmp_path: Path) -> None:
    """Spark says so of fields of a struct that a CASE or an outer join makes; where there is none, they are null."""
    maps: Any = pa.MapArray.from_arrays
    map_: Any = pa.map_
    never: Any = pa.field("n", pa.int32(), nullable=False)
    inner = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], fields=[never], mask=pa.array([False, True]))
    outer: Any = pa.field("in", inner.type, nullable=False)
    columns = {
        "struct": pa.StructArray.from_arrays([inner], fields=[outer], mask=pa.array([False, True])),
        "list": pa.ListArray.from_arrays([0, 1, 2], inner, type=pa.list_(pa.field("element", inner.type, False))),
        "map": maps([0, 1, 2], ["a", "b"], inner, type=map_(pa.string(), pa.field("value", inner.type, False))),
    }
    sink = DirectorySink(tmp_path)
    [info] = write(sink, pa.RecordBatch.from_pydict(columns))
    assert sink.read(info).to_pydict() == {
        "struct": [{"in": {"n": 1}}, None],
        "list": [[{"n": 1}], [None]],
        "map": [[("a", {"n": 1})], [("b", None)]],
    }
    schema = pq.read_metadata(sink.root / info.path).schema
    assert [schema.column(leaf).max_definition_level for leaf in range(4)] == [3, 4, 2, 4]  # but a key, all optional


def without_offsets() -> "pa.Array[Any]":
    """One null of array<struct<y: map<string, bigint>>>, as Spark 4.0 hands it over: nothing below it has offsets."""
    kind = pa.map_(pa.string(), pa.int64())
    entries = pa.StructArray.from_arrays(
        [pa.array([], pa.string()), pa.array([], pa.int64())], fields=[kind.key_field, kind.item_field]
    )
    maps = pa.Array.from_buffers(kind, 0, [None, pa.py_buffer(b"")], children=[entries])
    structs = pa.StructArray.from_arrays([maps], names=["y"])
    validity, offsets = pa.py_buffer(b"\0"), pa.py_buffer(b"\0" * 8)
    return pa.Array.from_buffers(pa.list_(structs.type), 1, [validity, offsets], null_count=1, children=[structs])


def test_what_has_no_values_and_no_offsets_gets_some(tmp_path: Path) -> None:
    """The process would die where pyarrow is asked for the size of such an array, so only `sound` ones get there."""
    hollow = without_offsets()
    assert arrow.is_hollow(hollow)
    found = arrow.sound(pa.RecordBatch.from_arrays([hollow, pa.array([1])], names=["v", "id"]))
    assert not any(map(arrow.is_hollow, found.columns))
    assert found.to_pydict() == {"v": [None], "id": [1]}
    assert found.nbytes > 0
    assert arrow.sound(found) is found
    written = write(DirectorySink(tmp_path), pa.RecordBatch.from_arrays([without_offsets()], names=["v"]))
    assert [file.rows for file in written] == [1]


@pytest.mark.parametrize(("start", "length"), [(0, 5), (1, 3), (3, 0)])
def test_whole_numbers_become_the_decimals_that_they_stand_for(start: int, length: int) -> None:
    kind = pa.decimal128(18, 2)
    values = [Decimal("0.01"), None, Decimal("-9999999999999999.99"), Decimal("9999999999999999.99"), Decimal("0.00")]
    whole = pa.array([None if value is None else int(value.scaleb(2)) for value in values], pa.int64())
    batch = pa.RecordBatch.from_arrays([whole, whole], names=["a", "b"]).slice(start, length)
    found = with_decimals(batch, {1: kind})
    found.validate(full=True)
    assert found.schema.types == [pa.int64(), kind]
    assert found.column(1).to_pylist() == values[start : start + length]
    assert with_decimals(batch, {}) is batch
