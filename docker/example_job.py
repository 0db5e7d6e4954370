"""A PySpark job of compose.yaml: appends to a table and overwrites it, on each given store.

The files that the overwrite replaced are then garbage, and the scheduled vacuum deletes them. Credentials are in the
environment.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

import dbio_commit as dbio

ROWS = 10_000


def main(urls: Sequence[str]) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")  # this Spark has no connector for the stores, and would log long warnings
    try:
        for url in urls:
            append_and_overwrite(spark, url)
    finally:
        spark.stop()


def append_and_overwrite(spark: SparkSession, url: str) -> None:
    old = spark.range(ROWS).selectExpr("id", "id % 7 AS day", "'old' AS kind")
    new = spark.range(ROWS).selectExpr("id", "id % 7 AS day", "'new' AS kind")
    dbio.write(old, url, partition_by=["day"])
    dbio.write(new, url, mode="overwrite")
    dbio.write(new, url)
    report = dbio.Table(url).check()
    garbage = sum(map(len, report.garbage.values()))
    print(f"{url}: {dbio.read(spark, url).count():,} rows in {report.live_files} files; {garbage} files are garbage")


if __name__ == "__main__":
    main(sys.argv[1:])
