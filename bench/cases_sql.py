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
OWN_ROUNDS = 8
"""The counted rounds of SQL beside the functions, whose difference is less than that of two rounds."""
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
            versions="; ".join(map(said, versions)),
            files=FILES,
            scale=f"{bench.scale:g}",
            rounds=bench.rounds,
            own=OWN_ROUNDS,
        ),
        tables=tables,
        targets=targets,
    )


_HOW = """\
Each peer has the newest Spark that it supports, and dbio_commit is measured on the same Spark, in the same session:
{versions}. A ratio compares with SQL on dbio tables on the same Spark, and a target is for the worse of the two Sparks.
lineitem has the scale {scale}, is in {files} files by ranges of its orders, and is restored before each statement.
{rounds} rounds are counted, and 4 times as many of the first two queries. Then SELECT of dbio_commit is compared with
`dbio.read`, and the statements with `dbio.delete`, `update` and `merge`, in {own} rounds. Iceberg copies on write, and
so does Delta without deletion vectors. Targets leave Delta with deletion vectors out: its statements write which rows
are gone, and every later read pays for that. How much, the reads of all rows after each statement show. The first
queries come before any statement, when no table has deletion vectors."""


class _Trial:
    """The ways that are compared on one Spark."""

    def __init__(self, peer: Peer, peers: Mapping[str, str], copying: str) -> None:
        def contender(name: str, way: str) -> Contender:
            return Contender(f"{name}, Spark {peer.versions['Spark']}", peer, way)

        self.sql, self.functions = contender("dbio_commit", "dbio_sql"), contender("dbio_commit, functions", "dbio")
        others = {way: contender(name, way) for way, name in peers.items()}
        self.copying = others[copying]
        """The peer's way that copies on write."""
        self.ways = {it.name: it for it in (self.sql, *others.values())}
        """SQL, by name."""
        self.own = {it.name: it for it in (self.sql, self.functions)}
        self.readers = {it.name: it for it in (self.sql, self.copying)}
        """Those that read a table in different ways before any statement."""
        self.later = self.ways if len(others) > 1 else {}
        """Those that may read it in different ways after a statement."""


def _measure(
    bench: Bench, trials: Sequence[_Trial], source: str, jobs: Mapping[str, tuple[Any, ...]]
) -> tuple[list[str], list[report.Target]]:
    contenders = {name: one for trial in trials for name, one in trial.ways.items()}
    own = {name: one for trial in trials for name, one in trial.own.items()}
    renew = make_tables(bench, "sql", contenders | own, source)
    more = replace(bench, rounds=OWN_ROUNDS if bench.rounds == MOST_ROUNDS else bench.rounds)
    rows: list[list[object]] = []
    beside: list[list[object]] = []
    targets: list[report.Target] = []

    def add(what: str, timings: Mapping[str, Timing], at_most: float) -> None:
        rows.extend([what, name, *cells] for name, cells in _cells(timings, trials).items())
        others = {trial.sql.name: trial.copying.name for trial in trials}
        targets.append(target_of(what, timings, others, at_most=at_most, peer="the peer that copies on write"))

    def add_own(what: str, timings: Mapping[str, Timing], at_most: float) -> None:
        against = {trial.sql.name: trial.functions.name for trial in trials}
        beside.extend([what, name, *cells] for name, cells in cells_of(timings, against).items())
        targets.append(target_of(what, timings, against, at_most=at_most, peer="the function"))

    readers = {name: one for trial in trials for name, one in trial.readers.items()}
    for what, query in SELECTS.items():
        is_short, name_of = what != LONG, f"SELECT, {what}"
        ways = {name: partial(one.ask, "select", TABLE, query) for name, one in (readers | own).items()}
        some = {name: ways[name] for name in readers}
        add(name_of, take_turns(bench, f"sql: {what}", some, short=is_short), 0.9)
        some = {name: ways[name] for name in own}
        add_own(name_of, take_turns(more, f"sql: {what}, beside the function", some, short=is_short), 1.05)
    later = {name: one for trial in trials for name, one in trial.later.items()}
    after: list[list[object]] = []
    for what, (job, *arguments) in jobs.items():
        ways = {name: partial(one.ask, job, TABLE, *arguments) for name, one in (contenders | own).items()}
        some = {name: ways[name] for name in contenders}
        add(what, take_turns(bench, f"sql: {what}", some, before=renew), 0.7)
        some = {name: ways[name] for name in own}
        add_own(what, take_turns(more, f"sql: {what}, beside the function", some, before=renew), 1.1)
        found = {name: one.ask("checksum", TABLE) for name, one in (contenders | own).items()}
        assert len({tuple(sums) for sums in found.values()}) == 1, f"the ways made different rows: {found}"
        reads = {name: partial(one.ask, "select", TABLE, SELECTS[LONG]) for name, one in later.items()}
        timings = take_turns(bench, f"sql: reads after {job}", reads)
        after += [[f"all rows after {job.upper()}", name, *cells] for name, cells in _cells(timings, trials).items()]
    head = ["what", "way", "median", "min", "max"]
    compared = [*head, "× dbio_commit's SQL"]
    return [
        report.table(compared, rows), report.table([*head, "× the function"], beside), report.table(compared, after)
    ], targets  # fmt: skip


def _cells(timings: Mapping[str, Timing], trials: Sequence[_Trial]) -> dict[str, list[str]]:
    return cells_of(
        timings, {name: trial.sql.name for trial in trials for name in trial.ways if name != trial.sql.name}
    )
