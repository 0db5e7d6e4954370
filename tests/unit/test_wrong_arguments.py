"""What is given in a wrong form is named, with what is expected; and what a notebook shows of our objects."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.testing import MemoryStore
from tests.writers import stage, write, write_days


@pytest.mark.parametrize(
    "app",
    ["nightly", "ab", ("nightly", "1"), ("nightly",), ("nightly", 1, 2), (1, "nightly"), ("nightly", -1), ("", 1),
     {"id": "nightly", "version": 1}, 7, ("nightly", 1.5), ("nightly", True)],
)  # fmt: skip
def test_an_application_that_is_no_id_and_version_is_refused_and_nothing_is_created(table: Table, app: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"app=\('orders', 17\)"):
        table.begin(app=app)
    assert isinstance(table.store, MemoryStore)
    assert not table.store.objects


@pytest.mark.parametrize("as_of", [20260101, date(2026, 1, 1), 1.5, b"2026-01-01", ["x"], "yesterday"])
def test_what_is_no_time_and_no_tid_is_refused(table: Table, as_of: Any) -> None:
    write(table)
    with pytest.raises(InvalidInputError, match="neither the tid of a commit"):
        table.snapshot(as_of=as_of)


def test_a_time_without_a_zone_is_refused(table: Table) -> None:
    write(table)
    with pytest.raises(InvalidInputError, match="no time zone"):
        table.snapshot(as_of=datetime(2026, 1, 1))
    assert table.snapshot(as_of=datetime(2100, 1, 1, tzinfo=UTC)).files


@pytest.mark.parametrize("path", [pd.DataFrame({"a": [1]}), pd.Series(["lake"]), 7, None, b"lake", ["lake"]])
def test_what_is_no_path_is_refused_by_its_type(path: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"not a {type(path).__name__}"):
        Table(path)


def test_a_path_object_is_one(tmp_path: Path) -> None:
    assert Table(tmp_path).url == str(tmp_path)


@pytest.mark.parametrize("scheme", ["oss", "hdfs", "https", "dbfs"])
def test_an_unknown_scheme_is_a_wrong_argument(scheme: str) -> None:
    with pytest.raises(InvalidInputError, match=f"no store is known for {scheme}: URLs"):
        Table(f"{scheme}://bucket/table")


@pytest.mark.parametrize(
    "call",
    [
        lambda table, where: table.snapshot(where=where),
        lambda table, where: table.compact(where=where),
        lambda table, where: table.erase(where, dry_run=True),
        lambda table, where: table.plan_restore(table.history()[0].tid, where=where),
    ],
)
@pytest.mark.parametrize("where", [[("id", "=", 1)], ("id", "=", 1), [], 7])
def test_a_list_is_refused_where_a_condition_is_sql(table: Table, call: Any, where: Any) -> None:
    table.write(pd.DataFrame({"id": [1], "kind": ["a"]}), partition_by="kind")
    with pytest.raises(InvalidInputError, match="is no text: give a condition in Spark's SQL"):
        call(table, where)


FRAME = pd.DataFrame({"id": [1], "kind": ["a"]})
PARTITION = "partition is 'kind=a', and must have values by column"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda table, tid: Table("/a", cast(Any, "secret")), "storage_options is a str, and must have options"),
        (lambda table, tid: table.write(FRAME, partition_by=[1]), "partition_by=.1. is no list of names"),
        (lambda table, tid: table.write(FRAME, partition_by=7), "partition_by=7 is no list of names"),
        (lambda table, tid: table.plan_restore(tid, partition="kind=a"), PARTITION),
        (lambda table, tid: table.history(partition="kind=a"), PARTITION),
        (lambda table, tid: table.begin().new_file(partition="kind=a"), PARTITION),
        (lambda table, tid: table.begin("overwrite_partitions").overwrite_partition("kind=a"), PARTITION),
        (lambda table, tid: table.compact(sort_by=None), "None is no column to sort by"),
        (lambda table, tid: table.compact(z_order=[1]), "1 is no column to sort by"),
        (lambda table, tid: table.trace(Path("kind=a")), "is no text: give a file's path"),
        (lambda table, tid: table.vacuum(retention_hours="48"), "retention_hours is '48', not a number"),
        (lambda table, tid: table.vacuum(checkpoint_after="1"), "checkpoint_after is '1', not a number"),
    ],
)
def test_an_argument_of_another_type_is_named(table: Table, call: Any, said: str) -> None:
    tid = table.write(FRAME, partition_by="kind").tid
    with pytest.raises(InvalidInputError, match=said) as error:
        call(table, tid)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("merge_schema", lambda table, flag: table.write(FRAME, merge_schema=flag)),
        ("ignore_corrupt_markers", lambda table, flag: table.snapshot(None, flag)),
        ("must_be_empty", lambda table, flag: table.begin(must_be_empty=flag)),
        ("data_change", lambda table, flag: table.begin("rewrite", data_change=flag)),
        ("dry_run", lambda table, flag: table.vacuum(dry_run=flag)),
        ("force", lambda table, flag: table.vacuum(0, force=flag)),
        ("untracked", lambda table, flag: table.vacuum(untracked=flag)),
        ("dry_run", lambda table, flag: table.erase("id = 1", dry_run=flag)),
        ("dry_run", lambda table, flag: table.compact(dry_run=flag)),
        ("files", lambda table, flag: table.check(flag)),
        ("rebuild", lambda table, flag: table.checkpoint(flag)),
        ("incremental", lambda table, flag: table.copy("/nowhere/copy", incremental=flag)),
        ("everything", lambda table, flag: table.drop(flag)),
    ],
)
@pytest.mark.parametrize("flag", ["false", None, 2])
def test_a_text_is_neither_true_nor_false(table: Table, name: str, call: Any, flag: Any) -> None:
    table.write(FRAME)
    with pytest.raises(InvalidInputError, match=f"{name} is {flag!r}, not True or False"):
        call(table, flag)
    assert len(table.history()) == 1


# --- notebooks ----------------------------------------------------------------------------------------------------


def test_a_notebook_shows_a_line_for_each_object(table: Table) -> None:
    write_days(table, one=b"rows", two=b"rows")
    transaction = table.begin("overwrite")
    stage(table, transaction, partition={"day": "one"})
    commit = table.history()[0]
    shown = [repr(it) for it in (table, transaction, table.snapshot(), commit)]
    assert shown == [
        "Table('memory://table')",
        f"<Transaction {transaction.tid}: overwrite on memory://table, open, 1 files staged>",
        "<Snapshot of memory://table: 2 files, 8 bytes, 1 commits, partitioned by day>",
        f"<Commit {commit.tid}: append, 2026-11-20 00:00:00+0000, 2 files added, 0 removed>",
    ]
    assert all(len(line) <= 120 for line in shown)


def test_a_commit_shows_rows_and_whether_it_was_skipped(table: Table) -> None:
    write(table, app=("nightly", 1))
    transaction = table.begin(app=("nightly", 1))
    assert "skipped" in repr(transaction.commit())


def test_a_table_shows_no_secret() -> None:
    assert repr(Table("s3://lake/events", {"secret": "VERYSECRET1"})) == "Table('s3://lake/events')"
