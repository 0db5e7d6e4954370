"""What the task writer writes comes back equal through Spark's own Parquet reader."""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from dbio_commit import Table
from dbio_commit.commit.write import files as task
from dbio_commit.commit.write.files import write_files
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.spark.write.task import RESULT_SCHEMA, TaskSpec, decode_file_info, map_in_arrow
from tests.spark_tables import to_arrow
from tests.task_sink import DirectorySink, spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "byte": [-128, 127],
    "short": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "float": [-0.0, float("inf"), float("nan"), 1.17549435e-38],
    "double": [-0.0, float("-inf"), float("nan"), 5e-324],
    "decimal(1,0)": [Decimal(-9), Decimal(9)],
    "decimal(9,2)": [Decimal("-1234567.89"), Decimal("0.01")],
    "decimal(18,18)": [Decimal("0.000000000000000001")],
    "decimal(19,0)": [Decimal("-9999999999999999999")],
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")],
    "string": ["", "a\0b", "é漢😀", "x" * 5000],
    "binary": [b"", b"\x00\xff", b"x" * 5000],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(9999, 12, 31)],
    "timestamp": [datetime(1900, 1, 1), datetime(2026, 11, 20, 1, 2, 3, 4), datetime(2200, 12, 31, 23, 59, 59, 999999)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(2026, 3, 29, 2, 30), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "array<int>": [[], [None], [1, None, 2]],
    "array<array<string>>": [[], [None], [[]], [["a", None], []]],
    "map<string,int>": [{}, {"a": None, "b": 1}],
    "map<int,array<struct<x:decimal(20,3),y:binary>>>": [
        {1: [], 2: None, 3: [None, (None, None), (Decimal("1.500"), b"\x01")]},
    ],
    "struct<a:int>": [(None,), (1,)],
    "struct<a:struct<b:struct<c:timestamp_ntz,d:array<date>>>,`e.f g`:boolean>": [
        (None, None),
        ((None,), True),
        (((None, None),), False),
        (((datetime(2026, 1, 1), [None, date(2026, 1, 1)]),), None),
    ],
}  # fmt: skip


def task_spec(sink: DirectorySink, df: "DataFrame", **changes: Any) -> TaskSpec:
    return spec(
        sink.root,
        columns=tuple(enumerate(df.columns)),
        spark_metadata={
            "org.apache.spark.version": pyspark.__version__,
            "org.apache.spark.sql.parquet.row.metadata": df.schema.json(),
        },
        **changes,
    )


def in_process(sink: DirectorySink, df: "DataFrame", **changes: Any) -> list[FileInfo]:
    return write_files(task_spec(sink, df, **changes), to_arrow(df).to_batches(), task=0, attempt=0, files=sink)


def comparable(df: "DataFrame") -> list[str]:
    """The rows as texts: NaN is not equal to itself."""
    return sorted(repr(row) for row in df.collect())


@pytest.fixture
def sink(tmp_path: Path) -> DirectorySink:
    return DirectorySink(tmp_path / "table")


def everything(spark: "SparkSession") -> "DataFrame":
    """Every type at once, with a row of nulls, and each column's values in rows of their own."""
    names = [f"c{i}" for i in range(len(COLUMNS))]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, COLUMNS, strict=True))
    longest = max(map(len, COLUMNS.values()))
    rows = [[*(values[i] if i < len(values) else None for values in COLUMNS.values())] for i in range(longest + 1)]
    return spark.createDataFrame(rows, schema)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("vectorized", [True, False])
def test_every_type_comes_back_equal(spark: "SparkSession", sink: DirectorySink, large: bool, vectorized: bool) -> None:
    df = everything(spark)
    try:
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        in_process(sink, df)
        for back in (spark.read.schema(df.schema).parquet(str(sink.root)), spark.read.parquet(str(sink.root))):
            assert back.schema == df.schema
            assert comparable(back) == comparable(df)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_without_sparks_footer_the_types_are_still_the_same(spark: "SparkSession", sink: DirectorySink) -> None:
    """Other tools, and a Spark that reads another one's files, have Parquet's own types only."""
    df = everything(spark)
    plain = replace(task_spec(sink, df), spark_metadata={})
    write_files(plain, to_arrow(df).to_batches(), task=0, attempt=0, files=sink)
    back = spark.read.parquet(str(sink.root))
    assert back.schema == df.schema
    assert comparable(back) == comparable(df)


@pytest.mark.long
def test_filters_lose_no_row_by_the_statistics_in_the_footers(spark: "SparkSession", sink: DirectorySink) -> None:
    """Of pages and row groups. NaN is the largest value to Spark, and Arrow's min and max leave it out."""
    df = spark.range(100_000).selectExpr(
        "id",
        "if(id >= 50000 AND id % 1000 = 0, double('NaN'), double(id)) AS d",
        "struct(if(id % 10 = 0, float('NaN'), float(id)) AS f) AS s",
        "if(id % 3 = 0, null, string(id)) AS t",
    )
    with pytest.MonkeyPatch.context() as small:
        small.setattr(task, "ROW_GROUP_ROWS", 10_000)
        in_process(sink, df)
    back = spark.read.parquet(str(sink.root))
    conditions = ["id BETWEEN 60000 AND 60010", "d > 99990", "d < 5", "isnan(d)", "d > 1000000", "s.f > 1000000"]
    for condition in [*conditions, "t = '77777'", "t IS NULL"]:
        assert back.where(condition).count() == df.where(condition).count() > 0, condition


def test_map_in_arrow_writes_partitions_that_spark_reads(spark: "SparkSession", sink: DirectorySink) -> None:
    df = spark.range(1000).selectExpr(
        "id AS value",
        "if(id % 7 = 0, null, timestamp_micros(id * 1500000)) AS t",
        "if(id % 2 = 0, 'a b/c=%', null) AS p",
        "make_date(2026, 1, int(id % 3) + 1) AS q",
    )
    transaction = Table(sink.root).begin(partition_by=("p", "q"))
    begun = replace(task_spec(sink, df, max_records_per_file=100), terms=transaction.terms)
    rows = df.repartition(3).mapInArrow(map_in_arrow(begun), RESULT_SCHEMA).collect()
    infos = [decode_file_info(row.file) for row in rows]
    assert [it for it in sink.files() if it.endswith(".parquet")] == sorted(info.path for info in infos)
    assert sum(info.rows or 0 for info in infos) == 1000
    assert all((info.rows or 0) <= 100 for info in infos)
    back = spark.read.schema(df.schema).parquet(str(sink.root)).select(df.columns)
    assert comparable(back) == comparable(df)


def test_an_empty_partition_of_a_dataframe_writes_nothing(spark: "SparkSession", sink: DirectorySink) -> None:
    df = spark.range(3).repartition(5).where("id < 0")
    assert df.mapInArrow(map_in_arrow(task_spec(sink, df)), RESULT_SCHEMA).collect() == []
    assert sink.files() == []
