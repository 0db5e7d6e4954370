"""Makes the archive of Spark's classes from which .ci/java starts Spark: `python -m tests.java_archive FILE`.

Java keeps the classes that it has loaded by its end: so this does a little of all that tests do, in a classic session
and over Spark Connect, whose server is the same JVM.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.beside import free_ports


def main(archive: Path) -> None:
    # Of Java's own classes, first; PyPI's Java comes without.
    java = [f"{os.environ['JAVA_HOME']}/bin/java", "-Xshare:dump", "-Xlog:disable"]
    subprocess.run(java, env={**os.environ, "DBIO_JAVA_OPTIONS": ""}, check=True)
    unfinished = archive.with_suffix(".new")
    os.environ["DBIO_JAVA_ARCHIVE"] = str(unfinished.absolute())
    (port,) = free_ports(1)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.port", str(port))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    with TemporaryDirectory() as directory:
        use(spark, directory + "/classic")
        use_classic(spark, directory + "/enabled")
        over_connect = [sys.executable, "-m", "tests.java_archive", f"sc://127.0.0.1:{port}", directory + "/connect"]
        subprocess.run(over_connect, check=True)
        spark.stop()
    process.stdin.close()
    if process.wait() or not unfinished.exists():
        sys.exit(f"Java made no archive (exit code {process.returncode}); was another make at work here? Run it again")
    unfinished.replace(archive)


def use(spark: SparkSession, directory: str) -> None:
    """Writes, reads, joins, changes and streams a few rows."""
    plain, table = f"{directory}/plain", f"{directory}/table"
    rows = spark.range(0, 10, 1, 2).selectExpr(
        "id", "concat('d', id % 2) AS day", "cast(id AS decimal(9, 2)) AS price", "current_timestamp() AS at"
    )
    rows.write.partitionBy("day").parquet(plain)
    spark.read.parquet(plain).where("id > 3").groupBy("day").count().collect()
    rows.join(spark.read.parquet(plain), "id").select("id").mapInArrow(as_they_are, "id bigint").toArrow()
    dbio.write(rows, table, partition_by="day")
    dbio.read(spark, table).orderBy("id").collect()
    dbio.delete(spark, table, "id = 1")
    dbio.merge(spark, table, rows.where("id < 3"), on=["id"])
    dbio.enable(spark)
    spark.read.format("dbio").load(table).where("id = 2").collect()
    rows.write.format("dbio").mode("append").save(table)
    stream = spark.readStream.schema(rows.schema).parquet(plain)
    dbio.write_stream(stream, table, f"{directory}/checkpoint", trigger={"availableNow": True}).awaitTermination()


def use_classic(spark: SparkSession, table: str) -> None:
    dbio.enable(spark, parquet=True)
    spark.range(3).write.parquet(table)
    spark.read.parquet(table).createOrReplaceTempView("rows")
    spark.sql("SELECT count(*) FROM rows WHERE id IN (1, 2)").collect()


def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    if sys.argv[1].startswith("sc://"):  # as main() calls it
        use(SparkSession.builder.remote(sys.argv[1]).getOrCreate(), sys.argv[2])
    else:
        main(Path(sys.argv[1]))
