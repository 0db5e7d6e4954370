"""Columns in the terms of Arrow and of Spark's JSON: both ways, and as pyspark has them."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data import columns

ATOMIC: list[t.DataType] = [
    t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(), t.FloatType(), t.DoubleType(),
    t.StringType(), t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType(), t.DecimalType(38, 10),
    t.DecimalType(5, 0),
]  # fmt: skip
NESTED: list[t.DataType] = [
    t.ArrayType(t.ArrayType(t.LongType())),
    t.MapType(t.StringType(), t.StructType([t.StructField("a b", t.DateType())])),
    t.StructType([t.StructField("x", t.IntegerType()), t.StructField("y", t.ArrayType(t.TimestampType()))]),
]


@pytest.mark.parametrize("kind", [*ATOMIC, *NESTED], ids=lambda kind: kind.simpleString())
def test_a_type_is_the_same_in_the_terms_of_arrow_of_spark_and_of_its_json(kind: t.DataType) -> None:
    schema = t.StructType([t.StructField("c", kind)])
    recorded = json.loads(schema.json())
    arrow = columns.arrow_schema(recorded, where="here")
    assert columns.spark_schema(arrow, where="here") == recorded
    assert from_arrow_schema(arrow, prefer_timestamp_ntz=True) == schema


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.uint8(), "short"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.binary_view(), "binary"),
        (pa.binary(4), "binary"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.large_list(pa.int64()), {"type": "array", "elementType": "long", "containsNull": True}),
        (pa.null(), "void"),
    ],
)
def test_what_spark_lacks_is_what_spark_reads_it_as(kind: pa.DataType, name: Any) -> None:
    schema = columns.spark_schema(pa.schema([pa.field("c", kind)]), where="here")
    assert schema["fields"][0]["type"] == name


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.duration("s"), pa.struct([("a", pa.time64("us"))])])
def test_what_spark_cannot_read_is_named(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="column 'c' of here is"):
        columns.spark_schema(pa.schema([pa.field("c", kind)]), where="here")


@pytest.mark.parametrize("recorded", [{}, {"fields": 7}, {"fields": [{}]}, {"fields": [{"name": "c", "type": "x"}]}])
def test_a_recorded_schema_that_is_none_is_named(recorded: Any) -> None:
    with pytest.raises(InvalidInputError, match="recorded schema of here"):
        columns.arrow_schema(recorded, where="here")


@pytest.mark.parametrize(("kind", "expected"), [("varchar(10)", pa.string()), ("decimal(10, 2)", pa.decimal128(10, 2))])
def test_other_spellings_of_types_are_read(kind: str, expected: pa.DataType) -> None:
    assert columns.arrow_schema({"fields": [columns.field("c", kind)]}, where="here").field("c").type == expected
