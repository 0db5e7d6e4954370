"""Case `requests`: what writes, commits and reads ask of S3, counted exactly at moto."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from bench import report
from bench.measure import Bench, start_spark
from dbio_commit.base.options import CHECKPOINT_EVERY
from tests.servers import Request, moto_server

FILES = 8
_Call = Callable[..., Any]


def requests(bench: Bench) -> report.Section:
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    counting = bench.progress.add_task("requests", total=14)
    with moto_server() as server:
        server.create_bucket("bench")
        flat, parts = "s3://bench/flat", "s3://bench/parts"

        def count(what: str, run: _Call, call: _Call, *arguments: Any, at_most: int | None = None) -> None:
            server.reset()
            run(call, server.storage_options, *arguments)
            seen = server.requests()
            before, data, after = _split(seen)
            others = len(before) + len(after)
            rows.append([what, kinds(before), kinds(data), kinds(after), others])
            if at_most:
                targets.append(
                    report.Target(what=what, found=others, at_most=at_most, unit="requests besides the data")
                )
            bench.progress.update(counting, advance=1, description=f"requests: {what}")

        with _process(bench.directory) as run:
            count("first write, new table, new process", run, _write, flat)
            count("first append, same process", run, _write, flat, at_most=8)
            count("append, same process", run, _write, flat, at_most=6)
            count("overwrite", run, _write, flat, "overwrite")
            count("append after the overwrite", run, _write, flat, at_most=6)
            count("first write, new partitioned table", run, _write, parts)
            count("overwrite_partitions", run, _write, parts, "overwrite_partitions")
        with _process(bench.directory) as run:
            count("append, new process", run, _write, flat, at_most=11)
        commits = len(dbio.Table(flat, server.storage_options).snapshot().tids)
        with _process(bench.directory) as run:
            count(f"Table.snapshot() of {commits} commits", run, _snapshot, flat, at_most=4 + commits)
            count(f"dbio.read of {commits} commits", run, _plan, flat, at_most=4 + commits)
            count(f"dbio.read of {commits} commits, and its rows", run, _collect, flat)
        both = "s3://bench/one", "s3://bench/other"
        with _process(bench.directory) as run:
            for url in both:
                run(_write, server.storage_options, url)
            run(_write_jointly, server.storage_options, *both)
            count("joint append to two tables, same process", run, _write_jointly, *both, at_most=2 * 9)
            count("snapshots of two tables by themselves", run, _snapshot_each, *both)
            count("dbio.snapshots of two tables", run, _snapshots, *both)
    return report.Section(
        title="requests on S3",
        how=f"Writes of {FILES} small files by {FILES} tasks, counted at moto: before the first data file, of "
        "data files, and after the last data file, which is the commit. `DELETE` is one request for many objects. The "
        "target of an append is its data uploads + 6, in a joint transaction + 9 for each table, of the first in a "
        "process + 8, and three more if the process has not proved the store yet. The target of a read is 4 + one GET "
        "for each commit. A file over 16 MB is uploaded in parts, each a request. One commit in 64 also looks whether "
        "a checkpoint is due, which takes a snapshot; none does so here. Spark has no connector to S3 here, so Python "
        "workers read.",
        tables=[report.table(["what", "before", "data", "after", "in all, without data"], rows)],
        targets=targets,
    )


def _split(seen: Sequence[Request]) -> tuple[Sequence[Request], Sequence[Request], Sequence[Request]]:
    """The requests before those of data files, those of data files, and those after. Without data, all come before."""
    data = [i for i, request in enumerate(seen) if _is_data(request)]
    first, last = (data[0], data[-1] + 1) if data else (len(seen), len(seen))
    between = [request for request in seen[first:last] if not _is_data(request)]
    return seen[:first], seen[first:last], [*between, *seen[last:]]


def _is_data(request: Request) -> bool:
    return request.path.endswith(".parquet")


def kinds(requests: Sequence[Request]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in Counter(map(_kind, requests)).most_common())


def _kind(request: Request) -> str:
    if request.method == "POST" and "delete" in request.query:
        return "DELETE"
    return "LIST" if "list-type" in request.query else request.method


# --- in processes of their own ------------------------------------------------------------------------------------


@contextmanager
def _process(directory: Path) -> Iterator[_Call]:
    """Runs calls in one new process, which has a Spark session and has not seen the store yet."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=_start, initargs=(directory,)) as pool:
        yield lambda call, *arguments: pool.submit(call, *arguments).result()


def _start(directory: Path) -> None:
    warnings.filterwarnings("ignore", message="Spark cannot read")  # it has no connector, as the section says
    os.environ[CHECKPOINT_EVERY] = "0"
    start_spark(directory)


def _write(options: dict[str, Any], url: str, mode: Any = "append") -> None:
    df = SparkSession.builder.getOrCreate().range(1000).selectExpr("id", "id % 2 as p").repartition(FILES, "id")
    partition_by = ["p"] if url.endswith("parts") else []
    dbio.write(df, url, mode, partition_by, storage_options=options)


def _snapshot(options: dict[str, Any], url: str) -> None:
    dbio.Table(url, options).snapshot()


def _write_jointly(options: dict[str, Any], *urls: str) -> None:
    df = SparkSession.builder.getOrCreate().range(1000).selectExpr("id", "id % 2 as p").repartition(FILES, "id")
    with dbio.transaction() as tx:
        for url in urls:
            tx.write(df, dbio.Table(url, options))


def _snapshot_each(options: dict[str, Any], *urls: str) -> None:
    for url in urls:
        _snapshot(options, url)


def _snapshots(options: dict[str, Any], *urls: str) -> None:
    dbio.snapshots([*urls], storage_options=options)


def _read(options: dict[str, Any], url: str) -> DataFrame:
    return dbio.read(SparkSession.builder.getOrCreate(), url, storage_options=options)


def _plan(options: dict[str, Any], url: str) -> None:
    _read(options, url)


def _collect(options: dict[str, Any], url: str) -> None:
    _read(options, url).collect()
