"""Filters that Polars, DuckDB and pyarrow push down keep the rows that they keep of the same rows in memory.

Random tables have files whose statistics leave much out: of nulls, of one value, of extremes, of NaN. `DBIO_TEST_SEEDS`
is a range of other seeds, such as 1000:2000.
"""

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.testing import MemoryStore

KINDS: Mapping[str, Any] = {
    "i": pa.int64(),
    "small": pa.int8(),
    "f": pa.float64(),
    "single": pa.float32(),
    "d": pa.decimal128(9, 2),
    "t": pa.string(),
    "b": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
}
NAN, INF = math.nan, math.inf
VALUES: Mapping[str, Sequence[Any]] = {
    "i": [-(2**63), -1, 0, 1, 2, 3, 2**53 + 1, 2**63 - 1],
    "small": [-128, 0, 1, 2, 127],
    "f": [-INF, -1.5, -0.0, 0.0, 1.5, 2.0, NAN, INF, 1e300],
    "single": [-INF, -1.5, -0.0, 0.0, 1.5, 0.10000000149011612, NAN, INF],
    "d": [Decimal("-9999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.50"), Decimal("9999999.99")],
    "t": ["", "a", "b", "a b", "ä", "\U0010ffff", "null", "x" * 70, "x" * 70 + "y"],
    "b": [True, False],
    "day": [date(1, 1, 1), date(1969, 12, 31), date(2026, 11, 20), date(9999, 12, 31)],
    "at": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "local": [datetime(1, 1, 1), datetime(2026, 11, 20, 10, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
}
LAYOUTS = ("flat", "by-text", "by-day", "by-number", "memory", "old-files")
_PARTITIONS = {"by-text": "t", "by-day": "day", "by-number": "small", "memory": "b"}


def random_table(layout: str, chance: random.Random, where: Path) -> Table:
    table = Table.over(MemoryStore()) if layout == "memory" else Table(where)
    by = _PARTITIONS.get(layout)
    for number in range(chance.randint(2, 5)):
        how = {name: chance.choice(["any", "any", "null", "one", "few"]) for name in KINDS}
        some = {name: chance.sample(values, min(2, len(values))) for name, values in VALUES.items()}
        size = chance.randint(1, 6)
        columns = {}
        for name, kind in KINDS.items():
            given: Sequence[Any] = {"any": [*VALUES[name], None], "null": [None], "one": some[name][:1]}.get(
                how[name], [*some[name], None]
            )
            given = [it for it in given if it != ""] if name == by else given
            columns[name] = pa.array([chance.choice(given or [None]) for _ in range(size)], kind)
        rows = pa.table({"id": pa.array(range(number * 10, number * 10 + size), pa.int64()), **columns})
        if layout == "old-files" and number:
            _commit_old_file(table, rows, chance)
        else:
            table.write(rows, partition_by=[by] if by else None)
    return table


def _commit_old_file(table: Table, rows: pa.Table, chance: random.Random) -> None:
    """As another writer leaves a file: NaN in columns with bounds, several row groups, no bounds in the marker."""
    keep = [name for name in rows.column_names if name == "id" or chance.random() < 0.8]
    schema = table.snapshot().schema
    with table.begin() as transaction:
        pq.write_table(rows.select(keep), transaction.new_file(), row_group_size=chance.randint(1, 3))
        transaction.commit(schema=schema)


# --- predicates ---------------------------------------------------------------------------------------------------

Predicate = tuple[Any, ...]
"""Of any tool: ("and", …), ("or", …), ("not", …), or (operator, column, value)."""


def random_predicate(chance: random.Random, depth: int = 2) -> Predicate:
    if depth and chance.random() < 0.6:
        joined = chance.choice(["and", "or", "not"])
        count = 1 if joined == "not" else 2
        return (joined, *(random_predicate(chance, depth - 1) for _ in range(count)))
    column = chance.choice(list(KINDS))
    values = VALUES[column]
    match chance.choice(["compare"] * 4 + ["in", "in", "null", "between", "nan"]):
        case "in":
            return ("in", column, chance.choices(values, k=chance.randint(1, 3)), chance.random() < 0.3)
        case "null":
            return ("null", column)
        case "between":
            return ("between", column, chance.choice(values), chance.choice(values))
        case "nan" if column in ("f", "single"):
            return ("nan", column)
    return (chance.choice(["=", "!=", "<", "<=", ">", ">="]), column, chance.choice(values))


def to_polars(it: Predicate, chance: random.Random) -> pl.Expr:
    match it:
        case ("and", *parts):
            return to_polars(parts[0], chance) & to_polars(parts[1], chance)
        case ("or", *parts):
            return to_polars(parts[0], chance) | to_polars(parts[1], chance)
        case ("not", part):
            return ~to_polars(part, chance)
    column = pl.col(it[1])

    def literal(value: Any) -> pl.Expr:
        kind = pl.Series(pl.from_arrow(pa.array([], KINDS[it[1]]))).dtype
        return pl.lit(value, dtype=kind) if chance.random() < 0.7 else pl.lit(value)

    match it:
        case ("in", _, values, is_odd):
            series = pl.Series(pl.from_arrow(pa.array([*values, *([None] if is_odd else [])], KINDS[it[1]])))
            return column.is_in(series.implode(), nulls_equal=chance.random() < 0.5)
        case ("null", _):
            return column.is_null() if chance.random() < 0.7 else column.eq_missing(literal(None))
        case ("nan", _):
            return column.is_nan()
        case ("between", _, low, high):
            closed: Any = chance.choice(["both", "left", "right", "none"])
            return column.is_between(literal(low), literal(high), closed=closed)
    value = literal(it[2])
    if chance.random() < 0.1:
        return column.eq_missing(value) if chance.random() < 0.5 else column.ne_missing(value)
    found: pl.Expr = {
        "=": column == value, "!=": column != value, "<": column < value, "<=": column <= value,
        ">": column > value, ">=": column >= value,
    }[it[0]]  # fmt: skip
    return found


def to_sql(it: Predicate) -> str:
    """For DuckDB."""
    match it:
        case ("and" | "or" as joined, one, other):
            return f"({to_sql(one)} {joined} {to_sql(other)})"
        case ("not", part):
            return f"(NOT {to_sql(part)})"
        case ("in", column, values, is_odd):
            listed = ", ".join([*(_literal(it, column) for it in values), *(["NULL"] if is_odd else [])])
            return f'"{column}" IN ({listed})'
        case ("null", column):
            return f'"{column}" IS NULL'
        case ("nan", column):
            return f'isnan("{column}")'
        case ("between", column, low, high):
            return f'"{column}" BETWEEN {_literal(low, column)} AND {_literal(high, column)}'
    return f'"{it[1]}" {it[0]} {_literal(it[2], it[1])}'


def _literal(value: Any, column: str) -> str:
    kind = {"i": "BIGINT", "small": "TINYINT", "f": "DOUBLE", "single": "FLOAT", "d": "DECIMAL(9,2)", "t": "VARCHAR",
            "b": "BOOLEAN", "day": "DATE", "at": "TIMESTAMPTZ", "local": "TIMESTAMP"}[column]  # fmt: skip
    return f"CAST('{value}' AS {kind})"


def to_arrow(it: Predicate) -> Any:
    match it:
        case ("and", one, other):
            return to_arrow(one) & to_arrow(other)
        case ("or", one, other):
            return to_arrow(one) | to_arrow(other)
        case ("not", part):
            return ~to_arrow(part)
    column: Any = pc.field(it[1])
    kind = KINDS[it[1]]
    match it:
        case ("in", _, values, is_odd):
            return column.isin(pa.array([*values, *([None] if is_odd else [])], kind))
        case ("null", _):
            return column.is_null()
        case ("between", _, low, high):
            return (column >= pa.scalar(low, kind)) & (column <= pa.scalar(high, kind))
    value = pa.scalar(it[2], kind)
    return {
        "=": column == value, "!=": column != value, "<": column < value, "<=": column <= value,
        ">": column > value, ">=": column >= value,
    }[it[0]]  # fmt: skip


def columns_of(it: Predicate) -> set[str]:
    return set().union(*map(columns_of, it[1:])) if it[0] in ("and", "or", "not") else {it[1]}


# --- the tools ----------------------------------------------------------------------------------------------------


def by_polars(table: Table, predicates: Sequence[Predicate], chance: random.Random) -> None:
    snapshot = table.snapshot()
    rows, lazy = snapshot.to_polars(), snapshot.to_lazy()
    assert lazy.collect()["id"].to_list() == rows["id"].to_list()
    for predicate in predicates:
        expression = to_polars(predicate, chance)
        mask = rows.select(expression).to_series()  # filters in memory lose rows: eq_missing(None) & ~is_in(…)
        wanted = rows.filter(mask)["id"].to_list()
        engine: Any = chance.choice(["in-memory", "streaming"])
        some = chance.sample(list(KINDS), 2)
        for query in (lazy.filter(expression), lazy.filter(expression).select("id", *some)):
            assert query.collect(engine=engine)["id"].to_list() == wanted, (predicate, str(expression))
        counted = lazy.filter(expression).select(pl.len()).collect(engine=engine).item()
        assert counted == len(wanted), (predicate, str(expression))
        at, size = chance.randrange(12), chance.randrange(1, 8)
        page = lazy.slice(at, size)
        assert page.collect()["id"].to_list() == rows.slice(at, size)["id"].to_list()
        kept = rows.slice(at, size).filter(mask.slice(at, size))["id"].to_list()
        assert page.filter(expression).collect()["id"].to_list() == kept


def by_duckdb(table: Table, predicates: Sequence[Predicate], chance: random.Random) -> None:
    snapshot = table.snapshot()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        lazy = snapshot.to_duckdb(connection)
        connection.register("given", snapshot.to_arrow())
        connection.execute("CREATE TABLE kept AS FROM given")
        for predicate in predicates:
            sql = to_sql(predicate)
            wanted = sorted(connection.sql(f"SELECT id FROM kept WHERE {sql}").fetchall())
            assert sorted(lazy.filter(sql).select("id").fetchall()) == wanted, sql
            assert lazy.filter(sql).aggregate("count(*)").fetchall() == [(len(wanted),)], sql


def by_pyarrow(table: Table, predicates: Sequence[Predicate], chance: random.Random) -> None:
    """pyarrow takes the bounds of floating-point numbers for those of all, so they are not asked for."""
    snapshot = table.snapshot()
    rows, lazy = snapshot.to_arrow(), snapshot.to_dataset()
    for predicate in predicates:
        if columns_of(predicate).isdisjoint({"f", "single"}):
            expression = to_arrow(predicate)
            wanted = rows.filter(expression)["id"].to_pylist()
            assert lazy.to_table(filter=expression)["id"].to_pylist() == wanted, predicate
            assert lazy.count_rows(filter=expression) == len(wanted), predicate


TOOLS: Mapping[str, Callable[[Table, Sequence[Predicate], random.Random], None]] = {
    "polars": by_polars,
    "duckdb": by_duckdb,
    "pyarrow": by_pyarrow,
}


def check(tool: str, seed: int, where: Path, *, predicates: int = 12) -> None:
    chance = random.Random(seed)
    table = random_table(LAYOUTS[seed % len(LAYOUTS)], chance, where)
    TOOLS[tool](table, [random_predicate(chance) for _ in range(predicates)], chance)


def _seeds(usual: str) -> range:
    first, _, last = os.environ.get("DBIO_TEST_SEEDS", usual).partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("seeds", ["0:6", pytest.param("6:60", marks=pytest.mark.long)])
def test_a_filter_of_a_tool_keeps_the_rows_that_it_keeps_in_memory(tmp_path: Path, tool: str, seeds: str) -> None:
    for seed in _seeds(seeds):
        check(tool, seed, tmp_path / str(seed))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_filter_with_a_function_of_python_works_on_each_layout(tmp_path: Path, layout: str) -> None:
    table = random_table(layout, random.Random(7), tmp_path / "t")
    rows, lazy = table.snapshot().to_polars(), table.scan().to_lazy()
    odd = pl.col("id").map_elements(lambda it: it % 2 == 1, return_dtype=pl.Boolean)
    for expression in (odd, odd & (pl.col("small") > 0), ~odd | pl.col("t").is_null()):
        assert lazy.filter(expression).collect()["id"].to_list() == rows.filter(expression)["id"].to_list()


def test_a_list_with_nulls_that_are_equal_leaves_no_file_out(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    given: dict[str, Any] = {"a": [1, 2], "b": [None, None], "c": [3, 4]}
    for key, values in given.items():
        x: Any = pa.array(values, pa.int64())
        table.write(pa.table({"k": [key] * 2, "x": x}), partition_by=["k"])
    lazy = table.scan().to_lazy()
    kept = lazy.filter(~pl.col("x").is_in([1, 2], nulls_equal=True)).collect()
    assert kept["x"].to_list() == [None, None, 3, 4]
    some = pl.Series([1, None]).implode()  # of a list, Polars' own scan of files panics
    assert lazy.filter(pl.col("x").is_in(some, nulls_equal=True)).collect()["x"].to_list() == [1, None, None]


def test_columns_and_pages_of_a_lazy_frame_have_one_order(tmp_path: Path) -> None:
    """Also if a file has some columns only, so that Polars reads it itself for some queries and not for others."""
    table, start = Table(tmp_path / "t"), 0
    for number in range(12):
        size = (number * 7919) % 400 + 10
        ids: Any = pa.array(range(start, start + size), pa.int64())
        start += size
        rows: dict[str, Any] = {"id": ids, "p": [f"p{number % 3}"] * size, "y": pc.multiply(ids, 10)}
        if number == 7:
            with table.begin() as transaction:
                old = pa.table({"id": ids})
                pq.write_table(old, transaction.new_file(partition={"p": "p1"}))
                transaction.commit(schema=table.snapshot().schema)
        else:
            table.write(pa.table(rows), partition_by=["p"])
    lazy = table.snapshot().to_lazy()
    order: list[Any] = table.snapshot().to_arrow(["id"])["id"].to_pylist()
    assert sorted(order) == list(range(start))
    for _ in range(5):
        parts = lazy.select("y", "p").collect()
        assert lazy.select("id").collect()["id"].to_list() == order
        assert [(at, it) for at, it in zip(order, parts["y"], strict=True) if it not in (None, at * 10)] == []
        half = start // 2
        pages = [*lazy.slice(0, half).collect()["id"], *lazy.slice(half, start).collect()["id"]]
        assert pages == order
        assert [*lazy.head(half).collect()["id"], *lazy.tail(start - half).collect()["id"]] == order
