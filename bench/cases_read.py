"""Cases `read` and `plan`: what dbio.read costs over spark.read.parquet on the same files."""

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import dbio_commit as dbio
from bench import data, report
from bench.measure import Bench, spark_session, take_turns

PLAIN, PLAIN_SCHEMA, OURS = "spark.read.parquet", "spark.read.schema(…).parquet", "dbio.read"
_Way = Callable[[], DataFrame]


def read(bench: Bench) -> report.Section:
    """One column, and all, of tables that dbio.write wrote."""
    source = data.make_lineitem(bench.directory, bench.scale)
    with spark_session(bench.directory) as spark:
        lineitem = spark.read.parquet(str(source))
        flat, by_month = bench.directory / "read" / "flat", bench.directory / "read" / "by_month"
        shutil.rmtree(bench.directory / "read", ignore_errors=True)
        dbio.write(lineitem, flat)
        dbio.write(data.with_month(lineitem), by_month, partition_by=[data.MONTH])
        found = [
            (what, _read(bench, spark, path, what, action))
            for path, layout in ((flat, "one directory"), (by_month, "by ship month"))
            for what, action in ((f"one column, {layout}", _one_column), (f"all columns, {layout}", _all_columns))
        ]
    shutil.rmtree(bench.directory / "read")
    return report.Section(
        title="read lineitem",
        how="The table as `dbio.write` wrote it. Each time includes making the DataFrame. One column is "
        "`sum(l_extendedprice)`, in 4 times as many rounds because it is short; all columns go to Spark's `noop` sink.",
        tables=[
            report.table(
                ["what", "way", "median", "min", "max", "× plain"], [row for _, (rows, _) in found for row in rows]
            )
        ],
        targets=[
            report.Target(what=f"read {what}", found=ratio, at_most=1.05, unit="× plain") for what, (_, ratio) in found
        ],
    )


def _read(
    bench: Bench, spark: SparkSession, path: Path, what: str, action: Callable[[DataFrame], object]
) -> tuple[list[list[str]], float]:
    ways = {
        PLAIN: lambda: action(spark.read.parquet(str(path))),
        OURS: lambda: action(dbio.read(spark, path)),
    }
    timings = take_turns(bench, f"read {what}", ways, short=action is _one_column)
    ratio = timings[OURS].median / timings[PLAIN].median
    return [[what, PLAIN, *timings[PLAIN].cells(), ""], ["", OURS, *timings[OURS].cells(), f"{ratio:.2f}"]], ratio


def _one_column(df: DataFrame) -> None:
    df.select(F.sum("l_extendedprice")).collect()


def _all_columns(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


# --- planning -----------------------------------------------------------------------------------------------------


def plan(bench: Bench) -> report.Section:
    """Making the DataFrame, which is where Spark lists."""
    rows: list[list[str]] = []
    targets: list[report.Target] = []
    path = bench.directory / "plan"
    with spark_session(bench.directory) as spark:
        for files in (1_000, 10_000, 30_000):
            data.make_tiny_files(path, files)
            ways: dict[str, _Way] = {
                PLAIN: lambda: spark.read.parquet(str(path)),
                PLAIN_SCHEMA: lambda: spark.read.schema(data.TINY_COLUMNS).parquet(str(path)),
                OURS: lambda: dbio.read(spark, path),
            }
            counts = {name: len(way().inputFiles()) for name, way in ways.items()}
            assert set(counts.values()) == {files // 30 * 30}, f"the ways find different files: {counts}"
            timings = take_turns(bench, f"plan {files:,} files", ways, short=True)
            ratio = {name: timings[OURS].median / timings[name].median for name in (PLAIN, PLAIN_SCHEMA)}
            rows += [
                [f"{files:,}", name, *timing.cells(), f"{timing.median / timings[PLAIN].median:.2f}"]
                for name, timing in timings.items()
            ]
            if files == 30_000:
                targets = [
                    report.Target(what=f"plan {files:,} files", found=ratio[PLAIN], at_most=0.5, unit=f"× {PLAIN}")
                ]
    shutil.rmtree(path)
    return report.Section(
        title="planning of many files",
        how="Only making the DataFrame, of files of two rows in 30 partitions. Each partition was one commit. "
        f"Users type `{PLAIN}`, which lists the directories, and reads a footer for the columns. There are 4 times as "
        "many rounds as for the writes, because it is short.",
        tables=[report.table(["files", "way", "median", "min", "max", "× plain"], rows)],
        targets=targets,
    )
