"""The size of Arrow batches: the settings of a session, and the rows that fill a batch. No session is needed.

That rows of any width are written with a small heap is in tests/integration/test_spark_memory.py.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.scan import ReadSpec, read_files
from dbio_commit.spark.transfer.arrow import FILLER, without_fillers
from dbio_commit.spark.transfer.batches import BATCH_BYTES, arrow_batches, batch_rows
from dbio_commit.table import Table

BYTES, RECORDS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"


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
        self.session_id = str(id(self))


def session(**settings: str) -> tuple[SparkSession, dict[str, str]]:
    fake = FakeSession(**settings)
    return cast(SparkSession, fake), fake.conf.settings


def columns(*kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(f"c{i}", kind) for i, kind in enumerate(kinds)])


NARROW = columns(t.LongType())
WIDE = columns(*[t.StringType()] * 100)
VERY_WIDE = columns(*[t.LongType()] * 1000)


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


def test_a_batch_has_so_many_rows_that_values_of_bounded_width_fit() -> None:
    hundreds = columns(*[t.StructType().add("a", t.LongType()).add("b", t.LongType())] * 1000)
    found = [batch_rows(schema) for schema in (NARROW, WIDE, hundreds, columns(*[t.LongType()] * 1_000_000))]
    assert found == [10_000, 10_000, BATCH_BYTES // 32_000, 64]


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
        second.enter_context(arrow_batches(spark, VERY_WIDE))
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


def test_the_rows_of_fillers_are_dropped_and_a_batch_without_any_is_not_copied() -> None:
    columns: dict[str, list[Any]] = {"0": [1, 1, 2], "1": ["a", None, "b"], FILLER: [False, True, False]}
    batch = pa.record_batch(columns)
    assert without_fillers(batch).to_pydict() == {"0": [1, 2], "1": ["a", "b"], FILLER: [False, False]}
    full = batch.slice(2)
    assert without_fillers(full) is full
    plain = pa.record_batch({"0": [1, 2]})
    assert without_fillers(plain) is plain


@pytest.mark.parametrize("repeated", [False, True])
def test_a_read_in_workers_hands_over_few_rows_where_they_are_large(tmp_path: Path, repeated: bool) -> None:
    """Also where a dictionary makes them small in the file."""
    texts = ["x" * 500_000] * 240 if repeated else [os.urandom(250_000).hex() for _ in range(240)]
    pq.write_table(pa.table({"c": texts}), tmp_path / "a.parquet", row_group_size=60)
    file = DataFile("a.parquet", (tmp_path / "a.parquet").stat().st_size, None, {})
    columns = t.StructType().add("c", t.StringType())
    spec = ReadSpec(Table(tmp_path), columns)
    sizes = [(batch.num_rows, batch.nbytes) for batch in read_files(spec, [file])]
    assert sum(rows for rows, _ in sizes) == 240
    assert max(size for _, size in sizes) < 1.1 * BATCH_BYTES
