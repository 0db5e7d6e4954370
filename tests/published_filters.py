"""Tables whose publications are filtered by each engine, on each type: by values, nulls and extremes.

Whole reads do not show whether a reader takes the bounds of a publication as they are meant.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit import Table
from tests.histories import columns

NAN, INF = math.nan, math.inf
NOON = datetime(2026, 11, 20, 12, 0, 0, 123456)
FAR = datetime(9999, 12, 31, 23, 59, 59, 999999)


class Kind(NamedTuple):
    """A type, with values of it from the least to the greatest."""

    name: str
    """In Spark's JSON."""
    arrow: Any
    values: Sequence[Any]
    sql: str
    """In most dialects."""


LONG = [f"{sign}{'9' * 28}.{'9' * 10}" for sign in ("-", "")]

KINDS: Mapping[str, Kind] = {
    it.name: it
    for it in (
        Kind("byte", pa.int8(), [-128, 0, 5, 127], "TINYINT"),
        Kind("short", pa.int16(), [-(2**15), 0, 5, 2**15 - 1], "SMALLINT"),
        Kind("integer", pa.int32(), [-(2**31), 0, 5, 2**31 - 1], "INT"),
        Kind("long", pa.int64(), [-(2**63), 0, 2**53 + 1, 2**63 - 1], "BIGINT"),
        Kind("float", pa.float32(), [-INF, -0.0, 1.5, INF], "REAL"),
        Kind("double", pa.float64(), [-INF, -1e300, -0.0, 1.5, 1e300, INF], "DOUBLE"),
        Kind(
            "decimal(9,2)",
            pa.decimal128(9, 2),
            [*map(Decimal, ("-9999999.99", "-0.01", "1.50", "9999999.99"))],
            "DECIMAL(9,2)",
        ),
        Kind(
            "decimal(38,10)",
            pa.decimal128(38, 10),
            [*map(Decimal, (LONG[0], "1.5000000000", "12345678901234567890.1234567891", LONG[1]))],
            "DECIMAL(38,10)",
        ),
        Kind("string", pa.string(), ["", "a", "a b", "x" * 70, "x" * 70 + "y", "ä"], "VARCHAR"),
        Kind("boolean", pa.bool_(), [False, True], "BOOLEAN"),
        Kind("binary", pa.binary(), [b"", b"a", b"\xff"], "BINARY"),
        Kind("date", pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2026, 11, 20), date(9999, 12, 31)], "DATE"),
        Kind(
            "timestamp",
            pa.timestamp("us", "UTC"),
            [it.replace(tzinfo=UTC) for it in (datetime(1, 1, 1), NOON, FAR)],
            "TIMESTAMP",
        ),
        Kind("timestamp_ntz", pa.timestamp("us"), [datetime(1, 1, 1), NOON, FAR], "TIMESTAMP_NTZ"),
    )
}
PARTITIONS = {
    "integer": ["-7", "0", "2147483647", None],
    "long": ["-9223372036854775808", "9223372036854775807", None],
    "string": ["a", "a b", "ä", None],
    "boolean": ["true", "false", None],
    "date": ["0001-01-01", "2026-11-20", "9999-12-31", None],
    "timestamp": ["2026-11-20 10:00:00", "2026-11-20 10:00:00.25", None],
    "decimal(9,2)": ["1.50", "-7.00", "9999999.99", None],
}


class Question(NamedTuple):
    """A filter of one column."""

    column: str
    operator: str
    """One of = != < <= > >= and `null`, `not null`, `in`."""
    value: Any = None

    def holds(self, value: Any) -> bool:
        if self.operator in ("null", "not null"):
            return (value is None) == (self.operator == "null")
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return False
        tests: Mapping[str, Callable[[], bool]] = {
            "=": lambda: value == self.value, "!=": lambda: value != self.value, "<": lambda: value < self.value,
            "<=": lambda: value <= self.value, ">": lambda: value > self.value, ">=": lambda: value >= self.value,
            "in": lambda: value in self.value,
        }  # fmt: skip
        return tests[self.operator]()

    def among(self, rows: pa.Table) -> list[int]:
        """The ids of the rows for which it holds."""
        pairs: Any = zip(rows["id"].to_pylist(), rows[self.column].to_pylist(), strict=True)
        return sorted(number for number, value in pairs if self.holds(value))


def sql_of(kind: Kind, it: Question, literal: Callable[[Kind, Any], str]) -> str:
    """As a condition in SQL; each dialect has its own literals."""
    if it.operator in ("null", "not null"):
        return f"{it.column} IS {it.operator}"
    if it.operator == "in":
        return f"{it.column} IN ({', '.join(literal(kind, value) for value in it.value)})"
    return f"{it.column} {it.operator} {literal(kind, it.value)}"


def of_duckdb(kind: Kind, value: Any) -> str:
    if kind.name == "binary":
        return f"from_hex('{value.hex()}')"
    name = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}.get(kind.name, kind.sql)
    return f"CAST('{value}' AS {name})"


def of_trino(kind: Kind, value: Any) -> str:
    match kind.name:
        case "binary":
            return f"X'{value.hex()}'"
        case "timestamp":
            return f"TIMESTAMP '{value.replace(tzinfo=None)} UTC'"
        case "timestamp_ntz":
            return f"TIMESTAMP '{value}'"
        case "float" | "double" if math.isinf(value):
            return f"CAST({'-' if value < 0 else ''}infinity() AS {kind.sql})"
    return f"CAST('{value}' AS {kind.sql})"


def of_spark(kind: Kind, value: Any) -> str:
    match kind.name:
        case "binary":
            return f"X'{value.hex()}'"
        case "byte" | "short" | "integer" | "long" | "boolean":
            return f"CAST('{value}' AS {kind.name.replace('byte', 'tinyint').replace('short', 'smallint').upper()})"
        case "string":
            return f"'{value}'"
        case "float" | "double" if math.isinf(value):
            return f"CAST('{'-' if value < 0 else ''}Infinity' AS {kind.name})"
    return f"CAST('{value}' AS {kind.name})"


def wrong_answers(table: Table, kind: Kind, values: Sequence[Any], answer: Callable[[Question], Any]) -> dict[str, str]:
    """The questions to which the answers are not the ids of the rows."""
    rows, wrong = table.scan().to_arrow(), dict[str, str]()
    for it in questions(kind, name_of(kind.name), values):
        try:
            found: Any = sorted(answer(it))
        except Exception as error:
            found = f"{type(error).__name__}: {error!s:.200}"
        if found != it.among(rows):
            wrong[f"{it.operator} {it.value!r}"] = f"{found}, not {it.among(rows)}"
    return wrong


def values_of_partitions(table: Table, kind: str) -> list[Any]:
    found: list[Any] = table.scan().to_arrow()[name_of(kind)].to_pylist()
    return sorted({it for it in found if it is not None})


def name_of(kind: str) -> str:
    return "v_" + "".join(it if it.isalnum() else "_" for it in kind)


def questions(kind: Kind, column: str, values: Sequence[Any]) -> Iterator[Question]:
    """Values, nulls and extremes. No reader finds NaN by them: readers order NaN differently, so only < is asked."""
    for value in values:
        yield Question(column, "=", value)
    yield from (Question(column, "null"), Question(column, "not null"))
    if kind.name not in ("float", "double"):
        yield Question(column, "!=", values[0])
    if kind.name in ("boolean", "binary"):
        return
    yield Question(column, "in", values[1:3])
    yield from (Question(column, "<=", values[0]), Question(column, "<", values[-1]))
    if kind.name not in ("float", "double"):
        yield from (Question(column, ">=", values[-1]), Question(column, ">", values[-2]))


def with_files(root: Path, kinds: Sequence[str]) -> Table:
    """A table with a column of each type: files of extremes, of one value, of nulls, without the column, with NaN."""
    table = Table(root)
    number = 0

    def write(values_of: Callable[[Kind], Sequence[Any]], *, without: bool = False) -> None:
        nonlocal number
        chosen = [KINDS[it] for it in kinds]
        size = max(len(values_of(it)) for it in chosen)
        data: dict[str, Any] = {"id": pa.array(range(number, number + size), pa.int64())}
        number += size
        if not without:
            for it in chosen:
                given = list(values_of(it))
                data[name_of(it.name)] = pa.array(given + given[-1:] * (size - len(given)), it.arrow)
        with table.begin() as transaction:
            pq.write_table(pa.table(data), transaction.new_file())
            transaction.commit(columns(id="long", **{name_of(it): it for it in kinds}))

    write(lambda it: it.values)
    write(lambda it: [it.values[1]] * 2)
    write(lambda it: [None, it.values[-1], it.values[0]])
    write(lambda it: [None, None])
    table.publish(FORMS)  # so that the next file comes by a difference
    write(lambda it: [1.5, NAN, -1.5] if it.name in ("float", "double") else [it.values[-2]] * 3)
    write(lambda it: [it.values[0]], without=True)
    return table


def by_partitions(root: Path, kind: str) -> Table:
    """A table that is partitioned by a column of the type."""
    table = Table(root)
    column = name_of(kind)
    with table.begin(partition_by=[column]) as transaction:
        for number, text in enumerate([*PARTITIONS[kind], PARTITIONS[kind][0]]):
            pq.write_table(pa.table({"id": [number]}), transaction.new_file(partition={column: text}))
        transaction.commit(columns(id="long", **{column: kind}))
    return table


FORMS = ["delta", "iceberg"]
