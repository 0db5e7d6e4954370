"""Texts of partition values are to Spark what they are to us: what it writes, and what it reads.

Rules: PROTOCOL.md 6.2.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit import InvalidInputError, Table
from dbio_commit.data.columns import arrow_type
from dbio_commit.protocol import names
from dbio_commit.protocol.partition_values import read, write
from dbio_commit.spark.read import scan
from tests.histories import columns
from tests.partition_texts import CANONICAL, READ_ALIKE, READ_DIFFERENTLY
from tests.spark_tables import configured

KINDS: Mapping[str, str] = {"integer": "int", "byte": "tinyint", "long": "bigint", "short": "smallint"}


@pytest.mark.parametrize("kind", CANONICAL)
def test_sparks_own_writer_names_directories_by_canonical_texts(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    texts = CANONICAL[kind]
    cast = KINDS.get(kind, kind)
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        frame = spark.createDataFrame([(i, text) for i, text in enumerate(texts)], "id int, text string")
        frame.selectExpr("id", f"CAST(text AS {cast}) AS k").write.partitionBy("k").parquet(str(tmp_path / "t"))
    found = {name for name in os.listdir(tmp_path / "t") if name.startswith("k=")}
    assert found == {f"k={names.escape(text)}" for text in texts}


@pytest.fixture
def adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table of the partitions that the texts name, which another tool wrote."""

    def adopt(kind: str, texts: list[str]) -> Table:
        for i, text in enumerate(texts):
            directory = tmp_path / f"table/k={names.escape(text)}"
            directory.mkdir(parents=True)
            pq.write_table(pa.table({"id": [i]}), directory / "a.parquet")
        table = Table(tmp_path / "table")
        table.adopt()
        monkeypatch.setattr("dbio_commit.commit.file_checks.is_partition", lambda _: True)
        monkeypatch.setattr("dbio_commit.commit.state_after.find_unread", lambda *_: ())
        table.begin().commit(columns(id="long", k=kind))
        return table

    return adopt


@pytest.mark.parametrize("by_index", [True, False], ids=["by-our-index", "by-its-reader"])
@pytest.mark.parametrize("kind", sorted({*CANONICAL, *READ_ALIKE}))
def test_spark_reads_the_values_that_we_read(
    kind: str, by_index: bool, adopted: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_index:
        monkeypatch.setattr(scan, "read_by_index", lambda *_: None)
    texts = [*CANONICAL.get(kind, ()), *READ_ALIKE.get(kind, ())]
    table = adopted(kind, texts)
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        rows = dbio.read(spark, table.url).selectExpr("id", "CAST(k AS string) AS k").collect()
    found = {row.id: row.k for row in rows}
    assert found == {i: write(read(text, kind), kind) for i, text in enumerate(texts)}
    ours = table.snapshot().to_arrow().sort_by("id")["k"]
    assert ours.type == arrow_type(kind)
    if kind not in ("double", "float"):
        assert ours.to_pylist() == [read(text, kind) for text in texts]


@pytest.mark.parametrize("by_index", [True, False], ids=["by-our-index", "by-its-reader"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [(kind, next(it for it in them if it)) for kind, them in READ_DIFFERENTLY.items() if kind != "interval"],
)
def test_a_file_of_which_spark_would_read_another_value_or_none_is_named_with_the_way_to_put_it_right(
    kind: str, text: str, by_index: bool, adopted: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_index:
        monkeypatch.setattr(scan, "read_by_index", lambda *_: None)
    table = adopted(kind, [text])
    what = r"k=.*/a\.parquet names no value of the column 'k' .*OPERATIONS\.md"
    with pytest.raises(InvalidInputError, match=what):
        dbio.read(spark, table.url)
    with pytest.raises(InvalidInputError, match=what):
        dbio.read(spark, table.url, where="k IS NOT NULL AND id >= 0")
    if kind != "double":  # by which no rows are written at all
        with pytest.raises(InvalidInputError, match=what):
            dbio.update(spark, table.url, {"id": "id + 1"})
    assert list(table.check().unread_values) == [f"k={names.escape(text)}/a.parquet"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("date", "DATE'2026-11-20'"), ("decimal(5,2)", "1.50BD"), ("tinyint", "7Y"), ("boolean", "true"),
     ("timestamp", "TIMESTAMP'2026-11-20 07:30:00.1Z'"), ("timestamp_ntz", "TIMESTAMP_NTZ'2026-11-20 07:30:00'")],
)  # fmt: skip
def test_what_spark_and_python_write_lies_in_one_partition(
    kind: str, value: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    dbio.write(spark.sql(f"SELECT 1L AS id, CAST({value} AS {kind}) AS k"), path, partition_by="k")
    table = Table(path)
    (given,) = table.snapshot().to_arrow()["k"].to_pylist()
    if isinstance(given, datetime) and given.tzinfo:
        given = given.astimezone(UTC)
    with table.begin() as transaction:
        pq.write_table(pa.table({"id": [2]}), transaction.new_file(partition={"k": given}))
    assert len({names.split(file.path)[0] for file in table.snapshot().files}) == 1
    assert dbio.read(spark, path, where=f"k = {value}").count() == 2


def test_a_static_partition_of_sql_is_named_canonically_or_refused(enabled: SparkSession, tmp_path: Path) -> None:
    dbio.enable(enabled, parquet=True, roots=[tmp_path])
    path = str(tmp_path / "table")
    dbio.write(enabled.sql("SELECT 1L AS id, DATE'2024-01-01' AS k"), path, partition_by="k")
    enabled.sql(f"CREATE TABLE by_day (id bigint, k date) USING parquet PARTITIONED BY (k) LOCATION '{path}'")
    try:
        enabled.sql("INSERT INTO by_day PARTITION (k='2024-1-1') VALUES (2L)")
        enabled.sql("INSERT OVERWRITE by_day PARTITION (k='2024-1-1') VALUES (3L)")
    finally:
        enabled.sql("DROP TABLE by_day")
    assert {names.split(file.path)[0] for file in Table(path).snapshot().files} == {"k=2024-01-01"}
    assert Table(path).snapshot().to_arrow()["id"].to_pylist() == [3]
