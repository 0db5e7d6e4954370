"""Publications on a store in memory: what they cost, who races with whom, who is killed, what check, drop and vacuum
make of them. What readers see is in tests/integration. Rules: NOTES.md, Order."""

import io
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dbio_commit.base.errors import (
    CommitConflictError,
    CorruptMarkerError,
    InvalidInputError,
    StoreError,
    TableNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.commit import probe as probe_module
from dbio_commit.maintenance.publish import delta_log, delta_replay
from dbio_commit.maintenance.publish.delta_log import DeltaListing, DeltaShown, DeltaState, decode_version, version_path
from dbio_commit.maintenance.publish.places import DIRECTORIES
from dbio_commit.maintenance.publish.sink_log import decode_list
from dbio_commit.maintenance.vacuum.report import Control
from dbio_commit.protocol import names, settings
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock, MemoryStore
from tests import iceberg_reader
from tests.builders import as_dbio_sees, columns
from tests.faults import Killed, Killer, act_before_call, calls_to, count_calls, fail_with, heal, unwatched
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)
from tests.writers import live, stage
from vacuum import VacuumOptions

ROOT = "s3a://lake/table"
FORMATS = tuple(Format)
each_format = pytest.mark.parametrize("to", FORMATS)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock, url="s3://lake/table")


def new_table() -> Table:
    clock = ManualClock()
    return Table.over(MemoryStore(clock, url="s3://lake/table"), clock)


def memory_of(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


def commit(table: Table, operation: Any = "append", *, files: int = 2, day: str | None = None) -> str:
    """A commit of some files, of which readers must see all or none."""
    partition_by = ["day"] if day else []
    transaction = table.begin(operation, partition_by=partition_by)
    for _ in range(files):
        partition, statistics = {"day": day} if day else None, {"id": Bounds(1, 1, 0)}
        stage(table, transaction, partition=partition, statistics=statistics)
    clock = table.clock
    if isinstance(clock, ManualClock):
        clock.advance(timedelta(seconds=1))
    return transaction.commit(columns("id", *partition_by)).tid


# --- what others read ---------------------------------------------------------------------------------------------


def delta_states(store: MemoryStore) -> list[frozenset[str]]:
    """What each version of the log shows, from the first one on."""
    numbers = sorted(DeltaListing.of(store._entries("_delta_log/"), root=store.url).versions)
    assert numbers == list(range(len(numbers)))
    state, states = DeltaState(), []
    for number in numbers:
        path = version_path(number)
        state = state.then([decode_version(io.BytesIO(store.objects[path][0]), where=path)], where=path)
        states.append(state.paths)
    return states


def shown(store: MemoryStore, to: Format) -> set[str] | None:
    """The files that readers of this format take for live now; None before the first publication."""
    if to is Format.DELTA:
        states = delta_states(store)
        return {*states[-1]} if states else None
    if to is Format.ICEBERG:
        return iceberg_reader.paths(store) if iceberg_reader.numbers(store) else None
    if to is Format.SPARK:
        lists = {int(path.split("/")[1].split(".")[0]): path for path in store.objects if "_spark_metadata/" in path}
        last = lists[max(lists)] if lists else None
        return {*decode_list(io.BytesIO(store.objects[last][0]), ROOT, where=last).paths} if last else None
    texts = [body.decode() for path, (body, _) in store.objects.items() if path.endswith("/manifest")]
    lines = "".join(texts).splitlines()
    return {line.removeprefix("s3://lake/table/") for line in lines} if texts else None


# --- what is written ----------------------------------------------------------------------------------------------


@each_format
def test_a_publication_shows_the_snapshot_and_says_what_has_changed(to: Format, table: Table) -> None:
    commit(table)
    (first,) = table.publish(to)
    tid = commit(table, "overwrite", files=1)
    (second,) = table.publish([to])
    assert (first.format, first.files, first.added, first.removed, first.is_new) == (to, 2, 2, 0, True)
    assert (second.files, second.added, second.removed, second.tid) == (1, 1, 2, tid)
    assert second.number > first.number
    assert shown(memory_of(table), to) == live(table)


@each_format
@pytest.mark.parametrize("remembered", [True, False])
def test_nothing_is_written_where_nothing_has_changed(to: Format, remembered: bool, table: Table) -> None:
    commit(table)
    (first,) = table.publish(to)
    if not remembered:
        forget()
    with calls_to(memory_of(table)) as calls:
        (again,) = table.publish(to)
    assert not {operation for operation, _ in calls} & {"put_if_absent", "write", "delete"}
    assert (again.number, again.is_new, again.added, again.removed) == (first.number, False, 0, 0)


def test_several_formats_are_published_at_once_each_named_once(table: Table) -> None:
    commit(table)
    done = table.publish(["symlink", "delta", "iceberg", "spark", "delta"])
    assert [it.format for it in done] == ["symlink", "delta", "iceberg", "spark"]
    assert all(shown(memory_of(table), it) == live(table) for it in FORMATS)


@pytest.mark.parametrize("to", ["", "hudi", [], ["delta", "Delta"], [3]])
def test_what_is_no_format_is_refused(to: Any, table: Table) -> None:
    commit(table)
    with pytest.raises(InvalidInputError, match="'delta', 'spark', 'symlink', 'iceberg'"):
        table.publish(to)


def test_only_a_table_of_ours_is_published(table: Table) -> None:
    with pytest.raises(TableNotFoundError):
        table.publish("delta")
    memory_of(table).put("part-0.parquet", b"PAR1rowsPAR1")
    with pytest.raises(InvalidInputError, match="dbio adopt"):
        table.publish("delta")


# --- what it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [2, 3, 11])  # the eleventh brings a checkpoint with it
@pytest.mark.parametrize("files", [1, 500])
@pytest.mark.parametrize(("to", "put"), [(Format.DELTA, "_delta_log/"), (Format.SPARK, "_spark_metadata/")])
def test_who_publishes_again_lists_puts_and_looks_once_beside_what_the_snapshot_costs(
    to: Format, put: str, files: int, before: int, table: Table
) -> None:
    for _ in range(before):
        commit(table, files=files)
        table.publish(to)
    tid = commit(table, files=files)
    with calls_to(memory_of(table)) as calls:
        table.publish(to)
    own = [(operation, path) for operation, path in calls if path.startswith("_delta_log") or "_spark_" in path]
    removals = [it for it in own if it[0] == "delete"]  # of Spark's lists, one
    assert [it for it, _ in own if it != "delete"] == ["list_directory", "put_if_absent", "stat"], "its time, at last"
    assert own[1][1].startswith(put)
    assert len(removals) == (to is Format.SPARK and before > 1)
    of_snapshot = [it for it in calls if it not in own]
    *of_snapshot, there, news = of_snapshot
    assert [it[0] for it in of_snapshot] == ["list_log", "get", "list_log"]
    assert of_snapshot[1] == ("get", f"_committed_{tid}")
    assert there[0] == "stat_log", "whether the table is still there"
    assert news == ("list_log", "_committed_"), "whether others have committed meanwhile"


@pytest.mark.parametrize("is_known", [True, False])
def test_who_has_not_published_yet_reads_the_beginning_of_the_last_version_or_all_since_the_last_checkpoint(
    is_known: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(14):
        commit(table)
        table.publish("delta")
    assert DeltaListing.of(memory_of(table)._entries("_delta_log/"), root=table.url).last_checkpoint == 10
    forget()
    commit(table)
    if not is_known:
        monkeypatch.setattr(DeltaShown, "unseen", lambda self, tids: None)
    with calls_to(memory_of(table)) as calls:
        table.publish("delta")
    read = sorted(path for operation, path in calls if operation == "get" and "_delta_log" in path)
    of_state = [delta_log.checkpoint_path(10), *(version_path(number) for number in range(10, 14))]
    assert read == ([version_path(13)] if is_known else sorted([*of_state, version_path(13)]))
    assert shown(memory_of(table), Format.DELTA) == live(table)


def test_a_checkpoint_that_fails_leaves_the_version(table: Table) -> None:
    memory_of(table).before = fail_with(StoreError("no"), "put_if_absent", "*.checkpoint.parquet", times=None)
    for _ in range(12):
        commit(table)
        assert table.publish("delta")[0].is_new
    assert len(delta_states(memory_of(table))) == 12


def test_deltas_streams_pass_over_a_compaction_but_over_no_row_that_came_before_it(table: Table) -> None:
    def rewrite(*, data_change: bool) -> None:
        with table.begin("rewrite", data_change=data_change) as transaction:
            transaction.remove([file.path for file in table.snapshot().files])
            stage(table, transaction)

    def published() -> set[bool]:
        number = table.publish("delta")[0].number
        lines = memory_of(table).objects[version_path(number)][0].decode().splitlines()
        actions = [action for line in lines for kind, action in json.loads(line).items() if kind in ("add", "remove")]
        return {action["dataChange"] for action in actions}

    commit(table)
    assert published() == {True}
    rewrite(data_change=False)
    assert published() == {False}
    rewrite(data_change=True)
    assert published() == {True}
    commit(table)  # whose files the log never had
    rewrite(data_change=False)
    assert published() == {True}


def test_of_spark_only_the_last_two_lists_are_kept(table: Table) -> None:
    for _ in range(4):
        commit(table)
        table.publish("spark")
    names = sorted(path for path in memory_of(table).objects if path.startswith("_spark_metadata/"))
    assert names == ["_spark_metadata/29.compact", "_spark_metadata/39.compact"]


def test_of_manifests_those_of_partitions_without_files_go_and_claims_are_few(table: Table) -> None:
    for day in ("1", "2"):
        commit(table, day=day)
        table.publish("symlink")
    transaction = table.begin("overwrite_partitions")
    transaction.overwrite_partition({"day": "1"})
    transaction.commit()
    table.publish("symlink")
    names = sorted(path for path in memory_of(table).objects if path.startswith("_symlink_format_manifest/"))
    assert names == [
        "_symlink_format_manifest/.dbio-00000000000000000004",
        "_symlink_format_manifest/day=2/manifest",
    ]
    assert shown(memory_of(table), Format.SYMLINK) == live(table)


def test_an_emptied_table_without_partitions_keeps_an_empty_manifest(table: Table) -> None:
    commit(table)
    table.publish("symlink")
    commit(table, "overwrite", files=0)
    table.publish("symlink")
    assert memory_of(table).objects["_symlink_format_manifest/manifest"][0] == b""


# --- races --------------------------------------------------------------------------------------------------------


@each_format
def test_whoever_publishes_and_commits_between_two_calls_of_a_publication_nothing_goes_back(to: Format) -> None:
    def prepared() -> Table:
        probe_module._PROBED.clear()
        forget()
        table = new_table()
        commit(table)
        table.publish(to)
        commit(table, "overwrite")
        return table

    first = prepared()
    for call in range(count_calls(memory_of(first), lambda: first.publish(to))):
        table = prepared()
        store = memory_of(table)

        seen: list[set[str] | None] = []

        def other(table: Table = table, store: MemoryStore = store, seen: list[Any] = seen) -> None:
            with unwatched(store):
                commit(table)
                table.publish(to)
                seen.append(shown(store, to))

        act_before_call(store, call, other)
        table.publish(to)
        heal(store)
        assert seen
        assert shown(store, to) == seen[0] == live(table)
        assert to is not Format.DELTA or len(set(delta_states(store))) == len(delta_states(store))


@each_format
@pytest.mark.parametrize("after", [False, True])
def test_after_a_publication_that_was_killed_at_any_call_the_next_one_shows_all(to: Format, after: bool) -> None:
    def prepared() -> Table:
        probe_module._PROBED.clear()
        forget()
        table = new_table()
        commit(table, day="1")
        table.publish(to)
        commit(table, "overwrite", day="2")
        return table

    first = prepared()
    before = shown(memory_of(first), to)
    for call in range(count_calls(memory_of(first), lambda: first.publish(to))):
        table = prepared()
        before = shown(memory_of(table), to)
        Killer(memory_of(table), call, after=after)
        with pytest.raises(Killed):
            table.publish(to)
        heal(memory_of(table))
        if to is not Format.SYMLINK:  # which is whole for each partition only
            assert shown(memory_of(table), to) in (before, live(table))
        forget()
        commit(table, day="3")
        table.publish(to)
        assert shown(memory_of(table), to) == live(table)
        assert table.check().ok


@each_format
def test_an_answer_that_was_lost_is_no_second_publication(to: Format, table: Table) -> None:
    commit(table)
    store = memory_of(table)
    directory = DIRECTORIES[to]
    lost = fail_with(StoreError("no answer"), "put_if_absent", f"{directory}/*")
    store.after = lost
    with pytest.raises(StoreError):
        table.publish(to)
    heal(store)
    table.publish(to)
    assert shown(store, to) == live(table)
    if to is Format.DELTA:
        assert len(delta_states(store)) == 1


@each_format
def test_publishers_and_writers_in_threads_never_show_a_state_that_goes_back_or_was_not_committed(to: Format) -> None:
    table = Table.over(MemoryStore(url="s3://lake/table"))
    store = memory_of(table)
    commit(table)
    table.publish(to)
    errors: list[BaseException] = []
    seen: list[set[str]] = []
    done = threading.Event()

    def watch(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(DIRECTORIES[to]) and to is not Format.SYMLINK:
            with store._lock:
                now = shown(store, to) or set()
                committed = {
                    name
                    for marker, (body, _) in store.objects.items()
                    if marker.startswith("_committed_")
                    for name in json.loads(body)["added"]
                }
                if not now <= committed:
                    errors.append(AssertionError("leads"))
                seen.append(now)

    def guarded(function: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                function()
            except CommitConflictError:
                pass  # overtaken too often, and says so
            except BaseException as error:
                errors.append(error)

        return threading.Thread(target=run)

    def publish() -> None:
        while not done.is_set():
            table.publish(to)

    store.after = watch
    publishers = [guarded(publish) for _ in range(2)]
    writers = [guarded(lambda: [commit(table) for _ in range(10)]) for _ in range(2)]
    for thread in [*publishers, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in publishers:
        thread.join()
    heal(store)
    assert not errors
    assert all(one <= other for one, other in pairwise(seen))
    assert all(len(state) % 2 == 0 for state in seen)  # whole commits
    table.publish(to)
    assert shown(store, to) == live(table)


def test_manifests_that_an_overtaken_publisher_wrote_last_are_brought_to_the_newest_state(table: Table) -> None:
    commit(table)
    store = memory_of(table)
    numbers: list[int] = []

    def overtake(operation: str, path: str) -> None:
        if operation == "write" and path.endswith("manifest") and not numbers:
            with unwatched(store):
                commit(table)
                numbers.append(table.publish("symlink")[0].number)

    store.before = overtake
    (done,) = table.publish("symlink")
    assert done.number > numbers[0]
    assert shown(store, Format.SYMLINK) == live(table)


@pytest.mark.parametrize("has_news", [False, True])
def test_manifests_that_an_earlier_claim_brings_late_are_not_taken_for_the_newest_state(
    has_news: bool, table: Table
) -> None:
    """NOTES.md, Manifests: the table is again as it was before the publication that is still under way."""
    commit(table, day="1")
    table.publish("symlink")
    commit(table, day="2")
    table.publish("symlink")
    objects = memory_of(table).objects
    manifest = "_symlink_format_manifest/day=2/manifest"
    first, late = "_symlink_format_manifest/.dbio-00000000000000000001", objects.pop(manifest)
    objects[first] = b"", table.clock.now()  # the second publication has claimed its number, and not written yet

    def finish(operation: str = "put_if_absent", path: str = ".dbio-") -> None:
        if operation == "put_if_absent" and ".dbio-" in path and first in objects:
            objects[manifest] = late
            del objects[first]

    transaction = table.begin("overwrite_partitions")
    transaction.overwrite_partition({"day": "2"})
    transaction.commit()
    if has_news:
        commit(table, day="3")
    memory_of(table).before = finish
    table.publish("symlink")
    heal(memory_of(table))
    finish()
    assert shown(memory_of(table), Format.SYMLINK) == live(table)


# --- what is not ours ---------------------------------------------------------------------------------------------


def test_a_stream_of_sparks_in_the_table_is_refused(table: Table) -> None:
    commit(table)
    memory_of(table).put("_spark_metadata/0", b"v1\n")
    with pytest.raises(UnsupportedTableError, match="of a Spark stream"):
        table.publish("spark")
    assert "of a Spark stream" in table.check().publications[0]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"add": {}}', b'{"commitInfo": {"dbio_commit": 3}}', b"\xff"])
def test_a_version_that_is_none_is_an_error_with_the_next_step(body: bytes, table: Table) -> None:
    commit(table)
    memory_of(table).put(version_path(0), body)
    with pytest.raises(CorruptMarkerError, match="move it elsewhere, and publish again"):
        table.publish("delta")
    assert not table.check().ok


def test_a_version_that_is_missing_is_an_error_with_the_next_step(table: Table) -> None:
    for _ in range(3):
        commit(table)
        table.publish("delta")
    del memory_of(table).objects[version_path(1)]
    forget()
    with pytest.raises(CorruptMarkerError, match=r"0001\.json is missing"):
        table.publish("delta")


def test_a_version_without_a_word_of_its_writer_is_a_strangers(table: Table) -> None:
    commit(table)
    table.publish("delta")
    memory_of(table).put(version_path(1), b'{"add": {"path": "x.parquet"}}\n')
    with pytest.raises(UnsupportedTableError, match=r"version 1 .*an engine that does not say its name"):
        table.publish("delta")


@pytest.mark.parametrize("to", [Format.SPARK, Format.SYMLINK])
def test_a_publication_that_names_another_place_is_found_and_mended(to: Format, table: Table) -> None:
    commit(table)
    table.publish(to)
    store = memory_of(table)
    moved = MemoryStore(store._clock, url="s3://lake/other")
    moved.objects = dict(store.objects)
    other = Table.over(moved, table.clock)
    (problem,) = other.check().publications
    assert "//lake/table/part-" in problem
    assert f"--to {to}" in problem
    assert other.publish(to)[0].is_new
    assert other.check().ok


# --- the rest of the table knows publications ---------------------------------------------------------------------


def test_publications_are_no_data_and_no_garbage_and_block_nobody(table: Table) -> None:
    commit(table, day="1")
    table.publish(FORMATS)
    commit(table, day="2")
    before = {path for path in memory_of(table).objects if path.split("/")[0] in DIRECTORIES.values()}
    report = table.check()
    assert report.ok
    assert not report.garbage
    assert not report.foreign
    options = VacuumOptions(retention_hours=0, force=True, untracked=True, checkpoint_after=0)
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(days=40))
    vacuum_table(table, options, control=Control())
    assert before <= memory_of(table).objects.keys()
    assert len(live(table)) == 4


def test_a_drop_removes_publications(table: Table) -> None:
    commit(table, day="1")
    table.publish(FORMATS)
    assert table.drop(everything=True).left == ()
    assert not memory_of(table).objects
    commit(table, day="1")  # a new table in the same place
    table.publish(FORMATS)
    assert table.check().ok


def test_without_a_descriptor_another_formats_log_is_refused_as_ever(table: Table) -> None:
    commit(table)
    table.publish("delta")
    store = memory_of(table)
    store.objects = as_dbio_sees(store.objects)
    for action in (table.snapshot, table.adopt, lambda: commit(table)):
        with pytest.raises(UnsupportedTableError, match="_delta_log"):
            action()


def test_vacuum_deletes_versions_of_before_a_checkpoint_that_is_older_than_the_retention(table: Table) -> None:
    clock, store = table.clock, memory_of(table)
    assert isinstance(clock, ManualClock)
    for _ in range(22):
        commit(table)
        table.publish("delta")
        clock.advance(timedelta(hours=3))
    states = delta_states(store)
    kept_since = clock.now() - timedelta(hours=30)
    old = {path for path, (_, at) in store.objects.items() if path.startswith("_delta_log/0") and at < kept_since}
    report = vacuum_table(table, VacuumOptions(retention_hours=30), control=Control())
    gone = {it.path for it in report.deleted if it.path.startswith("_delta_log")}
    assert gone == {version_path(number) for number in range(10)}
    assert gone <= old
    forget()
    commit(table)
    table.publish("delta")
    assert len(states) == 22
    assert shown_from_checkpoint(table) == live(table)


def shown_from_checkpoint(table: Table) -> frozenset[str]:
    forget()
    listing = DeltaListing.of(memory_of(table)._entries("_delta_log/"), root=table.url)
    table_id = table.snapshot().table_id
    assert table_id
    return delta_replay.replay(table.store, listing, table_id).paths


# --- the setting: after each commit -------------------------------------------------------------------------------


@each_format
def test_each_commit_of_a_table_that_is_set_to_is_published(to: Format, table: Table) -> None:
    commit(table)
    table.set({"publish": to})
    assert shown(memory_of(table), to) == live(table), "what was there before the setting"
    for operation in ("append", "overwrite", "append"):
        commit(table, operation)
        assert shown(memory_of(table), to) == live(table)


@each_format
@pytest.mark.parametrize("backwards", [False, True])
def test_whoever_commits_between_two_calls_of_a_commit_is_published_with_it(
    to: Format, backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at what is published comes beside the commit marker, and the snapshot after it. Calls that do not wait
    for one another come in any order."""
    if backwards:
        monkeypatch.setattr(MemoryStore, "ask_each", lambda store, ask, items: [*map(ask, items[::-1])][::-1])

    def prepared() -> Table:
        probe_module._PROBED.clear()
        forget()
        table = new_table()
        commit(table)
        table.set({"publish": to})
        return table

    first = prepared()
    for call in range(count_calls(memory_of(first), lambda: commit(first))):
        table = prepared()
        store = memory_of(table)

        def other(table: Table = table, store: MemoryStore = store) -> None:
            with unwatched(store):
                commit(table)

        act_before_call(store, call, other)
        commit(table)
        heal(store)
        assert shown(store, to) == live(table)
        assert len(live(table)) * 2 == len(live(first)) * 3


@each_format
def test_a_commit_whose_look_at_the_publication_fails_is_published_all_the_same(to: Format, table: Table) -> None:
    commit(table)
    table.set({"publish": to})
    store = memory_of(table)
    forget()  # a publisher that remembers its version of Iceberg asks for that alone
    listing = "list_files" if to is Format.SYMLINK else "list_directory"
    failing, failed = fail_with(StoreError("no answer"), listing, f"{DIRECTORIES[to]}*"), list[str]()

    def once(operation: str, path: str) -> None:
        try:
            failing(operation, path)
        except StoreError:
            failed.append(path)
            raise

    store.before = once
    commit(table)
    heal(store)
    assert failed
    assert shown(store, to) == live(table)


def test_a_table_that_is_not_set_to_is_not_published(table: Table) -> None:
    commit(table)
    table.set({"publish": "delta"})
    table.set({"publish": ""})
    commit(table)
    assert shown(memory_of(table), Format.DELTA) != live(table)


def commit_that_knows_no_setting(table: Table) -> None:
    """One whose last look came before the table was set to be published, and whose marker comes after it."""
    commit(table)
    late, store = table.begin(), memory_of(table)
    stage(table, late)

    def set_meanwhile(operation: str, path: str) -> None:
        if path == names.committed(late.tid):
            heal(store)
            table.set({"publish": "delta"})

    store.before = set_meanwhile
    late.commit(columns("id"))


def test_a_commit_that_knew_nothing_of_the_setting_is_published_with_the_next(table: Table) -> None:
    commit_that_knows_no_setting(table)
    assert shown(memory_of(table), Format.DELTA) != live(table)
    commit(table)
    assert shown(memory_of(table), Format.DELTA) == live(table)


def test_a_publication_that_fails_is_logged_and_changes_nothing_of_the_commit(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    commit(table)
    table.set({"publish": "delta,spark"})
    version = version_path(1)
    memory_of(table).before = fail_with(StoreError("the store is away"), "put_if_absent", version)
    commit(table)
    heal(memory_of(table))
    assert "is behind in the format delta" in caplog.text
    assert "the store is away" in caplog.text
    assert len(live(table)) == 4
    assert shown(memory_of(table), Format.SPARK) == live(table), "one form keeps no other back"
    assert shown(memory_of(table), Format.DELTA) != live(table)


def test_vacuum_publishes_what_lags(table: Table) -> None:
    commit_that_knows_no_setting(table)
    vacuum_table(table, VacuumOptions(), control=Control(), dry_run=True)
    assert shown(memory_of(table), Format.DELTA) != live(table), "a dry run changes nothing"
    vacuum_table(table, VacuumOptions(), control=Control())
    assert shown(memory_of(table), Format.DELTA) == live(table)


def test_a_form_that_only_later_versions_know_keeps_no_other_back(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.KNOWN, "publish", str)
    commit(table)
    table.set({"publish": "iceberg,delta"})
    assert shown(memory_of(table), Format.DELTA) == live(table)


def test_manifests_whose_sizes_show_that_they_are_old_are_not_read_before_the_claim() -> None:
    table = new_table()
    commit(table)
    table.publish("symlink")
    commit(table)
    with calls_to(memory_of(table)) as calls:
        table.publish("symlink")
    own = [operation for operation, path in calls if path.startswith(DIRECTORIES[Format.SYMLINK])]
    assert own.index("put_if_absent") < own.index("get")
    with calls_to(memory_of(table)) as calls:
        table.publish("symlink")
    own = [operation for operation, path in calls if path.startswith(DIRECTORIES[Format.SYMLINK])]
    assert "put_if_absent" not in own
