"""How often a write opens its table, and what of it travels to the tasks: of plans without Spark, on a disk.

With Spark: tests/integration/test_spark_write.py.
"""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import LongType, StructType

from dbio_commit import SchemaMismatchError, Table, testing
from dbio_commit import store as stores
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.spark.read.scan import ReadSpec
from dbio_commit.spark.write.actions import RowAction
from dbio_commit.spark.write.copied import OldFiles
from dbio_commit.spark.write.plan import WritePlan, plan_write
from dbio_commit.spark.write.run import map_with_actions
from dbio_commit.spark.write.task import map_in_arrow

PICKLER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # as Spark does
SCHEMA = StructType().add("id", LongType())


class Task:
    def partitionId(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that were opened since."""
    found: list[str] = []
    real = stores.open_store

    def open_store(*args: Any) -> Any:
        store = real(*args)
        found.append(store.url)
        return store

    monkeypatch.setattr("dbio_commit.table.open_store", open_store)
    monkeypatch.setattr(TaskContext, "get", staticmethod(Task))
    return found


def plan_of(table: Table) -> WritePlan:
    return plan_write(
        table, SCHEMA, mode="append", partition_by=None, options=WriteOptions(), commit=CommitOptions(app=("app", 1))
    )


def run(function: Any, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As a worker runs it, which has got it by pickle."""
    found: Iterator[pa.RecordBatch] = pickle.loads(PICKLER.dumps(function))(iter(batches))
    return list(found)


def test_a_write_opens_its_table_once_for_all_that_the_driver_does_and_once_in_a_task(
    tmp_path: Path, opened: list[str]
) -> None:
    plan = plan_of(Table(tmp_path))
    transaction = plan.begin()
    spec = plan.task_spec(transaction.terms)
    assert opened == [str(tmp_path)]
    [files] = run(map_in_arrow(spec), [pa.record_batch({"id": [1, 2]})])
    assert files.num_rows == 1
    assert opened == [str(tmp_path)] * 2


def test_a_task_that_reads_old_files_and_writes_new_ones_and_changes_opens_the_table_once(
    tmp_path: Path, opened: list[str]
) -> None:
    table = Table(tmp_path)
    plan = plan_of(table)
    spec = plan.task_spec(plan.begin().terms)
    old = OldFiles(
        spec=ReadSpec(table, SCHEMA), files={}, columns=("id",), sets=frozenset({"id"}), records_changes=True
    )
    opened.clear()
    nothing = pa.array([None], pa.int64())
    arrays: list[Any] = [pa.array([7], pa.int64()), pa.array([int(RowAction.INSERTED)], pa.int8()), nothing, nothing]
    sent = pa.record_batch(arrays, names=["id", "action", "file", "place"])
    [lines] = run(map_with_actions(spec, iter, Constraints(), old, True), [sent])
    assert [line["file"] is not None for line in lines.to_pylist()] == [True, True, False, False]  # rows, and changes
    assert opened == [str(tmp_path)]


def test_credentials_travel_in_one_place(tmp_path: Path) -> None:
    table = Table("s3://lake/table", {"key": "KEY", "secret": "VERYSECRET"})
    local = plan_of(Table(tmp_path))
    terms = local.begin().terms
    assert pickle.dumps(table).count(b"VERYSECRET") == 1
    assert b"VERYSECRET" not in pickle.dumps(terms)
    again = pickle.loads(pickle.dumps(table))
    assert (again.url, again.storage_options, again.location) == (table.url, table.storage_options, table.location)


def test_a_table_over_a_store_of_the_caller_does_not_travel() -> None:
    with pytest.raises(TypeError, match="another process cannot open"):
        pickle.dumps(Table.over(testing.MemoryStore()))


def test_types_stay_if_spark_reads_no_file_as_a_wider_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path)
    table.begin().commit(schema=StructType().add("id", "integer").jsonValue())

    def plan(schema: StructType) -> WritePlan:
        options = WriteOptions(merge_schema=True)
        return plan_write(table, schema, mode="append", partition_by=None, options=options, commit=CommitOptions())

    for widens in (True, False):
        monkeypatch.setattr("dbio_commit.spark.write.plan.READS_WIDENED", widens)
        assert plan(StructType().add("id", "byte").add("new", "string")).schema.fieldNames() == ["id", "new"]
        if widens:
            assert plan(SCHEMA).schema == SCHEMA
        else:
            with pytest.raises(SchemaMismatchError, match=r"id is bigint, not int\..*; types widen .*Spark 4\.0"):
                plan(SCHEMA)
