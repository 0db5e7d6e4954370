"""Making a table of a plain or DBIO directory, or refusing to: `Table.adopt` alone, on a store in memory.

What is visible before is live afterwards, or nothing has changed. Numbers I1 to I10: PROTOCOL.md 5.
Rules: PROTOCOL.md 11.5.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import (
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TransactionStateError,
    UnsupportedTableError,
)
from dbio_commit.maintenance.inspect import TransactionState
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from tests.faults import calls_to
from tests.unit.adoptions import (
    CHECKPOINT,
    FIRST,
    LATE,
    SECOND,
    Place,
    data,
    dbio,
    every_place,
    plain,
    plain_partitioned,
    visible,
)
from tests.writers import live, stage

# --- alone --------------------------------------------------------------------------------------------------------


@every_place
def test_what_was_visible_is_live_and_nothing_is_moved_or_deleted(make: Callable[[], Place]) -> None:
    place = make()
    table, before, objects = place.table(), place.table().snapshot(), dict(place.objects)
    expected = visible(table)
    commit = table.adopt()
    assert {path: place.objects[path] for path in objects} == objects
    assert place.objects.keys() - objects.keys() == {CHECKPOINT, names.DESCRIPTOR}
    after = table.snapshot()
    assert visible(table) == expected
    assert (before.scope, after.scope) == (Scope.DIRECTORY, Scope.TABLE)
    assert after.partition_columns == before.partition_columns
    assert (commit.operation, set(commit.added)) == ("adopt", set(expected))
    report = table.check()
    assert report.ok
    assert report.live_files == len(expected)
    assert not report.pending


def test_what_was_hidden_counts_as_removed() -> None:
    place = dbio("day=1", "day=2")
    hidden = {names.join("day=1", data(FIRST)), *(f"day={day}/{data(SECOND, 7)}" for day in (1, 2))}
    assert set(place.table().adopt().removed) == hidden
    garbage = [entry.path for entries in place.table().check().garbage.values() for entry in entries]
    assert set(garbage) == hidden


@every_place
def test_an_adopted_table_is_read_with_four_calls(make: Callable[[], Place]) -> None:
    place = make()
    place.table().adopt()
    with calls_to(place) as calls:
        place.table().snapshot()
    listed = [("list_log", ""), ("get", names.DESCRIPTOR), ("list_log", "_checkpoint_ _committed_")]
    assert calls == [*listed, ("get", CHECKPOINT)]


@every_place
def test_an_adopted_table_is_written_to_like_any_other(make: Callable[[], Place]) -> None:
    place = make()
    table = place.table()
    table.adopt()
    adopted = set(live(table))
    partition = dict.fromkeys(table.snapshot().partition_columns, "1")
    tids: list[str] = []
    states: list[set[str]] = []

    def write(operation: Operation, removed: set[str]) -> None:
        place.clock.advance(timedelta(hours=1))
        transaction = table.begin(operation, app=("job", len(tids)))
        assert transaction.terms.scope is Scope.TABLE
        new = stage(table, transaction, operation.encode(), partition)
        if operation == "rewrite":
            transaction.remove(removed)
        commit = transaction.commit()
        assert set(commit.removed) == removed
        assert commit.added == [new]
        tids.append(commit.tid)
        states.append(live(table))
        assert table.check().ok

    write("append", set())
    assert states[-1] == adopted | (states[-1] - adopted)
    write("rewrite", {min(adopted)})
    if partition:
        write("overwrite_partitions", {path for path in states[-1] if path.startswith("day=1/")})
    write("overwrite", states[-1])
    for _ in range(2):
        assert [table.snapshot(as_of=tid).files for tid in tids]
        for tid, state in zip(tids, states, strict=True):
            assert {file.path for file in table.snapshot(as_of=tid).files} == state
        assert table.history()[-1].operation in ("adopt", "unknown")
        table.checkpoint()
        log = [path for path in place.objects if path.startswith(("_committed_", "_started_"))]
        place.delete_many([path for path in log if "vacuum" not in path])
        assert live(table) == states[-1]
    with pytest.raises(SchemaMismatchError):
        table.begin(partition_by=["other"])


def test_what_is_put_there_by_the_old_rules_from_now_on_decides_nothing_in_partitions() -> None:  # I1
    place = dbio("day=1", "day=2")
    place.table().adopt()
    before = visible(place.table())
    place.write("day=1/late.parquet")
    place.start(LATE, "day=1")
    place.commit(LATE, "day=1", removed=[f"day=1/{data(SECOND)}"])
    assert visible(place.table()) == before


def test_another_dbio_writer_at_the_root_counts_as_before() -> None:
    place = dbio("")
    place.table().adopt()
    before = live(place.table())
    place.start(LATE, "")
    assert live(place.table()) == before
    place.commit(LATE, "", removed=[data(SECOND)])
    assert live(place.table()) == before - {data(SECOND)} | {data(LATE)}


@every_place
def test_states_before_the_adoption_are_refused_and_the_adoption_itself_is_told(make: Callable[[], Place]) -> None:
    place = make()
    table = place.table()
    before = table.snapshot()
    commit = table.adopt()
    adopted = visible(table)
    place.clock.advance(timedelta(hours=1))
    with table.begin("overwrite") as transaction:
        stage(table, transaction, b"new", dict.fromkeys(before.partition_columns, "1"))
    later: list[AsOf] = [commit.tid, commit.timestamp, place.clock.now() - timedelta(microseconds=1)]
    for as_of in later:
        assert {file.path for file in table.snapshot(as_of=as_of).files} == adopted.keys()
    earlier: list[AsOf] = [*before.tids, commit.timestamp - timedelta(microseconds=1)]
    for as_of in earlier:
        with pytest.raises(InvalidInputError):
            table.snapshot(as_of=as_of)


def test_what_a_transaction_did_before_the_adoption_is_still_known_by_its_tid_at_the_root() -> None:
    place = dbio("")
    commit = place.table().adopt()
    assert place.table().show(FIRST).state is TransactionState.COMMITTED
    report = place.table().show(commit.tid)
    assert (report.state, len(report.files)) == (TransactionState.COMMITTED, len(commit.added))
    with pytest.raises(TransactionStateError):
        place.table().abort(commit.tid)


def test_a_directory_of_real_files_is_adopted_on_a_local_disk(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "day=1/a.parquet")
    table = Table(tmp_path)
    table.adopt()
    assert Table(tmp_path).snapshot().urls() == [str(tmp_path / "day=1/a.parquet")]
    assert Table(tmp_path).snapshot().scope is Scope.TABLE


# --- refused ------------------------------------------------------------------------------------------------------


def refused(place: Place, error: type[DbioError], *, match: str | None = None) -> None:
    before = dict(place.objects)
    with pytest.raises(error, match=match):
        place.table().adopt()
    assert place.objects == before


@every_place
def test_a_table_is_not_adopted_twice(make: Callable[[], Place]) -> None:
    place = make()
    place.table().adopt()
    refused(place, TableExistsError, match="already")


def test_a_table_that_was_always_ours_is_not_adopted() -> None:
    place = Place()
    with place.table().begin() as transaction:
        stage(place.table(), transaction)
    refused(place, TableExistsError)


@pytest.mark.parametrize("directories", [[""], ["day=1"], ["day=1", "day=2"], ["day=9"]])
def test_a_directory_in_which_a_transaction_is_pending_is_refused_until_it_is_decided(directories: list[str]) -> None:
    place = dbio("day=1", "day=2")
    place.start(LATE, *directories)
    refused(place, TransactionStateError, match=LATE)
    place.table().abort(LATE)
    place.table().adopt()
    assert not any(LATE in path for path in live(place.table()))


def test_a_transaction_that_is_half_committed_is_pending() -> None:
    place = dbio("day=1", "day=2")
    place.start(LATE, "day=1", "day=2")
    place.commit(LATE, "day=1")
    refused(place, TransactionStateError, match=LATE)
    place.commit(LATE, "day=2")
    place.table().adopt()
    assert {f"day=1/{data(LATE)}", f"day=2/{data(LATE)}"} <= live(place.table())


def test_a_commit_marker_of_no_length_leaves_its_transaction_pending() -> None:
    place = dbio("day=1")
    place.start(LATE, "day=1")
    place.put(f"day=1/_committed_{LATE}")
    refused(place, TransactionStateError, match=LATE)


@pytest.mark.parametrize("directory", ["", "day=1"])
def test_a_corrupt_marker_anywhere_is_refused(directory: str) -> None:
    place = dbio("day=1")
    place.put(names.join(directory, f"_committed_{LATE}"), b"no JSON")
    refused(place, CorruptMarkerError, match=LATE)


@pytest.mark.parametrize("path", ["a.parquet", "day=1/hour=2/a.parquet", "month=1/a.parquet", "Day=1/a.parquet"])
def test_files_in_different_partition_columns_are_refused(path: str) -> None:
    place = plain_partitioned()
    place.write(path)
    refused(
        place, InvalidInputError, match=rf"partition columns.*files lie in day; 1 files lie in .*: {path}\. First move"
    )


@pytest.mark.parametrize("name", ["a\nb.parquet", "a\tb.parquet", "a\\b.parquet", "a\x7fb.parquet", "\udcff.parquet"])
def test_a_file_with_a_name_that_no_marker_can_hold_is_refused_by_name(name: str) -> None:
    """Else nobody could read the table, nor the directory any more."""
    place = plain()
    place.write("ok.parquet")
    place.objects[name] = place.objects["ok.parquet"]
    refused(place, InvalidInputError, match=r"names of 1 files, and nothing has changed: .*\.parquet'\. .*Rename these")
    assert name in live(place.table())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "city=Z%C3%BCrich",
            "would be 'city=ZÃ¼rich' to Spark, but is probably 'city=Zürich', whose directory is city=Zürich",
        ),
        ("city=%e2%82%ac%2F%20", "is probably 'city=€/ ', whose directory is city=€%2F "),
        ("stra%C3%9Fe%3D=1%3D2", "is probably 'straße==1=2', whose directory is straße%3D=1%3D2"),
        ("city=Z%FCrich", "would be 'city=Zürich' to Spark."),
    ],
)
def test_a_directory_whose_name_escapes_utf8_is_refused_by_name(name: str, why: str) -> None:
    """Spark, and dbio, would read another value than its writer meant."""
    place = Place()
    place.write(f"{name}/a.parquet", f"{name}/b.parquet", "Zürich=1%2F%25C3/a%C3%BC.parquet")
    refused(place, InvalidInputError, match=f"of 1 names of directories.*'{re.escape(name)}' .*{re.escape(why)}")


def test_a_directory_that_pandas_wrote_is_adopted_once_its_directories_are_renamed(tmp_path: Path) -> None:
    rows = pa.table({"v": [1, 2, 3], "city": ["Zürich", "a b/c", "Bern"]})
    pq.write_to_dataset(rows, tmp_path, partition_cols=["city"])
    table = Table(tmp_path)
    with pytest.raises(InvalidInputError, match=r"because of 1 names.*city=Zürich.*dbio\.Table"):
        table.adopt()
    (tmp_path / "city=Z%C3%BCrich").rename(tmp_path / "city=Zürich")
    table.adopt()
    assert table.snapshot().to_arrow().sort_by("v").to_pydict() == rows.to_pydict()
    table.write(pa.table({"v": [9], "city": ["Zürich"]}), "overwrite_partitions")
    assert {*table.snapshot().to_arrow()["v"].to_pylist()} == {2, 3, 9}


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("_SUCCESS", TableNotFoundError),
        ("_delta_log/0.json", UnsupportedTableError),
        (".hoodie/x", UnsupportedTableError),
        ("below/_dbio_table", InvalidInputError),
    ],
)
def test_what_is_no_directory_of_parquet_is_refused(path: str, error: type[DbioError]) -> None:
    place = Place()
    if path != "_SUCCESS":
        place.write("a.parquet")
    place.write(path)
    refused(place, error)
