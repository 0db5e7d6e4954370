"""What not all readers of a table can read is refused, by name and with what to write instead.

Rules: PROTOCOL.md 6.4.
"""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.data.columns import arrow_type
from dbio_commit.data.data_file import parquet_options
from dbio_commit.data.footers import parse_footer
from dbio_commit.data.parquet import ROW_METADATA, footer_bytes
from dbio_commit.data.physical import _of_kind
from dbio_commit.data.variants import without_nulls_inside
from dbio_commit.table import Table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NS = pa.timestamp("ns", "UTC")


def array(value: Any, kind: pa.DataType) -> Any:
    return pa.array([value], kind)


REFUSED: dict[str, tuple[Any, str]] = {
    "nanoseconds": (array(NOW, NS), "'x' is a timestamp in nanoseconds.*coerce_timestamps=\"us\""),
    "nanoseconds without a zone": (array(datetime(2026, 1, 1), pa.timestamp("ns")), "in nanoseconds"),
    "nanoseconds in a list": (array([NOW], pa.list_(NS)), "'x.list.element' is a timestamp in nanoseconds"),
    "nanoseconds in a struct": (array({"a": NOW}, pa.struct([("a", NS)])), "'x.a' is a timestamp in nanoseconds"),
    "nanoseconds in a map": (array([("k", NOW)], pa.map_(pa.string(), NS)), "'x.key_value.value' is a timestamp"),
    "nanoseconds as a key": (array([(NOW, 1)], pa.map_(NS, pa.int64())), "'x.key_value.key' is a timestamp"),
    "a long decimal": (array(Decimal("1.10"), pa.decimal256(50, 2)), "decimal of 50 digits"),
    "float16": (array(np.float16(1.5), pa.float16()), "Float16.*float32"),
    "float16 in a list": (array([np.float16(1.5)], pa.list_(pa.float16())), "Float16"),
    "uint64": (array(2**63, pa.uint64()), "unsigned number of 64 bits.*int64"),
    "uint64 in a struct": (array({"a": 2**63}, pa.struct([("a", pa.uint64())])), "'x.a' is an unsigned number"),
    "time": (array(1, pa.time64("us")), "type Time"),
    "time in milliseconds": (array(1, pa.time32("ms")), "type Time"),
    "a duration": (array(1, pa.duration("us")), "plain number"),
    "a duration in a list": (array([1], pa.list_(pa.duration("us"))), "'x.element' is duration"),
    "a UUID": (array(b"0" * 16, pa.uuid()), "UUID"),
    "nulls": (pa.nulls(1), "only nulls"),
    "date64": (array(date(2026, 1, 1), pa.date64()), "date32"),
    "a list of fixed size": (array([1.0], pa.list_(pa.float32(), 1)), "plain list"),
    "one in a struct": (array({"a": [1.0]}, pa.struct([("a", pa.list_(pa.float32(), 1))])), "'x.a' is fixed_size"),
    "a view of a list": (array([1], pa.list_view(pa.int64())), "plain list"),
    "a dictionary of durations": (array(1, pa.duration("us")).dictionary_encode(), "'x' is duration"),
    "a dictionary of date64": (array(date(2026, 1, 1), pa.date64()).dictionary_encode(), "date32"),
    "a dictionary of decimals": (array(Decimal("1.5"), pa.decimal128(5, 1)).dictionary_encode(), "to the plain type"),
    "a dictionary of booleans": (
        pa.array([True]).dictionary_encode(),
        "delta-rs does not read: cast it to the plain type",
    ),
    "one of bytes of a fixed number": (array(b"abcd", pa.binary(4)).dictionary_encode(), "to the plain type"),
    "a dictionary in a list": (
        pa.ListArray.from_arrays([0, 1], pa.array([True]).dictionary_encode()),
        "'x.element' is dictionary",
    ),
    "a dictionary in a struct": (
        pa.StructArray.from_arrays([pa.array([True]).dictionary_encode()], ["a"]),
        "'x.a' is dictionary",
    ),
    "a zone that is an offset": (
        array(NOW, pa.timestamp("us", "+05:30")),
        r"Polars does not know: .*tz_convert\(\"UTC",
    ),
    "such a zone in a list": (array([NOW], pa.list_(pa.timestamp("us", "-03:00"))), "'x.element' .*tz_convert"),
    "such a zone as a key": (
        array([(NOW, 1)], pa.map_(pa.timestamp("us", "+01:00"), pa.int8())),
        "'x.key' .*tz_convert",
    ),
    "an empty field": (array({"": 1}, pa.struct([("", pa.int64())])), "an empty name"),
    "fields that are one": (array({"a": 1, "A": 2}, pa.struct([("a", pa.int64()), ("A", pa.int64())])), "'a' and 'A'"),
}

ACCEPTED: dict[str, tuple[Any, str]] = {
    "uint8": (array(200, pa.uint8()), "short"),
    "uint16": (array(60000, pa.uint16()), "integer"),
    "uint32": (array(2**32 - 1, pa.uint32()), "long"),
    "milliseconds": (array(NOW, pa.timestamp("ms", "UTC")), "timestamp"),
    "seconds": (array(datetime(2026, 1, 1), pa.timestamp("s")), "timestamp_ntz"),
    "another zone": (array(NOW, pa.timestamp("us", "Europe/Berlin")), "timestamp"),
    "binary of fixed length": (array(b"abcd", pa.binary(4)), "binary"),
    "decimal256": (array(Decimal("1.10"), pa.decimal256(20, 2)), "decimal(20,2)"),
    "large text": (array("x", pa.large_string()), "string"),
    "a view of text": (array("x", pa.string_view()), "string"),
    "a dictionary": (pa.array(["x"]).dictionary_encode(), "string"),
    "a dictionary of numbers": (pa.array([7]).dictionary_encode(), "long"),
    "a dictionary of days": (pa.array([date(2026, 1, 1)]).dictionary_encode(), "date"),
    "UTC as an offset": (array(NOW, pa.timestamp("us", "+00:00")), "timestamp"),
    "a zone with a number in its name": (array(NOW, pa.timestamp("us", "Etc/GMT+5")), "timestamp"),
}

if hasattr(pa, "json_"):  # from pyarrow 19 on
    REFUSED["JSON"] = (array("{}", pa.json_(pa.string())), "JSON")
    ACCEPTED["decimal32"] = (array(Decimal("1.10"), pa.decimal32(5, 2)), "decimal(5,2)")


def commit(table: Table, rows: pa.Table, **how: Any) -> None:
    with table.begin() as transaction:
        pq.write_table(rows, transaction.new_file(), **how)


NEW = {"a UUID", "a view of a list", "a view of text"}


def skip_new(case: str) -> None:
    if case in NEW and int(pa.__version__.split(".")[0]) < 21:
        pytest.skip(f"this version of pyarrow does not write {case}")


@pytest.mark.parametrize("case", REFUSED)
def test_what_some_reader_cannot_read_is_refused_by_name(tmp_path: Path, case: str) -> None:
    skip_new(case)
    values, problem = REFUSED[case]
    table = Table(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=f"part-.*parquet: .*{problem}"):
        commit(table, pa.table({"id": [1], "x": values}))
    assert table.history() == []
    assert [path.name for path in (tmp_path / "t").rglob("*.parquet")] == []


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_all_readers_read_is_accepted_and_read(tmp_path: Path, case: str) -> None:
    skip_new(case)
    values, kind = ACCEPTED[case]
    table = Table(tmp_path / "t")
    commit(table, pa.table({"id": [1], "x": values}))
    schema = table.snapshot().schema
    assert schema is not None
    assert [field["type"] for field in schema["fields"]] == ["long", kind]
    assert table.snapshot().to_arrow()["x"].to_pylist() == values.to_pylist()


def test_instants_of_the_old_kind_are_accepted_without_bounds(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    commit(table, pa.table({"x": array(NOW, pa.timestamp("us", "UTC"))}), use_deprecated_int96_timestamps=True)
    (file,) = table.history()[0].files
    assert file.statistics is not None
    assert (file.statistics["x"].min, file.statistics["x"].max) == (None, None)
    assert table.snapshot().to_arrow()["x"].to_pylist() == [NOW]


def test_which_zones_have_no_name() -> None:
    offsets = ["Z", "+05:30", "-0300", "+01", "UTC+1", "UTC-05:00", "GMT+2", "-00:30"]
    assert [zone for zone in offsets if _of_kind(pa.timestamp("us", zone)) is None] == []
    assert [zone for zone in available_timezones() if _of_kind(pa.timestamp("us", zone)) is not None] == []


def test_enums_of_polars_are_refused_and_its_categoricals_and_those_of_pandas_accepted(tmp_path: Path) -> None:
    enum = pl.Enum(["a", "b"])
    for kind, value in ((enum, "a"), (pl.List(enum), ["a"]), (pl.Struct({"e": enum}), {"e": "a"})):
        transaction = Table(tmp_path / "t").begin()
        pl.DataFrame({"x": [value]}, schema={"x": kind}).write_parquet(transaction.new_file())
        with pytest.raises(InvalidInputError, match=r"column 'x.*' is Polars' Enum.*: cast it to String"):
            transaction.commit()
    with Table(tmp_path / "t").begin() as transaction:
        pl.DataFrame({"x": ["a"]}, schema={"x": pl.Categorical}).write_parquet(transaction.new_file())
        pd.DataFrame({"x": pd.Categorical(["b"])}).to_parquet(transaction.new_file())
    assert set(Table(tmp_path / "t").snapshot().to_arrow()["x"].to_pylist()) == {"a", "b"}


def test_a_file_without_columns_is_refused(tmp_path: Path) -> None:
    transaction = Table(tmp_path / "t").begin()
    pd.DataFrame().to_parquet(transaction.new_file())
    with pytest.raises(InvalidInputError, match=r"part-.*parquet: it has no columns, which Spark does not read"):
        transaction.commit()
    assert Table(tmp_path / "t").history() == []


def test_a_check_names_files_without_columns_and_an_adoption_refuses_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pd.DataFrame().to_parquet(tmp_path / "b.parquet")
    table = Table(tmp_path)
    with pytest.raises(InvalidInputError, match=r"b\.parquet: it has no columns"):
        table.adopt()
    table.inspector = None  # as earlier versions
    table.adopt()
    assert "it has no columns" in table.check(files=True).misread["b.parquet"]


def test_two_columns_that_are_one_to_spark_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'id' and 'ID'"):
        commit(Table(tmp_path / "t"), pa.table({"id": [1], "ID": [2]}))


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_not_all_readers_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="and not all readers can name it"):
        commit(Table(tmp_path / "t"), pa.Table.from_pylist([{name: 1, "b": 2}]))


def test_a_codec_that_spark_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="BROTLI"):
        commit(Table(tmp_path / "t"), pa.table({"id": [1]}), compression="brotli")
    for codec in ("snappy", "zstd", "gzip", "lz4", "none"):
        commit(Table(tmp_path / "t"), pa.table({"id": [1]}), compression=codec)


@pytest.mark.parametrize("kind", ["interval day to second", "variant"])
def test_types_that_only_spark_has_are_refused(tmp_path: Path, kind: str) -> None:
    field = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
    told = json.dumps({"type": "struct", "fields": [field]}, separators=(",", ":"))
    with pytest.raises(InvalidInputError, match=kind):
        commit(Table(tmp_path / "t"), pa.table({"x": [1]}).replace_schema_metadata({ROW_METADATA: told}))


FIELD = {"name": "x", "nullable": True, "metadata": {}}
BINARIES = [pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")]
PLAIN = pa.struct(BINARIES)


def declared(rows: pa.Table, kind: Any) -> pa.Table:
    told = json.dumps({"type": "struct", "fields": [{**FIELD, "type": kind}]}, separators=(",", ":"))
    return rows.replace_schema_metadata({ROW_METADATA: told})


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("variant", PLAIN),
        ("variant", pa.struct(BINARIES[::-1])),
        ({"type": "array", "elementType": "variant", "containsNull": True}, pa.list_(PLAIN)),
        ({"type": "struct", "fields": [{**FIELD, "type": "variant"}]}, pa.struct([("x", PLAIN)])),
        (
            {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
            pa.map_(pa.string(), PLAIN),
        ),
    ],
)
def test_a_variant_is_a_struct_of_two_binaries_at_any_depth(tmp_path: Path, kind: Any, arrow: Any) -> None:
    table = Table(tmp_path / "t")
    commit(table, declared(without_nulls_inside(pa.table({"x": pa.nulls(2, arrow)})), kind))
    schema = table.snapshot().schema
    assert schema is not None
    assert schema["fields"][0]["type"] == kind
    assert table.snapshot().to_arrow()["x"].null_count == 2
    assert table.check(files=True).misread == {}
    with pytest.raises(SchemaMismatchError):  # nobody says that these are variants
        commit(table, without_nulls_inside(pa.table({"x": pa.nulls(1, arrow)})))


OTHERS: tuple[list[Any], ...] = (
    [*BINARIES, pa.field("typed_value", pa.int64())],
    BINARIES[:1],
    [it.with_nullable(True) for it in BINARIES],  # which Spark 4.0 does not read
    [],
)


@pytest.mark.parametrize("fields", OTHERS)
def test_other_variants_are_refused(tmp_path: Path, fields: list[Any]) -> None:
    values = pa.nulls(1, pa.struct(fields) if fields else pa.binary())
    rows = declared(without_nulls_inside(pa.table({"x": values})), "variant")
    with pytest.raises(InvalidInputError, match="a column is a variant that is not just a struct"):
        commit(Table(tmp_path / "t"), rows)
    (tmp_path / "plain").mkdir()
    pq.write_table(rows, tmp_path / "plain/a.parquet")  # without a descriptor, nothing is checked before it is read
    with pytest.raises(InvalidInputError, match="only Spark reads such files"):
        Table(tmp_path / "plain").snapshot().to_arrow()


def test_a_variant_that_is_null_has_no_null_inside() -> None:
    value = {"value": b"v", "metadata": b"m"}
    cases: list[tuple[Any, list[Any]]] = [
        (PLAIN, [value, None, value]),
        (pa.list_(PLAIN), [[value, None], None, []]),
        (pa.struct([("a", PLAIN)]), [{"a": None}, None, {"a": value}]),
        (pa.map_(pa.string(), PLAIN), [[("k", None)], None, [("k", value)]]),
    ]
    for kind, values in cases:
        array = pa.concat_arrays([pa.nulls(1, kind), pa.array(values, kind)])
        found = without_nulls_inside(pa.table({"x": array}).slice(1))
        assert found["x"].to_pylist() == values
        sink = io.BytesIO()
        pq.write_table(found, sink)
        assert pq.read_table(sink)["x"].to_pylist() == values


def test_our_own_writer_writes_nothing_else() -> None:
    inside = pa.schema([(name, arrow_type(name)) for name in SPARK_TYPES])
    nested = {"l": pa.list_(pa.struct(list(inside))), "m": pa.map_(pa.string(), pa.struct(list(inside)))}
    schema = pa.schema([*inside, *nested.items()])
    body = io.BytesIO()
    options = parquet_options(schema.empty_table(), "zstd", [], no_statistics=frozenset())
    pq.write_table(schema.empty_table(), body, **options)
    footer = parse_footer(body.getvalue(), "x.parquet", size=len(body.getvalue()))
    assert (footer.broken, footer.problems) == ("", [])
    assert footer.columns is not None
    assert [field["type"] for field in footer.columns["fields"]][: len(SPARK_TYPES)] == SPARK_TYPES


SPARK_TYPES = [
    *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date"),
    *("timestamp", "timestamp_ntz", "decimal(5,2)", "decimal(18,0)", "decimal(38,10)"),
]


def test_all_that_is_wrong_with_a_file_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'a' is.*nanoseconds.*; column 'b' is an unsigned"):
        commit(Table(tmp_path / "t"), pa.table({"a": array(NOW, NS), "b": array(1, pa.uint64())}))


def test_of_many_problems_the_first_are_named(tmp_path: Path) -> None:
    rows = pa.table({f"c{number}": array(NOW, NS) for number in range(1000)})
    with pytest.raises(InvalidInputError, match="; and 990 more") as caught:
        commit(Table(tmp_path / "t"), rows)
    assert len(str(caught.value)) < 3000


# --- what is no Parquet -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "end", "why"),
    [
        (0, b"", "it is empty"),
        (7, b"1234567", "7 bytes"),
        (1000, b"12345678", "does not end as Parquet does"),
        (1000, b"\x10\0\0\0PARE", "encrypted"),
        (1000, b"\xff\xff\xff\x7fPAR1", "a footer of 2147483655 bytes"),
        (2**40, b"\xff\xff\xff\x7fPAR1", "a footer of 2147483655 bytes"),
    ],
)
def test_what_is_no_parquet_is_known_by_its_end(size: int, end: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        footer_bytes(size, end)


def test_a_footer_is_found_in_the_end_of_a_file() -> None:
    body = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), body)
    end = body.getvalue()[-footer_bytes(len(body.getvalue()), body.getvalue()[-8:]) :]
    footer = parse_footer(end, "x.parquet", size=len(body.getvalue()))
    assert (footer.rows, footer.broken, footer.problems) == (2, "", [])


def test_columns_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    kind: Any = pa.int64()
    for _ in range(400):
        kind = pa.struct([("a", kind)])
    with pytest.raises(InvalidInputError):
        commit(Table(tmp_path / "t"), pa.table({"x": pa.array([], kind)}))
