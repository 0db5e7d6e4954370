"""A Spark of another version, or with Delta or Iceberg, that reads what a table publishes, without dbio_commit.

Runs in an environment of its own, started by tests/integration/test_published_readers.py: `python other_reader.py
parquet | delta [IVY] | iceberg [IVY] [VERSION]`. Each line of stdin is JSON: the path, where to write what was read,
and options of the reader; `where` among them is a condition in SQL. Each is answered by a line.
"""

import json
import sys

import pyspark
from pyspark.sql import SparkSession


def start(form: str, ivy: str, release: str) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")  # 3.5 asks, of dates before 1582 by no Spark
        .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    )
    if form == "delta":
        from delta.pip_utils import configure_spark_with_delta_pip  # type: ignore[import-not-found]

        builder = (
            configure_spark_with_delta_pip(builder)
            .config("spark.jars.ivy", ivy)
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        )
    if form == "iceberg":
        series = ".".join(pyspark.__version__.split(".")[:2])
        jar = f"org.apache.iceberg:iceberg-spark-runtime-{series}_2.13:{release}"
        builder = builder.config("spark.jars.ivy", ivy).config("spark.jars.packages", jar)
    return builder.getOrCreate()


def main(form: str, ivy: str = "", release: str = "") -> None:
    spark = start(form, ivy, release)
    print(json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        path, target, options = json.loads(line)
        if form == "iceberg":
            path = f"{path}/_iceberg"
        where = options.pop("where", "true")
        frame = spark.read.format(form).options(**options).load(path).where(where)
        frame.coalesce(1).write.mode("overwrite").parquet(target)
        print(json.dumps({"rows": frame.count()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
