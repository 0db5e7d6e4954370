"""Rows reach Python's tasks in values of many rows, packed by a class in the JVM, and are what Spark has."""

import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType

import dbio_commit as dbio
from dbio_commit.base.errors import UnsupportedStoreError
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.spark.session import jvm as java
from dbio_commit.spark.transfer import batches, packed
from dbio_commit.spark.transfer.batches import BATCH_BYTES, arrow_batches, pack
from dbio_commit.spark.transfer.packed import VALUE_BYTES, pack_rows
from tests.packing import FEW, assert_same, columns, come_together, kinds, unpacked


@pytest.mark.parametrize(
    ("rows", "nulls", "coded"),
    [
        *((rows, nulls, nulls) for rows in (0, 7, 9_999) for nulls in (False, True)),
        *((1, nulls, not nulls) for nulls in (False, True)),
        *((70_000, nulls, coded) for nulls in (False, True) for coded in (False, True)),
    ],
)
def test_values_of_all_kinds_come_as_spark_itself_converts_them(
    spark: SparkSession, rows: int, nulls: bool, coded: bool
) -> None:
    df = spark.range(0, rows, 1, 3).selectExpr(*columns(nulls=nulls))
    assert_same(unpacked(df, coded=coded), df)


CODED = "dictionary<values=string, indices=int32, ordered=0>"


def test_texts_come_as_dictionaries_where_they_repeat(spark: SparkSession) -> None:
    df = spark.range(0, 50_000, 1, 1).selectExpr(
        "'p' AS p",
        "cast(id % 256 AS string) AS few",
        "cast(id % 257 AS string) AS many",
        "repeat(cast(id % 9 AS string), 64) AS short",
        "repeat(cast(id % 9 AS string), 65) AS long",
        "IF(id < 0, '', NULL) AS none",
    )
    seen = kinds(df, together=[0])
    assert len(seen) > 1
    assert set(map(tuple, seen)) == {("string", CODED, "string", CODED, "string", "string")}


def test_texts_of_so_few_rows_that_nothing_repeats_come_as_they_are(spark: SparkSession) -> None:
    filler = f"repeat('x', {VALUE_BYTES // 10}) AS filler"
    df = spark.range(0, 40, 1, 1).selectExpr("cast(id AS string) AS own", "cast(id % 4 AS string) AS few", filler)
    assert set(map(tuple, kinds(df))) == {("string", "string", "string")}


def test_a_column_stays_a_dictionary_where_there_are_too_many_texts_later(spark: SparkSession) -> None:
    df = spark.range(0, 90_000, 1, 1).selectExpr("cast(id div 200 AS string) AS text", "id")
    assert len(kinds(df)) > 1
    assert {it[0] for it in kinds(df)} == {CODED}
    assert_same(unpacked(df, coded=True), df)


@pytest.mark.parametrize("partition_by", [[], ["p"], ["p", "d"]], ids=["flat", "by text", "by text and decimal"])
def test_files_of_coded_rows_tell_what_those_of_plain_rows_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: list[str]
) -> None:
    df = spark.range(0, 30_000, 1, 2).selectExpr(
        "id",
        f"element_at(array({FEW}), 1 + cast(id % 9 AS int)) AS text",
        "IF(id % 3 = 0, NULL, cast(id div 40 AS string)) AS growing",
        "IF(id < 0, '', NULL) AS none",
        "cast(id - 9000 AS decimal(12, 2)) AS price",
        "cast(id % 7 AS decimal(3, 1)) AS small",
        "IF(id % 5 = 0, NULL, concat('p', id % 4)) AS p",
        "cast(id % 2 AS decimal(4, 1)) AS d",
    )
    coded = dbio.write(df, tmp_path / "coded", partition_by=partition_by)
    monkeypatch.setattr(batches, "pack", lambda df, *, coded, **more: pack(df, **more))
    plain = dbio.write(df, tmp_path / "plain", partition_by=partition_by)
    assert len(coded.files) == len(plain.files) > 1
    for one, other in zip(*(sorted(it.files, key=_place) for it in (coded, plain)), strict=True):
        assert (one.rows, one.partition, one.statistics) == (other.rows, other.partition, other.statistics)
        footers = [pq.read_metadata(tmp_path / "coded" / one.path), pq.read_metadata(tmp_path / "plain" / other.path)]
        assert footers[0].schema.equals(footers[1].schema)
        assert [_encodings(it) for it in footers[:1]] == [_encodings(it) for it in footers[1:]]
    found, same = (dbio.read(spark, tmp_path / name) for name in ("coded", "plain"))
    assert found.count() == 30_000
    assert found.exceptAll(same).isEmpty()
    assert found.exceptAll(df.select(found.columns)).isEmpty()


def _place(file: FileInfo) -> list[str]:
    directory, _, name = file.path.rpartition("/")
    return [directory, *name.split("-")[:2]]


def _encodings(footer: pq.FileMetaData) -> list[tuple[str, ...]]:
    return [footer.row_group(0).column(i).encodings for i in range(footer.num_columns)]


def test_decimals_come_short_where_a_file_may_be_written_of_them(spark: SparkSession) -> None:
    df = spark.range(0, 100, 1, 1).selectExpr("cast(id AS decimal(18, 2)) AS d", "cast(id AS decimal(19, 2)) AS e")
    assert kinds(df) == [["decimal64(18, 2)", "decimal128(19, 2)"]]


@pytest.mark.long
def test_random_columns_come_as_spark_itself_converts_them(spark: SparkSession) -> None:
    """More than 64 of them, of which rows have a second word of nulls; twice the same; in any order."""
    chance = random.Random(20261123)
    for _ in range(6):
        chosen = chance.choices(columns(nulls=False) + columns(nulls=True), k=chance.choice([1, 3, 40, 64, 65, 130]))
        df = spark.range(0, chance.choice([5, 3000]), 1, 2).selectExpr(*chosen)
        df = df.select("*", *df.columns[:1]) if len(set(df.columns)) == len(df.columns) else df
        renamed = df.toDF(*(f"{number} {name}" for number, name in enumerate(df.columns)))
        assert_same(unpacked(renamed, coded=chance.random() < 0.5), renamed)


@pytest.mark.parametrize(
    "make",
    [
        lambda df: df.cache(),
        lambda df: df.repartition(3).sortWithinPartitions("id"),
        lambda df: df.groupBy("id", "text").count().orderBy("id"),
        lambda df: df.union(df).coalesce(1),
        lambda df: df.where("id < 0"),
        lambda df: df.limit(10),
        lambda df: df.mapInPandas(lambda frames: frames, df.schema),
        lambda df: df.sparkSession.createDataFrame(df.limit(9).collect(), df.schema),
        lambda df: df.select("text", "id", "text"),
    ],
    ids=["cached", "shuffled", "grouped", "coalesced", "none", "limited", "from pandas", "local", "twice"],
)
def test_rows_of_all_operators_are_packed(spark: SparkSession, make: Callable[[DataFrame], DataFrame]) -> None:
    df = make(spark.range(0, 500, 1, 2).selectExpr("id", "repeat('x', cast(id % 20 AS int)) AS text"))
    assert_same(unpacked(df), df)


@pytest.mark.parametrize("text_bytes", [10, 5_000, VALUE_BYTES // 2, 2 * VALUE_BYTES])
def test_a_batch_is_bounded_whatever_the_rows_weigh(spark: SparkSession, text_bytes: int) -> None:
    rows = min(200_000, 4 * BATCH_BYTES // text_bytes)
    df = spark.range(0, rows, 1, 1).selectExpr("id", f"repeat('x', {text_bytes}) AS text")

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"bytes": [batch.nbytes for batch in batches]})

    with arrow_batches(spark, df.schema):
        sizes = [row[0] for row in pack(df)[0].mapInArrow(measure, "bytes bigint").collect()]
    assert sum(sizes) > rows * text_bytes
    assert max(sizes) < BATCH_BYTES + VALUE_BYTES + 2 * text_bytes


def test_rows_of_a_group_come_together_and_in_their_order(spark: SparkSession) -> None:
    df = spark.range(0, 60_000, 1, 1).selectExpr(
        "id", "IF(id % 7 = 3, NULL, repeat('é', cast(id % 7 AS int))) AS p", "repeat('x', 199) AS t", "id % 2 = 0 AS q"
    )
    values = come_together(df, 1, 3)
    assert len(values) == 14  # a group has a megabyte at most
    assert all(completes and len(groups) == 1 for groups, _, completes in values)
    assert len({groups[0] for groups, _, _ in values}) == 14
    assert sorted(id for _, ids, _ in values for id in ids) == list(range(60_000))
    for _, ids, _ in values:
        assert ids == list(range(ids[0], 60_000, 14))


def test_a_large_group_comes_in_several_values_of_which_the_last_completes_it(spark: SparkSession) -> None:
    """Some of them before its end, since a row group of a file is full."""
    df = spark.range(0, 800_000, 1, 1).selectExpr("id", "IF(id % 8 = 0, 'rare', 'often') AS p")
    values = come_together(df, 1)
    assert all(len(groups) == 1 for groups, _, _ in values)
    for group, ids in (("rare", range(0, 800_000, 8)), ("often", [id for id in range(800_000) if id % 8])):
        own = [(ids, completes) for groups, ids, completes in values if groups == [(group,)]]
        assert [id for found, _ in own for id in found] == list(ids)
        assert [completes for _, completes in own] == [False] * (len(own) - 1) + [True]
    began = [groups[0][0] for groups, _, _ in values]
    assert began.index("rare") > 0
    assert "often" in began[began.index("rare") :]  # which went on after that


def test_small_groups_share_a_value(spark: SparkSession) -> None:
    df = spark.range(0, 9_000, 1, 1).selectExpr("id", "id % 3000 AS p")
    [(groups, ids, completes)] = come_together(df, 1)
    assert groups == [(p,) for p in range(3000)]
    assert ids == [id for p in range(3000) for id in (p, p + 3000, p + 6000)]
    assert completes


def test_no_rows_make_no_group(spark: SparkSession) -> None:
    assert come_together(spark.range(10).where("id < 0").selectExpr("id", "id AS p"), 1) == []


def test_the_next_value_is_small_again_after_a_large_row(spark: SparkSession) -> None:
    df = spark.range(0, 30_000, 1, 1).selectExpr("id", f"IF(id = 500, repeat('y', {3 * VALUE_BYTES}), 'x') AS text")
    assert_same(unpacked(df), df)


def test_columns_that_have_no_such_form_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).selectExpr("id", "array(id) AS nested")
    assert not pack(df)[1].in_values
    dbio.write(df, tmp_path / "table")
    assert dbio.read(spark, tmp_path / "table").count() == 3


def test_where_spark_takes_no_class_rows_go_its_own_way_and_a_warning_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedStoreError("the class loader of this Spark accepts no jar at run time")

    monkeypatch.setattr(java, "install", refuse)
    monkeypatch.setattr(java, "_ready", WeakKeyDictionary())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            dbio.write(spark.range(3), tmp_path / "table")
    said = [record.message for record in caplog.records if record.name == java.__name__ and "rows go" in record.message]
    assert len(said) == 1
    assert "is slower: the class loader of this Spark accepts no jar" in said[0]
    assert dbio.read(spark, tmp_path / "table").count() == 6


def test_a_class_of_another_version_is_not_used(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pack_rows(spark.range(3), null_bytes=100) is not None
    monkeypatch.setattr(java, "_ready", WeakKeyDictionary())
    monkeypatch.setattr(packed, "PACK_ROWS", java.JavaClass("transfer", "PackRows", "0"))
    assert pack_rows(spark.range(3), null_bytes=100) is None


def test_a_row_that_fails_fails_as_without_us(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 1).selectExpr("IF(id = 50, raise_error('row 50'), id) AS id")
    with pytest.raises(Exception, match="row 50"):
        dbio.write(df.withColumn("id", df["id"].cast(LongType())), tmp_path / "table")
    assert not dbio.Table(tmp_path / "table").history()


def test_what_a_sink_is_told_of_the_packing_is_read_back(spark: SparkSession) -> None:
    _, packing = pack(spark.range(3), {"a": "b"})
    assert type(packing).parse(packing.to_option()) == packing
    assert json.loads(packing.to_option())["in_values"] is True
