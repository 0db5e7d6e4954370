"""`target_file_size`: how many files a write makes, of what size, and of which rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.protocol.state import DataFile
from tests.tiers import long

MB = 1_000_000
AQE = "spark.sql.adaptive.enabled"
SETTINGS = (AQE, "spark.sql.adaptive.advisoryPartitionSizeInBytes",
            "spark.sql.adaptive.coalescePartitions.parallelismFirst")  # fmt: skip


def scattered(spark: SparkSession) -> DataFrame:
    """Few rows in 50 tasks, each of which has some of all five partitions."""
    return spark.range(0, 1000, 1, 50).selectExpr("id", "id % 5 AS `a.part`")


def files_of(path: str) -> list[DataFile]:
    return list(dbio.Table(path).snapshot().files)


def settings(spark: SparkSession) -> Mapping[str, Any]:
    return {name: spark.conf.get(name, None) for name in SETTINGS}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.mark.parametrize("adaptive", ["true", *long("false")])
def test_little_data_of_many_tasks_becomes_a_file_for_each_partition(
    spark: SparkSession, path: str, adaptive: str
) -> None:
    spark.conf.set(AQE, adaptive)
    before = settings(spark)
    try:
        dbio.write(scattered(spark), path, partition_by="a.part", target_file_size=128 * MB)
        assert settings(spark) == before
    finally:
        spark.conf.unset(AQE)
    assert len(files_of(path)) == 5
    assert sorted(row.id for row in dbio.read(spark, path).collect()) == list(range(1000))
    dbio.write(scattered(spark), path, mode="overwrite")
    assert len(files_of(path)) == 250
    dbio.write(scattered(spark), path, mode="overwrite_partitions", target_file_size=128 * MB)
    assert len(files_of(path)) == 5


def test_without_partitions_it_becomes_one_file(spark: SparkSession, path: str) -> None:
    dbio.write(scattered(spark), path, target_file_size=128 * MB)
    assert len(files_of(path)) == 1


@pytest.mark.parametrize(("tasks", "columns"), [(1, ()), pytest.param(24, ("part",), marks=pytest.mark.long)])
def test_more_data_becomes_files_of_about_the_target(
    spark: SparkSession, path: str, tasks: int, columns: tuple[str, ...]
) -> None:
    rows = spark.range(0, 1_000_000, 1, tasks).selectExpr(
        "id", "id % 3 AS part", "xxhash64(id) AS hash", "concat('name ', id % 1000) AS text", "rand(1) AS score"
    )
    dbio.write(rows, path, partition_by=columns, target_file_size=2 * MB)
    sizes = sorted(file.size for file in files_of(path))
    assert len(sizes) > 6
    assert sizes[len(sizes) // 2] > 2 * MB / 2.5
    assert sizes[-1] < 2 * MB * 2
    found = dbio.read(spark, path)
    assert found.count() == 1_000_000
    sums = ["sum(part)", "bit_xor(hash)", "bit_xor(xxhash64(id, part, hash, text))"]
    assert found.selectExpr(*sums).collect() == rows.selectExpr(*sums).collect()


def test_it_goes_with_replace_where(spark: SparkSession, path: str) -> None:
    dbio.write(scattered(spark), path, partition_by="a.part", target_file_size=MB)
    dbio.write(
        scattered(spark).where("id < 500"), path, mode="overwrite", replace_where="id < 500", target_file_size=MB
    )
    assert len(files_of(path)) <= 10
    assert sorted(row.id for row in dbio.read(spark, path).collect()) == list(range(1000))


@pytest.mark.long
def test_it_goes_with_the_batches_of_a_stream(spark: SparkSession, path: str, tmp_path: Path) -> None:
    scattered(spark).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id long, `a.part` long").parquet(str(tmp_path / "in"))
    write = dbio.batch_writer(path, "job", partition_by="a.part", target_file_size=128 * MB)
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(files_of(path)) == 5


def test_partition_columns_are_found_in_any_spelling_and_may_be_void(spark: SparkSession, path: str) -> None:
    dbio.write(scattered(spark).selectExpr("id", "`a.part` AS part"), path, partition_by="part", target_file_size=MB)
    dbio.write(scattered(spark).selectExpr("ID", "`a.part` AS PART"), path, target_file_size=MB)
    dbio.write(scattered(spark).selectExpr("ID", "NULL AS PART"), path, target_file_size=MB)
    assert len(files_of(path)) == 11


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "128MB", 10**15])
def test_what_is_no_size_is_refused_before_anything_is_written(spark: SparkSession, path: str, wrong: Any) -> None:
    with pytest.raises(dbio.InvalidInputError, match="target_file_size"):
        dbio.write(scattered(spark), path, target_file_size=wrong)
    assert not Path(path).exists()


def test_the_data_source_which_cannot_shuffle_refuses_it_by_name(enabled: SparkSession, path: str) -> None:
    with pytest.raises(Exception, match=r"(?i)targetfilesize"):
        scattered(enabled).write.format("dbio").mode("append").option("targetFileSize", MB).save(path)
    assert not Path(path).exists()
