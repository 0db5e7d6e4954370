"""What readers of Delta see of a table that is published as a Delta log: delta-rs and Polars, beside our own.

Rules: NOTES.md, Delta.
"""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import dbio_commit as dbio
from dbio_commit import InvalidInputError, Table, UnsupportedTableError
from dbio_commit.log import listing, object_cache
from dbio_commit.maintenance.publish import delta, delta_log, find_superseded
from dbio_commit.protocol import names
from dbio_commit.protocol.settings import Format
from tests.conftest import Root
from tests.histories import PARTITIONS, History, columns, in_order
from tests.servers import S3Server

LAYOUTS = {"flat": (), "by-text": ("kind",), "by-time": ("hour",), "by-all": tuple(PARTITIONS)}


def by_deltalake(url: str, version: int | None = None, **options: Any) -> pa.Table:
    return pa.table(DeltaTable(url, version=version, **options).to_pyarrow_table())


def by_polars(url: str) -> pa.Table:
    return pl.scan_delta(url).collect().to_arrow()


def forget() -> None:
    """As if this process had just begun."""
    object_cache.CACHE.forget()


# --- who writes there ---------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[str], Any]] = {
    "append": lambda url: write_deltalake(
        url, pa.table({"id": pa.array([9], pa.int64()), "kind": ["a"]}), mode="append"
    ),
    "overwrite": lambda url: write_deltalake(
        url, pa.table({"id": pa.array([9], pa.int64()), "kind": ["a"]}), mode="overwrite"
    ),
    "delete": lambda url: DeltaTable(url).delete("id >= 0"),
    "update": lambda url: DeltaTable(url).update({"id": "id + 1"}),
    "optimize": lambda url: DeltaTable(url).optimize.compact(),
    "vacuum": lambda url: DeltaTable(url).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "polars": lambda url: pl.DataFrame({"id": [9], "kind": ["a"]}).write_delta(url, mode="append"),
}


@contextmanager
def unguarded() -> Iterator[None]:
    """Whoever publishes in here asks no feature of writers, as earlier versions did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "protocol_of", lambda _, __: {"minReaderVersion": 1, "minWriterVersion": 2})
        yield


def published_before(path: Path, *, checkpoint: bool) -> Table:
    """A table that an earlier version has published, with what its last commit left behind."""
    table = Table(path)
    for i in range(12 if checkpoint else 2):
        transaction = table.begin("overwrite" if i == 1 else "append", partition_by=["kind"])
        pq.write_table(pa.table({"id": [i]}), transaction.new_file(partition={"kind": "a"}))
        transaction.commit(columns(id="long", kind="string"))
        with unguarded():
            table.publish("delta")
    forget()
    return table


@pytest.mark.parametrize("write", WRITES)
def test_no_other_writer_changes_a_published_table(write: str, tmp_path: Path) -> None:
    table = published_before(tmp_path / "table", checkpoint=False)
    assert table.publish("delta")[0].is_new  # nothing but the protocol
    before = {path for path in (tmp_path / "table").rglob("*") if path.is_file()}
    with pytest.raises(Exception, match=r"dbioCommit|[Uu]nsupported|not supported"):
        WRITES[write](table.url)
    assert {path for path in (tmp_path / "table").rglob("*") if path.is_file()} == before
    assert by_deltalake(table.url)["id"].to_pylist() == by_polars(table.url)["id"].to_pylist() == [1]
    assert table.check().ok


@pytest.mark.parametrize("checkpoint", [False, True], ids=["by-versions", "by-a-checkpoint"])
def test_a_table_that_was_published_before_asks_other_writers_for_the_feature_from_its_next_publication_on(
    checkpoint: bool, tmp_path: Path
) -> None:
    table = published_before(tmp_path / "table", checkpoint=checkpoint)
    assert checkpoint == any("checkpoint" in name for name in os.listdir(tmp_path / "table/_delta_log"))
    assert DeltaTable(table.url).protocol().min_writer_version == 2
    (done,) = table.publish("delta")
    assert (done.is_new, done.added, done.removed) == (True, 0, 0)
    protocol = DeltaTable(table.url).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert "dbioCommit" in (protocol.writer_features or [])
    forget()
    assert not table.publish("delta")[0].is_new
    rows = in_order(table.snapshot().to_arrow())
    assert in_order(by_deltalake(table.url)) == in_order(by_polars(table.url)) == rows


def test_a_vacuum_of_another_tool_leaves_files_that_are_not_published_yet(tmp_path: Path) -> None:
    """Also one that asks no feature of writers. The retention of a Delta table is a week by default."""
    table = Table(tmp_path / "table")
    table.write(pa.table({"id": [1]}))
    with unguarded():
        table.publish("delta")
    table.write(pa.table({"id": [2]}))
    old = (datetime.now(UTC) - timedelta(days=4000)).timestamp()
    for path in (tmp_path / "table").rglob("*.parquet"):
        os.utime(path, (old, old))
    delta_table = DeltaTable(table.url)
    assert delta_table.vacuum(dry_run=True, full=True) == []
    assert len(delta_table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)) == 1


@pytest.mark.parametrize("is_large", [False, True])
def test_statistics_that_an_earlier_version_published_are_replaced_or_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Beside other bounds, delta-rs takes a bound that is missing for one that no value fulfils. Statistics that would
    make a version too large are not replaced."""
    table = Table(tmp_path / "table")
    rows: dict[str, Any] = {"id": [1, 2], "x": [1.5, float("nan")], "yes": [True, False]}
    for _ in range(9):
        table.write(pa.table(rows))
    table.publish("delta")
    path = tmp_path / "table" / delta_log.version_path(0)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        action.get("commitInfo", {}).get("dbio_commit", {}).get("shows", {}).pop("bounded", None)
        action.get("metaData", {})["configuration"] = {}
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    forget()
    read: Any = DeltaTable(table.url).to_pandas
    assert len(read(filters=[("x", "=", 1.5)])) == 0
    if is_large:
        monkeypatch.setattr(delta, "MOST_BYTES", path.stat().st_size // 2)
    (done,) = table.publish("delta")
    assert (done.is_new, done.added, done.removed) == (True, 0, 0)
    added = [json.loads(it) for it in (tmp_path / "table" / delta_log.version_path(1)).read_text().splitlines()]
    assert [it["add"]["dataChange"] for it in added if "add" in it] == [False] * (0 if is_large else 9)
    read = DeltaTable(table.url).to_pandas
    assert [len(read(filters=[it])) for it in (("x", "=", 1.5), ("yes", "=", True), ("id", "=", 1))] == [9, 9, 9]
    forget()
    assert not table.publish("delta")[0].is_new


def test_readers_are_told_of_the_bounds_of_columns_that_each_file_has(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")

    def named() -> str | None:
        table.publish("delta")
        return DeltaTable(table.url).metadata().configuration.get("delta.dataSkippingStatsColumns")

    table.write(pa.table({"id": [1], "x": [1.5], "yes": [True], "of nothing": [1]}))
    assert named() == "id,x"
    table.write(pa.table({"id": [2], "x": pa.array([None], pa.float64())}))
    assert named() == "id,x"  # only nulls
    table.write(pa.table({"id": [3], "more": [1]}), merge_schema=True)
    assert named() == "id,x"
    table.write(pa.table({"id": [4], "x": [float("nan")]}))
    assert named() == "id"
    table.delete("id = 4")
    assert named() == "id"
    for _ in range(12):  # past a checkpoint
        table.write(pa.table({"id": [5], "x": [2.5]}))
        assert named() == "id"
    forget()
    assert not table.publish("delta")[0].is_new
    table.write(pa.table({"id": [6], "x": [2.5]}), "overwrite")
    assert named() == "id,x"
    table.write(pa.table({"x": [float("nan")]}), "overwrite")
    assert named() is None
    assert DeltaTable(table.url).metadata().configuration["delta.dataSkippingNumIndexedCols"] == "0"


# --- the same rows -----------------------------------------------------------------------------------------------


@pytest.mark.long_for("1", "2", "by-time", "flat")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_readers_of_delta_see_the_rows_of_each_commit_once_it_is_published(
    layout: str, seed: int, tmp_path: Path
) -> None:
    table = Table(tmp_path / "table")
    history = History(table, seed, partition_by=LAYOUTS[layout])
    for number in range(14):  # past a checkpoint of the Delta log
        history.commit("append" if number == 0 else None)
        if history.chance.random() < 0.3:
            forget()
        (done,) = table.publish("delta")
        expected = in_order(table.snapshot().to_arrow())
        assert in_order(by_deltalake(table.url)) == expected
        assert in_order(by_polars(table.url)) == expected
        assert done.files == len(table.snapshot().files)
    assert any("checkpoint" in name for name in os.listdir(tmp_path / "table/_delta_log"))
    assert table.check().ok


@pytest.mark.long
def test_a_reader_that_prunes_by_partitions_and_statistics_finds_all_rows(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 7, partition_by=["kind", "hour"])
    for _ in range(8):
        history.commit("append")
    table.publish("delta")
    rows = in_order(table.snapshot().to_arrow())
    read = DeltaTable(table.url)
    for row in rows:
        for column in ("id", "small", "price", "name", "day", "at", "kind", "hour"):
            if row[column] is not None:
                wanted = [it for it in rows if it[column] == row[column]]
                value = row[column]
                found = pl.scan_delta(table.url).filter(pl.col(column) == value).collect().to_arrow()
                assert in_order(found) == wanted, column
        for column in ("kind", "hour"):
            if (value := row[column]) is not None:
                found = read.to_pyarrow_table(filters=[(column, "=", value)])
                assert in_order(pa.table(found)) == [it for it in rows if it[column] == value]


def test_each_version_of_delta_is_an_older_snapshot_of_ours(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 5, partition_by=["kind"])
    then: dict[int, str] = {}
    for number in range(15):
        commit = history.commit("append" if number == 0 else None)
        (done,) = table.publish("delta")
        if done.is_new:
            then[done.number] = commit.tid
            assert done.tid == commit.tid
    assert len(then) > 10
    for version, tid in then.items():
        ours = in_order(table.snapshot(as_of=tid).to_arrow())
        theirs = in_order(by_deltalake(table.url, version))
        assert theirs == ours


def test_one_version_shows_all_that_came_since_the_last(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 1)
    history.commit("append")
    table.publish("delta")
    tids = [history.commit("append").tid for _ in range(3)]
    (done,) = table.publish("delta")
    assert (done.number, done.tid) == (1, tids[-1])
    info = DeltaTable(table.url).history(1)[0]
    assert info["engineInfo"] == f"dbio-commit/{dbio.__version__}"
    assert info["dbio_commit"]["tids"] == tids


def test_instants_without_a_zone_need_a_table_feature_which_readers_know(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    rows = pa.table({"id": [1], "at": pa.array([datetime(2026, 11, 20, 10)], pa.timestamp("us"))})
    transaction = table.begin()
    pq.write_table(rows.select(["id"]), transaction.new_file())
    transaction.commit(columns(id="long"))
    table.publish("delta")
    assert DeltaTable(table.url).protocol().min_reader_version == 1
    transaction = table.begin()
    pq.write_table(rows, transaction.new_file())
    transaction.commit(columns(id="long", at="timestamp_ntz"))
    table.publish("delta")
    protocol = DeltaTable(table.url).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["timestampNtz"]
    assert {row["at"] for row in by_deltalake(table.url).to_pylist()} == {None, datetime(2026, 11, 20, 10)}
    assert table.publish("delta")[0].is_new is False


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("date", ["2024-1-1", "2024-01-01"]),
        ("timestamp", ["2024-01-01T00:00:00", "2024-01-01", "2024-01-01 00:00:00.000"]),
        ("timestamp_ntz", ["2024-01-01T00:00:00", "2024-01-01"]),
        ("decimal(5,2)", ["01.50", "+1.50", "1.50"]),
        ("boolean", ["True", "true"]),
        ("integer", ["007", "+7"]),
        ("double", ["1.50", "1.5", "15e-1"]),
    ],
)
def test_readers_of_delta_find_one_value_however_an_adopted_directory_spells_it(
    kind: str, texts: list[str], tmp_path: Path
) -> None:
    for i, text in enumerate(texts):
        directory = tmp_path / f"table/k={names.escape(text)}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"id": [i]}), directory / "a.parquet")
    table = Table(tmp_path / "table")
    table.adopt()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbio_commit.commit.file_checks.is_partition", lambda _: True)
        table.begin().commit(columns(id="long", k=kind))
    table.publish("delta")
    ours = table.snapshot().to_arrow()["k"].to_pylist()
    assert len(set(ours)) == 1
    assert by_deltalake(table.url)["k"].to_pylist() == ours
    assert by_polars(table.url)["k"].to_pylist() == ours


def test_a_type_that_delta_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    kinds = {"id": "long", "inside": {"type": "array", "elementType": "variant", "containsNull": True}}
    table.begin("overwrite").commit(columns(**kinds))
    with pytest.raises(InvalidInputError, match=r"inside\.element.* is variant, which Delta has no type for"):
        table.publish("delta")
    assert not (tmp_path / "table/_delta_log").exists()


def test_a_widened_column_is_read_as_its_wider_type(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for kind, arrow in (("integer", pa.int32()), ("long", pa.int64())):
        transaction = table.begin()
        pq.write_table(pa.table({"id": pa.array([1], arrow)}), transaction.new_file())
        transaction.commit(columns(id=kind))
    table.publish("delta")
    assert by_deltalake(table.url)["id"].to_pylist() == [1, 1]
    assert by_polars(table.url)["id"].to_pylist() == [1, 1]


def test_an_adopted_directory_whose_columns_nobody_recorded_is_published(tmp_path: Path) -> None:
    for day in ("01", "2"):
        (tmp_path / f"table/m={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [int(day)]}), tmp_path / f"table/m={day}/x y.parquet")
    table = Table(tmp_path / "table")
    table.adopt()
    table.publish("delta")
    assert in_order(by_deltalake(table.url)) == in_order(table.snapshot().to_arrow()) != []


def test_an_empty_table_is_published_with_its_columns(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    table.begin("overwrite").commit(columns(id="long"))
    table.publish("delta")
    assert by_deltalake(table.url).schema.names == ["id"]
    assert by_deltalake(table.url).num_rows == 0


# --- others ------------------------------------------------------------------------------------------------------


def test_a_version_that_a_stranger_wrote_is_found_and_never_followed(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 2)
    history.kinds = {"id": "long"}
    history.commit("append")
    with unguarded():
        table.publish("delta")
    write_deltalake(table.url, pa.table({"id": pa.array([99], pa.int64())}), mode="append")
    history.commit("append")
    for _ in range(2):
        forget()
        with pytest.raises(UnsupportedTableError, match=r"version 1 of .* was written by 'delta-rs.*_delta_log"):
            table.publish("delta")
    report = table.check()
    assert not report.ok
    assert "version 1" in report.publications[0]
    assert "delta-rs" in report.publications[0]
    assert 99 not in table.snapshot().to_arrow()["id"].to_pylist()

    for path in (tmp_path / "table/_delta_log").iterdir():  # the next step that the message names
        path.unlink()
    table.publish("delta")
    assert in_order(by_deltalake(table.url)) == in_order(table.snapshot().to_arrow())
    assert table.check().ok


def test_a_strangers_checkpoint_of_our_versions_is_read_and_its_cleaning_does_no_harm(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 3, partition_by=["kind", "hour"])
    for _ in range(4):
        history.commit("append")
        table.publish("delta")
    DeltaTable(table.url).create_checkpoint()
    for number in range(3):
        (tmp_path / f"table/{delta_log.version_path(number)}").unlink()
    forget()
    assert table.publish("delta")[0].is_new is False
    history.commit("overwrite")
    table.publish("delta")
    assert in_order(by_deltalake(table.url)) == in_order(table.snapshot().to_arrow())


def test_what_vacuum_leaves_of_a_log_is_all_that_its_readers_need(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 6, partition_by=["kind", "hour"])
    for _ in range(13):
        history.commit("append")
        table.publish("delta")
    log = tmp_path / "table/_delta_log"
    table_id = table.snapshot().table_id
    assert table_id
    for entry in find_superseded(table.store, Format.DELTA, table_id, datetime.now(UTC) + timedelta(days=1)):
        (tmp_path / "table" / entry.path).unlink()
    assert len(list(log.glob("*.json"))) == 3
    expected = in_order(table.snapshot().to_arrow())
    assert in_order(by_deltalake(table.url)) == in_order(by_polars(table.url)) == expected
    forget()
    history.commit("overwrite")
    table.publish("delta")
    assert in_order(by_deltalake(table.url)) == in_order(table.snapshot().to_arrow())


def test_a_table_that_was_dropped_and_made_anew_begins_a_log_of_its_own(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    History(table, 1).commit("append")
    table.publish("delta")
    (tmp_path / "table/_dbio_table").unlink()
    for marker in [*(tmp_path / "table").glob("_*ed_*"), *(tmp_path / "table").glob("_serial_*")]:
        marker.unlink()
    for file in (tmp_path / "table").glob("part-*"):
        file.unlink()
    (tmp_path / "table/_delta_log").rename(tmp_path / "saved")
    History(table, 2).commit("append")
    (tmp_path / "saved").rename(tmp_path / "table/_delta_log")
    with pytest.raises(UnsupportedTableError, match="which was here before"):
        table.publish("delta")
    assert not table.check().ok


# --- at once -----------------------------------------------------------------------------------------------------


def test_a_reader_beside_writers_and_publishers_sees_whole_commits_that_never_go_back(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    errors: list[BaseException] = []
    done = threading.Event()

    def commit(number: int) -> None:
        transaction = Table(table.url).begin()
        for half in range(2):  # which a reader must see together
            pq.write_table(pa.table({"id": pa.array([2 * number + half], pa.int64())}), transaction.new_file())
        transaction.commit(columns(id="long"))

    def publish() -> None:
        while not done.is_set():
            Table(table.url).publish("delta")

    def guarded(function: Any) -> Any:
        def run() -> None:
            try:
                function()
            except BaseException as error:
                errors.append(error)

        return run

    commit(0)
    table.publish("delta")
    publishers = [threading.Thread(target=guarded(publish)) for _ in range(2)]

    def write() -> None:
        for number in range(1, 25):
            commit(number)

    writer = threading.Thread(target=guarded(write))
    for thread in [*publishers, writer]:
        thread.start()
    before: set[int] = set()
    while writer.is_alive():
        seen: set[Any] = set(by_deltalake(table.url)["id"].to_pylist())
        ours = set(table.snapshot().to_arrow()["id"].to_pylist())
        assert {it ^ 1 for it in seen} == seen  # whole commits
        assert before <= seen <= ours
        before = seen
    done.set()
    for thread in [*publishers, writer]:
        thread.join()
    assert not errors
    table.publish("delta")
    assert set(by_deltalake(table.url)["id"].to_pylist()) == set(range(50))


# --- stores, and Spark's writer ----------------------------------------------------------------------------------


def test_a_table_on_s3_is_published_and_read(s3_root: Root) -> None:
    table = Table(s3_root.url, s3_root.storage_options)
    transaction = table.begin(partition_by=["kind"])
    for kind in ("a b", "ä/ö", None):
        with table.store.open_write(transaction.new_file(partition={"kind": kind}).removeprefix(f"{table.url}/")) as to:
            pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), to)
    transaction.commit(columns(id="long", kind="string"))
    first = table.publish(["delta", "spark", "symlink"])
    assert [it.number for it in first] == [0, 9, 2]
    assert not any(it.is_new for it in table.publish(["delta", "spark", "symlink"]))
    options = {
        "AWS_ENDPOINT_URL": s3_root.storage_options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": s3_root.storage_options["key"],
        "AWS_SECRET_ACCESS_KEY": s3_root.storage_options["secret"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    rows = by_deltalake(table.url, storage_options=options)
    assert sorted(rows["kind"].to_pylist(), key=str) == sorted(["a b", "ä/ö", None], key=str)
    assert b"s3a://" in table.store.get("_spark_metadata/9.compact")
    assert b"s3://" in table.store.get("_symlink_format_manifest/kind=a b/manifest")
    assert table.check().ok


def test_a_table_on_azure_is_published_by_the_name_of_its_account(azure_root: Root) -> None:
    table = Table(azure_root.url, azure_root.storage_options)
    for files in (2, 1):
        transaction = table.begin("overwrite")
        for _ in range(files):
            with table.store.open_write(transaction.new_file().removeprefix(f"{table.url}/")) as to:
                pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), to)
        transaction.commit(columns(id="long"))
        done = table.publish(["delta", "spark", "symlink"])
        assert [it.files for it in done] == [files] * 3
        assert all(it.is_new for it in done)
    (line,) = table.store.get("_symlink_format_manifest/manifest").decode().splitlines()
    assert line.startswith("abfss://tables@")
    assert table.check().ok


def test_on_s3_a_publication_lists_puts_and_looks_once_beside_what_the_snapshot_takes(
    s3_root: Root, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SAME_SECOND", timedelta(0))  # so that the descriptor is remembered at once
    table = Table(s3_root.url, s3_root.storage_options)

    def commit() -> None:
        transaction = table.begin()
        for _ in range(20):
            with table.store.open_write(transaction.new_file().removeprefix(f"{table.url}/")) as to:
                pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), to)
        transaction.commit(columns(id="long"))

    for _ in range(3):
        commit()
        table.publish("delta")
    commit()
    before = len(s3_server.requests())
    table.publish("delta")
    asked = s3_server.requests()[before:]
    found = Counter((it.method, "_delta_log" in it.path + it.query.get("prefix", "")) for it in asked)
    # Of the snapshot: the log, its commits and checkpoints again, the marker of the new commit. Then the descriptor,
    # and the commits beside it.
    assert found == {("GET", True): 1, ("PUT", True): 1, ("HEAD", True): 1, ("GET", False): 5}


def test_what_spark_wrote_is_read_as_delta(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    frame = spark.sql(
        "SELECT id, cast(id / 3 AS decimal(9,4)) price,"
        " timestamp'2026-11-20 10:00:00.123456' + make_interval(0,0,0,0,id) at,"
        " if(id % 3 = 0, null, concat('ä/', id % 3)) kind FROM range(20)"
    )
    dbio.write(frame, path, partition_by=["kind"])
    table = Table(path)
    table.publish("delta")
    assert in_order(by_deltalake(path)) == in_order(table.snapshot().to_arrow())
    dbio.write(frame.where("id < 5"), path, mode="overwrite_partitions")
    table.publish("delta")
    assert in_order(by_deltalake(path)) == in_order(table.snapshot().to_arrow())
    assert in_order(by_polars(path)) == in_order(table.snapshot().to_arrow())


def test_statistics_are_bounds_in_the_terms_of_delta(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    transaction = table.begin()
    rows: dict[str, Any] = {
        "id": pa.array([1, None], pa.int64()),
        "price": pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)),
        "at": pa.array([datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
        "nan": pa.array([float("nan"), 1.0]),
        "raw": pa.array([b"x", None], pa.binary()),
    }
    pq.write_table(pa.table(rows), transaction.new_file())
    transaction.commit(columns(id="long", price="decimal(10,2)", at="timestamp", nan="double", raw="binary"))
    table.publish("delta")
    body = (tmp_path / "table" / delta_log.version_path(0)).read_text()
    (add,) = [json.loads(line)["add"] for line in body.splitlines() if '"add"' in line]
    assert json.loads(add["stats"]) == {
        "numRecords": 2,
        "minValues": {"id": 1, "price": -2.0, "at": "2026-11-20T10:00:00.123Z"},
        "maxValues": {"id": 1, "price": 1.5, "at": "2026-11-20T10:00:00.124Z"},
        "nullCount": {"id": 1, "price": 0, "at": 0, "nan": 0, "raw": 1},
    }
    assert deltalake.__version__
