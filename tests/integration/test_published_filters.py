"""docs/ENGINES.md: each engine finds the rows of each type in a publication by filters, not only by whole reads.

These are the engines that need no environment of their own. `test_published_readers` asks the others the same.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg import expressions
from pyiceberg.table import StaticTable

from dbio_commit import Table
from tests.histories import columns
from tests.published_filters import (
    FORMS,
    KINDS,
    PARTITIONS,
    Kind,
    Question,
    by_partitions,
    name_of,
    of_duckdb,
    sql_of,
    values_of_partitions,
    with_files,
    wrong_answers,
)

iceberg: Any = expressions  # its stubs lack parameters
Engine = Callable[[Table, Kind, Question], Any]


@cache
def opened(url: str) -> DeltaTable:
    """What is published when a test asks first. No test publishes afterwards."""
    return DeltaTable(url)


@cache
def connection() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    found.execute("SET TimeZone = 'UTC'")
    return found


def expression(kind: Kind, it: Question) -> Any:
    column: Any = pc.field(it.column)
    if it.operator in ("null", "not null"):
        return column.is_null() if it.operator == "null" else column.is_valid()
    if it.operator == "in":
        return column.isin(pa.array(it.value, kind.arrow))
    value = pa.scalar(it.value, kind.arrow)
    return {
        "=": column == value, "!=": column != value,
        "<": column < value, "<=": column <= value, ">": column > value, ">=": column >= value,
    }[it.operator]  # fmt: skip


def of_datafusion(kind: Kind, value: Any) -> str:
    if kind.name == "binary":
        return f"X'{value.hex()}'"
    names = {
        pa.timestamp("us", "UTC"): 'Timestamp(Microsecond, Some("UTC"))',
        pa.timestamp("us"): "Timestamp(Microsecond, None)",
    }
    if kind.arrow in names:
        return f"arrow_cast('{value.isoformat()}', '{names[kind.arrow]}')"
    return f"CAST('{value}' AS {kind.sql})"


def to_pandas(table: Table, kind: Kind, it: Question) -> Any:
    filters: Any = expression(kind, it) if "null" in it.operator else [(it.column, it.operator, it.value)]
    return list(opened(table.url).to_pandas(columns=["id"], filters=filters)["id"])


def dataset(table: Table, kind: Kind, it: Question) -> Any:
    found: Any = opened(table.url).to_pyarrow_dataset().to_table(["id"], filter=expression(kind, it))
    return found["id"].to_pylist()


def duckdb_on_dataset(table: Table, kind: Kind, it: Question) -> Any:
    with connection().cursor() as cursor:
        cursor.register("lake", opened(table.url).to_pyarrow_dataset())
        found = cursor.sql(f"SELECT id FROM lake WHERE {sql_of(kind, it, of_duckdb)}").fetchall()
    return [number for (number,) in found]


def datafusion(table: Table, kind: Kind, it: Question) -> Any:
    query = QueryBuilder().register("lake", opened(table.url))
    rows: Any = query.execute(f"SELECT id FROM lake WHERE {sql_of(kind, it, of_datafusion)}").read_all()
    return pa.table(rows)["id"].to_pylist()


def polars_filter(kind: Kind, it: Question) -> pl.Expr:
    column = pl.col(it.column)
    if it.operator in ("null", "not null"):
        return column.is_null() if it.operator == "null" else column.is_not_null()
    series = pl.Series(pl.from_arrow(pa.array(it.value if it.operator == "in" else [it.value], kind.arrow)))
    if it.operator == "in":
        return column.is_in(series.implode())
    value = pl.lit(series[0], dtype=series.dtype)
    return {
        "=": column == value, "!=": column != value,
        "<": column < value, "<=": column <= value, ">": column > value, ">=": column >= value,
    }[it.operator]  # fmt: skip


def scan_delta(table: Table, kind: Kind, it: Question) -> Any:
    return pl.scan_delta(table.url).filter(polars_filter(kind, it)).select("id").collect()["id"].to_list()


def metadata(table: Table) -> str:
    number = table.store.get("_iceberg/metadata/version-hint.text").decode()
    return f"file://{table.url}/_iceberg/metadata/v{number}.metadata.json"


def scan_iceberg(table: Table, kind: Kind, it: Question) -> Any:
    return pl.scan_iceberg(metadata(table)).filter(polars_filter(kind, it)).select("id").collect()["id"].to_list()


def pyiceberg(table: Table, kind: Kind, it: Question) -> Any:
    value: Any = it.value
    given: Any = {
        "null": lambda: iceberg.IsNull(it.column), "not null": lambda: iceberg.NotNull(it.column),
        "in": lambda: iceberg.In(it.column, value), "=": lambda: iceberg.EqualTo(it.column, value),
        "!=": lambda: iceberg.And(iceberg.NotNull(it.column), iceberg.NotEqualTo(it.column, value)),
        "<": lambda: iceberg.LessThan(it.column, value), "<=": lambda: iceberg.LessThanOrEqual(it.column, value),
        ">": lambda: iceberg.GreaterThan(it.column, value), ">=": lambda: iceberg.GreaterThanOrEqual(it.column, value),
    }[it.operator]()  # fmt: skip
    rows = StaticTable.from_metadata(metadata(table)).scan(given, ("id", it.column)).to_arrow()
    return rows["id"].to_pylist()


ENGINES: Mapping[str, Engine] = {
    "delta-rs, to_pandas": to_pandas,
    "delta-rs, dataset": dataset,
    "DuckDB on the dataset": duckdb_on_dataset,
    "delta-rs, SQL": datafusion,
    "Polars, scan_delta": scan_delta,
    "Polars, scan_iceberg": scan_iceberg,
    "PyIceberg": pyiceberg,
}


def ask(engine: str, table: Table, kind: Kind, values: Any) -> dict[str, str]:
    return wrong_answers(table, kind, values, lambda it: ENGINES[engine](table, kind, it))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Table:
    table = with_files(tmp_path_factory.mktemp("files") / "t", list(KINDS))
    table.publish(FORMS)
    return table


LIKE_OTHERS = {"byte", "short", "timestamp_ntz"}


@pytest.mark.parametrize("kind", [pytest.param(it, marks=[pytest.mark.long] * (it in LIKE_OTHERS)) for it in KINDS])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_finds_the_rows_of_files_by_values_nulls_and_extremes(files: Table, engine: str, kind: str) -> None:
    values = KINDS[kind].values
    if (engine, kind) == ("PyIceberg", "float"):  # it takes infinity for out of the type's range
        assert ask(engine, files, KINDS[kind], values).keys() == {"= -inf", "= inf", "<= -inf", "< inf"}
        values = values[1:-1]
    assert ask(engine, files, KINDS[kind], values) == {}


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Table]:
    root = tmp_path_factory.mktemp("partitions")
    tables = {kind: by_partitions(root / name_of(kind), kind) for kind in PARTITIONS}
    for table in tables.values():
        table.publish(FORMS)
    return tables


@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_finds_the_rows_of_partitions_by_values_nulls_and_extremes(
    partitioned: Mapping[str, Table], engine: str, kind: str
) -> None:
    table = partitioned[kind]
    assert ask(engine, table, KINDS[kind], values_of_partitions(table, kind)) == {}


def test_pyiceberg_finds_no_rows_by_a_partition_column_that_is_not_selected(partitioned: Mapping[str, Table]) -> None:
    """If a newer version finds them, docs/ENGINES.md and `limits_of_iceberg` are to be changed."""
    table, column = partitioned["integer"], name_of("integer")
    scan = StaticTable.from_metadata(metadata(table)).scan(iceberg.EqualTo(column, -7), ("id",))
    assert scan.to_arrow().num_rows == 0
    assert [it for it in table.check().unread_by if "PyIceberg" in it]


@pytest.mark.parametrize(("text", "is_read"), [("-1.50", False), ("-0.01", False), ("-7.00", True), ("1.50", True)])
def test_delta_rs_fails_at_negative_decimals_of_partitions_and_check_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, is_read: bool
) -> None:
    """Queries of delta-rs in SQL, and Polars, read them."""
    table = Table(tmp_path / "t")
    with table.begin(partition_by=["p"]) as transaction:
        pq.write_table(pa.table({"id": [1]}), transaction.new_file(partition={"p": text}))
        transaction.commit(columns(id="long", p="decimal(9,2)"))
    table.publish("delta")
    kind, question = KINDS["decimal(9,2)"], Question("p", "=", Decimal(text))
    assert datafusion(table, kind, question) == scan_delta(table, kind, question) == [1]
    assert bool(table.check().unread_by) == bool(caplog.records) == (not is_read)
    if is_read:
        assert dataset(table, kind, question) == to_pandas(table, kind, question) == [1]
    else:
        for read in (dataset, to_pandas):
            with pytest.raises(Exception, match="is not a valid decimal128 number"):
                read(table, kind, question)
