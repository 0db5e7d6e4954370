"""The job that `make demo` kills: reads a table and appends all its rows to it once more, slowly.

By `dbio.write`; or, if partition columns are given, by what Spark users write, `df.write.parquet`.
"""

import sys
import time
from collections.abc import Iterator

import pyarrow as pa

import dbio_commit as dbio
from bench.demo_stage import start_spark

TASKS = 24
PAUSE_S = 0.5  # for each task, so that there is a half-way to be killed at


def main(url: str, *partition_by: str) -> None:
    spark = start_spark()
    flights = dbio.read(spark, url)
    once_more = flights.repartitionByRange(TASKS, "month", "day").mapInArrow(slowly, flights.schema)
    if partition_by:
        dbio.enable(spark, parquet=True)
        once_more.write.mode("append").partitionBy(*partition_by).parquet(url)
    else:
        dbio.write(once_more, url)


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(PAUSE_S)
    yield from batches


if __name__ == "__main__":
    main(*sys.argv[1:])
