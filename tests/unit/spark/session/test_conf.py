"""Whether Spark reaches a store. No session is needed."""

import warnings
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbio_commit.spark.session.conf import native_root
from dbio_commit.store import parse_location


class Looking:
    """A session whose looks at files take a while, and find what they are told to."""

    def __init__(self, problem: str | None) -> None:
        self.problem, self.looks, self.now, self.took = problem, 0, 1000.0, 0.5
        self.read = self

    def schema(self, _: str) -> "Looking":
        return self

    def parquet(self, file: str) -> Any:
        self.looks += 1
        self.now += self.took
        self.file = file
        if self.problem:
            raise PySparkException(self.problem.format(file=file))
        return self

    def root(self, url: str = "s3://lake/some/table") -> str | None:
        location = parse_location(url)
        spark = cast(SparkSession, self)
        return native_root(spark, location, account=None, file="day=1/part-0.parquet", now=lambda: self.now)


@pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")
@pytest.mark.parametrize(("took", "holds"), [(0.5, 60.0), (37.0, 740.0)])
def test_a_no_is_looked_at_again_after_a_while_a_yes_is_not(took: float, holds: float) -> None:
    session = Looking("no such scheme")
    session.took = took
    assert session.root() is None
    session.now += holds - 1
    assert (session.root(), session.root("s3://lake/other"), session.looks) == (None, None, 1)
    session.now += 1
    session.problem = None
    assert (session.root(), session.looks) == ("s3a://lake/some/table", 2)
    session.now += 1e9
    session.problem = "gone"
    assert (session.root(), session.looks) == ("s3a://lake/some/table", 2)


def test_spark_reads_from_google_by_the_scheme_of_its_connector() -> None:
    session = Looking("")
    assert session.root("gcs://lake/some/table") == "gs://lake/some/table"
    assert session.file == "gs://lake/some/table/day=1/part-0.parquet"


def test_the_warning_comes_once_for_each_container() -> None:
    session = Looking("no such scheme")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for url in ("s3://lake/t", "s3://lake/u", "s3://pond/t"):
            session.root(url)
        session.now += 1e6
        session.root()
    assert ["lake" in str(it.message) for it in caught] == [True, False]


def test_the_warning_has_the_cause_and_not_the_path() -> None:
    long = "s3://lake/" + "/".join(f"a-long-name-of-a-directory-{i}" for i in range(20))
    session = Looking(
        "java.nio.file.AccessDeniedException: {file}: getFileStatus on {file}: S3Exception: (Service: S3, "
        "Status Code: 403): SignatureDoesNotMatch\n\nJVM stacktrace:\n\tat org.apache.hadoop.fs.s3a"
    )
    with pytest.warns(UserWarning, match="Spark cannot read s3a://lake itself") as caught:
        session.root(long)
    (text,) = [str(it.message) for it in caught]
    assert "AccessDeniedException: the file: getFileStatus on the file: S3Exception" in text
    assert "Status Code: 403): SignatureDoesNotMatch" in text
    assert "long-name" not in text
    assert "stacktrace" not in text


def test_of_a_long_cause_the_end_stays() -> None:
    with pytest.warns(UserWarning, match="Spark cannot read") as caught:
        Looking("FirstException: " + "and so on " * 100 + ": Connection refused").root()
    (text,) = [str(it.message) for it in caught]
    assert "FirstException" in text
    assert "Connection refused" in text
    assert len(text) < 800
