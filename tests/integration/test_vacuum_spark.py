"""Vacuum with Spark, classic and over Connect: the executors list and delete, and the report is the same as without.

What a vacuum does is tested in tests/unit and test_vacuum_stores.py. A table here has more partitions than the driver
lists by itself.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from dbio_commit import Table
from dbio_commit.cli.vacuum import vacuum_json
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.store.local import LocalStore
from dbio_commit.store.many import CONCURRENCY
from dbio_commit.store.s3 import S3Store
from tests.conftest import Root
from tests.later import wait_for_the_next_second
from tests.servers import Fault, S3Server
from tests.writers import live, stage
from vacuum import vacuum

PARTITIONS = [{"name": f"{number} ü%"} for number in range(CONCURRENCY + 2)]


def make_table(table: Table) -> None:
    operations: list[Operation] = ["append", "overwrite"]
    for operation in operations:
        transaction = table.begin(operation, partition_by=["name"])
        attempt = table.resume(transaction.terms)
        for partition in PARTITIONS[5 if operation == "overwrite" else 0 :]:
            stage(table, transaction, b"rows", partition)
            stage(table, attempt, b"garbage", partition)
        transaction.commit()
    pending = table.begin()
    for partition in PARTITIONS:
        stage(table, pending, b"late", partition)
    wait_for_the_next_second()


def make_directory(table: Table) -> None:
    """The same as DBIO has it: a directory with a file, before there is any transaction."""
    with table.store.open_write(f"{names.format_partition(PARTITIONS[0])}/plain.parquet") as stream:
        stream.write(b"plain")
    make_table(table)


def copy(table: Table, root: Root) -> Table:
    """Another table with the same objects."""
    twin = Table(*root)
    for entry in table.store.list_files():
        with twin.store.open_write(entry.path) as stream:
            stream.write(table.store.get(entry.path))
    return twin


def sweep(table: Table, spark: SparkSession | None = None, *, dry_run: bool = False) -> dict[str, Any]:
    """The report without what differs between twins: URL, ages, random names, and the order of what is done at once."""
    report = vacuum(
        table.url, 0, dry_run=dry_run, force=True, storage_options=table.storage_options or None, spark=spark
    )
    said = vacuum_json(report)
    for key in ("deleted", "kept"):
        said[key] = sorted((it["path"], it["size"], it["reason"]) for it in said[key])
    del said["url"]
    found: dict[str, Any] = json.loads(re.sub(r"(_committed_vacuum)\d+", r"\1", json.dumps(said)))
    return found


Call = tuple[str, Sequence[str]]


@contextmanager
def watched() -> Iterator[list[Call]]:
    """What this process, but no other, asks of stores: (operation, paths)."""
    calls: list[Call] = []

    def recording(operation: str, function: Any) -> Any:
        def call(store: Any, paths: Any = "", **options: Any) -> Any:
            calls.append((operation, [paths] if isinstance(paths, str) else list(paths)))
            return function(store, paths, **options)

        return call

    with patch.multiple(LocalStore, **{name: recording(name, getattr(LocalStore, name)) for name in OPERATIONS}):  # noqa: SIM117
        with patch.multiple(S3Store, **{name: recording(name, getattr(S3Store, name)) for name in OPERATIONS}):
            yield calls


OPERATIONS = ("list_directory", "list_files", "list_below", "delete_many")

ROOT_ALONE = [("list_directory", [""]), ("list_directory", [""])]
"""Is there anything, and the root's own files; all else is the executors'."""


def asked_here(calls: Sequence[Sequence[Any]]) -> list[Call]:
    """But for what vacuum asks the store's time with."""
    return [(name, paths) for name, paths in calls if paths and not paths[0].startswith(names.Kind.CLOCK)]


def objects(table: Table) -> list[tuple[str, int]]:
    return sorted((entry.path, entry.size) for entry in table.store.list_files())


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


# --- a classic session --------------------------------------------------------------------------------------------


@pytest.mark.long_for("local", "make_directory")
@pytest.mark.parametrize("make", [make_table, make_directory])
def test_a_vacuum_with_spark_does_and_reports_the_same(spark: SparkSession, root: Root, make: Any) -> None:
    table = Table(*root)
    make(table)
    twin = copy(table, root._replace(url=f"{root.url}-twin"))
    visible, before = live(table), objects(table)
    assert sweep(table, spark, dry_run=True) == sweep(table, dry_run=True)
    assert objects(table) == before
    found = sweep(table, spark)
    assert found == sweep(twin)
    assert found["ok"]
    assert found["deleted"]
    if make is make_directory:  # the second deletes the markers that the first has queued
        found = sweep(table, spark)
        assert found == sweep(twin)
        assert found["deleted"]
    assert live(table) == visible
    assert [path for path, _ in objects(table) if names.is_data_file(path)] == sorted(visible)


@pytest.mark.long_for("local")
def test_executors_list_the_partitions_and_delete(spark: SparkSession, root: Root) -> None:
    table = Table(*root)
    make_table(table)
    with watched() as calls:
        found = sweep(table, spark)
    assert len(found["deleted"]) > 50
    assert asked_here(calls) == ROOT_ALONE
    with watched() as calls:  # without Spark, or the above would prove nothing
        sweep(table)
    assert len(asked_here(calls)) > len(ROOT_ALONE)


@pytest.mark.long
def test_what_executors_could_not_delete_is_reported(spark: SparkSession, s3_root: Root, s3_server: S3Server) -> None:
    table = Table(*s3_root)
    make_table(table)
    before, visible = objects(table), live(table)
    s3_server.inject(*(Fault(method=it, path="", kind="403", times=1000) for it in ("POST", "DELETE")))
    found = sweep(table, spark)
    s3_server.reset()
    assert not found["ok"]
    assert found["deleted"] == []
    failed = {it["path"]: it["message"] for it in found["failed"] if names.is_data_file(it["path"])}
    assert len(failed) == len([path for path, _ in before if names.is_data_file(path)]) - len(visible)
    assert all("cannot delete" in message and s3_root.url in message for message in failed.values())
    assert sweep(table, spark)["ok"]
    assert [path for path, _ in objects(table) if names.is_data_file(path)] == sorted(visible)


# --- over Connect, which shares no process with a classic session -------------------------------------------------

JOB = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dbio_commit import Table
from tests.integration.test_vacuum_spark import sweep, watched
from tests.spark_tables import over_connect
spark = over_connect()
assert not hasattr(spark, "_jsparkSession")
with watched() as calls:
    found = [sweep(Table(url, options), spark) for url, options in json.loads(sys.argv[2])]
print(json.dumps({"reports": found, "calls": calls}))
"""


@pytest.mark.long
def test_a_vacuum_over_connect_does_and_reports_the_same(local_root: Root, s3_root: Root) -> None:
    roots = [local_root, s3_root._replace(url=f"s3://tables/{uuid4().hex}")]
    tables = [Table(*root) for root in roots]
    for table in tables:
        make_table(table)
    twins = [copy(table, root._replace(url=f"{root.url}-twin")) for table, root in zip(tables, roots, strict=True)]
    visible = [live(table) for table in tables]
    arguments = [str(Path(__file__).parents[2]), json.dumps(roots)]
    job = subprocess.run(
        [sys.executable, "-c", JOB, *arguments], capture_output=True, text=True, check=False, timeout=250
    )
    assert job.returncode == 0, job.stderr[-3000:]
    found = json.loads(job.stdout.splitlines()[-1])
    assert found["reports"] == [sweep(twin) for twin in twins]
    assert asked_here(found["calls"]) == ROOT_ALONE * 2
    for table, files in zip(tables, visible, strict=True):
        assert live(table) == files
        assert {path for path, _ in objects(table) if names.is_data_file(path)} == files
