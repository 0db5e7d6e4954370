"""Case `unchanged`: what reads in unchanged code list, with `enable(parquet=True)` and without."""

import shutil
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import dbio_commit as dbio
from bench import report
from bench.measure import Bench, spark_session
from dbio_commit.spark.catalog.reads import SWITCH

PARTITIONS = 1_000
_Way = Callable[[SparkSession, str], object]


def unchanged(bench: Bench) -> report.Section:
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    path = str(bench.directory / "unchanged")
    shutil.rmtree(path, ignore_errors=True)
    ways: dict[str, _Way] = {
        "spark.read.parquet(path).count()": lambda spark, path: spark.read.parquet(path).count(),
        "one partition of it": lambda spark, path: spark.read.parquet(path).where("p = 7").count(),
        "SQL on parquet.`path`": lambda spark, path: spark.sql(f"SELECT count(id) FROM parquet.`{path}`").collect()[0][
            0
        ],
        "a pattern, p=1*": lambda spark, path: spark.read.parquet(f"{path}/p=1*").count(),
    }
    with spark_session(bench.directory) as spark:
        dbio.enable(spark, parquet=True)
        frame = spark.sql(f"SELECT id, id % {PARTITIONS} AS p FROM range({2 * PARTITIONS})").repartition(2, "p")
        for mode in ("overwrite", "overwrite"):
            dbio.write(frame, path, mode=mode, partition_by="p")
        for what, way in ways.items():
            for switch, name in (("off", "Spark alone"), ("on", "enabled")):
                spark.conf.set(SWITCH, switch)
                before = _listed(spark)
                found = way(spark, path)
                files, jobs = (after - earlier for after, earlier in zip(_listed(spark), before, strict=True))
                rows.append([what, name, files, jobs, found])
                if switch == "on":
                    targets.append(report.Target(what=what, found=files + jobs, at_most=0, unit="files or jobs listed"))
    shutil.rmtree(path)
    return report.Section(
        title="reads in unchanged code",
        how=f"A table with {PARTITIONS:,} partitions, which was overwritten once, so that half of its files count. "
        "Spark counts what it lists itself. An enabled session gets the files from the log.",
        tables=[report.table(["what", "session", "files listed", "Spark jobs that list", "rows"], rows)],
        targets=targets,
    )


def _listed(spark: SparkSession) -> tuple[int, int]:
    """How many files Spark has listed, and in how many jobs."""
    metrics: Any = getattr(spark._jvm, "org.apache.spark.metrics.source.HiveCatalogMetrics")
    return (
        int(metrics.METRIC_FILES_DISCOVERED().getCount()),
        int(metrics.METRIC_PARALLEL_LISTING_JOB_COUNT().getCount()),
    )
