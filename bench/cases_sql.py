"""Case `sql`: SELECT, DELETE, UPDATE and MERGE by SQL, beside the functions, and beside Delta's and Iceberg's SQL.

What is measured runs in the peers' own environments: see peers_job.py.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb

from bench import data, report
from bench.cases_rewrites import FILES, TABLE, make_source, make_tables
from bench.duels import Contender, Peer, cells_of, home_of, said, started, target_of
from bench.measure import Bench, Timing, take_turns

SELECTS = {
    "sum of one column": "SELECT sum(l_extendedprice) FROM {}",
    "groups of some rows": "SELECT l_returnflag, sum(l_quantity) FROM {} WHERE l_orderkey % 10 < 5 GROUP BY 1",
    "all rows": "SELECT * FROM {}",
}
SHARE, MOST_ROUNDS = 0.25, 3
"""Of the scale; and the counted rounds. The statements of Delta and Iceberg rewrite 100 files each time."""
LONG = "all rows"
"""The query that takes so long that a few rounds are enough."""


def sql(bench: Bench) -> report.Section:
    for name in ("delta", "iceberg"):
        home_of(name)
    bench = replace(bench, scale=bench.scale * SHARE, rounds=min(bench.rounds, MOST_ROUNDS))
    source = data.make_lineitem(bench.directory, bench.scale)
    directory = bench.directory / "sql"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    with duckdb.connect() as connection:
        last = connection.execute(f"SELECT max(l_orderkey) FROM '{source}/*.parquet'").fetchall()[0][0]
    news = make_source(f"{directory}/news.parquet", f"{source}/*.parquet", f"l_orderkey <= {last // 10}", last)
    jobs: dict[str, tuple[Any, ...]] = {
        "DELETE of 1 % of the rows": ("delete", "l_orderkey % 100 = 7"),
        "UPDATE of 10 % of the rows": ("update", {"l_extendedprice": "l_extendedprice + 1"}, "l_orderkey % 10 = 3"),
        f"MERGE of 10 % of the rows, in 10 of {FILES} files": ("merge", news),
    }
    with started(directory, "delta", "iceberg") as (delta, iceberg):
        trials = [
            _Trial(delta, {"delta_sql": "Delta", "delta_vectors": "Delta with deletion vectors"}, "delta_sql"),
            _Trial(iceberg, {"iceberg": "Iceberg"}, "iceberg"),
        ]
        tables, targets = _measure(bench, trials, str(source), jobs)
        versions = [delta.versions, iceberg.versions]
    shutil.rmtree(directory)
    return report.Section(
        title="SQL beside the functions, Delta and Iceberg",
        how=_HOW.format(
            versions="; ".join(map(said, versions)), files=FILES, scale=f"{bench.scale:g}", rounds=bench.rounds
        ),
        tables=tables,
        targets=targets,
    )


_HOW = """\
Each peer has the newest Spark that it supports, and dbio_commit is measured on the same Spark, in the same session:
{versions}. A ratio compares with SQL on dbio tables on the same Spark, and a target is for the worse of the two Sparks.
lineitem has the scale {scale}, is in {files} files by ranges of its orders, and is restored before each statement.
{rounds} rounds are counted, and 4 times as many of the first two queries. SELECT of dbio_commit is compared with
`dbio.read`, and the statements with `dbio.delete`, `update` and `merge`. Iceberg copies on write, and so does Delta
without deletion vectors. Targets leave Delta with deletion vectors out: its statements write which rows are gone, and
every later read pays for that. How much, the reads of all rows after each statement show. The first queries come before
any statement, when no table has deletion vectors."""


class _Trial:
    """The ways that are compared on one Spark."""

    def __init__(self, peer: Peer, peers: Mapping[str, str], copying: str) -> None:
        def contender(name: str, way: str) -> Contender:
            return Contender(f"{name}, Spark {peer.versions['Spark']}", peer, way)

        self.sql, self.functions = contender("dbio_commit", "dbio_sql"), contender("dbio_commit, functions", "dbio")
        others = {way: contender(name, way) for way, name in peers.items()}
        self.copying = others[copying]
        """The peer's way that copies on write."""
        self.ways = {it.name: it for it in (self.sql, self.functions, *others.values())}
        """All of them, by name."""
        self.readers = {it.name: it for it in (self.sql, self.functions, self.copying)}
        """Those that read a table in different ways before any statement."""
        self.later = {name: it for name, it in self.ways.items() if it is not self.functions and len(others) > 1}
        """Those that may read it in different ways after a statement."""


def _measure(
    bench: Bench, trials: Sequence[_Trial], source: str, jobs: Mapping[str, tuple[Any, ...]]
) -> tuple[list[str], list[report.Target]]:
    contenders = {name: one for trial in trials for name, one in trial.ways.items()}
    renew = make_tables(bench, "sql", contenders, source)
    rows: list[list[object]] = []
    targets: list[report.Target] = []

    def add(what: str, timings: Mapping[str, Timing], *, functions: float, peers: float) -> None:
        rows.extend([what, name, *cells] for name, cells in _cells(timings, trials).items())
        own = {trial.sql.name: trial.functions.name for trial in trials}
        others = {trial.sql.name: trial.copying.name for trial in trials}
        targets.append(target_of(what, timings, own, at_most=functions, peer="the function"))
        targets.append(target_of(what, timings, others, at_most=peers, peer="the peer that copies on write"))

    readers = {name: one for trial in trials for name, one in trial.readers.items()}
    for what, query in SELECTS.items():
        ways = {name: partial(one.ask, "select", TABLE, query) for name, one in readers.items()}
        timings = take_turns(bench, f"sql: {what}", ways, short=what != LONG)
        add(f"SELECT, {what}", timings, functions=1.05, peers=0.9)
    later = {name: one for trial in trials for name, one in trial.later.items()}
    after: list[list[object]] = []
    for what, (job, *arguments) in jobs.items():
        ways = {name: partial(one.ask, job, TABLE, *arguments) for name, one in contenders.items()}
        add(what, take_turns(bench, f"sql: {what}", ways, before=renew), functions=1.1, peers=0.7)
        found = {name: one.ask("checksum", TABLE) for name, one in contenders.items()}
        assert len({tuple(sums) for sums in found.values()}) == 1, f"the ways made different rows: {found}"
        reads = {name: partial(one.ask, "select", TABLE, SELECTS[LONG]) for name, one in later.items()}
        timings = take_turns(bench, f"sql: reads after {job}", reads)
        after += [[f"all rows after {job.upper()}", name, *cells] for name, cells in _cells(timings, trials).items()]
    head = ["what", "way", "median", "min", "max", "× dbio_commit's SQL"]
    return [report.table(head, rows), report.table(head, after)], targets


def _cells(timings: Mapping[str, Timing], trials: Sequence[_Trial]) -> dict[str, list[str]]:
    return cells_of(
        timings, {name: trial.sql.name for trial in trials for name in trial.ways if name != trial.sql.name}
    )
