"""Compaction of tables with `cluster_by`: rows stay the same, conditions read few files, and nothing waits.

Rules: PROTOCOL.md 7.2, 9.8; ADR 0106, 0107.
"""

import errno
import io
import shutil
import tempfile
from collections import namedtuple
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.commit.write import spill
from dbio_commit.data.footers import inspect_files
from dbio_commit.feed.feed import Feed, FeedOptions
from dbio_commit.feed.follow import Follower
from dbio_commit.feed.position import Position, Start
from dbio_commit.maintenance.compact import run, spread
from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.compact.report import STOPPED
from dbio_commit.maintenance.report.health import look
from dbio_commit.protocol.names import Kind
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import Killed, Killer, heal, once
from tests.histories import History, in_order
from tests.tiny_parts import tiny_parts
from vacuum import VacuumOptions, vacuum_table
from vacuum.compaction import compact_table

TARGET = 20_000


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    return Table.over(store, clock, inspector=inspect_files)


def rows_of(seed: int, count: int = 2000) -> pa.Table:
    chance = Random(seed)
    return pa.table(
        {
            "id": pa.array(range(seed * count, (seed + 1) * count), pa.int64()),
            "day": pa.array([chance.randrange(1000) for _ in range(count)], pa.int32()),
            "part": pa.array([f"p{chance.randrange(1000):04}" for _ in range(count)]),
        }
    )


def put(table: Table, *seeds: int, partition: Mapping[str, str] | None = None) -> None:
    for seed in seeds:
        with table.begin(partition_by=[*(partition or {})]) as transaction:
            path = transaction.new_file(partition=partition).removeprefix(f"{table.url}/")
            with table.store.open_write(path) as stream:
                pq.write_table(rows_of(seed), stream)


def ids(table: Table) -> list[int]:
    found: list[Any] = table.snapshot().to_arrow()["id"].to_pylist()
    return sorted(found)


def paths(table: Table) -> set[str]:
    return {file.path for file in table.snapshot().files}


def clustered(table: Table, seeds: Sequence[int] = range(8), by: str = "day,part") -> Table:
    put(table, *seeds)
    table.set({"cluster_by": by})
    table.compact(TARGET)
    return table


# --- the rows, and what conditions read -----------------------------------------------------------------------------


def test_a_condition_on_any_of_the_columns_reads_few_files(table: Table) -> None:
    put(table, *range(8))
    before, size = ids(table), len(table.snapshot().files)
    table.set({"cluster_by": "day,part"})
    report = table.compact(TARGET)
    files = len(table.snapshot().files)
    assert ids(table) == before
    assert (report.files_before, report.files_after, report.left, report.cluster_by) == (
        size,
        files,
        (),
        ("day", "part"),
    )
    assert files >= 8
    for condition, most in (("day = 500", 0.5), ("part = 'p0500'", 0.5), ("day = 500 AND part = 'p0500'", 0.2)):
        assert len(table.snapshot().where(condition).files) <= most * files
    assert table.check().ok


@pytest.mark.parametrize(
    "by",
    ["ratio", "price,name,day,at", *(pytest.param(it, marks=pytest.mark.long) for it in ("id", "small", "flag,large"))],
)
def test_rows_of_all_types_are_the_same_afterwards(by: str, tmp_path: Path) -> None:
    history = History(Table(tmp_path / "table"), 3, partition_by=["kind"] if by == "ratio" else [])
    for operation in ["append"] * 6 + ["widen", "append", "append"]:
        history.commit(operation)
    table = history.table
    table.set({"cluster_by": by})
    before, columns_before = table.snapshot(), table.schema()
    report = table.compact(10_000)
    after = table.snapshot()
    assert in_order(after.to_arrow()) == in_order(before.to_arrow())
    assert after.to_arrow().schema == before.to_arrow().schema
    assert table.schema() == columns_before
    assert report.left == ()
    assert table.check().ok
    assert table.compact(10_000).compacted == ()


def test_a_second_compaction_finds_nothing_to_do_and_a_small_append_is_rewritten_alone(table: Table) -> None:
    clustered(table)
    assert table.compact(TARGET).compacted == ()
    before = paths(table)
    put(table, 8)
    (done,) = table.compact(TARGET).compacted
    assert (done.files, done.rows) == (1, 2000)
    assert before < paths(table)
    assert table.compact(TARGET).compacted == ()


def test_files_of_a_merge_a_delete_and_a_restore_are_loose(table: Table) -> None:
    clustered(table)
    tid = table.snapshot().tid
    table.delete("id = 5")
    (done,) = table.compact(TARGET).compacted
    assert done.rows is not None
    assert 0 < done.rows < 16_000
    table.restore(tid)
    assert table.compact(TARGET).compacted
    assert table.compact(TARGET).compacted == ()
    assert ids(table) == list(range(16_000))


def test_full_rewrites_all_files_also_those_that_other_columns_have_clustered(table: Table) -> None:
    clustered(table)
    before = paths(table)
    table.set({"cluster_by": "id"})
    assert table.compact(TARGET).compacted == ()  # those of other columns stay
    put(table, 8)
    assert table.compact(TARGET).files_before == 1
    report = table.compact(TARGET, full=True)
    assert report.files_before == len(before) + 1
    assert not before & paths(table)
    assert len(table.snapshot().where("id = 5").files) == 1
    assert ids(table) == list(range(18_000))


def test_most_bounds_the_bytes_that_are_rewritten_together(table: Table) -> None:
    put(table, *range(8))
    size = table.snapshot().files[0].size
    table.set({"cluster_by": "day"})
    report = table.compact(TARGET, most=3 * size + 2000)
    assert [it.files for it in report.compacted] == [3, 3, 2]
    assert ids(table) == list(range(16_000))


def test_partitions_are_clustered_each_by_itself_and_share_a_commit(table: Table) -> None:
    for day in ("1", "2"):
        put(table, *range(int(day) * 3, int(day) * 3 + 3), partition={"d": day})
    table.set({"cluster_by": "day"})
    report = table.compact(TARGET)
    assert [it.directory for it in report.compacted] == ["d=1", "d=2"]
    assert len(report.commits) == 1
    assert all(it.new_files > 1 for it in report.compacted)


def test_nan_spoils_the_statistics_of_the_last_files_only(table: Table) -> None:
    values = [*(float(i) for i in range(5000)), *[float("nan")] * 500]
    with table.begin() as transaction:
        path = transaction.new_file().removeprefix(f"{table.url}/")
        with table.store.open_write(path) as stream:
            pq.write_table(pa.table({"x": Random(1).sample(values, len(values))}), stream, use_dictionary=False)
    table.set({"cluster_by": "x"})
    table.compact(2500)
    files = table.history()[0].files
    known = [file.statistics["x"].min for file in files if file.statistics]
    assert len(files) > 4
    assert 1 <= known.count(None) <= 2


# --- the setting ----------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(table: Table) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    before = paths(table)
    report = table.compact(TARGET, dry_run=True)
    assert report.files_before == 8
    assert report.files_after > 8
    assert paths(table) == before


def test_a_clustered_table_takes_no_other_order_and_others_take_no_options_of_clustering(table: Table) -> None:
    put(table, 1)
    with pytest.raises(InvalidInputError, match="no setting cluster_by"):
        table.compact(full=True)
    with pytest.raises(InvalidInputError, match="no setting cluster_by"):
        table.compact(most=100)
    table.set({"cluster_by": "day"})
    with pytest.raises(InvalidInputError, match="is clustered by day"):
        table.compact(sort_by="id")
    with pytest.raises(InvalidInputError, match="is clustered by day"):
        table.compact(z_order=["id"])


def test_a_compaction_names_a_column_of_the_setting_that_an_overwrite_removed(table: Table) -> None:
    clustered(table)
    table.write(pa.table({"id": [1]}), mode="overwrite")
    with pytest.raises(InvalidInputError, match=r"cannot be clustered by 'day': the table has no such column"):
        table.compact()


# --- the state ------------------------------------------------------------------------------------------------------


def test_the_state_survives_checkpoints_parts_and_vacuum(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    with tiny_parts():
        clustered(table)
        for _ in range(3):
            clock.advance(timedelta(10))
            vacuum_table(table, VacuumOptions(checkpoint_after=0))
        assert any(name.startswith(Kind.PART) for name in store.objects)
        found = table.check().clustering
        assert found is not None
        assert (found.runs, found.loose_files) == (1, 0)
        assert look(table.snapshot(), at=clock.now(), vacuumed="").clustering == found.sentences()
        assert table.compact(TARGET, where="day > 10").compacted == ()
        assert not [name for name in store.objects if name.startswith("_committed_")]
        assert table.compact(TARGET).compacted == ()
        put(table, 8)
        assert table.compact(TARGET).files_before == 1
        assert table.compact(TARGET).compacted == ()


def test_files_whose_state_an_earlier_version_dropped_are_rewritten_once(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.commit.transaction.Transaction.record_clustering", lambda self, columns: None)
    clustered(table)
    monkeypatch.undo()
    assert table.compact(TARGET).compacted
    assert table.compact(TARGET).compacted == ()


# --- beside others --------------------------------------------------------------------------------------------------


def test_a_group_that_meets_a_delete_is_left_and_its_files_are_deleted_while_others_go_on(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in ("1", "2"):
        put(table, *range(int(day) * 3, int(day) * 3 + 3), partition={"d": day})
    table.set({"cluster_by": "day"})
    victim = next(file.path for file in table.snapshot().files if file.path.startswith("d=1"))

    def remove() -> None:
        with Table.over(store, table.clock, inspector=inspect_files).begin("rewrite") as transaction:
            transaction.remove(victim)

    store.before = once("write", "d=2/*", remove)
    report = table.compact(TARGET)
    heal(store)
    assert [it.directory for it in report.compacted] == ["d=2"]
    assert [victim in it.paths for it in report.left] == [True]
    live = paths(table)
    written = {name for name in store.objects if report.commits[0] in name and name.endswith(".parquet")}
    assert written == {path for path in live if path.startswith("d=2/")}
    assert table.compact(TARGET).left == ()


def test_a_group_of_its_own_size_has_its_own_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in ("1", "2"):
        put(table, *range(int(day) * 3, int(day) * 3 + 3), partition={"d": day})
    table.set({"cluster_by": "day"})
    monkeypatch.setattr(run, "CLUSTERED_BYTES", 1)
    stops = iter([False, True])
    report = run.compact(table.store, table.clock, CompactOptions(target_size=TARGET), stop=lambda: next(stops))
    assert len(report.commits) == 1
    assert [it.reason for it in report.left] == [STOPPED]


def test_a_stop_while_rows_are_divided_leaves_the_group_and_no_file(table: Table, store: MemoryStore) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    before = {*store.objects}
    rewriter = run.in_threads(table.store, stop=lambda: True)
    report = run.compact(table.store, table.clock, CompactOptions(target_size=TARGET), rewriter=rewriter)
    assert [it.reason for it in report.left] == [STOPPED]
    assert {name for name in {*store.objects} - before if name.endswith(".parquet")} == set()


def test_too_little_space_is_a_reason_to_leave_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: usage(10, 10, 100))
    (left,) = table.compact(TARGET).left
    assert "are needed" in left.reason
    assert "100 bytes are free there" in left.reason
    monkeypatch.undo()

    def full(self: Any, batch: pa.RecordBatch) -> tuple[int, int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill.Spill, "write", full)
    (left,) = table.compact(TARGET).left
    assert "the local disk became full" in left.reason
    monkeypatch.undo()
    options = CompactOptions(target_size=TARGET, spill="/no/such/directory")
    (left,) = run.compact(table.store, table.clock, options).left
    assert "rows cannot wait in /no/such/directory" in left.reason
    assert ids(table) == list(range(16_000))


def test_rows_wait_in_unnamed_files_of_the_directory_that_was_given(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str | None] = []
    made = tempfile.TemporaryFile

    def make(dir: str | None) -> Any:
        used.append(dir)
        return made(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", make)
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    run.compact(table.store, table.clock, CompactOptions(target_size=TARGET, spill=str(tmp_path)))
    assert used == [str(tmp_path)]
    assert not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_read_leaves_its_group(table: Table, store: MemoryStore) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    broken = table.snapshot().files[0].path
    store.replace(broken, b"no parquet")
    (left,) = table.compact(TARGET).left
    assert "cannot be read as Parquet" in left.reason
    assert io.BytesIO(store.get(broken)).read() == b"no parquet"


def test_the_service_makes_one_file_after_the_other_in_its_directory(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    threads = set[int]()
    in_parallel = table.store.in_parallel

    def counted(work: Any, items: Any, *, at_once: int | None = None) -> Any:
        if at_once is not None and items:
            threads.add(at_once)
        return in_parallel(work, items, **({} if at_once is None else {"at_once": at_once}))

    monkeypatch.setattr(table.store, "in_parallel", counted)
    options = CompactOptions(target_size=TARGET, spill=str(tmp_path))
    assert compact_table(table, options, dry_run=False, stop=lambda: False).files_after > 4
    assert threads == {1}
    stopped = compact_table(table, replace(options, full=True), dry_run=False, stop=lambda: True)
    assert (stopped.commits, [it.reason for it in stopped.left]) == ((), [STOPPED])


def test_streams_and_conditional_writes_see_no_change(table: Table, clock: ManualClock) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    etag = table.snapshot().etag
    before = [file.path for file in table.snapshot().files]
    clock.advance(timedelta(minutes=1))
    assert table.compact(TARGET).commits
    clock.advance(timedelta(minutes=1))
    table.write(rows_of(8), if_match=etag)
    (new,) = table.history()[0].files
    feed = Feed(Follower(table.store, table.clock).history(), FeedOptions())
    start: Position | Start = Start(begin="time", time=clock.now() - timedelta(days=1))
    got: list[str] = []
    while isinstance(end := feed.after(start), Position) and end != start:
        got += [change.file.path for change in feed.between(start, end)]
        start = end
    assert sorted(got) == sorted([*before, new.path])


def test_killed_at_any_call_it_leaves_the_rows_as_they_were(clock: ManualClock) -> None:
    for calls in count(3, 7):
        store = MemoryStore(clock)
        table = Table.over(store, clock, inspector=inspect_files)
        put(table, 0, 1)
        table.set({"cluster_by": "day"})
        killer = Killer(store, calls, after=False)
        with suppress(Killed):
            table.compact(TARGET)
        heal(store)
        assert ids(table) == list(range(4000)), calls
        table.compact(TARGET)
        assert table.compact(TARGET).compacted == (), calls
        assert ids(table) == list(range(4000)), calls
        if not killer.dead:
            assert calls > 20
            return


def test_erased_rows_stay_erased_and_their_files_are_clustered_again(table: Table, clock: ManualClock) -> None:
    clustered(table)
    clock.advance(timedelta(days=1))
    assert table.erase("id < 10").ok
    assert table.compact(TARGET).compacted
    assert ids(table) == list(range(10, 16_000))
    assert table.compact(TARGET).compacted == ()


def test_a_vacuum_beside_it_deletes_old_files_and_nothing_that_is_live(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    put(table, *range(8))
    table.set({"cluster_by": "day"})
    options = VacuumOptions(retention_hours=1, checkpoint_after=1)
    store.before = once("put_if_absent", "_committed_*", lambda: vacuum_table(table, options))
    table.compact(TARGET)
    heal(store)
    clock.advance(timedelta(days=3))
    vacuum_table(table, options)
    assert ids(table) == list(range(16_000))
    assert {path for path in store.objects if path.endswith(".parquet")} == paths(table)


# --- how well it is clustered ---------------------------------------------------------------------------------------


def test_check_and_report_say_in_what_share_of_the_bytes_a_value_is_and_what_is_loose(table: Table) -> None:
    put(table, *range(8))
    assert table.check().clustering is None
    table.set({"cluster_by": "day,part"})
    before = table.check().clustering
    assert before is not None
    assert (before.loose_files, before.runs, [round(it) for it in before.shares]) == (8, 0, [1, 1])
    assert before.useless == ()  # a compaction will help
    table.compact(TARGET)
    after = table.check().clustering
    assert after is not None
    assert (after.loose_files, after.other_files, after.runs) == (0, 0, 1)
    assert all(0.15 < share < 0.6 for share in after.shares)
    put(table, 8)
    table.set({"cluster_by": "id"})
    other = table.check()
    assert other.ok
    assert other.clustering is not None
    assert other.clustering.loose_files == 1
    assert other.clustering.other_files > 4
    health = look(table.snapshot(), at=table.clock.now(), vacuumed="")
    assert health.clustering == other.clustering.sentences()
    assert any("which stay until a compaction with `full`" in line for line in health.clustering)


def test_check_names_a_column_that_is_gone_and_one_that_does_not_help(table: Table) -> None:
    values = pa.table({"flag": [True] * 20_000, "id": Random(3).sample(range(20_000), 20_000)})
    table.write(values)
    table.set({"cluster_by": "flag,id"})
    table.compact(10_000)
    found = table.check().clustering
    assert found is not None
    assert found.useless == ["flag"]
    assert "conditions on flag leave out hardly any file: name another column in cluster_by" in found.sentences()
    table.write(pa.table({"flag": [True]}), mode="overwrite")
    gone = table.check()
    assert gone.clustering is not None
    assert gone.ok
    assert "cannot be clustered by 'id': the table has no such column" in gone.clustering.problem
    assert look(table.snapshot(), at=table.clock.now(), vacuumed="").clustering == [gone.clustering.problem]


def test_shares_are_those_of_some_files_of_a_large_table(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    clustered(table)
    all_files = table.check().clustering
    monkeypatch.setattr(spread, "MOST_FILES", 4)
    some = table.check().clustering
    assert all_files is not None
    assert some is not None
    assert len(some.shares) == 2
    assert (some.runs, some.loose_files) == (all_files.runs, 0)
