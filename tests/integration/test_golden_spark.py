"""The golden directories, read by Spark: through `dbio.read`, and through the data source. The core: test_golden.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.spark.catalog.reads import SWITCH, enable_reads
from tests.spark_tables import SPARK_ERRORS, ids
from tests.test_golden import READS, GoldenCase, Read, each

NO_COLUMNS = "no recorded columns"
READABLE = [(case, read) for case, read in READS if not (read.error or read.ignore_corrupt_markers)]
REFUSED = [(case, read) for case, read in READS if read.error]
ONE_OF_EACH_ERROR = {read.error: (case, read) for case, read in reversed(REFUSED)}


@pytest.fixture(scope="module", autouse=True)
def enabled(spark: SparkSession) -> None:
    dbio.enable(spark)


@pytest.fixture
def reading(spark: SparkSession) -> Iterator[None]:
    """Reads in unchanged code give committed rows."""
    enable_reads(spark)
    yield
    spark.conf.unset(SWITCH)
    spark.sparkContext._jsc.sc().conf().remove(SWITCH)


def holds_nothing(case: GoldenCase, read: Read) -> bool:
    """Whether there are neither files nor columns to be empty with."""
    if read.files:
        return False
    return read.as_of is not None or not any("schema" in path.read_text() for path in case.table.glob("_committed_*"))


def load(spark: SparkSession, path: str, read: Read) -> DataFrame:
    """By the data source."""
    return spark.read.format("dbio").options(**({"asOf": read.as_of} if read.as_of else {})).load(path)


def check_rows(frame: DataFrame, read: Read) -> None:
    if read.files:
        assert ids(frame) == sorted(read.ids)
    else:
        assert frame.collect() == []
    assert frame.columns[len(frame.columns) - len(read.partition_columns) :] == list(read.partition_columns)


@each(READABLE, of=4)
def test_spark_reads_exactly_the_rows_of_a_golden_directory(
    spark: SparkSession, case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    path = case.build(tmp_path / "table", read)
    if holds_nothing(case, read):
        with pytest.raises(dbio.InvalidInputError, match=NO_COLUMNS):
            dbio.read(spark, path, read.as_of)
        return
    check_rows(dbio.read(spark, path, read.as_of), read)


@each(READABLE, of=8)
def test_the_data_source_reads_exactly_the_rows_of_a_golden_directory(
    spark: SparkSession, case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    path = case.build(tmp_path / "table", read)
    if holds_nothing(case, read):
        with pytest.raises(SPARK_ERRORS, match=NO_COLUMNS):
            load(spark, path, read)
        return
    check_rows(load(spark, path, read), read)


@each([(case, read) for case, read in READABLE if read.as_of is None], of=8)
def test_unchanged_code_reads_exactly_the_rows_of_a_golden_directory(
    spark: SparkSession, reading: None, case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    path = case.build(tmp_path / "table", read)
    if not read.files:
        assert spark.read.schema("id BIGINT").parquet(path).collect() == []
    else:
        check_rows(spark.read.parquet(path), read)


NESTED = "39-nested-table"  # Spark reads no file in directories that are no partitions


@each([(case, read) for case, read in REFUSED if read.as_of is None and case.name != NESTED], of=4)
def test_unchanged_code_is_refused_a_golden_directory_with_the_error_that_says_why(
    spark: SparkSession, reading: None, case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    path = case.build(tmp_path / "table", read)
    with pytest.raises((dbio.DbioError, AnalysisException)) as caught:
        spark.read.parquet(path).collect()
    if read.error == "TableNotFoundError":  # an error that unchanged code knows
        assert "PATH_NOT_FOUND" in str(caught.value) or "UNABLE_TO_INFER_SCHEMA" in str(caught.value)
    else:
        assert read.error in [kind.__name__ for kind in type(caught.value).mro()]


@each(REFUSED)
def test_spark_refuses_a_golden_directory_with_the_error_that_says_why(
    spark: SparkSession, case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    path = case.build(tmp_path / "table", read)
    with pytest.raises(dbio.DbioError) as caught:
        dbio.read(spark, path, read.as_of)
    assert read.error in [kind.__name__ for kind in type(caught.value).mro()]


@each([*ONE_OF_EACH_ERROR.values()])
def test_the_data_source_refuses_a_golden_directory_with_the_error_of_the_core(
    spark: SparkSession, case: GoldenCase, read: Read, tmp_path: Path
) -> None:
    """One of each kind: the data source asks the core, whose answer to each directory is in test_golden.py."""
    path = case.build(tmp_path / "table", read)
    with pytest.raises(dbio.DbioError) as caught:
        [*dbio.Table(path).snapshot(read.as_of).files]  # those of a table with parts are read only now
    with pytest.raises(SPARK_ERRORS, match=f"dbio_commit.{type(caught.value).__name__}: "):
        load(spark, path, read).collect()
