"""What case `latency` counts: each way to read or change a table on S3, of dbio_commit, of deltalake and of the tools.

The functions run in a worker process, which has imported what they need and has proved the store.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pfs

import dbio_commit as dbio
from bench.cases_busy import forget
from dbio_commit.log.frames.scan import Scan

PUBLISHED = ("delta", "iceberg", "spark", "symlink")
DBIO, DELTA = "dbio_commit", "deltalake"


@dataclass(frozen=True, slots=True)
class Place:
    """A table, which has `files` files of two rows, each in a partition of its own."""

    url: str
    options: Mapping[str, Any]
    """Of the server, for fsspec."""
    files: int

    @property
    def table(self) -> dbio.Table:
        """The same each time, until `forget_all`."""
        if self.url not in _TABLES:
            _TABLES[self.url] = dbio.Table(self.url, self.options)
        return _TABLES[self.url]

    @property
    def scan(self) -> Scan:
        return self.table.scan()

    @property
    def delta(self) -> deltalake.DeltaTable:
        """As `table`."""
        if self.url not in _DELTAS:
            _DELTAS[self.url] = deltalake.DeltaTable(self.url, storage_options=self.object_store)
        return _DELTAS[self.url]

    @property
    def object_store(self) -> dict[str, str]:
        """The options for deltalake and Polars."""
        names = {"endpoint_url": "aws_endpoint_url", "key": "aws_access_key_id", "secret": "aws_secret_access_key"}
        return {"aws_region": "us-east-1", "aws_allow_http": "true"} | {
            it: self.options[of] for of, it in names.items()
        }

    @property
    def rows(self) -> pa.Table:
        return _rows([*range(2 * self.files)], 0)

    @property
    def source(self) -> pa.Table:
        """Of a merge that changes a row of each file."""
        return _rows([*range(0, 2 * self.files, 2)], 1)


_TABLES: dict[str, dbio.Table] = {}
_DELTAS: dict[str, deltalake.DeltaTable] = {}


def forget_all() -> None:
    """As if this process had read no table."""
    forget()
    _TABLES.clear()
    _DELTAS.clear()


def _rows(ids: Sequence[int], value: int) -> pa.Table:
    columns = {"id": ids, "k": [it % 2 for it in ids], "v": [value] * len(ids), "p": [it // 2 for it in ids]}
    return pa.table(columns)


Way = Callable[[Place], object]
_ONE = _rows([0], 9)

READS: Mapping[str, Way] = {
    "snapshot": lambda at: at.table.snapshot(),
    "to_arrow": lambda at: at.scan.to_arrow(),
    "to_pandas": lambda at: at.scan.to_pandas(),
    "to_polars": lambda at: at.scan.to_polars(),
    "to_batches": lambda at: at.scan.to_batches().read_all(),
    "to_lazy": lambda at: at.scan.to_lazy().collect(),
    "to_lazy, filtered": lambda at: at.scan.to_lazy().filter(pl.col("k") == 1).select("id").collect(),
    "to_duckdb": lambda at: at.scan.to_duckdb().aggregate("sum(id)").fetchall(),
    "to_dataset": lambda at: at.scan.to_dataset().to_table(),
    "scan(columns, where)": lambda at: at.table.scan(["id"], "k = 1").to_arrow(),
    "count(where)": lambda at: at.table.count("k = 1"),
}

CHANGES: Mapping[str, Way] = {
    "first write": lambda at: dbio.Table(f"{at.url}-new", at.options).write(_ONE, partition_by="p"),
    "append": lambda at: at.table.write(_ONE),
    "append with app": lambda at: at.table.write(_ONE, app=("job", 1)),
    "overwrite": lambda at: at.table.write(_ONE, "overwrite"),
    "delete in one file": lambda at: at.table.delete("id = 7"),
    "delete in all files": lambda at: at.table.delete("k = 0"),
    "update in all files": lambda at: at.table.update({"v": "v + 1"}, "k = 0"),
    "merge in all files": lambda at: at.table.merge(at.source, "id"),
    "replace_where": lambda at: at.table.write(_ONE, "overwrite", replace_where="k = 0"),
}


def _write_delta(at: Place, rows: pa.Table, mode: Any = "append", **more: Any) -> None:
    deltalake.write_deltalake(at.delta, rows, mode=mode, **more)


def _create_delta(url: str, at: Place, rows: pa.Table) -> None:
    deltalake.write_deltalake(url, rows, partition_by=["p"], storage_options=at.object_store)


def _merge_delta(at: Place) -> object:
    merge = at.delta.merge(at.source, "t.id = s.id", source_alias="s", target_alias="t")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


OF_DELTA: Mapping[str, Way] = {
    "snapshot": lambda at: at.delta,
    "to_arrow": lambda at: at.delta.to_pyarrow_table(),
    "to_pandas": lambda at: at.delta.to_pandas(),
    "to_dataset": lambda at: at.delta.to_pyarrow_dataset().to_table(),
    "first write": lambda at: _create_delta(f"{at.url}-new", at, _ONE),
    "append": lambda at: _write_delta(at, _ONE),
    "overwrite": lambda at: _write_delta(at, _ONE, mode="overwrite"),
    "delete in one file": lambda at: at.delta.delete("id = 7"),
    "delete in all files": lambda at: at.delta.delete("k = 0"),
    "update in all files": lambda at: at.delta.update({"v": "v + 1"}, predicate="k = 0"),
    "merge in all files": _merge_delta,
    "replace_where": lambda at: _write_delta(at, _ONE, mode="overwrite", predicate="k = 0"),
}


def _own_dataset(at: Place, urls: list[str]) -> object:
    filesystem = pfs.S3FileSystem(
        access_key=at.options["key"],
        secret_key=at.options["secret"],
        endpoint_override=at.options["endpoint_url"].removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    paths = [url.removeprefix("s3://") for url in urls]
    return ds.dataset(paths, filesystem=filesystem, format="parquet").to_table()


def _own_polars(at: Place, urls: list[str]) -> object:
    return pl.scan_parquet(urls, glob=False, storage_options=at.object_store).collect()


OWN: Mapping[str, Callable[[Place, list[str]], object]] = {"to_lazy": _own_polars, "to_dataset": _own_dataset}
"""The tools' own scans of a list of files. What finds the files is not in them."""

# --- what the worker runs -------------------------------------------------------------------------------------------


def make(at: Place, who: str, publish: str = "") -> None:
    """The table."""
    if who == DELTA:
        _create_delta(at.url, at, at.rows)
        return
    at.table.write(at.rows, partition_by="p")
    if publish:
        at.table.set({"publish": publish})


def run(at: Place, who: str, what: str) -> None:
    """One way, by a process that has done something with the table before."""
    (OF_DELTA if who == DELTA else {**READS, **CHANGES})[what](at)


def run_first(at: Place, who: str, what: str) -> None:
    """One way, by a process that has not read the table."""
    forget_all()
    run(at, who, what)


def run_own(at: Place, what: str, urls: list[str]) -> None:
    OWN[what](at, urls)


def urls_of(at: Place) -> list[str]:
    return [*at.table.snapshot().urls()]
