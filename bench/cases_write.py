"""Cases `write-flat` and `write-by-month`: lineitem, against Spark's own Parquet writer."""

import os
import shutil
from collections.abc import Sequence

from pyspark.sql import DataFrame

import dbio_commit as dbio
from bench import data, report
from bench.measure import Bench, parquet_size, spark_session, take_turns

V1, V2, OURS, SOURCE = "Spark, committer v1", "Spark, committer v2", "dbio.write", "reading the source alone"
ENABLED = "df.write.parquet after dbio.enable"


def flat(bench: Bench) -> report.Section:
    return _write(bench, "lineitem into one directory", partition_by=(), at_most=0.72)


def by_month(bench: Bench) -> report.Section:
    return _write(bench, "lineitem partitioned by ship month", partition_by=(data.MONTH,), at_most=0.42)


def _write(bench: Bench, title: str, *, partition_by: Sequence[str], at_most: float) -> report.Section:
    source = data.make_lineitem(bench.directory, bench.scale)
    targets = {name: bench.directory / "write" / str(number) for number, name in enumerate((V1, V2, OURS, ENABLED))}
    with spark_session(bench.directory) as spark:
        lineitem = spark.read.parquet(str(source))
        df = data.with_month(lineitem) if partition_by else lineitem

        def spark_writer(committer: str, name: str) -> None:
            writer = df.write.option("mapreduce.fileoutputcommitter.algorithm.version", committer)
            writer.partitionBy(*partition_by).parquet(str(targets[name]))

        def enabled_writer() -> None:
            df.write.partitionBy(*partition_by).parquet(str(targets[ENABLED]))

        dbio.enable(spark, parquet=True, roots=[targets[ENABLED]])

        def clear(name: str) -> None:
            if name in targets:
                shutil.rmtree(targets[name], ignore_errors=True)
            os.sync()  # else what an earlier way left in the page cache would burden the next one

        timings = take_turns(
            bench,
            title,
            {
                V1: lambda: spark_writer("1", V1),
                V2: lambda: spark_writer("2", V2),
                OURS: lambda: dbio.write(df, targets[OURS], partition_by=partition_by),
                ENABLED: enabled_writer,
                SOURCE: lambda: _discard(df),
            },
            before=clear,
        )
        rows = {spark.read.parquet(str(target)).count() for target in targets.values()}
        assert rows == {lineitem.count()}, f"the ways wrote different numbers of rows: {rows}"
    sizes = {name: parquet_size(target) for name, target in targets.items()}
    shutil.rmtree(bench.directory / "write")

    def ratio(name: str, base: str) -> float:
        return timings[name].median / timings[base].median

    cells = [
        [
            name,
            *timing.cells(),
            f"{ratio(name, V1):.2f}",
            f"{ratio(name, V2):.2f}",
            *([f"{sizes[name][0]}", f"{sizes[name][1]:.0f}"] if name in sizes else ["", ""]),
        ]
        for name, timing in timings.items()
    ]
    return report.Section(
        title=f"write {title}",
        how=_HOW,
        tables=[report.table(["way", "median", "min", "max", "× v1", "× v2", "files", "MB"], cells)],
        targets=[
            report.Target(what=f"write {title}", found=ratio(OURS, V1), at_most=at_most, unit="× v1"),
            report.Target(what=f"write {title} by Spark", found=ratio(ENABLED, V2), at_most=1.05, unit="× v2"),
        ],
    )


_HOW = """\
The same DataFrame each time, `spark.read.parquet` of two files, so that two tasks write; each time to a fresh
directory, after a `sync` that is not timed. Each way includes reading the source. The time of reading alone (into
Spark's `noop` sink) is the last line. Nothing is repartitioned: users type `df.write[.partitionBy(…)].parquet(path)`
and `dbio.write(df, path[, partition_by=…])`. `dbio.write` makes every file durable (fsync) before it commits; Spark's
writer leaves that to the operating system."""


def _discard(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()
