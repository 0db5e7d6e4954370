"""Writes and rewrites without Spark do what those with Spark do: files, conditions, values, merges."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import dbio_commit as dbio
from dbio_commit.data.evaluate import holds
from dbio_commit.data.values import read_value
from dbio_commit.data.where_exactly import parse_exactly
from dbio_commit.protocol.markers.commit import bounds_in
from tests.integration.test_types_roundtrip import COLUMNS
from tests.spark_tables import configured
from tests.unit.data import test_evaluate as conditions
from tests.unit.data import test_values as values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        session, call = () if i else (spark,), cast(Any, table)
        commits = [
            call.delete(*session, "id < 4 OR text = 't20'"),
            call.update(*session, {"text": "concat(text, '!')", "p": "p + 1"}, "id BETWEEN 5 AND 9"),
            call.merge(*session, frame if i else changes, ["id"]),
        ]
        for commit in commits:
            info = commit.marker.dbio_commit
            assert info is not None
            counted[i].append({k: v for k, v in info.metrics.items() if "Rows" in k and k != "numOutputRows"})
    rows = [sorted(map(str, table.snapshot().to_arrow().to_pylist())) for table in tables]
    assert rows[0] == rows[1]
    assert counted[0] == counted[1]
