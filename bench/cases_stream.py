"""Case `stream`: lineitem as a stream, against Spark's own Parquet sink."""

import os
import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import dbio_commit as dbio
from bench import data, report
from bench.measure import Bench, parquet_size, spark_session, take_turns

SINK, OURS, PLAIN = "Spark's Parquet sink", "dbio.write_stream", 'writeStream.format("dbio")'
EACH, SOURCE = "foreachBatch(dbio.batch_writer(…))", "reading the source alone"
BATCHES, FILES = 5, 2
"""And how many files each has: as many as Spark has cores."""


def stream(bench: Bench) -> report.Section:
    root = bench.directory / "stream"
    shutil.rmtree(root, ignore_errors=True)
    targets = {name: root / str(number) for number, name in enumerate((SINK, OURS, PLAIN, EACH))}
    with spark_session(bench.directory) as spark:
        rows = _make_source(spark, data.make_lineitem(bench.directory, bench.scale), root / "source")
        dbio.enable(spark)
        frame = _stream(spark, root / "source")

        def write(name: str, writer: DataStreamWriter) -> None:
            writer.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True)
            writer.start().awaitTermination()

        def ours() -> None:
            query = dbio.write_stream(frame, targets[OURS], root / "checkpoint", trigger={"availableNow": True})
            query.awaitTermination()

        def clear(name: str) -> None:
            for directory in (targets.get(name), root / "checkpoint"):
                if directory:
                    shutil.rmtree(directory, ignore_errors=True)
            os.sync()  # else what an earlier way left in the page cache would burden the next one

        timings = take_turns(
            bench,
            "stream lineitem",
            {
                SINK: lambda: write(SINK, frame.writeStream.format("parquet").option("path", str(targets[SINK]))),
                OURS: ours,
                PLAIN: lambda: write(PLAIN, frame.writeStream.format("dbio").option("path", str(targets[PLAIN]))),
                EACH: lambda: write(EACH, frame.writeStream.foreachBatch(dbio.batch_writer(targets[EACH], "bench"))),
                SOURCE: lambda: write(SOURCE, frame.writeStream.format("noop")),
            },
            before=clear,
        )
        counts = {name: _count(spark, name, target) for name, target in targets.items()}
        assert set(counts.values()) == {rows}, f"the ways wrote different numbers of rows: {counts}, not {rows}"
        commits = {name: len(dbio.Table(target).history()) for name, target in targets.items() if name != SINK}
        assert set(commits.values()) == {BATCHES}, f"not each batch is one commit: {commits}"
    sizes = {name: parquet_size(target) for name, target in targets.items()}
    shutil.rmtree(root)
    cells = [
        [
            name,
            *timing.cells(),
            f"{timing.median / timings[SINK].median:.2f}",
            *([f"{sizes[name][0]}", f"{sizes[name][1]:.0f}"] if name in sizes else ["", ""]),
        ]
        for name, timing in timings.items()
    ]
    return report.Section(
        title="stream lineitem into one directory",
        how=_HOW,
        tables=[report.table(["way", "median", "min", "max", "× sink", "files", "MB"], cells)],
        targets=[
            report.Target(
                what="stream lineitem",
                found=timings[OURS].median / timings[SINK].median,
                at_most=0.85,
                unit="× Spark's Parquet sink",
            )
        ],
    )


_HOW = f"""\
`spark.readStream` of {BATCHES * FILES} Parquet files, {FILES} in each of {BATCHES} batches, so that two tasks write;
each time to a fresh directory with a fresh checkpoint, after a `sync` that is not timed. Each way includes starting the
query, keeping its offsets and reading the source. The last line is reading alone (into Spark's `noop` sink)."""


def _make_source(spark: SparkSession, lineitem: Path, source: Path) -> int:
    """Cut into files of the same size; returns the number of rows."""
    spark.read.parquet(str(lineitem)).repartition(BATCHES * FILES).write.parquet(str(source))
    return spark.read.parquet(str(source)).count()


def _stream(spark: SparkSession, source: Path) -> DataFrame:
    schema = spark.read.parquet(str(source)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES).parquet(str(source))


def _count(spark: SparkSession, name: str, target: Path) -> int:
    return (spark.read.parquet(str(target)) if name == SINK else dbio.read(spark, target)).count()
