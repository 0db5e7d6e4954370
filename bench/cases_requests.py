"""Case `requests`: what writes, commits and reads ask of S3, counted exactly at moto."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dbio_commit as dbio
from bench import report
from bench.measure import Bench, spark_session
from tests.servers import Request, S3Server, moto_server

FILES = 8
COMMITS = 5


def requests(bench: Bench) -> report.Section:
    counting = bench.progress.add_task("requests", total=9)
    rows: list[list[object]] = []
    other: dict[str, int] = {}
    with moto_server() as server:
        server.create_bucket("bench")

        def count(what: str, call: Callable[[], object]) -> None:
            server.reset()
            call()
            begin, data, commit = split(server.requests())
            rows.append([what, len(data) or "", describe(begin), describe(commit), len(begin) + len(commit)])
            other[what] = len(begin) + len(commit)
            bench.progress.update(counting, advance=1, description=f"requests: {what}")

        flat, parts = _Job("s3://bench/flat", server), _Job("s3://bench/parts", server, partition_by=["p"])
        with _process(bench.directory) as run:
            count("first write, new table, new process", lambda: run(flat.write))
            count("append, same process", lambda: run(flat.write))
            count("first write to another table, same process", lambda: run(parts.write))
            count("overwrite_partitions, same process", lambda: run(parts.write, "overwrite_partitions"))
        with _process(bench.directory) as run:
            run(_ready)
            count("append, new process", lambda: run(flat.write))
            for _ in range(COMMITS - 3):
                run(flat.write)
            ...
    return report.Section(title="", how="", tables=[], targets=[])
