"""The table of types: each part of the code that works with types handles each row."""

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data import columns, widen
from dbio_commit.data.arrow import format_values
from dbio_commit.data.conditions.pruning import value_of
from dbio_commit.data.conditions.sql import parse_where
from dbio_commit.data.conditions.tree import Comparison
from dbio_commit.data.conform import parse_value
from dbio_commit.data.fitting import fits, is_read
from dbio_commit.data.footers import parse_footer
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.data.statistics import bounds
from dbio_commit.maintenance.publish.delta_schema import bound_text, delta_schema
from dbio_commit.protocol import partition_values
from dbio_commit.protocol.expressions import problem_of
from dbio_commit.protocol.types import BY_NAME, TYPES, Family, Type, is_partition, type_of, widens, widest
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.transfer import batches, packed
from tests.spark_columns import check_writable


class Case(NamedTuple):
    kind: str
    low: Any
    high: Any
    literal: str
    """`low` in Spark's SQL."""


CASES = {
    "boolean": Case("boolean", False, True, "false"),
    "byte": Case("byte", -(2**7), 2**7 - 1, "-128"),
    "short": Case("short", -(2**15), 2**15 - 1, "-32768"),
    "integer": Case("integer", -(2**31), 2**31 - 1, "-2147483648"),
    "long": Case("long", -(2**63), 2**63 - 1, "-9223372036854775808"),
    "float": Case("float", -1.5, 2.5, "-1.5"),
    "double": Case("double", -1.5, 2.5, "-1.5"),
    "decimal": Case("decimal(7,2)", Decimal("-1.50"), Decimal("99999.99"), "-1.50"),
    "string": Case("string", "ä", "中", "'ä'"),
    "char": Case("char(1)", "ä", "中", "'ä'"),
    "varchar": Case("varchar(9)", "ä", "中", "'ä'"),
    "binary": Case("binary", b"a", b"b", "X'61'"),
    "date": Case("date", date(2026, 1, 2), date(2026, 11, 20), "DATE '2026-01-02'"),
    "timestamp": Case(
        "timestamp",
        datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
        datetime(2026, 11, 20, tzinfo=UTC),
        "'2026-01-02 03:04:05.678Z'",
    ),
    "timestamp_ntz": Case(
        "timestamp_ntz",
        datetime(2026, 1, 2, 3, 4, 5, 678000),
        datetime(2026, 11, 20),
        "TIMESTAMP_NTZ '2026-01-02 03:04:05.678'",
    ),
    "variant": Case(
        "variant",
        {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"},
        {"value": b"\x0c\x02", "metadata": b"\x01\x00\x00"},
        "parse_json('1')",
    ),
    "void": Case("void", None, None, "NULL"),
}

_NO_LENGTH = ("char", "varchar")
"""In Arrow and in Spark's own reader such a column is a string."""


def rows(which: Callable[[Type], object] = lambda row: True) -> pytest.MarkDecorator:
    unknown = pytest.mark.skipif(not hasattr(t, "VariantType"), reason="Spark 3.5 has no VARIANT")
    found = [
        pytest.param(row, CASES[row.name], id=row.name, marks=[unknown] if row.family is Family.VARIANT else [])
        for row in TYPES
        if which(row)
    ]
    return pytest.mark.parametrize(("row", "case"), found)


def schema_of(kind: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [columns.field("c", kind)]}


def spark_type(kind: str) -> t.DataType:
    return t.StructType.fromJson(schema_of(kind))["c"].dataType


def table_of(case: Case) -> pa.Table:
    return pa.table({"c": pa.array([case.low, case.high], columns.arrow_type(case.kind))})


def test_each_row_has_a_name_of_its_own_and_a_case_here() -> None:
    assert len(BY_NAME) == len(TYPES)
    assert CASES.keys() == BY_NAME.keys()
    names = [name for row in TYPES for name in row.sql]
    assert len(set(names)) == len(names)
    assert {row.family for row in TYPES} == set(Family)


@rows()
def test_a_type_is_found_by_its_full_name_only(row: Type, case: Case) -> None:
    assert type_of(case.kind) is row
    for wrong in ("{0} ", "{0}x", "{0}(1,2,3)", "{1}("):
        assert type_of(wrong.format(case.kind, row.name)) is None
    assert type_of(case.kind.upper()) is type_of([case.kind]) is None


@rows(lambda row: not row.arrow_fields)
def test_arrow_has_it_and_gives_it_back(row: Type, case: Case) -> None:
    arrow = columns.arrow_type(case.kind)
    assert columns.own_name(arrow) == ("string" if row.name in _NO_LENGTH else case.kind)
    if row.family is Family.INSTANT:
        assert columns.own_name(pa.timestamp("us", "Europe/Berlin")) == case.kind
        assert columns.own_name(pa.timestamp("ns", "UTC")) is None
    assert columns.type_name(arrow) == columns.own_name(arrow)
    for other in row.arrow_also if row.name not in _NO_LENGTH else ():
        assert columns.type_name(getattr(pa, other)()) == row.name
        assert columns.own_name(getattr(pa, other)()) is None


@rows()
def test_spark_has_it_and_takes_it_where_it_is_written(row: Type, case: Case) -> None:
    kind = spark_type(case.kind)
    assert schemas.row_of(kind) is row
    assert schemas.arrow_type(kind) == columns.arrow_type(case.kind)
    schema = t.StructType([t.StructField("c", kind), t.StructField("d", t.LongType())])
    for by, is_taken in (((), row.is_written), (("c",), row.is_partition)):
        try:
            check_writable(schema, by)
        except InvalidInputError:
            assert not is_taken
        else:
            assert is_taken


@rows(lambda row: row.is_written)
def test_all_readers_have_the_parquet_of_it(row: Type, case: Case) -> None:
    sink = io.BytesIO()
    told = {ROW_METADATA: json.dumps(schema_of(case.kind), separators=(",", ":"))} if row.arrow_fields else {}
    pq.write_table(table_of(case).replace_schema_metadata(told), sink)
    footer = parse_footer(sink.getvalue(), "f.parquet", size=len(sink.getvalue()))
    assert (footer.broken, footer.problems) == ("", [])
    assert footer.columns is not None
    assert fits(footer.columns["fields"][0]["type"], case.kind)
    assert is_read(footer.columns["fields"][0]["type"], case.kind)


def test_a_struct_of_binaries_is_a_variant_only_if_spark_says_so() -> None:
    sink = io.BytesIO()
    pq.write_table(table_of(CASES["variant"]), sink)
    footer = parse_footer(sink.getvalue(), "f.parquet", size=len(sink.getvalue()))
    inside = [columns.field(name, "binary") for name in ("value", "metadata")]
    assert footer.problems == []
    assert footer.columns == schema_of({"type": "struct", "fields": inside})
    assert not fits(footer.columns["fields"][0]["type"], "variant")


# --- partition values ---------------------------------------------------------------------------------------------


@rows(lambda row: row.text)
def test_its_partition_values_have_one_text_each(row: Type, case: Case) -> None:
    for value in (case.low, case.high):
        text = partition_values.write(value, case.kind)
        assert partition_values.read(text, case.kind) == value
        assert partition_values.problem(text, case.kind) is None
        assert partition_values.meant(text, case.kind) == value
        assert partition_values.spell(value, case.kind) == text or row.family is Family.TEXT
        assert parse_value(text, columns.arrow_type(case.kind)) == value
        if row.is_partition:
            assert format_values("c", pa.array([value, None], columns.arrow_type(case.kind))) == [text, None]
    assert row.text is not None
    if row.text.example:
        assert partition_values.problem(row.text.example, case.kind) is None


@rows(lambda row: not row.is_partition)
def test_no_writer_partitions_by_another(row: Type, case: Case) -> None:
    assert not is_partition(case.kind)
    with pytest.raises(InvalidInputError, match="cannot name directories"):
        format_values("c", pa.array([case.low], columns.arrow_type(case.kind)))


@rows(lambda row: not row.text)
def test_a_type_without_texts_is_refused_by_name(row: Type, case: Case) -> None:
    for ask in (partition_values.read, partition_values.write, partition_values.canonical, partition_values.meant):
        with pytest.raises(ValueError, match=case.kind):
            ask("x", case.kind)
    assert partition_values.problem("x", case.kind) is not None


def test_what_a_caller_may_give_are_types_that_values_have() -> None:
    lows = [CASES[row.name].low for row in TYPES if not row.arrow_fields and row.name != "void"]
    given = {partition_values.base_of(partition_values.kind_of(low)) for low in lows}
    taken: set[str] = set().union(*(row.text.takes for row in TYPES if row.text))
    assert taken | {"string"} == given


# --- statistics ---------------------------------------------------------------------------------------------------


@rows(lambda row: row.is_written and not row.arrow_fields)
def test_its_bounds_are_those_of_its_values(row: Type, case: Case) -> None:
    sink = io.BytesIO()
    pq.write_table(table_of(case), sink, store_decimal_as_integer=True)
    footer = pq.ParquetFile(sink)
    found = bounds(footer.schema_arrow, footer.metadata, nulls=[0])["c"]
    known = (value_of(found.min, case.kind), value_of(found.max, case.kind))
    assert known == ((case.low, case.high) if row.bound else (None, None))
    assert value_of([], case.kind) is value_of(None, case.kind) is None
    if row.bound is None and row.family is not Family.TEXT:
        assert (found.min, found.max) == (None, None)


@rows(lambda row: row.bound)
def test_a_condition_on_it_leaves_files_out(row: Type, case: Case) -> None:
    condition = parse_where(f"c >= {case.literal}", schema_of(case.kind), zone="UTC")
    if row.family is Family.INTEGER and row.name == "long":
        condition = parse_where("c >= -9", schema_of(case.kind), zone="UTC")
    assert isinstance(condition, Comparison)


# --- what is published --------------------------------------------------------------------------------------------


@rows()
def test_delta_has_it_or_the_publication_names_it(row: Type, case: Case) -> None:
    schema = schema_of(case.kind)
    if row.delta is None:
        with pytest.raises(InvalidInputError, match="which Delta has no type for"):
            delta_schema(schema, (), where="here")
        return
    found = delta_schema(schema, (), where="here")
    kind = case.kind if row.delta == row.name else row.delta
    assert f'"type": "{kind}"' in found.text
    assert found.features == ({row.delta_feature} if row.delta_feature else set())


@rows(lambda row: row.is_written and not row.arrow_fields)
def test_delta_gets_its_bounds(row: Type, case: Case) -> None:
    sink = io.BytesIO()
    pq.write_table(table_of(case), sink, store_decimal_as_integer=True)
    footer = pq.ParquetFile(sink)
    found = bounds(footer.schema_arrow, footer.metadata, nulls=[0])["c"]
    texts = [bound_text(found.min, case.kind, up=False), bound_text(found.max, case.kind, up=True)]
    has_bounds = row.bound is not None and row.family is not Family.BOOLEAN
    assert [text is not None for text in texts] == [has_bounds] * 2


# --- wider types --------------------------------------------------------------------------------------------------


@rows(lambda row: row.is_written)
def test_it_widens_to_what_holds_its_values(row: Type, case: Case) -> None:
    assert widest(case.kind) == case.kind or widens(case.kind, widest(case.kind))
    for wider in row.widens_to:
        kind = columns.arrow_type(wider)
        assert (widens(case.kind, wider), widens(wider, case.kind)) == (True, False)
        assert widen.widens(columns.arrow_type(case.kind), kind)
        assert fits(case.kind, wider)
        values = pa.array([case.low, case.high], columns.arrow_type(case.kind))
        assert widen.fit(values, kind).to_pylist() == [case.low, case.high]
    assert BY_NAME.keys() >= set(row.widens_to)


def test_each_wider_type_of_a_family_is_named() -> None:
    for family in (Family.INTEGER, Family.FLOAT):
        own = [row for row in TYPES if row.family is family]
        for row in own:
            assert set(row.widens_to) == {it.name for it in own if it.whole_bits > row.whole_bits}


# --- the way to Python, and SQL -----------------------------------------------------------------------------------


@rows()
def test_rows_of_it_are_packed_and_weighed(row: Type, case: Case) -> None:
    kind = spark_type(case.kind)
    java = (Path(packed.__file__).parent / "BlockLayout.java").read_text()
    letter = packed._kind(kind)
    assert (letter is not None) == (row.is_written and not row.arrow_fields)
    assert letter is None or f"case '{letter}'" in java
    assert (batches._weight(kind, "`c`") is None) == row.has_fixed_width
    array = batches._weight(t.ArrayType(kind), "`c`") or ""
    assert ("octet_length" in array) == (not row.has_fixed_width)


@rows()
def test_settings_may_cast_to_it(row: Type, case: Case) -> None:
    for name in row.sql:
        parameters = re.sub(r"[^(]*(\(.*\))?", r"\1", case.kind, count=1)
        assert problem_of(f"CAST(c AS {name}{parameters})", ["c"]) is None
    assert bool(row.sql) == (row.is_written and not row.arrow_fields)
