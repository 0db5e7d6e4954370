"""The columns of a table whose writers recorded none, from footers and directory names. No session is needed."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.spark.read.infer import infer_schema, table_schema

ROW_METADATA = "org.apache.spark.sql.parquet.row.metadata"


def write(root: Path, path: str, table: pa.Table, **metadata: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata or None), root / path)


def inferred(root: Path) -> str | None:
    table = Table(root)
    schema = infer_schema(table.store, table.snapshot())
    return schema.simpleString() if schema else None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "tinyint"),
        (pa.int16(), "smallint"),
        (pa.int32(), "int"),
        (pa.int64(), "bigint"),
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.decimal128(10, 2), "decimal(10,2)"),
        (pa.string(), "string"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.date32(), "date"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.timestamp("ms", "Asia/Tokyo"), "timestamp"),
        (pa.list_(pa.int32()), "array<int>"),
        (pa.large_list(pa.string()), "array<string>"),
        (pa.list_(pa.int32(), 2), "array<int>"),
        (pa.map_(pa.string(), pa.int64()), "map<string,bigint>"),
        (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))]), "struct<a:int,b:array<date>>"),
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
    ],
    ids=str,
)
def test_a_column_has_the_type_that_spark_gives_it(tmp_path: Path, kind: pa.DataType, expected: str) -> None:
    try:
        write(tmp_path, "data.parquet", pa.table({"value": pa.array([], kind)}))
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow writes no such column")
    assert inferred(tmp_path) == f"struct<value:{expected}>"


def test_instants_of_the_old_kind_are_instants_however_deep(tmp_path: Path) -> None:
    """Spark reads INT96 so, and Arrow as timestamps without a zone. Hive and Impala write no others."""
    at = pa.timestamp("ns")
    columns = {
        "id": pa.int32(),
        "at": at,
        "s": pa.struct([("a", pa.int32()), ("at", at)]),
        "l": pa.list_(at),
        "m": pa.map_(pa.string(), pa.list_(pa.struct([("at", at), ("b", pa.string())]))),
        "text": pa.string(),
    }
    table = pa.table({name: pa.array([], kind) for name, kind in columns.items()})
    pq.write_table(table, tmp_path / "data.parquet", use_deprecated_int96_timestamps=True)
    expected = (
        "struct<id:int,at:timestamp,s:struct<a:int,at:timestamp>,l:array<timestamp>,"
        "m:map<string,array<struct<at:timestamp,b:string>>>,text:string>"
    )
    assert inferred(tmp_path) == expected
    assert Table(tmp_path).snapshot().to_arrow().schema.field("at").type == pa.timestamp("us", "UTC")


def test_unsigned_numbers_and_binary_of_fixed_length_are_what_spark_reads_at_any_depth(tmp_path: Path) -> None:
    kinds = {"a": pa.list_(pa.uint8()), "b": pa.struct([("x", pa.uint32())]), "c": pa.binary(4)}
    write(tmp_path, "data.parquet", pa.table({name: pa.array([], kind) for name, kind in kinds.items()}))
    assert inferred(tmp_path) == "struct<a:array<smallint>,b:struct<x:bigint>,c:binary>"


def test_a_type_that_spark_does_not_know_is_a_clear_error(tmp_path: Path) -> None:
    write(tmp_path, "data.parquet", pa.table({"value": pa.array([], pa.time32("ms"))}))
    with pytest.raises(InvalidInputError, match=r"data\.parquet"):
        inferred(tmp_path)


def test_sparks_own_record_in_the_footer_says_more_than_parquets_types(tmp_path: Path) -> None:
    field = {"name": "at", "type": "timestamp", "nullable": True, "metadata": {"comment": "INT96 in the file"}}
    recorded = json.dumps({"type": "struct", "fields": [field]})
    write(tmp_path, "data.parquet", pa.table({"at": pa.array([], pa.timestamp("us"))}), **{ROW_METADATA: recorded})
    assert inferred(tmp_path) == "struct<at:timestamp>"


@pytest.mark.parametrize(
    "recorded",
    [
        "",
        "{",
        "[]",
        "7",
        '{"type": "struct"}',
        '{"type": "struct", "fields": [{"name": "a", "type": "int4", "nullable": true, "metadata": {}}]}',
        '{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt", "pyClass": "os.path"}}]}',
        "[" * 100_000,
    ],
    ids=lambda recorded: recorded[:40],
)
def test_a_record_of_spark_that_is_none_is_a_clear_error(tmp_path: Path, recorded: str) -> None:
    write(tmp_path, "data.parquet", pa.table({"a": [1]}), **{ROW_METADATA: recorded})
    with pytest.raises(InvalidInputError, match=r"data\.parquet"):
        inferred(tmp_path)


def test_a_file_that_is_no_parquet_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_text("PAR1 no more")
    with pytest.raises(InvalidInputError, match=r"data\.parquet cannot be read as Parquet"):
        inferred(tmp_path)


def test_the_newest_file_tells_the_columns(tmp_path: Path) -> None:
    write(tmp_path, "part-0-tid-2-x.parquet", pa.table({"new": [1]}))
    write(tmp_path, "part-0-tid-1-x.parquet", pa.table({"old": [1]}))
    assert inferred(tmp_path) == "struct<new:bigint>"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "02", "-3"], "int"),
        (["1", "99999999999"], "bigint"),
        (["1", "1.5", "-0.25"], "double"),
        (["2026-01-01", "2026-12-31"], "date"),
        (["2026-01-01 10%3A00%3A00", "2026-01-01 10%3A00%3A00.5"], "timestamp"),
        (["2026-01-01", "2026-01-01 10%3A00%3A00"], "timestamp"),
        (["2026-01-01", "7"], "string"),
        (["1", "a"], "string"),
        (["true", "false"], "string"),
        (["__HIVE_DEFAULT_PARTITION__"], "string"),
        (["__HIVE_DEFAULT_PARTITION__", "7"], "int"),
        (["a%2Fb"], "string"),
        (["2147483648"], "bigint"),
        (["2147483647"], "int"),
        (["9223372036854775807"], "bigint"),
        (["9999999999999999999"], "decimal(19,0)"),
        (["99999999999", "1.5"], "string"),
        (["9" * 39], "double"),
        (["2026-02-30"], "string"),
        (["+7"], "int"),
    ],
    ids=str,
)
def test_partition_columns_have_the_type_that_spark_infers(tmp_path: Path, values: list[str], expected: str) -> None:
    for value in values:
        write(tmp_path, f"p={value}/data.parquet", pa.table({"id": [1]}))
    assert inferred(tmp_path) == f"struct<id:bigint,p:{expected}>"


def test_a_partition_column_that_is_also_in_the_files_is_there_once(tmp_path: Path) -> None:
    write(tmp_path, "p=1/data.parquet", pa.table({"p": ["x"], "id": [1]}))
    assert inferred(tmp_path) == "struct<id:bigint,p:int>"


def test_a_partition_column_that_is_in_the_files_in_another_case_is_there_once(tmp_path: Path) -> None:
    write(tmp_path, "day=1/data.parquet", pa.table({"Day": ["x"], "id": [1]}))
    assert inferred(tmp_path) == "struct<id:bigint,day:int>"


def test_a_recorded_schema_goes_before_what_the_files_say(tmp_path: Path) -> None:
    recorded: dict[str, Any] = {
        "type": "struct",
        "fields": [{"name": "amount", "type": "decimal(9,2)", "nullable": True, "metadata": {}}],
    }
    table = Table(tmp_path)
    transaction = table.begin()
    pq.write_table(pa.table({"amount": [Decimal("1.00")]}), transaction.new_file())
    transaction.commit(schema=recorded)
    schema = table_schema(table.store, table.snapshot())
    assert schema is not None
    assert schema.simpleString() == "struct<amount:decimal(9,2)>"


def test_a_table_with_neither_files_nor_record_has_no_schema(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.begin().commit()
    assert table_schema(table.store, table.snapshot()) is None
