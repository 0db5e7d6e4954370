"""A Spark of another version, or with Delta or Iceberg, that reads what a table publishes, without dbio_commit.

Runs in an environment of its own, started by tests/integration/test_published_readers.py: `python other_reader.py
parquet | delta [IVY] | iceberg [IVY] [VERSION]`. Each line of stdin is JSON, and is answered by a line: the path,
options of the reader, and either where to write what was read, or a condition in SQL, whose rows are answered by `id`.
An error of Spark is an answer, too.
"""

import json
import os
import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession


def start(form: str, ivy: str, release: str) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.extraJavaOptions", os.environ.get("DBIO_JAVA_OPTIONS", ""))
        .config("spark.sql.shuffle.partitions", 1)
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
            .config("spark.databricks.delta.snapshotPartitions", 1)  # of 50 tasks, a read took 10 s of CPU
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        )
    if form == "iceberg":
        series = ".".join(pyspark.__version__.split(".")[:2])
        jar = f"org.apache.iceberg:iceberg-spark-runtime-{series}_2.13:{release}"
        builder = builder.config("spark.jars.ivy", ivy).config("spark.jars.packages", jar)
    return builder.getOrCreate()


def answer_to(
    spark: SparkSession, form: str, path: str, options: dict[str, str], target: str, where: str
) -> dict[str, Any]:
    if form == "iceberg":
        path = f"{path}/_iceberg"
    frame = spark.read.format(form).options(**options).load(path)
    if where:
        return {"ids": [row.id for row in frame.where(where).select("id").collect()]}
    frame.coalesce(1).write.mode("overwrite").parquet(target)
    return {"rows": frame.count()}


def main(form: str, ivy: str = "", release: str = "") -> None:
    spark = start(form, ivy, release)
    print(json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            answer = answer_to(spark, form, *json.loads(line))
        except Exception as error:  # of Spark, of Java, or of the form
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
