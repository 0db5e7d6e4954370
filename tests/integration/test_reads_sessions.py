"""Reads of Parquet by unchanged code in other processes: with Hive's metastore, and enabled at their start."""

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

UNCHANGED_CODE = Path(__file__).parents[2] / "docs/UNCHANGED_CODE.md"
SESSION = """
    import json, os, sys
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", os.path.abspath("warehouse"))
"""
HIVE = """
    import dbio_commit as dbio
    from tests.integration.test_reads import directory_of_dbio, with_dead_files_of_another_type

    spark = builder.enableHiveSupport().getOrCreate()
    dbio.enable(spark, parquet=True)
    found = {}
    for name, state in (("table", with_dead_files_of_another_type), ("dbio", directory_of_dbio)):
        path = os.path.abspath(name)
        state(spark, path)
        columns = "(id BIGINT, v DOUBLE) PARTITIONED BY (day STRING)"
        spark.sql(f"CREATE EXTERNAL TABLE h_{name} {columns} STORED AS PARQUET LOCATION '{path}'")
        spark.sql(f"MSCK REPAIR TABLE h_{name}")
        rows = spark.table(f"h_{name}")
        found[name] = [
            sorted(row.id for row in rows.collect()),
            sorted(row.id for row in rows.where("day = '01' AND id > 2").collect()),
            rows.alias("a").join(spark.table(f"h_{name}").alias("b"), "id").count(),
        ]
    print(json.dumps(found))
"""
JOB = """
    spark = builder.getOrCreate()
    path = os.path.abspath("lake/table")
    spark.range(3).write.parquet(path)
    spark.range(10, 12).write.mode("overwrite").parquet(path)
    files = [it for it in os.listdir(path) if it.endswith(".parquet")]
    print(json.dumps([builder.getOrCreate().read.parquet(path).count(), len(files)]))
"""


def run(directory: Path, program: str, **env: str) -> str:
    """What the program prints last, as unchanged code in a driver of its own."""
    (directory / "job.py").write_text(dedent(SESSION) + dedent(program))
    process = subprocess.run(
        [sys.executable, "job.py"], cwd=directory, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout.splitlines()[-1]


@pytest.mark.long
def test_tables_of_hive_that_spark_reads_itself_give_committed_rows(tmp_path: Path) -> None:
    """Spark makes relations of files of them only after it has resolved the query."""
    expected = "[[0, 1, 2, 3, 4, 5, 6, 7, 8], [3, 6], 9]"
    root = str(Path(__file__).parents[2])
    found = run(tmp_path, HIVE, PYTHONPATH=root)
    assert found == f'{{"table": {expected}, "dbio": {expected}}}'


@pytest.mark.long
def test_the_file_of_the_documents_enables_each_session_at_its_start(tmp_path: Path) -> None:
    (text,) = re.findall(r"```python\n(# sitecustomize\.py\n.*?)```", UNCHANGED_CODE.read_text(), re.DOTALL)
    start = tmp_path / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text(text)
    path = os.pathsep.join([str(start), str(Path(__file__).parents[2])])
    assert run(tmp_path, JOB, PYTHONPATH=path, DBIO_ROOTS=str(tmp_path / "lake")) == "[2, 2]"
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, JOB, PYTHONPATH=path) == "[2, 1]", "without DBIO_ROOTS it is plain Spark"
