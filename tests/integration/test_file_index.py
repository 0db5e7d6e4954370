"""Classic sessions read by a file index of ours, and get what a manifest would give them.

That `dbio.read` shows the right rows is in test_spark_read.py and others, which go by it.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read import file_index, scan
from dbio_commit.spark.read.scan import files_natively
from dbio_commit.spark.session import jvm as java
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.schema import from_json
from dbio_commit.spark.versions import java_source
from tests.spark_tables import SPARK_ERRORS, configured, ids, rows

PARTITIONS = {
    "text": "IF(id % 3 = 0, NULL, concat('ä b/c:=%', id % 2, '\\'\"#?*'))",
    "long": "id % 2 - 9223372036854775807",
    "byte": "cast(id % 2 - 128 AS byte)",
    "boolean": "IF(id % 3 = 0, NULL, id % 2 = 0)",
    "decimal": "cast(id % 2 AS decimal(20, 3)) * -1.5",
    "date": "IF(id % 3 = 0, NULL, date_add(date'1582-01-01', cast(id % 2 AS int)))",
    "timestamp": "IF(id % 3 = 0, NULL, timestamp_micros(id % 2 * 3600000001))",
    "timestamp_ntz": "cast(timestamp_micros(id % 2 * 3600000001) AS timestamp_ntz)",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a täble#1")


def plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def files_of_scans(frame: Any) -> int:
    """How many files its scans read, once it has run."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return sum(leaves.apply(i).metrics().apply("numFiles").value() for i in range(leaves.size()))


@contextmanager
def by_manifest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(scan, "read_by_index", lambda *_: None)
        yield


def both_ways(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[DataFrame, DataFrame]:
    ours = dbio.read(spark, path)
    with by_manifest(monkeypatch):
        theirs = dbio.read(spark, path)
    assert "SnapshotFileIndex" in plan(ours)
    assert "MetadataLogFileIndex" in plan(theirs)
    return ours, theirs


OF_A_ZONE = ("text", "date", "timestamp", "timestamp_ntz")
"""The kinds whose values, or their texts in paths, might depend on the zone of the session."""


@pytest.mark.parametrize(
    ("zone", "kind"),
    [*(("UTC", kind) for kind in PARTITIONS), *(("America/New_York", kind) for kind in OF_A_ZONE)],
)
def test_partition_values_are_those_that_spark_reads_from_directories(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, zone: str, kind: str
) -> None:
    written = spark.range(12).selectExpr("id", f"{PARTITIONS[kind]} AS `a value`", "id % 2 AS other")
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        dbio.write(written, path, partition_by=["a value", "other"])
        ours, theirs = both_ways(spark, path, monkeypatch)
        assert ours.schema == theirs.schema
        assert rows(ours) == rows(theirs) == rows(written.select(ours.columns))
        conditions = (
            "`a value` IS NULL",
            "`a value` = (SELECT max(`a value`) FROM {it})",
            "OTHER + 1 = 2 AND id > 4",
        )
        query = " UNION ALL ".join(
            f"SELECT {n} AS n, id FROM {{it}} WHERE {condition}" for n, condition in enumerate(conditions)
        )
        found = [rows(spark.sql(query, it=it)) for it in (ours, theirs, written)]
        assert found[0] == found[1] == found[2]


def test_what_spark_tells_of_files_is_the_same(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dbio.write(spark.range(12).selectExpr("id", "concat('ü %:', id % 3) AS k"), path, partition_by="k")
    ours, theirs = both_ways(spark, path, monkeypatch)
    assert sorted(ours.inputFiles()) == sorted(theirs.inputFiles())
    told = "_metadata.file_path", "_metadata.file_name", "_metadata.file_size", "_metadata.row_index"
    assert rows(ours.select("id", *told)) == rows(theirs.select("id", *told))
    assert rows(ours.selectExpr("id", "input_file_name()")) == rows(theirs.selectExpr("id", "input_file_name()"))


def test_only_files_of_partitions_that_a_query_wants_are_read(spark: SparkSession, path: str) -> None:
    dbio.write(spark.range(0, 30, 1, 1).selectExpr("id", "id % 10 AS k", "id % 2 AS l"), path, partition_by=["k", "l"])
    frame = dbio.read(spark, path)
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        for condition, files in {
            "k IN (3, 4, 77)": 2,
            "k > 5 AND L = 1": 2,
            "k > 5 AND l = 1 AND id > 100": 2,
            "k IS NULL": 0,
            "k = l": 2,
            "id < 100": 10,
            "k % 5 = 1 OR id = -1": 10,
        }.items():
            found = frame.where(condition)
            found.collect()
            assert files_of_scans(found) == files, condition
        chosen = spark.range(3, 5).selectExpr("id AS k").where("k > 0")
        joined = frame.join(chosen.hint("broadcast"), "k").select("id")
        assert sorted(row.id for row in joined.collect()) == [3, 4, 13, 14, 23, 24]


def test_a_frame_may_be_joined_with_itself_kept_and_read_in_another_query(spark: SparkSession, path: str) -> None:
    first = dbio.write(spark.range(4).selectExpr("id", "id % 2 AS k"), path, partition_by="k")
    frame = dbio.read(spark, path, as_of=first.tid)  # of now, the overwrite below would be a conflict
    assert ids(frame.alias("a").join(frame.alias("b"), "id").select("id")) == [0, 1, 2, 3]
    kept = frame.where("k = 1").cache()
    dbio.write(spark.range(4, 8).selectExpr("id", "id % 2 AS k"), path)
    assert ids(kept) == [1, 3]
    assert ids(dbio.read(spark, path).where("k = 1")) == [1, 3, 5, 7]
    kept.unpersist()
    frame.createOrReplaceTempView("kept")
    dbio.write(spark.sql("SELECT id + 10 AS id, k FROM kept"), path, "overwrite")
    assert ids(dbio.read(spark, path)) == [10, 11, 12, 13]


def test_a_directory_that_names_no_value_of_the_column_is_named(spark: SparkSession, path: str) -> None:
    dbio.write(spark.range(2).selectExpr("id", "cast(id AS int) AS k"), path, partition_by="k")
    table = dbio.Table(path)
    schema = from_json(table.schema() or {}, where=path)
    with pytest.raises(dbio.InvalidInputError, match=r"k=abc/x\.parquet names no value of the column 'k'"):
        files_natively(spark, f"file://{path}", table, [DataFile("k=abc/x.parquet", 9, None, {"k": "abc"})], schema)


def test_a_file_without_bytes_is_passed_over_as_spark_does(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(path).mkdir()
    spark.range(3).coalesce(1).write.mode("append").parquet(path)
    Path(path, "empty.parquet").touch()
    table = dbio.Table(path)
    table.inspector = None  # as earlier versions, which looked into no file
    table.adopt()
    dbio.write(spark.range(3, 5), path)
    ours, theirs = both_ways(spark, path, monkeypatch)
    assert ids(ours) == ids(theirs) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("by", ["index", "manifest"])
def test_a_live_file_that_has_gone_is_missed_even_if_no_marker_tells_its_size(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    first = dbio.write(spark.range(3), path)
    other = int(first.tid) + 1
    name = f"part-00000-tid-{other}-6def5b7b-0608-4299-b0fd-163011e8c988-1-0-c000.snappy.parquet"
    Path(path, f"_started_{other}").touch()
    Path(path, f"_committed_{other}").write_text(json.dumps({"added": [name], "removed": []}))
    with (
        by_manifest(monkeypatch) if by == "manifest" else nullcontext(),
        pytest.raises(dbio.ObjectNotFoundError, match=name),
    ):
        dbio.read(spark, path)


def test_where_spark_takes_no_class_a_manifest_is_read_and_a_warning_says_so(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise dbio.UnsupportedStoreError("the class loader of this Spark accepts no jar at run time")

    dbio.write(spark.range(3), path)
    monkeypatch.setattr(java, "install", refuse)
    monkeypatch.setattr(java, "_ready", WeakKeyDictionary())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert ids(dbio.read(spark, path)) == [0, 1, 2]
    said = [record.message for record in caplog.records if record.name == java.__name__]
    assert said == ["reads of many files are slower: the class loader of this Spark accepts no jar at run time"]


def test_a_spark_that_asks_for_more_than_the_class_has_is_found_out_when_it_is_compiled(spark: SparkSession) -> None:
    """Else a query would fail, where a manifest could have been read."""
    text = Path(file_index.__file__).with_name("SnapshotFileIndex.java").read_text()
    source = java_source(spark._jvm, text)
    compiler = java_class(spark._jvm, "org.codehaus.janino.SimpleCompiler")()
    loader = java_class(spark._jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    compiler.setParentClassLoader(loader)
    with pytest.raises(SPARK_ERRORS, match="inputFiles"):
        compiler.cook(source.replace("public String[] inputFiles()", "public String[] otherFiles()"))
