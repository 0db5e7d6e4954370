"""A write of a frame by one way, in a fresh process: prints its seconds and its peak memory as JSON.

    python -m bench.frames_job WAY WHAT SOURCE TARGET TIMES

Part of cases_frames.py. WHAT is `flat`, `by month`, or begins with `small`: that many appends of a hundred rows each.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

MONTH = "ship_month"
SMALL = pa.table({"id": list(range(100)), "x": [0.5] * 100, "s": ["text"] * 100})


def lineitem(source: str, *, by_month: bool) -> pa.Table:
    rows = without_views(ds.dataset(source, format="parquet").to_table())
    if not by_month:
        return rows
    months: Any = pc.floor_temporal(rows.column("l_shipdate"), unit="month")
    return rows.append_column(MONTH, months)


def without_views(rows: pa.Table) -> pa.Table:
    """The rows with texts that Arrow can filter, and so PyIceberg: Arrow has no filter for views of texts."""
    plain = [it.with_type(pa.string()) if pa.types.is_string_view(it.type) else it for it in rows.schema]
    return rows.cast(pa.schema(plain))


Append = Callable[[pa.Table], object]


def dbio_append(target: Path, rows: pa.Table, by: str | None) -> Append:
    import dbio_commit as dbio

    table = dbio.Table(target)
    return lambda rows: table.write(rows, partition_by=by)


def deltalake_append(target: Path, rows: pa.Table, by: str | None) -> Append:
    from deltalake import write_deltalake

    return lambda rows: write_deltalake(target, rows, mode="append", partition_by=[by] if by else None)


def deltalake_kept_append(target: Path, rows: pa.Table, by: str | None) -> Append:
    """With one DeltaTable, which knows the log already."""
    from deltalake import DeltaTable, write_deltalake

    kept: list[DeltaTable] = []

    def append(rows: pa.Table) -> None:
        write_deltalake(kept[0] if kept else target, rows, mode="append", partition_by=[by] if by else None)
        if not kept:
            kept.append(DeltaTable(target))

    return append


def pyiceberg_append(target: Path, rows: pa.Table, by: str | None) -> Append:
    from pyiceberg.catalog.sql import SqlCatalog

    target.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{target}/catalog.db", warehouse=f"file://{target}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.frames", schema=rows.schema)
    if by is not None:
        with table.update_spec() as spec:
            spec.add_identity(by)
    return table.append


WAYS: Mapping[str, Callable[[Path, pa.Table, str | None], Append]] = {
    "dbio_commit": dbio_append,
    "deltalake": deltalake_append,
    "deltalake, table kept": deltalake_kept_append,
    "PyIceberg": pyiceberg_append,
}


def main(way: str, what: str, source: str, target: str, times: str) -> None:
    path = Path(target)
    shutil.rmtree(path, ignore_errors=True)
    rows = SMALL if what.startswith("small") else lineitem(source, by_month=what == "by month")
    warm = path.with_name(f"{path.name}-warm")
    shutil.rmtree(warm, ignore_errors=True)
    WAYS[way](warm, SMALL, None)(SMALL)  # imports what it needs
    append = WAYS[way](path, rows, MONTH if what == "by month" else None)
    if what.startswith("small"):
        append(rows)  # makes the table
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, with the frame in memory
    before_mb = _status_mb("VmRSS")
    began_s = perf_counter()
    for _ in range(int(times)):
        append(rows)
    took_s = perf_counter() - began_s
    print(json.dumps({"seconds": took_s, "more_mb": _status_mb("VmHWM") - before_mb, "frame_mb": rows.nbytes / 2**20}))


def _status_mb(name: str) -> float:
    found = re.search(rf"^{name}:\s*(\d+)", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
