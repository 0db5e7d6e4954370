"""A table whose own root is named like a partition: `.../country=de`. Its columns of that name keep their values.

Rules: PROTOCOL.md 6.2.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duckdb
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from tests.conftest import Root
from tests.spark_tables import rows

ROOTS = ["country=de"]
MORE_ROOTS = ["year=1999/COUNTRY=de", "a/year=1999/day=x", "country=de/plain", "other=1"]
DATA = "SELECT id, IF(id = 0, 'fr', 'it') AS country, int(2020 + id) AS year, concat('d', id) AS day FROM range(3)"


def read_in_workers(spark: SparkSession, path: str) -> DataFrame:
    dbio.enable(spark)
    return spark.read.format("dbio").load(path)


@pytest.mark.parametrize("partition_by", [[], ["day"], ["country"], ["year", "country"]], ids=str)
@pytest.mark.parametrize("root", [*ROOTS, *(pytest.param(root, marks=pytest.mark.long) for root in MORE_ROOTS)])
def test_columns_keep_their_values(spark: SparkSession, tmp_path: Path, root: str, partition_by: list[str]) -> None:
    path = str(tmp_path / root)
    frame = spark.sql(DATA)
    dbio.write(frame, path, partition_by=partition_by)
    ways: list[Callable[[SparkSession, str], DataFrame]] = [dbio.read, read_in_workers]
    for read in ways:
        found = read(spark, path)
        assert sorted(found.columns) == sorted(frame.columns)
        assert rows(found.select(frame.columns)) == rows(frame)
        assert rows(found.where("country = 'fr' AND year = 2020").select("id")) == ["Row(id=0)"]
        assert found.where("country = 'de' OR year = 1999 OR day = 'x'").count() == 0
    dbio.write(frame, path, mode="overwrite_partitions" if partition_by else "overwrite")
    assert dbio.read(spark, path).count() == 3


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=str)
def test_a_plain_directory_of_that_name_is_read_as_well(
    spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    path = str(tmp_path / "country=de/year=1999")
    frame = spark.sql(DATA)
    frame.write.partitionBy(*partition_by).parquet(path)
    ways: list[Callable[[SparkSession, str], DataFrame]] = [dbio.read, read_in_workers]
    for read in ways:
        found = read(spark, path)
        assert sorted(found.columns) == sorted(frame.columns)
        assert rows(found.select(frame.columns)) == rows(frame)


@pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")
def test_on_s3_without_a_connector(spark: SparkSession, s3_root: Root) -> None:
    url = f"{s3_root.url}/country=de"
    frame = spark.sql(DATA)
    dbio.write(frame, url, partition_by="day", storage_options=s3_root.storage_options)
    assert rows(dbio.read(spark, url, storage_options=s3_root.storage_options)) == rows(frame)


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=str)
def test_other_tools_must_be_told_the_partition_columns(tmp_path: Path, partition_by: list[str]) -> None:
    """What WITHOUT_SPARK.md says of them; left to themselves, they take the root's name for a column, or fail."""
    table = dbio.Table(tmp_path / "country=de")
    with table.begin(partition_by=partition_by) as transaction:
        path = transaction.new_file(partition={"day": "1"} if partition_by else None)
        pyarrow.parquet.write_table(pyarrow.table({"country": ["fr", "it"], "id": [1, 2]}), path)
    urls = table.snapshot().urls()
    columns: dict[str, list[Any]] = {"country": ["fr", "it"], "id": [1, 2]}
    assert table.snapshot().to_arrow(["country", "id"]).to_pydict() == columns
    if not partition_by:
        assert pandas.read_parquet(cast(Any, urls), partitioning=None).to_dict("list") == columns
        assert pyarrow.dataset.dataset(urls).to_table().to_pydict() == columns
        assert duckdb.read_parquet(urls, hive_partitioning=False).fetchall() == [("fr", 1), ("it", 2)]
        return
    days = pyarrow.dataset.partitioning(pyarrow.schema([("day", pyarrow.string())]), flavor="hive")
    columns |= {"day": ["1", "1"]}
    assert pandas.read_parquet(cast(Any, urls), partitioning=days).to_dict("list") == columns
    assert pyarrow.dataset.dataset(urls, partitioning=days).to_table().to_pydict() == columns
    assert pyarrow.dataset.dataset(urls, partitioning="hive").to_table()["country"].to_pylist() == ["de", "de"]
    assert duckdb.read_parquet(urls, hive_partitioning=True).fetchall() == [("de", 1, 1), ("de", 2, 1)]
    assert duckdb.read_parquet(urls, hive_partitioning=False).fetchall() == [("fr", 1), ("it", 2)]
