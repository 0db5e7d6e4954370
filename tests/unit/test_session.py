"""The size of Arrow batches, and whether Spark reaches a store. No session is needed."""

import warnings
from contextlib import ExitStack
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from dbio_commit.spark.session import arrow_batches, native_root
from dbio_commit.store import parse_location

BYTES, RECORDS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"

# --- Arrow batches ------------------------------------------------------------------------------------------------


class FakeConf:
    """The run-time settings of a session."""

    def __init__(self, **settings: str) -> None:
        self.settings = dict(settings)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        self.settings.pop(name, None)


class FakeSession:
    def __init__(self, **settings: str) -> None:
        self.conf = FakeConf(**settings)


def session(**settings: str) -> tuple[SparkSession, dict[str, str]]:
    fake = FakeSession(**settings)
    return cast(SparkSession, fake), fake.conf.settings


def columns(*kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(f"c{i}", kind) for i, kind in enumerate(kinds)])


NARROW = columns(t.LongType())
WIDE = columns(*[t.StringType()] * 100)


def test_within_a_write_the_session_hands_over_batches_at_full_speed() -> None:
    spark, settings = session()
    with arrow_batches(spark, NARROW):
        assert settings == {BYTES: "2147483647", RECORDS: "10000"}
    assert settings == {}


def test_the_sessions_own_settings_come_back_also_after_an_error() -> None:
    own = {BYTES: "1000000", RECORDS: "500", "other": "x"}
    spark, settings = session(**own)
    with arrow_batches(spark, NARROW):
        assert settings == {**own, BYTES: "2147483647", RECORDS: "500"}
    assert settings == own
    with pytest.raises(ZeroDivisionError), arrow_batches(spark, NARROW):
        settings["seen"] = str(1 // 0)
    assert settings == own


def test_wide_rows_come_in_smaller_batches() -> None:
    nested = columns(t.ArrayType(t.MapType(t.StringType(), t.BinaryType())))
    found = []
    for schema in (NARROW, WIDE, nested):
        spark, settings = session()
        with arrow_batches(spark, schema):
            found.append(int(settings[RECORDS]))
    assert found == sorted(found, reverse=True)
    assert found[0] == 10_000
    assert found[1] * 100 * 2048 <= 64 * 1024 * 1024
    assert found[2] >= 1


def test_a_batch_size_of_zero_which_means_no_bound_is_still_bounded() -> None:
    spark, settings = session(**{RECORDS: "0"})
    with arrow_batches(spark, NARROW):
        assert settings[RECORDS] == "10000"
    assert settings == {RECORDS: "0"}


def test_of_writes_at_once_the_smallest_batch_holds_until_the_last_one_leaves() -> None:
    spark, settings = session(**{RECORDS: "20000"})
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(arrow_batches(spark, NARROW))
        assert settings[RECORDS] == "10000"
        second.enter_context(arrow_batches(spark, WIDE))
        wide = settings[RECORDS]
        assert int(wide) < 10_000
        first.close()
        assert (settings[RECORDS], settings[BYTES]) == (wide, "2147483647")
        second.close()
        assert settings == {RECORDS: "20000"}


def test_sessions_do_not_share_their_settings() -> None:
    one, settings_of_one = session(**{RECORDS: "7"})
    other, settings_of_other = session(**{RECORDS: "8"})
    with arrow_batches(one, NARROW), arrow_batches(other, NARROW):
        assert (settings_of_one[RECORDS], settings_of_other[RECORDS]) == ("7", "8")
    assert (settings_of_one, settings_of_other) == ({RECORDS: "7"}, {RECORDS: "8"})


# --- whether Spark reaches a store --------------------------------------------------------------------------------


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
