"""The stream that `make demo` kills: copies a table to another, a file at a time."""

import sys

import dbio_commit as dbio
from bench.demo_stage import start_spark


def main(source: str, target: str, checkpoint: str) -> None:
    spark = start_spark()
    dbio.enable(spark)
    flights = spark.readStream.format("dbio").option("maxFilesPerTrigger", 1).load(source)
    dbio.write_stream(flights, target, checkpoint, trigger={"availableNow": True}).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
