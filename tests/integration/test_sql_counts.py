"""Counts, and values of partition columns, that SELECT takes from the log: they are those of the rows."""

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.spark_tables import configured
from tests.tiny_parts import tiny_parts

COUNTED = [
    "count(*), count(1) + 1, count(id), count(text), count(real), count(id) FILTER (WHERE part IS NOT NULL), "
    "min(part), max(part), count(part), count(DISTINCT part, other)",
    "DISTINCT other",
    "part, count(*), count(id) FROM {} GROUP BY part",
    "length(string(part)), count(text) FROM {} WHERE other <> 2 GROUP BY 1 HAVING count(*) > 1",
    "count(*), max(part) FROM {} WHERE part IS NULL OR part > (SELECT max(part) FROM {} WHERE other = 1)",
    "count(*) FROM {} a JOIN (SELECT part, count(*) n FROM {} GROUP BY part) b ON a.part = b.part AND b.n > 1",
]
EXTREMES = ["min(id), max(id) - min(id), max(text), max(real)", "min(text), min(real), string(max(id))"]
"""Read from the files that may hold them."""
READ = [
    *EXTREMES,
    "count(*) FROM {} WHERE id > 3",
    "count(DISTINCT id), count(*)",
    "count(id, text), count(it.a), count(it)",
    "id % 2, count(*) FROM {} GROUP BY 1",
    "count(*) FILTER (WHERE id > 3)",
    "count(*) FROM (SELECT * FROM {} LIMIT 3)",
    "part, grouping(part), count(*) FROM {} GROUP BY ROLLUP (part)",
    "sum(other), avg(other), count(*)",
    "string(part), sum(1), count(*) FROM {} GROUP BY 1",
    "count(if(id > 2, part, NULL))",
]
PARTS = {
    "date": "date_add('2026-11-20', cast(p AS int))",
    "int": "cast(p - 2 AS int)",
    "string": "concat('a/ü= %', p)",
    "timestamp": "timestamp '2026-11-20 01:00:00' + make_interval(0, 0, 0, 0, 0, 7 * p)",
    "boolean": "p > 1",
    "decimal": "cast(p / 8 AS decimal(6, 3))",
}


def found(spark: SparkSession, query: str, table: str) -> list[str]:
    text = "SELECT " + (query if "{}" in query else f"{query} FROM {{}}")
    return sorted(map(str, spark.sql(text.replace("{}", table)).collect()))


def reads_files(spark: SparkSession, query: str, table: str) -> bool:
    text = "SELECT " + (query if "{}" in query else f"{query} FROM {{}}")
    frame: Any = spark.sql(text.replace("{}", table))
    return "FileScan" in frame._jdf.queryExecution().executedPlan().toString()


def make(spark: SparkSession, path: Path, seed: int) -> str:
    """A table of a few commits; returns the type of the partition column `part`."""
    chance = random.Random(seed)
    kind = chance.choice([*PARTS])
    partition_by = chance.choice([["part"], ["other", "part"], []])
    with tiny_parts() if chance.random() < 0.5 else nullcontext():
        for _ in range(chance.randint(1, 3)):
            start = chance.randrange(100)
            frame = spark.range(start, start + chance.randint(1, 12), 1, 2).selectExpr(
                f"if(id % {chance.randint(2, 5)} = 0, NULL, id) AS id",
                f"if(id % {chance.randint(2, 5)} = 1, NULL, repeat('x', cast(id AS int))) AS text",
                "if(id % 3 = 0, double('NaN'), id / 7) AS real",
                "named_struct('a', id) AS it",
                "if(id % 4 = 3, NULL, id % 4) AS p",
                "cast(1 + id % 3 AS int) AS other",
            )
            frame = frame.selectExpr("id", "text", "real", "it", f"{PARTS[kind]} AS part", "other")
            dbio.write(frame, path, partition_by=partition_by)
        if chance.random() < 0.5:
            dbio.delete(spark, path, f"other = {chance.randint(1, 3)} AND (id IS NULL OR id % 2 = 0)")
        if chance.random() < 0.5:
            dbio.Table(path).checkpoint()
    return kind


def agree(spark: SparkSession, path: Path, seed: int) -> None:
    kind = make(spark, path, seed)
    name, snapshot = f"dbio.`{path}`", dbio.Table(path).snapshot()
    dbio.read(spark, path).createOrReplaceTempView("counted_rows")
    for query in [*COUNTED, *EXTREMES]:
        assert found(spark, query, name) == found(spark, query, "counted_rows"), f"seed {seed}, part {kind}: {query}"
    if len(snapshot.partition_columns) == 2:
        assert [it for it in COUNTED[:4] if reads_files(spark, it, name)] == []
    assert not reads_files(spark, "count(*), count(id)", name)
    assert all(reads_files(spark, it, name) for it in READ)
    spark.catalog.dropTempView("counted_rows")


def test_counts_of_a_random_table_are_those_of_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    dbio.enable(spark)
    with configured(spark, {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "Asia/Tokyo"}):
        agree(spark, tmp_path / "table", 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 160))
def test_counts_of_many_random_tables_are_those_of_their_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    dbio.enable(spark)
    with configured(spark, {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "Asia/Tokyo"}):
        agree(spark, tmp_path / "table", seed)


def test_extremes_are_read_from_the_files_that_may_hold_them(spark: SparkSession, tmp_path: Path) -> None:
    dbio.enable(spark)
    path = tmp_path / "table"
    for start in (0, 10, 20):
        dbio.write(
            spark.range(start, start + 10, 1, 1).selectExpr("id", "concat(repeat('x', 99), 40 - id) AS text"), path
        )
    dbio.write(spark.range(0, 3, 1, 1).selectExpr("CAST(NULL AS bigint) AS id", "CAST(NULL AS string) AS text"), path)
    name = f"dbio.`{path}`"
    for query, files in (("max(id)", 1), ("min(id)", 1), ("min(id), max(id)", 2), ("max(text)", 3), ("max(id + 1)", 4)):
        frame: Any = spark.sql(f"SELECT {query} FROM {name}")
        with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
            frame.collect()
        leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
        assert leaves.head().metrics().apply("numFiles").value() == files, query
    assert found(spark, "min(id), max(id)", name) == ["Row(min(id)=0, max(id)=29)"]
    assert found(spark, "max(id)", f"(SELECT * FROM {name} WHERE id < 15)") == ["Row(max(id)=14)"]


def test_counts_that_no_writer_recorded_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """In a directory without a descriptor; and of a column that a file lacks."""
    dbio.enable(spark)
    plain, path = tmp_path / "plain", tmp_path / "table"
    spark.range(5).write.parquet(str(plain))
    assert found(spark, "count(*), count(id)", f"dbio.`{plain}`") == ["Row(count(1)=5, count(id)=5)"]
    assert reads_files(spark, "count(*)", f"dbio.`{plain}`")
    dbio.write(spark.range(3), path)
    dbio.write(spark.range(3, 6).selectExpr("id", "id AS more"), path, merge_schema=True)
    assert not reads_files(spark, "count(*), count(id)", f"dbio.`{path}`")
    assert reads_files(spark, "count(more)", f"dbio.`{path}`")
    assert found(spark, "count(more), count(*)", f"dbio.`{path}`") == ["Row(count(more)=3, count(1)=6)"]
    first = dbio.Table(path).history()[1].tid
    assert found(spark, "count(*)", f"(SELECT * FROM dbio.`{path}` VERSION AS OF '{first}')") == ["Row(count(1)=3)"]
