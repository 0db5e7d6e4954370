"""Writes and rewrites without Spark do what those with Spark do: files, conditions, values, merges."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import dbio_commit as dbio
from dbio_commit.data.conditions.expressions import holds
from dbio_commit.data.conditions.sql import parse_exactly
from dbio_commit.data.conditions.values import read_value
from dbio_commit.protocol.markers.commit import bounds_in
from tests.histories import columns
from tests.integration.test_types_roundtrip import COLUMNS
from tests.spark_tables import configured
from tests.unit.data.conditions import test_evaluate as conditions
from tests.unit.data.conditions import test_values as values
from tests.unit.data.conditions.test_predicates import PATTERNS, TEXTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def cases(test: Any) -> list[Any]:
    """The expressions of a parametrized test."""
    return [it[0] for mark in test.pytestmark if mark.name == "parametrize" for it in mark.args[1]]


def test_a_frame_of_all_types_is_the_same_table_by_either_writer(spark: "SparkSession", tmp_path: Path) -> None:
    from dbio_commit.spark.session.schema import from_json

    names = [f"c{i}" for i in range(len(COLUMNS))]
    most = max(map(len, COLUMNS.values()))
    rows = [tuple(column[i] if i < len(column) else None for column in COLUMNS.values()) for i in range(most + 1)]
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, COLUMNS, strict=True))
    df = spark.createDataFrame(rows, schema).coalesce(1)
    by_spark, by_hand = dbio.Table(tmp_path / "spark"), dbio.Table(tmp_path / "hand")
    dbio.write(df, by_spark.url)
    arrow = by_spark.snapshot().to_arrow()
    by_hand.write(arrow)
    assert by_hand.schema() == by_spark.schema()
    assert by_hand.snapshot().to_arrow().schema == arrow.schema
    assert str(by_hand.snapshot().to_arrow().to_pylist()) == str(arrow.to_pylist())
    back = dbio.read(spark, by_hand.url)
    assert back.schema == from_json(by_hand.schema(), where="it")
    assert sorted(map(str, back.collect())) == sorted(map(str, dbio.read(spark, by_spark.url).collect()))
    told = [str(bounds_in(it.history()[0].marker)) for it in (by_spark, by_hand)]
    assert told[0] == told[1]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_conditions_and_values_are_those_of_spark(spark: "SparkSession", tmp_path: Path, ansi: str) -> None:
    for path, rows in (("conditions", conditions.ROWS), ("values", values.ROWS)):
        dbio.Table(tmp_path / path).write(rows)
    with configured(spark, {"spark.sql.ansi.enabled": ansi}):
        df = dbio.read(spark, tmp_path / "conditions").coalesce(1)
        texts = cases(conditions.test_a_condition_holds_for_the_rows_for_which_it_is_true_in_spark)
        found = df.selectExpr(*(f"coalesce({text}, false)" for text in texts)).collect()
        for i, text in enumerate(texts):
            condition = parse_exactly(text, conditions.SCHEMA, zone=None, instead="")
            assert holds(condition, conditions.ROWS).to_pylist() == [row[i] for row in found], text
        df = dbio.read(spark, tmp_path / "values").coalesce(1)
        texts = [it for it in cases(values.test_a_value_is_the_one_of_spark_with_its_type) if it not in values.OF_NOW]
        texts.remove("id + big")  # which overflows
        selected = df.selectExpr(*texts)
        kinds = [field["type"] for field in selected.schema.jsonValue()["fields"]]
        lines = selected.collect()
        for i, text in enumerate(texts):
            value = read_value(text, values.KINDS, now=datetime.now(UTC))
            assert (value.kind, value.of(values.ROWS).to_pylist()) == (kinds[i], [row[i] for row in lines]), text


def test_like_finds_the_texts_that_it_finds_in_spark(spark: "SparkSession") -> None:
    patterns = [it for it in PATTERNS if it]
    df = spark.createDataFrame([(text,) for text in TEXTS], "s string").coalesce(1)
    escaped = ["s LIKE 'a!_b' ESCAPE '!'", "s LIKE '!%%' ESCAPE '!'", "s NOT LIKE 'a!%b' ESCAPE '!'"]
    asked = [*(f"s LIKE '{pattern}'" for pattern in patterns), *escaped]
    found = df.selectExpr(*asked).collect()
    schema = columns(s="string")
    for i, text in enumerate(asked):
        condition = parse_exactly(text, schema, zone=None, instead="")
        assert holds(condition, pa.record_batch({"s": TEXTS})).to_pylist() == [row[i] for row in found], text


def test_updates_and_merges_of_either_kind_set_the_same_values(spark: "SparkSession", tmp_path: Path) -> None:
    kinds = {"id": pa.int64(), "v": pa.float64(), "f": pa.float32(), "money": pa.decimal128(9, 2), "s": pa.string(),
             "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32(), "t": pa.string(),
             "w": pa.float64(), "flag": pa.bool_(), "raw": pa.binary()}  # fmt: skip
    rows = pa.table({name: pa.array(range(6) if name == "id" else [None] * 6, kind) for name, kind in kinds.items()})
    texts = {"v": "-1e3", "f": "0.5F", "money": "1", "s": "'a -- b'", "at": "TIMESTAMP_LTZ '2026-01-01T00:00:00Z'",
             "local": "TIMESTAMP_NTZ '2026-01-01 00:00:00'", "day": "DATE '2026-11-20'", "t": "''"}  # fmt: skip
    values = {"s": "it's \\ \"x\" \n ä", "v": 0.1, "w": float("nan"), "f": 0.1, "money": Decimal("-7.25"),
              "at": datetime(1, 1, 1, tzinfo=UTC), "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
              "day": date(1500, 2, 28), "t": "", "flag": False, "raw": b"\x00\xff"}  # fmt: skip
    when = [
        dbio.when_matched("source.n < target.id").delete(),
        dbio.when_matched("source.op LIKE 'u%'").update({"s": "concat(source.op, '!')", "v": 2.5, "day": None}),
        dbio.when_not_matched("n > 5").insert({"id": "source.k", "w": "source.x", "s": "op"}),
        dbio.when_not_matched_by_source("target.id IN (5)").update({"money": Decimal("9.5")}),
    ]
    changes = pa.table({"k": [2, 3, 4, 8, 9], "n": [7, 0, 7, 7, 5], "x": [0.5] * 5, "op": ["u", "d", None, "i", "j"]})
    tables = [dbio.Table(tmp_path / name) for name in ("spark", "hand")]
    counted: list[Any] = []
    for i, table in enumerate(tables):
        table.write(rows)
        session = None if i else spark
        source = changes if i else spark.createDataFrame(rows_of(changes), "k bigint, n bigint, x double, op string")
        table.update(texts, "id = 0", spark=session)
        table.update(values=values, where="id = 1", spark=session)
        commit = table.merge(source, "target.id = source.k AND source.x < 1", when)
        counted.append({k: v for k, v in commit.metrics.items() if k.startswith("numTarget")})
    found = [sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) for table in tables]
    assert str(found[0]) == str(found[1])
    assert counted[0] == counted[1] == {
        "numTargetRowsInserted": 1, "numTargetRowsUpdated": 2, "numTargetRowsDeleted": 1, "numTargetRowsCopied": 3,
    }  # fmt: skip


def test_a_replacement_of_either_kind_leaves_the_same_rows_and_counts(spark: "SparkSession", tmp_path: Path) -> None:
    found, data = [], pa.table({"id": [2, 9], "p": [0, 1]})
    for i, name in enumerate(("spark", "hand")):
        path = tmp_path / name
        dbio.Table(path).write(pa.table({"id": range(10), "p": [it % 3 for it in range(10)]}), partition_by="p")
        frame = data if i else spark.createDataFrame(rows_of(data), "id bigint, p bigint")
        commit = dbio.write(frame, path, "overwrite", replace_where="id = 2 OR id > 7 AND p < 2")
        assert commit.kind == "replace"
        counts = {k: v for k, v in commit.metrics.items() if k in ("numDeletedRows", "numInsertedRows")}
        found.append((sorted(dbio.Table(path).to_arrow(["id", "p"]).to_pydict().items()), counts))
    assert str(sorted(found[0][0][0][1])) == str(sorted(found[1][0][0][1]))
    assert found[0][1] == found[1][1] == {"numDeletedRows": 2, "numInsertedRows": 2}


@pytest.mark.long  # unit tests have the same rows and counts as expectations
def test_rewrites_of_either_kind_leave_the_same_rows_and_counts(spark: "SparkSession", tmp_path: Path) -> None:
    tables = [dbio.Table(tmp_path / name) for name in ("spark", "hand")]
    source = spark.sql("SELECT CAST(id AS bigint) id, concat('t', id) text, CAST(id % 3 AS int) p FROM range(30)")
    changes = spark.sql("SELECT CAST(id AS bigint) id, concat('n', id) text, CAST(id % 2 AS int) p FROM range(25, 35)")
    arrow = dbio.Table(tmp_path / "changes")
    dbio.write(changes.coalesce(1), arrow.url)
    frame = arrow.snapshot().to_arrow()
    counted: list[list[Any]] = [[], []]
    for i, table in enumerate(tables):
        dbio.write(source.coalesce(1), table.url, partition_by="p")
        session = None if i else spark
        commits = [
            table.delete("id < 4 OR text = 't20'", spark=session),
            table.update({"text": "concat(text, '!')", "p": "p + 1"}, "id BETWEEN 5 AND 9", spark=session),
            table.merge(frame if i else changes, ["id"]),
        ]
        for commit in commits:
            info = commit.marker.dbio_commit
            assert info is not None
            counted[i].append({k: v for k, v in info.metrics.items() if "Rows" in k and k != "numOutputRows"})
    rows = [sorted(map(str, table.snapshot().to_arrow().to_pylist())) for table in tables]
    assert rows[0] == rows[1]
    assert counted[0] == counted[1]
