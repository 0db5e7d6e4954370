"""Case `peers`: Delta, Iceberg, and S3A's magic committer, each beside dbio_commit on the same Spark.

What is measured runs in the peers' own environments, which `make bench-peers` installs: see peers_job.py.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.dataset as ds

from bench import data, report
from bench.measure import Bench, Timing, take_turns
from bench.peers_appends import PROCESSES, ROWS
from bench.slow import slowed
from tests.servers import S3Server, moto_server

ROOT = Path(__file__).parents[1]
FILES = 30_000
APPENDS = 50
DELAY_S = 0.02
BUCKET = "peers"

_Results = tuple[str, list[report.Target]]
"""A table, and what is to be said of it above all."""


def peers(bench: Bench) -> report.Section:
    for name in ("delta", "iceberg", "s3a"):
        _home(name)  # else one that lacks would be found out after half an hour
    source = str(data.make_lineitem(bench.directory, bench.scale))
    directory = bench.directory / "peers"
    shutil.rmtree(directory, ignore_errors=True)
    with started(directory, "delta", "iceberg") as (delta, iceberg):
        duels = [_duel(delta, "delta"), _duel(iceberg, "iceberg")]
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
        how=_HOW.format(versions="; ".join(map(_said, versions)), delay_ms=round(DELAY_S * 1000), appends=times,
                        processes=PROCESSES, rows=ROWS.num_rows),
        tables=[table for table, _ in results],
        targets=[target for _, targets in results for target in targets],
    )  # fmt: skip


_HOW = """\
Each peer has the newest Spark that it supports, and dbio_commit is measured on the same one, in the same session:
{versions}. All ways take turns, and the processes of the others rest; a ratio is of two ways on one Spark, and the
target is the worse of the two ratios. Settings are what each comes with, but for snappy: so Iceberg shuffles by month
before it writes by month, and puts each month into one file. Its catalog is a directory. Tables are new each time,
written after a `sync` that is not timed. A read includes making the DataFrame; of one column it is
`sum(l_extendedprice)`, in 4 times as many rounds.

Plans are of files of two rows in 30 partitions, each of which was one commit, in 4 times as many rounds, by processes
that have forgotten what they read before. A query is of all files, planned down to its tasks, of which none is run.
dbio_commit lists when the DataFrame is made, the peers when it is queried: the target is of the former beside the
latter; its query has a ratio of its own.

Appends are of {processes} processes at once to one table on a local disk, {appends} from each, of {rows} rows, without
Spark. PyIceberg's catalog is SQLite, which is all that it makes durable (fsync); deltalake makes nothing durable, and
dbio_commit all files, as in its writes above.

On S3 (moto, one request at a time) each request takes {delay_ms} ms more than moto does."""


def _said(versions: Mapping[str, str]) -> str:
    spark, *others = (f"{name} {version}" for name, version in versions.items())
    return f"{', '.join(others)} on {spark}"


# --- with Spark, on a local disk ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    peer: "Peer"
    way: str
    """Of peers_job.py."""

    def ask(self, job: str, *arguments: Any) -> Any:
        return self.peer.ask(job, self.way, *arguments)


@dataclass(frozen=True, slots=True)
class Duel:
    """On one Spark."""

    ours: Contender
    theirs: Contender


def _duel(peer: "Peer", way: str) -> Duel:
    spark = f"Spark {peer.versions['Spark']}"
    return Duel(Contender(f"dbio_commit, {spark}", peer, "dbio"), Contender(f"{way.capitalize()}, {spark}", peer, way))


def _lineitem(bench: Bench, duels: Sequence[Duel], source: str) -> _Results:
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
        for name, cells in _cells(timings, against).items():
            files, size_mb = contenders[name].ask("size", table)
            rows.append([what, name, *cells, *([files, f"{size_mb:.0f}"] if fresh else ["", ""])])
        targets.append(_target(what, timings, against))

    for table, layout, by_month in (("flat", "one directory", False), ("by_month", "by ship month", True)):
        measure(f"write lineitem, {layout}", "write", source, by_month, fresh=True)
        counts = {name: one.ask("count", table) for name, one in contenders.items()}
        assert set(counts.values()) == {ds.dataset(source).count_rows()}, f"the ways wrote other rows: {counts}"
        measure(f"read one column, {layout}", "read_one_column", short=True)
        measure(f"read all columns, {layout}", "read_all_columns")
    return report.table(["what", "way", "median", "min", "max", "× the peer", "files", "MB"], rows), targets


def _plan(bench: Bench, duels: Sequence[Duel]) -> _Results:
    files = max(300, round(FILES * min(bench.scale, 1))) // 30 * 30
    contenders = {one.name: one for duel in duels for one in (duel.ours, duel.theirs)}
    made = bench.progress.add_task(f"peers: tables of {files:,} files", total=len(contenders))
    for name, one in contenders.items():
        found = one.ask("make_tiny", "tiny", files)
        assert found == files, f"{name} finds {found} of {files} files"
        bench.progress.advance(made)
    opened = {f"{duel.ours.name}: the DataFrame": duel for duel in duels}
    queried = {f"{one.name}: a query": one for one in contenders.values()}
    ways = {name: partial(duel.ours.ask, "open", "tiny") for name, duel in opened.items()}
    ways |= {name: partial(one.ask, "plan", "tiny") for name, one in queried.items()}
    forgetting = {name: duel.ours for name, duel in opened.items()} | queried
    timings = take_turns(
        bench, f"peers: plan {files:,} files", ways, before=lambda name: forgetting[name].ask("forget"), short=True
    )
    against = {name: f"{duel.theirs.name}: a query" for name, duel in opened.items()}
    queries = {f"{duel.ours.name}: a query": f"{duel.theirs.name}: a query" for duel in duels}
    rows = [[f"{files:,}", name, *cells] for name, cells in _cells(timings, against | queries).items()]
    target = _target(f"plan {files:,} files", timings, against)
    return report.table(["files", "way", "median", "min", "max", "× the peer"], rows), [target]


# --- without Spark ------------------------------------------------------------------------------------------------


def _appends(bench: Bench, python: "Peer", times: int) -> _Results:
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
        for name, cells in _cells(timings, {"dbio_commit": faster}).items()
    ]
    target = _target(f"time of as many appends by {PROCESSES} processes", timings, {"dbio_commit": faster})
    return report.table(["way", "appends a second", "median", "min", "max", "× the faster peer"], rows), [target]


# --- on S3 --------------------------------------------------------------------------------------------------------


def _on_s3(bench: Bench, s3a: "Peer", server: S3Server, source: str) -> _Results:
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
    rows = [[what, name, *cells] for name, cells in _cells(timings, against).items()]
    target = _target(what, timings, against, at_most=0.6, peer="the magic committer")
    return report.table(["what", "way", "median", "min", "max", "× the magic committer"], rows), [target]


# --- ratios -------------------------------------------------------------------------------------------------------


def _cells(timings: Mapping[str, Timing], against: Mapping[str, str]) -> dict[str, list[str]]:
    """Of each way's row: its times, and their ratio where it is to be compared with another."""
    return {
        name: [*timing.cells(), f"{_ratio(timings, name, against[name]):.2f}" if name in against else ""]
        for name, timing in timings.items()
    }


def _target(
    what: str,
    timings: Mapping[str, Timing],
    against: Mapping[str, str],
    *,
    at_most: float = 1.0,
    peer: str = "the faster peer",
) -> report.Target:
    worst = max(_ratio(timings, name, other) for name, other in against.items())
    return report.Target(what=what, found=worst, at_most=at_most, unit=f"× {peer}")


def _ratio(timings: Mapping[str, Timing], name: str, other: str) -> float:
    return timings[name].median / timings[other].median


# --- processes ----------------------------------------------------------------------------------------------------


class Peer:
    """A process of peers_job.py in the environment of a peer. It does one job at a time."""

    def __init__(self, name: str, directory: Path, root: str, env: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._name, self._log = name, directory / "job.log"
        python = str(_home(name) / "bin/python")
        pythons = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", "bench.peers_job", name, str(directory), root],
                cwd=ROOT,
                env={**os.environ, **pythons, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.versions: Mapping[str, str] = self.ask("versions")

    def ask(self, job: str, *arguments: Any) -> Any:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            asked.write(json.dumps([job, *arguments]) + "\n")
            asked.flush()
        line = answered.readline()
        if not line:
            raise RuntimeError(f"The process of {self._name} has ended; it said: {self._log.read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self._name}: {job} {arguments} failed: {answer['error']}")
        return answer["answer"]

    def end(self) -> None:
        self._process.communicate()


def _home(name: str) -> Path:
    """The environment of the peer."""
    home = ROOT / ".venv-peers" / name
    if not (home / ".installed").exists():
        raise FileNotFoundError(f"{home} is not there, or not whole; `make bench-peers` installs it")
    return home


@contextmanager
def started(
    directory: Path, *names: str, root: str | None = None, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[list[Peer]]:
    """Each has a directory of its own, with its tables unless they are below another root."""
    with ExitStack() as stack:
        found = []
        for name in names:
            found.append(Peer(name, directory / name, root or str(directory / name), env))
            stack.callback(found[-1].end)
        yield found
