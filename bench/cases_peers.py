"""Case `peers`: Delta, Iceberg, and S3A's magic committer, each beside dbio_commit on the same Spark.

What is measured runs in the peers' own environments, which `make bench-peers` installs: see peers_job.py.
"""

import json
import os
import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow.dataset as ds

from bench import data, report
from bench.duels import Contender, Duel, Peer, Results, cells_of, compare_plans, duel, home_of, said, started, target_of
from bench.measure import Bench, take_turns
from bench.peers_appends import PROCESSES, ROWS
from bench.slow import slowed
from tests.servers import S3Server, moto_server

FILES = 30_000
APPENDS = 50
DELAY_S = 0.02
BUCKET = "peers"


def peers(bench: Bench) -> report.Section:
    for name in ("delta", "iceberg", "s3a"):
        home_of(name)  # else one that lacks would be found out after half an hour
    source = str(data.make_lineitem(bench.directory, bench.scale))
    directory = bench.directory / "peers"
    shutil.rmtree(directory, ignore_errors=True)
    with started(directory, "delta", "iceberg") as (delta, iceberg):
        duels = [duel(delta, "delta"), duel(iceberg, "iceberg")]
        results = [_lineitem(bench, duels, source), _plan(bench, duels)]
        versions = [delta.versions, iceberg.versions]
    with started(directory, "iceberg") as (python,):  # anew, without the Java of before
        times = max(5, round(APPENDS * min(bench.scale, 1)))
        results.append(_appends(bench, python, times))
    with moto_server() as server, slowed(server.endpoint_url, DELAY_S) as url:
        server.create_bucket(BUCKET)
        away = server.env | {"AWS_ENDPOINT_URL": url}
        with started(directory, "s3a", root=f"s3://{BUCKET}", env=away) as (s3a,):
            results.append(_on_s3(bench, s3a, server, source))
            versions.append(s3a.versions)
    shutil.rmtree(directory)
    return report.Section(
        title="beside Delta, Iceberg and the magic committer",
        how=_HOW.format(versions="; ".join(map(said, versions)), delay_ms=round(DELAY_S * 1000), appends=times,
                        processes=PROCESSES, rows=ROWS.num_rows),
        tables=[table for table, _ in results],
        targets=[target for _, targets in results for target in targets],
    )  # fmt: skip


_HOW = """\
Each peer has the newest Spark that it supports, and dbio_commit is measured on the same Spark, in the same session:
{versions}. All ways take turns, and the processes of the others rest. A ratio compares two ways on one Spark, and the
target is for the worse of the two ratios. All settings except snappy are the defaults. So Iceberg shuffles by month
before it writes by month, and puts each month into one file. Its catalog is a directory. Tables are new each time,
written after a `sync` that is not timed. A read includes making the DataFrame. A read of one column is
`sum(l_extendedprice)`, in 4 times as many rounds.

Plans are of files of two rows in 30 partitions. Each partition was one commit. There are 4 times as many rounds, by
processes with empty caches. A query is of all files; it is planned down to its tasks, and no task is run. dbio_commit
lists when the DataFrame is made, the peers when it is queried: the target compares the former with the latter. The
query of dbio_commit has a separate ratio.

Appends come from {processes} processes at once to one table on a local disk, {appends} from each, of {rows} rows,
without Spark. PyIceberg's catalog is SQLite, and it makes only this catalog durable (fsync). deltalake makes nothing
durable. dbio_commit makes all files durable, as in its writes above.

On S3 (moto, one request at a time) each request takes {delay_ms} ms more than moto does."""


# --- with Spark, on a local disk ----------------------------------------------------------------------------------


def _lineitem(bench: Bench, duels: Sequence[Duel], source: str) -> Results:
    """Writes, and reads of what was written."""
    contenders = {one.name: one for duel in duels for one in (duel.ours, duel.theirs)}
    against = {duel.ours.name: duel.theirs.name for duel in duels}
    rows: list[list[object]] = []
    targets: list[report.Target] = []

    def measure(what: str, job: str, *arguments: Any, short: bool = False, fresh: bool = False) -> None:
        def renew(name: str) -> None:
            contenders[name].ask("drop", table)
            os.sync()  # else what an earlier way left in the page cache would burden the next one

        ways = {name: partial(one.ask, job, table, *arguments) for name, one in contenders.items()}
        timings = take_turns(bench, f"peers: {what}", ways, before=renew if fresh else None, short=short)
        for name, cells in cells_of(timings, against).items():
            files, size_mb = contenders[name].ask("size", table)
            rows.append([what, name, *cells, *([files, f"{size_mb:.0f}"] if fresh else ["", ""])])
        targets.append(target_of(what, timings, against))

    for table, layout, by_month in (("flat", "one directory", False), ("by_month", "by ship month", True)):
        measure(f"write lineitem, {layout}", "write", source, by_month, fresh=True)
        counts = {name: one.ask("count", table) for name, one in contenders.items()}
        assert set(counts.values()) == {ds.dataset(source).count_rows()}, f"the ways wrote other rows: {counts}"
        measure(f"read one column, {layout}", "read_one_column", short=True)
        measure(f"read all columns, {layout}", "read_all_columns")
    return report.table(["what", "way", "median", "min", "max", "× the peer", "files", "MB"], rows), targets


def _plan(bench: Bench, duels: Sequence[Duel]) -> Results:
    files = max(300, round(FILES * min(bench.scale, 1))) // 30 * 30
    contenders = {one.name: one for duel in duels for one in (duel.ours, duel.theirs)}
    made = bench.progress.add_task(f"peers: tables of {files:,} files", total=len(contenders))
    for name, one in contenders.items():
        found = one.ask("make_tiny", "tiny", files)
        assert found == files, f"{name} finds {found} of {files} files"
        bench.progress.advance(made)
    planned, target = compare_plans(bench, f"plan {files:,} files", duels, "tiny", short=True)
    rows = [[f"{files:,}", *row] for row in planned]
    return report.table(["files", "way", "median", "min", "max", "× the peer"], rows), [target]


# --- without Spark ------------------------------------------------------------------------------------------------


def _appends(bench: Bench, python: "Peer", times: int) -> Results:
    contenders = {
        "dbio_commit": Contender("dbio_commit", python, "dbio"),
        "deltalake": Contender("deltalake", python, "deltalake"),
        "PyIceberg": Contender("PyIceberg", python, "pyiceberg"),
    }
    ways = {name: partial(one.ask, "append", times) for name, one in contenders.items()}
    timings = take_turns(bench, "peers: appends", ways, before=lambda name: contenders[name].ask("renew"))
    for one in contenders.values():
        one.ask("check_appends", times)
    faster = min(("deltalake", "PyIceberg"), key=lambda name: timings[name].median)
    rows = [
        [name, f"{PROCESSES * times / timings[name].median:.1f}", *cells]
        for name, cells in cells_of(timings, {"dbio_commit": faster}).items()
    ]
    target = target_of(f"time of as many appends by {PROCESSES} processes", timings, {"dbio_commit": faster})
    return report.table(["way", "appends a second", "median", "min", "max", "× the faster peer"], rows), [target]


# --- on S3 --------------------------------------------------------------------------------------------------------


def _on_s3(bench: Bench, s3a: "Peer", server: S3Server, source: str) -> Results:
    ours, magic = "dbio_commit", "magic committer"
    contenders = {ours: Contender(ours, s3a, "dbio"), magic: Contender(magic, s3a, "magic")}
    turns, client = dict.fromkeys(contenders, 0), server.client()

    def clear(name: str) -> None:
        turns[name] += 1  # for a table that nobody has seen
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{contenders[name].way}/"):
            if keys := [{"Key": found["Key"]} for found in page.get("Contents", [])]:
                client.delete_objects(Bucket=BUCKET, Delete={"Objects": keys})
        server.reset()

    def write(name: str) -> None:
        contenders[name].ask("write", f"t{turns[name]}", source, True)

    ways = {name: partial(write, name) for name in contenders}
    timings = take_turns(bench, "peers: write on S3", ways, before=clear)
    counts = {name: one.ask("count", f"t{turns[name]}") for name, one in contenders.items()}
    assert set(counts.values()) == {ds.dataset(source).count_rows()}, f"the ways wrote other rows: {counts}"
    marker = client.get_object(Bucket=BUCKET, Key=f"magic/t{turns[magic]}/_SUCCESS")["Body"].read()
    assert json.loads(marker)["committer"] == "magic", f"another committer was at work: {marker!r}"
    what, against = "write lineitem on S3, by ship month", {ours: magic}
    rows = [[what, name, *cells] for name, cells in cells_of(timings, against).items()]
    target = target_of(what, timings, against, at_most=0.6, peer="the magic committer")
    return report.table(["what", "way", "median", "min", "max", "× the magic committer"], rows), [target]
