"""Case `rewrites`: delete, update and merge of lineitem, beside Delta and Iceberg (copy on write) on the same Spark.

What is measured runs in the peers' own environments: see peers_job.py.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import duckdb

from bench import data, report
from bench.duels import Contender, Duel, cells_of, duel, home_of, said, started, target_of
from bench.measure import Bench, take_turns

FILES = 100
TABLE = "lineitem"


def rewrites(bench: Bench) -> report.Section:
    for name in ("delta", "iceberg"):
        home_of(name)
    source = data.make_lineitem(bench.directory, bench.scale)
    directory = bench.directory / "rewrites"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    with duckdb.connect() as connection:
        last = connection.execute(f"SELECT max(l_orderkey) FROM '{source}/*.parquet'").fetchall()[0][0]
    of_some = make_source(f"{directory}/of_some.parquet", f"{source}/*.parquet", f"l_orderkey <= {last // 10}", last)
    of_all = make_source(f"{directory}/of_all.parquet", f"{source}/*.parquet", "l_orderkey % 10 = 3", last)
    jobs: dict[str, tuple[Any, ...]] = {
        "delete 1 % of the rows": ("delete", "l_orderkey % 100 = 7"),
        "update 10 % of the rows": ("update", {"l_extendedprice": "l_extendedprice + 1"}, "l_orderkey % 10 = 3"),
        f"merge 10 % of the rows, in 10 of {FILES} files": ("merge", of_some),
        "merge 10 % of the rows, in all files": ("merge", of_all),
    }
    with started(directory, "delta", "iceberg") as (delta, iceberg):
        duels = [duel(delta, "delta"), duel(iceberg, "iceberg")]
        table, targets = _measure(bench, duels, str(source), jobs)
        versions = [delta.versions, iceberg.versions]
    shutil.rmtree(directory)
    return report.Section(
        title="delete, update and merge beside Delta and Iceberg",
        how=_HOW.format(versions="; ".join(map(said, versions)), files=FILES),
        tables=[table],
        targets=targets,
    )


_HOW = """\
Each peer has the newest Spark that it supports, and dbio_commit is measured on the same Spark, in the same session:
{versions}. A ratio compares two ways on one Spark, and the target is for the worse of the two. lineitem is in {files}
files by ranges of its orders, and is restored before each turn. All ways copy on write. The rows to delete and to
update are in all files. A merge updates the given share of the rows, by order and line, and inserts 1 % as many."""


def make_tables(bench: Bench, case: str, contenders: Mapping[str, Contender], source: str) -> Callable[[str], None]:
    """Makes each contender's table of lineitem. The result restores the table of the contender with a name."""
    made = bench.progress.add_task(f"{case}: tables", total=len(contenders))
    for one in contenders.values():
        one.ask("write_in_files", TABLE, source, FILES)
        one.ask("keep", TABLE)
        bench.progress.advance(made)

    def renew(name: str) -> None:
        contenders[name].ask("bring_back", TABLE)
        os.sync()

    return renew


def make_source(path: str, lineitem: str, where: str, last: int) -> str:
    """Rows that are there, with another price, and some that are not."""
    price = "(l_extendedprice + 1)::DECIMAL(15,2) AS l_extendedprice"
    old = f"SELECT * REPLACE ({price}) FROM '{lineitem}' WHERE {where}"
    new = f"SELECT * REPLACE (l_orderkey + {last} AS l_orderkey) FROM old WHERE l_partkey % 100 = 0"
    duckdb.sql(f"COPY (WITH old AS ({old}) FROM old UNION ALL {new}) TO '{path}' (FORMAT parquet)")
    return path


def _measure(
    bench: Bench, duels: list[Duel], source: str, jobs: dict[str, tuple[Any, ...]]
) -> tuple[str, list[report.Target]]:
    contenders = {one.name: one for duel in duels for one in (duel.ours, duel.theirs)}
    against = {duel.ours.name: duel.theirs.name for duel in duels}
    renew = make_tables(bench, "rewrites", contenders, source)
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    for what, (job, *arguments) in jobs.items():
        ways = {name: partial(one.ask, job, TABLE, *arguments) for name, one in contenders.items()}
        timings = take_turns(bench, f"rewrites: {what}", ways, before=renew)
        found = {name: one.ask("checksum", TABLE) for name, one in contenders.items()}
        assert len({tuple(sums) for sums in found.values()}) == 1, f"the ways made different rows: {found}"
        rows += [[what, name, *cells] for name, cells in cells_of(timings, against).items()]
        targets.append(target_of(what, timings, against))
    return report.table(["what", "way", "median", "min", "max", "× the peer"], rows), targets
