"""What case `lazy` measures, in a process of its own: `python -m bench.lazy_job WAY SMALL PATH`.

Prints the seconds, and the most memory above that of the process before the query, in MB of 2^20 bytes.
"""

import re
import sys
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds

import dbio_commit as dbio
from dbio_commit.log.snapshot import Snapshot

COLUMNS = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]
DAY = date(1998, 9, 2)
SQL = (
    "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), avg(l_discount), count(*) FROM lineitem "
    f"WHERE l_shipdate <= DATE '{DAY}' GROUP BY ALL ORDER BY ALL"
)
"""The first query of TPC-H, with fewer sums."""


def by_polars(lineitem: pl.LazyFrame) -> Any:
    kept = lineitem.filter(pl.col("l_shipdate") <= DAY)
    sums = [pl.sum("l_quantity"), pl.sum("l_extendedprice"), pl.mean("l_discount"), pl.len()]
    by = ["l_returnflag", "l_linestatus"]
    return kept.group_by(by).agg(sums).sort(by).collect(engine="streaming").height


def by_duckdb(lineitem: Any) -> Any:
    return len(lineitem.query("lineitem", SQL).fetchall())


def rows(batches: Any) -> int:
    return sum(batch.num_rows for batch in batches)


WAYS: Mapping[str, Callable[[Snapshot], Any]] = {
    "Polars": lambda snapshot: by_polars(pl.scan_parquet(snapshot.urls(), glob=False)),
    "Polars, to_lazy": lambda snapshot: by_polars(snapshot.to_lazy()),
    "DuckDB": lambda snapshot: by_duckdb(duckdb.read_parquet(snapshot.urls())),
    "DuckDB, to_duckdb": lambda snapshot: by_duckdb(snapshot.to_duckdb()),
    "pyarrow": lambda snapshot: rows(ds.dataset(snapshot.urls()).scanner(columns=COLUMNS).to_batches()),
    "pyarrow, to_batches": lambda snapshot: rows(snapshot.to_batches(COLUMNS)),
    "pyarrow, to_dataset": lambda snapshot: rows(snapshot.to_dataset().scanner(columns=COLUMNS).to_batches()),
}


def memory_mb(kind: str) -> int:
    found = re.search(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


if __name__ == "__main__":
    way, small, path = sys.argv[1:]
    WAYS[way](dbio.Table(small).snapshot())  # imports, threads and caches count for none
    snapshot = dbio.Table(path).snapshot()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before_mb, began_s = memory_mb("VmRSS"), perf_counter()
    WAYS[way](snapshot)
    print(perf_counter() - began_s, memory_mb("VmHWM") - before_mb)
