"""The data of the benchmarks: TPC-H's lineitem, texts that are wide, and tables of very many tiny files."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, DoubleType, LongType, StringType, StructType

import dbio_commit as dbio
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import Bounds

MONTH = "ship_month"
"""The column to partition lineitem by: the first day of the month, 84 of them."""
KEY = ["l_orderkey", "l_linenumber"]
"""The columns that identify a row of lineitem."""


def make_lineitem(directory: Path, scale: float) -> Path:
    """The directory of lineitem as Parquet in two files, made by tpchgen-cli unless it is there from an earlier run."""
    made = directory / f"tpch-{scale:g}"
    if not made.exists():
        unfinished = made.with_suffix(".unfinished")
        command = [str(Path(sys.executable).with_name("tpchgen-cli")), "parquet", "--scale-factor", f"{scale:g}"]
        options = ["--tables=lineitem", "--parts=2", "--quiet", f"--output-dir={unfinished}"]
        shutil.rmtree(unfinished, ignore_errors=True)
        subprocess.run(command + options, check=True)
        unfinished.rename(made)
    return made / "lineitem"


def make_small_files(directory: Path, source: Path, files: int) -> Path:
    """A directory with the rows of lineitem in so many files by ranges of its orders, compressed as Spark does."""
    made = directory / f"small-{source.parent.name}-{files}"
    if not made.exists():
        rows, unfinished = pq.read_table(source), made.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        each = -(-rows.num_rows // files)
        for number in range(files):
            path = unfinished / f"part-{number:05d}.snappy.parquet"
            pq.write_table(rows.slice(number * each, each), path, store_schema=False, store_decimal_as_integer=True)
        unfinished.rename(made)
    return made


def with_month(lineitem: DataFrame) -> DataFrame:
    return lineitem.withColumn(MONTH, F.trunc("l_shipdate", "month"))


def wide(spark: SparkSession, *, rows: int) -> DataFrame:
    """100 columns of texts of 1 KB, in two tasks."""
    texts = [F.repeat(F.md5(F.concat_ws("-", "id", F.lit(column))), 32).alias(f"c{column}") for column in range(100)]
    return spark.range(0, rows, numPartitions=2).select(*texts)


TINY_COLUMNS = StructType().add("id", LongType()).add("x", DoubleType()).add("s", StringType()).add("day", DateType())


def make_tiny_files(path: Path, files: int) -> None:
    """A table of so many files of two rows, in 30 partitions by day, each of which is one commit."""
    shutil.rmtree(path, ignore_errors=True)
    body = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2], "x": [1.0, 2.0], "s": ["a", "b"]}), body)
    size, statistics = (
        body.tell(),
        {"id": Bounds(1, 2, 0), "x": Bounds(1.0, 2.0, 0), "s": Bounds("a", "b", 0)},
    )
    table = dbio.Table(path)
    for day in range(1, 31):
        transaction = table.begin(partition_by=["day"])
        partition = {"day": f"2026-11-{day:02d}"}
        directory = names.format_partition(partition)
        os.makedirs(path / directory)
        for task in range(files // 30):
            name = names.format_data_file(
                tid=transaction.tid, job=transaction.terms.job, task=task, attempt=task, number=0, suffix=".parquet"
            )
            (path / directory / name).write_bytes(body.getbuffer())
            info = dbio.FileInfo(
                path=f"{directory}/{name}", size=size, rows=2, partition=partition, statistics=statistics
            )
            transaction.add([info], looked_at=True)
        transaction.commit(schema=TINY_COLUMNS.jsonValue())
