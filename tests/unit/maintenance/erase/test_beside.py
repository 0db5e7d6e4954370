"""Whatever began before an erasure and goes on after it brings nothing back: it is refused, or the report names it.

Each operation stops before each of its calls to the store in turn; meanwhile a whole erasure runs. Rules: PROTOCOL.md
10.6.
"""

import io
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import CommitConflictError, DbioError, ObjectNotFoundError, Table
from dbio_commit.base.clock import Clock
from dbio_commit.commit.isolation import last_erasure_of
from dbio_commit.data.footers import inspect_files
from dbio_commit.log.listing import read_checkpoint
from dbio_commit.maintenance.copy import copy_state, copy_table
from dbio_commit.maintenance.erase.report import EraseReport
from dbio_commit.maintenance.incremental_copy import update_copy
from dbio_commit.maintenance.publish.places import DIRECTORIES, is_published
from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store
from dbio_commit.store.contract import Unfinished
from dbio_commit.testing import ManualClock, MemoryStore
from tests.erasing import traces
from tests.faults import Killed, act_before_call, count_calls, fail_with, heal, once
from tests.tiny_parts import tiny_parts
from tests.writers import WakingClock
from vacuum import vacuum_table

NAME, AGE = "zz-secret-person", 987654321012345


@dataclass
class Place:
    """A table in which the person is in a live file, in a removed one, or only in a removed one."""

    by_name: bool
    """Whether the name is a partition value."""
    publish: str = ""
    is_deleted: bool = False
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock, url="s3://lake/t")
        table = self.table("founder")
        by = ["name"] if self.by_name else []
        self.first = table.write(pa.table({"name": ["ann", NAME], "age": [1, AGE]}), partition_by=by).tid
        self.pass_time()
        table.checkpoint()
        table.update({"age": "age + 0"}, f"age = {AGE}")
        table.write(pa.table({"name": ["bob"], "age": [3]}))
        if self.publish:
            table.publish(self.publish.split(","))
        if self.is_deleted:
            table.delete(f"age = {AGE}")
        self.pass_time()

    def pass_time(self) -> None:
        self.clock.sleep(300)

    def table(self, who: str) -> Table:
        return Table.over(self.store.seen_by(who), self.clock, inspector=inspect_files)

    def erase(self, clock: Clock | None = None) -> EraseReport:
        table = Table.over(self.store.seen_by("eraser"), clock or self.clock, inspector=inspect_files)
        return table.erase(f"name = '{NAME}'" if self.by_name else f"age = {AGE}")

    def left(self) -> list[str]:
        return traces(self.store, [NAME, AGE])


Work = Callable[[Place, Table], object]

WORKS: dict[str, Work] = {
    "restore": lambda place, table: table.restore(place.first),
    "delete": lambda place, table: table.delete(f"age = {AGE}"),
    "update": lambda place, table: table.update({"age": "age + 0"}, "name <> 'bob'"),
    "merge": lambda place, table: table.merge(pa.table({"name": ["ann", "eve"], "age": [2, 5]}), on=["name"]),
    "compact": lambda place, table: table.compact(),
    "overwrite": lambda place, table: table.write(pa.table({"name": ["ann"], "age": [1]}), mode="overwrite"),
    "append": lambda place, table: table.write(pa.table({"name": ["dan"], "age": [4]})),
    "checkpoint": lambda place, table: table.checkpoint(),
    "vacuum": lambda place, table: vacuum_table(table, VacuumOptions(checkpoint_after=0)),
    "delta": lambda place, table: table.publish("delta"),
    "spark": lambda place, table: table.publish("spark"),
    "symlink": lambda place, table: table.publish("symlink"),
    "iceberg": lambda place, table: table.publish("iceberg"),
    "settings": lambda place, table: table.set({"publish": "delta,spark"}),
    "another erasure": lambda place, table: table.erase("age = 3"),
}
"""What goes on after the erasure."""


def _stopped_before(build: Callable[[], Place], work: Work, call: int, *, times: int) -> None:
    """Whatever the erasure says, another one finishes it, and the table is whole."""
    place = build()
    store = place.store.seen_by("other")
    reports: list[EraseReport] = []

    def erase() -> None:
        for _ in range(times):  # the second one makes numbers free that the first one took
            reports.append(place.erase())

    act_before_call(store, call, erase)
    refused: DbioError | None = None
    try:
        work(place, Table.over(store, place.clock, inspector=inspect_files))
    except DbioError as error:
        refused = error
    if reports and reports[-1].ok:
        assert place.left() == [], (call, refused)
    for it in (report := place.erase()).pending:  # which was refused
        place.table("operator").abort(it.tid)
    assert report.ok or place.erase().ok
    assert place.left() == [], (call, refused)
    assert place.table("reader").check().ok


def _calls(build: Callable[[], Place], work: Work) -> int:
    place = build()
    store = place.store.seen_by("other")
    return count_calls(store, lambda: work(place, Table.over(store, place.clock, inspector=inspect_files)))


@pytest.mark.parametrize("work", WORKS)
def test_nothing_comes_back_by_what_an_erasure_overtakes(work: str) -> None:
    def build() -> Place:
        return Place(by_name=True, is_deleted=work == "restore")

    calls = _calls(build, WORKS[work])
    for number, call in enumerate(range(calls // 6, calls, max(calls // 3, 1))):
        _stopped_before(build, WORKS[work], call, times=1 + number % 2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["one body", "tiny parts"])
@pytest.mark.parametrize("publish", ["", "delta,spark,symlink,iceberg"], ids=["plain", "published"])
@pytest.mark.parametrize("work", WORKS)
def test_nothing_comes_back_by_what_an_erasure_overtakes_at_any_call(work: str, publish: str, form: str) -> None:
    with tiny_parts() if form == "tiny parts" else nullcontext():
        for number, (by_name, is_deleted) in enumerate([(True, True), (True, False), (False, True), (False, False)]):

            def build(by_name: bool = by_name, is_deleted: bool = is_deleted) -> Place:
                return Place(by_name=by_name, publish=publish, is_deleted=is_deleted)

            for call in range(number % 2, _calls(build, WORKS[work]), 2 if form == "one body" else 4):
                _stopped_before(build, WORKS[work], call, times=1 + number // 2)


def test_a_restore_that_an_erasure_overtakes_is_refused_by_its_name() -> None:
    """Its condition says nothing of that: the erasure makes no commit, as the rows were deleted before."""
    place = Place(by_name=False, is_deleted=True)
    store, reports = place.store.seen_by("restorer"), list[EraseReport]()
    store.before = once("put_if_absent", "_serial_*", lambda: reports.append(place.erase()))  # its files are copied
    with pytest.raises(CommitConflictError, match=r"rows of .* were erased .*begin again"):
        Table.over(store, place.clock, inspector=inspect_files).restore(place.first)
    assert len(reports[0].pending) == 1
    assert place.left() == []
    assert place.erase().ok


def test_what_a_restore_committed_while_the_files_were_deleted_is_reported() -> None:
    place = Place(by_name=False, is_deleted=True)
    store = place.store.seen_by("eraser")
    restore = once("delete", "part-*", lambda: place.table("restorer").restore(place.first))
    store.before = restore
    report = Table.over(store, place.clock, inspector=inspect_files).erase(f"age = {AGE}")
    assert not report.ok
    assert any("another commit wrote meanwhile" in it.message for it in report.failed)
    assert place.erase().ok
    assert place.left() == []


@pytest.mark.parametrize(
    ("operation", "path"), [("delete", "part-*"), ("list_directory", "")], ids=["after the look", "before the look"]
)
def test_files_that_others_add_and_remove_meanwhile_are_reported(operation: str, path: str) -> None:
    """Some are live when the eraser looks into removed files, and are removed thereafter."""
    place = Place(by_name=False)
    store, other = place.store.seen_by("eraser"), place.table("other")
    steps = [
        once(operation, path, lambda: other.write(pa.table({"name": [NAME], "age": [AGE]}))),
        once("delete", "part-*", lambda: other.delete(f"age = {AGE}")),
    ]

    def before(operation: str, path: str) -> None:
        for step in steps:
            step(operation, path)

    store.before = before
    report = Table.over(store, place.clock, inspector=inspect_files).erase(f"age = {AGE}")
    assert [it.message for it in report.failed] == [
        "may hold such rows, which another commit wrote meanwhile: erase again"
    ]
    assert place.erase().ok
    assert place.left() == []


def test_markers_that_another_erasure_leaves_of_what_others_added_meanwhile_are_reported() -> None:
    """It was killed when its checkpoint had forgotten the files, so that only the markers name them."""
    place = Place(by_name=False)
    store, killed = place.store.seen_by("eraser"), place.store.seen_by("killed eraser")
    killed.before = fail_with(Killed(), "delete", "_started_*", times=None)

    def erase_and_die() -> None:
        with pytest.raises(Killed):
            Table.over(killed, place.clock, inspector=inspect_files).erase(f"age = {AGE}")

    steps = [
        once("delete", "part-*", lambda: place.table("other").write(pa.table({"name": [NAME], "age": [AGE]}))),
        once("list_unfinished", "*", erase_and_die),
    ]

    def before(operation: str, path: str) -> None:
        for step in steps:
            step(operation, path)

    store.before = before
    report = Table.over(store, place.clock, inspector=inspect_files).erase(f"age = {AGE}")
    assert [it.path for it in report.failed if "another commit wrote meanwhile" in it.message] == [
        it for it in place.left() if it.startswith("_committed_")
    ]
    assert report.failed
    assert place.erase().ok
    assert place.left() == []


@pytest.mark.parametrize("format", ["delta", "spark", "symlink", "iceberg"])
def test_a_publication_that_names_what_others_add_and_remove_meanwhile_is_reported(format: str) -> None:
    """It came after the eraser looked at what was published, and is not the last one."""
    clock = WakingClock()
    place = Place(by_name=False, publish=format, clock=clock)

    def act() -> None:
        other = place.table("other")
        other.write(pa.table({"name": [NAME], "age": [AGE]}))
        other.publish(format)
        other.delete(f"age = {AGE}")
        other.publish(format)

    clock.at(clock.monotonic() + 1, act)
    report = place.erase()
    assert report.ok == (format == "symlink")  # whose old manifests a publisher deletes
    assert all("published meanwhile" in it.message for it in report.failed)
    assert place.erase().ok
    assert place.left() == []


@pytest.mark.parametrize("format", ["delta", "spark", "symlink", "iceberg"])
def test_a_publisher_that_an_erasure_overtakes_names_nothing_of_it_though_the_last_publication_stays(
    format: str,
) -> None:
    """After the erasure, the files are those of the last publication again."""
    place = Place(by_name=False, is_deleted=True)
    place.table("other").publish(format)
    path = place.table("other").write(pa.table({"name": [NAME], "age": [AGE]})).marker.added[0]
    store, reports = place.store.seen_by("publisher"), list[EraseReport]()
    store.before = once("put_if_absent", f"{DIRECTORIES[Format(format)]}/*", lambda: reports.append(place.erase()))
    Table.over(store, place.clock, inspector=inspect_files).publish(format)
    assert reports[0].ok
    assert place.left() == []
    assert not [it for it in traces(place.store, [path]) if is_published(it)]


def test_a_transaction_that_is_aborted_meanwhile_and_leaves_files_is_reported() -> None:
    place = Place(by_name=False)
    store, late = place.store.seen_by("eraser"), place.store.seen_by("late")

    def act() -> None:
        transaction = place.table("other").begin()
        body = io.BytesIO()
        pq.write_table(pa.table({"name": [NAME], "age": [AGE]}), body)
        path = transaction.new_file().removeprefix(f"{late.url}/")
        place.table("operator").abort(transaction.tid)
        late.put(path, body.getvalue())

    store.before = once("delete", "part-*", act)
    report = Table.over(store, place.clock, inspector=inspect_files).erase(f"age = {AGE}")
    assert not report.ok
    assert "aborted meanwhile" in report.failed[0].message
    assert place.erase().ok
    assert place.left() == []


@pytest.mark.parametrize(
    ("form", "at"), [("one body", "_checkpoint_*"), ("tiny parts", "_checkpoint_*"), ("tiny parts", "_part_*")]
)
def test_a_checkpoint_that_comes_late_is_withdrawn_by_its_writer(form: str, at: str) -> None:
    """Two erasures make its number free again."""
    with tiny_parts() if form == "tiny parts" else nullcontext():
        place = Place(by_name=True, is_deleted=True)
        store = place.store.seen_by("writer")
        store.before = once("put_if_absent", at, lambda: [place.erase() for _ in range(2)])
        assert Table.over(store, place.clock).checkpoint() is None
        assert place.left() == []
        assert place.table("reader").check().ok


@pytest.mark.parametrize("form", ["one body", "tiny parts"])
def test_an_erasure_whose_checkpoint_has_a_number_that_others_take_and_erase_looks_again(form: str) -> None:
    """The other checkpoint is gone before this eraser compares it with its own."""
    with tiny_parts() if form == "tiny parts" else nullcontext():
        place = Place(by_name=True, is_deleted=True)
        store, taken = place.store.seen_by("another eraser"), list[str]()

        def take_and_erase(operation: str, path: str) -> None:
            if operation == "put_if_absent" and path.startswith("_checkpoint_") and not taken:
                taken.append(path)
                assert place.table("other").checkpoint() == path
            elif operation == "get" and path in taken:
                heal(store)
                for _ in range(2):
                    place.erase()

        store.before = take_and_erase
        assert Table.over(store, place.clock, inspector=inspect_files).erase("age = 3").ok
        assert taken
        assert place.left() == []
        assert place.table("reader").check().ok


def test_a_checkpoint_that_fails_leaves_none_of_the_parts_that_it_wrote() -> None:
    """An erasure purges what it reads, whatever it has written by then."""

    def build() -> Place:
        return Place(by_name=True, is_deleted=True)

    with tiny_parts():
        for call in range(_calls(build, WORKS["checkpoint"])):
            _stopped_before(build, WORKS["checkpoint"], call, times=1)


def test_manifests_that_the_first_publisher_writes_late_are_brought_up_to_date() -> None:
    """An erasure finds manifests that are as it would write them, and another one comes after it."""
    place = Place(by_name=True)
    store = place.store.seen_by("publisher")
    store.before = once("write", f"_symlink_format_manifest/name={NAME}/*", place.erase)
    place_table = Table.over(store, place.clock, inspector=inspect_files)
    place_table.publish("symlink")
    assert place.left() == []


@pytest.mark.parametrize("form", ["one body", "tiny parts"])
def test_each_later_checkpoint_repeats_the_id_of_the_last_erasure(form: str) -> None:
    """PROTOCOL.md 7.4."""
    with tiny_parts() if form == "tiny parts" else nullcontext():
        place = Place(by_name=False)
        table = place.table("writer")
        assert last_erasure_of(table.snapshot()) == ""
        place.erase()
        first = last_erasure_of(table.snapshot())
        table.write(pa.table({"name": ["dan"], "age": [4]}))
        assert table.checkpoint()
        assert last_erasure_of(table.snapshot()) == first != ""
        target = MemoryStore(place.clock, url="s3://lake/copy")
        copy_table(place.store, target, place.clock)
        assert last_erasure_of(Table.over(target, place.clock).snapshot()) == first
        place.erase()
        assert last_erasure_of(table.snapshot()) not in ("", first)


@pytest.mark.parametrize("by_hours", [0, -25, 25])
def test_parts_with_the_rows_go_whatever_clocks_show(by_hours: int) -> None:
    class Wrong(ManualClock):
        def now(self) -> datetime:
            return place.clock.now() + timedelta(hours=by_hours)

    with tiny_parts():
        place = Place(by_name=False)
        for number in range(4):
            place.table("founder").write(pa.table({"name": [f"n{number}"], "age": [number * 100]}))
            place.table("founder").checkpoint()
            place.pass_time()
        report = place.erase(Wrong())
        assert report.ok
        assert place.left() == []


@pytest.mark.parametrize("sets", [False, True], ids=["by-hand", "by-setting"])
def test_the_version_of_a_log_that_removes_the_rows_goes_too(sets: bool) -> None:
    """It names their partition."""
    place = Place(by_name=True, publish="delta,iceberg")
    if sets:
        place.table("founder").set({"publish": "delta,iceberg"})
    report = place.erase()
    assert report.ok
    assert place.left() == []
    for it in place.table("reader").publish(["delta", "iceberg"]):
        assert not it.is_new


def test_a_purge_that_overtakes_a_listing_between_two_pages_is_no_loss() -> None:
    """The first page has only checkpoints that the erasure deletes, and the second its purge record."""
    place = Place(by_name=False)
    first = [it for it in place.store.list_log() if it.path.startswith("_checkpoint_")]
    known = place.table("reader").snapshot()  # the process remembers that checkpoint
    place.erase()
    second = [it for it in place.store.list_log() if not it.path.startswith("_checkpoint_")]
    with pytest.raises(ObjectNotFoundError, match="other checkpoints"):  # so that the caller lists again
        read_checkpoint(place.store.seen_by("reader"), parse_log([*first, *second]), table_id=known.table_id)


# --- copies ---------------------------------------------------------------------------------------------------------

Copying = Callable[[Store, Store, Clock, str], object]

COPIES: dict[str, Copying] = {
    "copy": lambda source, target, clock, first: copy_table(source, target, clock),
    "state": lambda source, target, clock, first: copy_state(source, target, clock, first),
    "incremental": lambda source, target, clock, first: update_copy(source, target, clock),
}


@pytest.mark.parametrize(("how", "files"), [("copy", 3), ("state", 1), ("incremental", 2)])
def test_a_copy_that_an_erasure_overtakes_is_refused(how: str, files: int) -> None:
    place = Place(by_name=False)
    target = MemoryStore(place.clock, url="s3://lake/copy")
    target.after = once("write", "part-*", place.erase, nth=files)  # the last one is copied
    with pytest.raises(CommitConflictError, match=r"rows of .* were erased"):
        COPIES[how](place.store.seen_by("copier"), target, place.clock, place.first)
    assert all(not it.startswith("_committed_") or b'"abort"' in target.get(it) for it in target.objects)
    if how == "incremental":
        heal(target)
        update_copy(place.store, target, place.clock)
        vacuum_table(Table.over(target, place.clock), VacuumOptions(checkpoint_after=0))
        assert traces(target, [NAME, AGE]) == []


def test_a_copy_that_was_interrupted_before_an_erasure_keeps_no_file_of_it() -> None:
    place = Place(by_name=False)
    target = MemoryStore(place.clock, url="s3://lake/copy")
    target.before = fail_with(Killed(), "put_if_absent", "_checkpoint_*")
    with pytest.raises(Killed):
        copy_table(place.store, target, place.clock)
    heal(target)
    assert traces(target, [NAME, AGE])
    assert place.erase().ok
    copy_table(place.store, target, place.clock)
    assert traces(target, [NAME, AGE]) == []
    assert Table.over(target, place.clock).check().ok


def test_a_copy_that_only_lacked_its_end_when_rows_were_erased_is_refused() -> None:
    place = Place(by_name=False)
    target = MemoryStore(place.clock, url="s3://lake/copy")
    target.before = fail_with(Killed(), "delete", "_dropped")
    with pytest.raises(Killed):
        copy_table(place.store, target, place.clock)
    heal(target)
    assert place.erase().ok
    with pytest.raises(CommitConflictError, match="dbio drop"):
        copy_table(place.store, target, place.clock)


# --- what an erasure does not reach ---------------------------------------------------------------------------------


def test_markers_from_before_an_adoption_are_named() -> None:
    """They mean nothing for the table, and have minima and maxima of the rows."""
    clock = ManualClock()
    store = MemoryStore(clock, url="s3://lake/t")
    table = Table.over(store, clock, inspector=inspect_files)
    body = io.BytesIO()
    pq.write_table(pa.table({"name": [NAME], "age": [AGE]}), body)
    store.put("d=1/x.parquet", body.getvalue())
    with table.begin() as transaction:
        store.put(transaction.new_file(partition={"d": "1"}).removeprefix(f"{store.url}/"), body.getvalue())
    clock.sleep(1000)
    table.adopt()
    report = table.erase(f"age = {AGE}")
    assert report.ok
    (left,) = traces(store, [NAME, AGE])
    assert left == f"d=1/_committed_{transaction.tid}"
    assert any(left in it for it in report.remains)


def test_objects_that_publishers_of_others_left_are_named() -> None:
    place = Place(by_name=False, publish="iceberg")
    place.store.put("_iceberg/metadata/00001-of-a-catalog.metadata.json", NAME.encode())
    place.store.put("_delta_log/notes.txt", NAME.encode())
    report = place.erase()
    assert place.left() == ["_delta_log/notes.txt", "_iceberg/metadata/00001-of-a-catalog.metadata.json"]
    assert any("2 objects beside the publications" in it and "notes.txt" in it for it in report.remains)


def test_uploads_that_nobody_has_finished_are_named() -> None:
    place = Place(by_name=False)
    upload = Unfinished("part-00000-tid-1-j-0-0-c000.parquet", "upload-1", 7, place.clock.now())
    place.store.unfinished.append(upload)
    assert any("1 uploads" in it and upload.path in it for it in place.erase().remains)


def test_who_made_commits_is_named() -> None:
    assert any("record who made them" in it for it in Place(by_name=False).erase().remains)


def test_each_phase_reports_its_progress() -> None:
    place = Place(by_name=False, publish="delta")
    seen: list[tuple[str, int, int | None]] = []
    place.table("eraser").erase(f"age = {AGE}", progress=lambda *it: seen.append(it))
    assert list(dict.fromkeys(phase for phase, _, _ in seen)) == [
        "looking for rows",
        "deleting rows",
        "publishing",
        "waiting 61 s for others",
        "looking into removed files",
        "listing",
        "deleting",
        "writing checkpoints",
        "publishing as delta",
    ]
    assert all(done == total for phase, done, total in {it[0]: it for it in seen}.values() if phase != "listing")
