"""Tables with many columns, and what is done with them: for the test that counts calls, and for the benchmark."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import dbio_commit as dbio


def rows_of(columns: int, *, start: int = 0) -> pa.Table:
    return pa.table({"c0": list(range(start, start + 9)), **{f"c{i}": [1, None, 2] * 3 for i in range(1, columns)}})


def made(columns: int, root: Path) -> dbio.Table:
    table = dbio.Table(root)
    for start in (0, 100):
        table.write(rows_of(columns, start=start))
    return table


def _adopt(table: dbio.Table, columns: int) -> object:
    for path in Path(table.url).glob("_*"):
        path.unlink()
    return table.adopt()


def _values(columns: int, text: str) -> dict[str, str]:
    return {f"c{i}": text.format(i) for i in range(1, columns)}


def _upsert(columns: int) -> list[Any]:
    return [dbio.when_matched().update(_values(columns, "source.c{0} + 1")), dbio.when_not_matched().insert()]


OPERATIONS: Mapping[str, Callable[[dbio.Table, int], object]] = {
    "append": lambda table, n: table.write(rows_of(n)),
    "append with new columns": lambda table, n: table.write(rows_of(2 * n), merge_schema=True),
    "overwrite": lambda table, n: table.write(rows_of(n), mode="overwrite"),
    "replace": lambda table, n: table.write(rows_of(n), mode="overwrite", replace_where=[("c0", "<", 9)]),
    "delete": lambda table, n: table.delete([("c0", "<", 5)]),
    "update": lambda table, n: table.update(values=dict.fromkeys(_values(n, ""), 7), where=[("c0", "<", 5)]),
    "update in SQL": lambda table, n: table.update(_values(n, "c{0} + 1"), where="c0 < 5"),
    "merge": lambda table, n: table.merge(rows_of(n, start=5), on=["c0"]),
    "merge by clauses": lambda table, n: table.merge(rows_of(n, start=5), ["c0"], _upsert(n)),
    "to_arrow": lambda table, n: table.snapshot().to_arrow(),
    "to_pandas, and append of it": lambda table, n: table.write(table.snapshot().to_pandas()),
    "to_polars": lambda table, n: table.snapshot().to_polars(),
    "to_dataset": lambda table, n: table.snapshot().to_dataset().to_table(),
    "to_duckdb": lambda table, n: table.snapshot().to_duckdb().fetchall(),
    "compact": lambda table, n: table.compact(),
    "vacuum": lambda table, n: table.vacuum(),
    "check": lambda table, n: table.check(files=True),
    "checkpoint": lambda table, n: table.checkpoint(),
    "adopt": _adopt,
    "publish for Delta": lambda table, n: table.publish("delta"),
    "publish for Iceberg": lambda table, n: table.publish("iceberg"),
}
