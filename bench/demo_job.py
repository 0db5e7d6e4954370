"""The job that `make demo` kills: reads the flights and appends them all to the same table once more, slowly."""

import sys
import time
from collections.abc import Iterator

import pyarrow as pa

import dbio_commit as dbio
from bench.demo_stage import start_spark

TASKS = 24
PAUSE_S = 0.5  # for each task, so that there is a half-way to be killed at


def main(url: str) -> None:
    flights = dbio.read(start_spark(), url)
    dbio.write(flights.repartitionByRange(TASKS, "month", "day").mapInArrow(slowly, flights.schema), url)


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(PAUSE_S)
    yield from batches


if __name__ == "__main__":
    main(sys.argv[1])
