"""Making a table of a plain or DBIO directory, alone and while others write: `Table.adopt`, on a store in memory.

What is visible before is live afterwards, or nothing has changed, or somebody is told. Numbers I1 to I9: PROTOCOL.md 5.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from dbio_commit import probe as probe_module
from dbio_commit.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMarkerError,
    DbioError,
    InvalidInputError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TransactionStateError,
    UnsupportedStoreError,
    UnsupportedTableError,
)
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import AsOf
from dbio_commit.protocol.log import REFUSAL
from dbio_commit.protocol.markers import Operation
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock
from dbio_commit.transaction import Transaction
from dbio_commit.upkeep.inspect import TransactionState
from tests.faults import Killed, Killer, OrderlyStore, calls_to, heal
from tests.writers import contents, live, stage

FIRST, SECOND, LATE = "1187324659120348471", "5561029384756102938", "7000000000000000001"  # decimal, as DBIO had them
CHECKPOINT = names.checkpoint(1)


# --- directories --------------------------------------------------------------------------------------------------


def data(tid: str, attempt: int = 0) -> str:
    return f"part-00000-tid-{tid}-5f8a2c1e-0000-4000-8000-000000000000-{attempt}-1-c000.snappy.parquet"


class Place(OrderlyStore):
    """A directory that others write to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock)

    def write(self, *paths: str) -> None:
        for path in paths:
            self.put(path, path.encode())

    def start(self, tid: str, *directories: str) -> None:
        for directory in directories:
            self.put(names.join(directory, f"_started_{tid}"))
            self.write(names.join(directory, data(tid)))

    def commit(self, tid: str, *directories: str, removed: Sequence[str] = ()) -> None:
        for directory in directories:
            gone = [names.split(path)[1] for path in removed if names.split(path)[0] == directory]
            body = {"added": [data(tid)], "removed": gone}
            self.put(names.join(directory, f"_committed_{tid}"), json.dumps(body).encode())

    def table(self) -> Table:
        return Table.over(self, self.clock)


def plain() -> Place:
    place = Place()
    place.write("a.parquet", "b c é.parquet")
    place.write("_SUCCESS", ".a.parquet.crc")
    return place


def plain_partitioned() -> Place:
    place = Place()
    place.write("day=1/a.parquet", "day=1/b.parquet", f"day={names.HIVE_NULL}/c.parquet", "day=a%2Fb/d.parquet")
    return place


def dbio(*directories: str) -> Place:
    """Committed files, one that a later commit removed, a failed attempt's, an untracked one, one of purged markers."""
    place = Place()
    place.start(FIRST, *directories)
    place.commit(FIRST, *directories)
    place.clock.advance(timedelta(hours=1))
    place.write(*(names.join(directory, data(SECOND, attempt=7)) for directory in directories))
    place.start(SECOND, *directories)
    place.commit(SECOND, *directories, removed=[names.join(directories[0], data(FIRST))])
    place.write(names.join(directories[-1], "copied.parquet"), names.join(directories[-1], data("33")))
    place.put(names.join(directories[-1], "_committed_vacuum1"), b'{"added": [], "removed": ["_committed_vacuum1"]}')
    place.clock.advance(timedelta(hours=1))
    return place


PLACES: dict[str, Callable[[], Place]] = {
    "plain": plain,
    "plain, partitioned": plain_partitioned,
    "of DBIO": lambda: dbio(""),
    "of DBIO, partitioned": lambda: dbio("day=1", "day=2"),
}
every_place = pytest.mark.parametrize("make", PLACES.values(), ids=PLACES)


def visible(table: Table) -> dict[str, tuple[int, dict[str, str | None]]]:
    return {file.path: (file.size, dict(file.partition)) for file in table.snapshot().files}


def is_table(place: Place) -> bool:
    return names.DESCRIPTOR in place.objects


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
    assert calls == [("list_log", ""), ("get", CHECKPOINT), ("list_log", ""), ("get", names.DESCRIPTOR)]


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
        write("replace_partitions", {path for path in states[-1] if path.startswith("day=1/")})
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
    assert place.table().inspect(FIRST).state is TransactionState.COMMITTED
    report = place.table().inspect(commit.tid)
    assert (report.state, len(report.files)) == (TransactionState.COMMITTED, len(commit.added))
    with pytest.raises(TransactionStateError):
        place.table().abort(commit.tid)


def test_a_directory_of_real_files_is_adopted_on_a_local_disk(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1/a.parquet").write_bytes(b"12345")
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
    refused(place, InvalidInputError, match="partition columns")


@pytest.mark.parametrize("name", ["a\nb.parquet", "a\\b.parquet", "a\x7fb.parquet", "\udcff.parquet"])
def test_a_name_that_no_marker_can_hold_is_refused(name: str) -> None:
    """Else nobody could read the table, nor the directory any more."""
    place = plain()
    place.write("ok.parquet")
    place.objects[name] = place.objects["ok.parquet"]
    refused(place, InvalidInputError)
    assert name in live(place.table())


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


# --- others write meanwhile ---------------------------------------------------------------------------------------


def interrupt(place: Place, *actions: tuple[int, Callable[[], object]]) -> None:
    """Before its nth call to the store, the one at work in this thread is overtaken."""
    calls = 0
    thread, others, after = threading.current_thread(), place.before, place.after

    def before(operation: str, path: str) -> None:
        nonlocal calls
        if threading.current_thread() is not thread:
            return others(operation, path)
        call, calls = calls, calls + 1
        for at, action in actions:
            if at == call:
                place.before, place.after = others, lambda operation, path: None
                action()
                place.before, place.after = before, after
        return None

    place.before = before


def calls_of_adopt(make: Callable[[], Place]) -> int:
    place = make()
    with calls_to(place) as calls:
        place.table().adopt()
    return len(calls)


def next_of(steps: list[partial[None]]) -> None:
    steps.pop(0)()


def try_adopt(place: Place, *, others: "Stepper | None" = None) -> DbioError | None:
    """Others may go on when it has ended."""
    try:
        place.table().adopt()
    except DbioError as error:
        return error
    finally:
        if others:
            others.finish()
        heal(place)
    return None


@pytest.mark.parametrize("directories", [("",), ("day=1", "day=3")])
def test_a_dbio_writer_at_any_moment_of_an_adoption_is_counted_or_told(directories: tuple[str, ...]) -> None:
    """It begins before one call, and commits before the same or a later one, or after the last."""

    def make() -> Place:
        return dbio(*("day=1", "day=2") if directories != ("",) else ("",))

    calls = calls_of_adopt(make)
    outcomes = set()
    for first in range(calls):
        for second in range(first, calls + 1):
            place = make()
            old = live(place.table())
            steps = [partial(place.start, LATE, *directories), partial(place.commit, LATE, *directories)]
            interrupt(place, (first, partial(next_of, steps)), (second, partial(next_of, steps)))
            error = try_adopt(place)
            for step in steps:  # where the adoption ended before
                step()
            new = {names.join(directory, data(LATE)) for directory in directories}
            if is_table(place) and isinstance(error, StoreError):
                assert new.isdisjoint(live(place.table())) or directories == ("",)
                assert live(place.table()) - new == old
                outcomes.add("told")
            elif is_table(place):
                assert error is None
                assert live(place.table()) == old | new
                outcomes.add("counted")
            else:
                assert isinstance(error, CommitConflictError | TransactionStateError)
                assert live(place.table()) == old | new
                place.table().adopt()
                assert live(place.table()) == old | new
                outcomes.add("refused")
            assert place.table().check().ok
    assert outcomes == ({"refused", "counted"} if directories == ("",) else {"refused", "counted", "told"})


@pytest.mark.parametrize("path", ["late.parquet", "day=2/late.parquet", "day=7/late.parquet"])
def test_a_plain_file_that_comes_at_any_moment_of_an_adoption_is_counted_or_told(path: str) -> None:
    make = plain_partitioned if "day" in path else plain
    outcomes = []
    for call in range(calls_of_adopt(make)):
        place = make()
        old = live(place.table())
        interrupt(place, (call, partial(place.write, path)))
        error = try_adopt(place)
        if is_table(place) and error:
            assert isinstance(error, StoreError)
            assert path in str(error)
            assert live(place.table()) == old
            outcomes.append("told")
        else:
            assert is_table(place) == (error is None)
            assert live(place.table()) == {*old, path}
            outcomes.append("counted" if error is None else "refused")
    assert set(outcomes) == {"counted", "refused", "told"}


def test_a_file_that_is_deleted_while_its_directory_is_adopted_is_refused_or_missed() -> None:
    place = plain()
    with calls_to(place) as calls:
        place.table().adopt()
    *_, comparison, _ = (i for i, (operation, _) in enumerate(calls) if operation == "list_files")
    for call in range(comparison + 1):
        place = plain()
        interrupt(place, (call, partial(place.delete_many, ["a.parquet"])))
        error = try_adopt(place)
        assert is_table(place) == (error is None)
        assert live(place.table()) == {"b c é.parquet"}


def test_a_writer_of_the_new_table_is_no_late_writer() -> None:
    """It begins as soon as there is a descriptor, before the adoption looks back."""
    for make in (plain, plain_partitioned, lambda: dbio("day=1", "day=2")):
        place = make()
        begun: list[Transaction] = []

        def begin(place: Place = place, begun: list[Transaction] = begun) -> None:
            begun.append(place.table().begin())
            stage(place.table(), begun[0], b"new", dict.fromkeys(begun[0].terms.partition_columns, "1"))

        interrupt(place, (calls_of_adopt(make) - 1, begin))
        assert try_adopt(place) is None
        assert begun[0].terms.scope is Scope.TABLE
        begun[0].commit()
        assert b"new" in contents(place.table())


# --- our own writers, who began by the old rules ------------------------------------------------------------------


def append(table: Table) -> None:
    transaction = table.begin()
    for day in ("1", "3"):
        stage(table, transaction, b"new", {"day": day})
    transaction.commit()


def overwrite(table: Table) -> None:
    transaction = table.begin("overwrite")
    stage(table, transaction, b"new", {"day": "1"})
    transaction.commit()


def delete_all(table: Table) -> None:
    table.begin("overwrite").commit()


def replace(table: Table) -> None:
    transaction = table.begin("replace_partitions")
    stage(table, transaction, b"new", {"day": "2"})
    transaction.commit()


def rewrite(table: Table) -> None:
    transaction = table.begin("rewrite")
    transaction.remove(path for path in live(table) if path.startswith("day=1/"))
    stage(table, transaction, b"new", {"day": "1"})
    transaction.commit()


def give_up(table: Table) -> None:
    transaction = table.begin()
    stage(table, transaction, b"new", {"day": "1"})
    transaction.abort()


WORKS = {
    "append": append,
    "overwrite": overwrite,
    "delete all": delete_all,
    "replace": replace,
    "rewrite": rewrite,
    "give up": give_up,
}


class Stepper:
    """Work in a thread of its own, which makes calls to the store only as far as it is let."""

    def __init__(self, place: Place, work: Callable[[Table], object]) -> None:
        self.error: DbioError | None = None
        self._left, self._changed = 0, threading.Condition()
        self._waiting = self._done = False
        self._thread = threading.Thread(target=self._run, args=(place, work), daemon=True)
        place.before = self._before
        self._thread.start()
        self._settle()

    def advance(self, calls: int) -> None:
        with self._changed:
            if not calls:
                return
            self._left, self._waiting = calls, False
            self._changed.notify_all()
        self._settle()

    def finish(self) -> None:
        self.advance(10**6)
        self._thread.join()

    def _settle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._done)

    def _before(self, operation: str, path: str) -> None:
        if threading.current_thread() is not self._thread:
            return
        with self._changed:
            while self._left == 0:
                self._waiting = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._left > 0)
            self._left -= 1

    def _run(self, place: Place, work: Callable[[Table], object]) -> None:
        try:
            work(place.table())
        except DbioError as error:
            self.error = error
        with self._changed:
            self._done = True
            self._changed.notify_all()


def two_days() -> Place:
    place = Place()
    place.start(FIRST, "day=1", "day=2")
    place.commit(FIRST, "day=1", "day=2")
    return place


def interleavings(writer_calls: int, adopt_calls: int) -> Iterator[tuple[int, int, int]]:
    """The writer makes `first` calls; the adoption some, the writer `second` more; then each goes on to its end."""
    for first in range(writer_calls + 1):
        yield first, adopt_calls, 0
        for paused in range(1, adopt_calls):
            for second in {1, 2, 3, writer_calls - first}:
                if 0 < second <= writer_calls - first:
                    yield first, paused, second


def count_calls(work: Callable[[Table], object]) -> int:
    place = two_days()
    with calls_to(place) as calls:
        work(place.table())
    return len(calls)


def check_writer_and_adoption(work: Callable[[Table], None]) -> set[str]:
    """Either both count, or one of the two has an error and nothing is lost of the other; or both have one."""
    outcomes = set()
    old = contents(two_days().table())
    done = two_days()
    work(done.table())
    new = contents(done.table())
    for first, paused, second in interleavings(count_calls(work), count_calls(Table.adopt)):
        place = two_days()
        writer = Stepper(place, work)
        writer.advance(first)
        interrupt(place, (paused, partial(writer.advance, second)))
        adopt_error = try_adopt(place, others=writer)
        seen = contents(place.table())
        context = (first, paused, second, adopt_error, writer.error)
        if writer.error is None:
            assert seen == new or isinstance(adopt_error, StoreError), context
        else:
            assert isinstance(writer.error, CommitConflictError | CommitStateUnknownError | StoreError), context
            assert seen == old or isinstance(writer.error, CommitStateUnknownError), context
        assert is_table(place) == (adopt_error is None or isinstance(adopt_error, StoreError)), context
        outcomes.add(f"{type(adopt_error).__name__} / {type(writer.error).__name__}")
    return outcomes


every_work = pytest.mark.parametrize(
    "work",
    [pytest.param(work, id=name) for name, work in WORKS.items()],
)


@every_work
def test_a_writer_of_ours_and_an_adoption_that_overlap_lose_nothing(work: Callable[[Table], None]) -> None:
    assert check_writer_and_adoption(work) >= {"NoneType / NoneType", "TransactionStateError / NoneType"} or (
        work is delete_all
    )


@pytest.mark.parametrize("work", [append, overwrite, replace, rewrite, delete_all])
def test_a_transaction_that_began_by_the_old_rules_says_that_it_is_a_table_now(work: Callable[[Table], None]) -> None:
    place = two_days()
    begin = place.table().begin

    class Late(Table):
        """Adopted as soon as a transaction has begun."""

        def begin(self, operation: Operation = "append") -> Transaction:  # type: ignore[override]
            transaction = begin(operation)
            place.table().adopt()
            return transaction

    before = contents(place.table())
    with pytest.raises(CommitConflictError, match="was made a table"):
        work(Late.over(place, place.clock))
    assert contents(place.table()) == before
    work(place.table())
    assert contents(place.table()) != before
    assert place.table().check().ok


@pytest.mark.parametrize("is_late", [True, False])
def test_a_descriptor_that_arrives_when_its_adopter_has_given_up_loses_no_commit_of_ours(is_late: bool) -> None:
    place = two_days()
    arrives: list[Callable[[], object]] = []
    put_if_absent = place.put_if_absent

    def time_out(path: str, body: bytes) -> bool:
        if path == names.DESCRIPTOR:
            arrives.append(lambda: put_if_absent(path, body))
            raise StoreError("timed out")
        return put_if_absent(path, body)

    place.put_if_absent = time_out  # type: ignore[method-assign]
    early = place.table().begin()
    with pytest.raises(StoreError):
        place.table().adopt()
    with pytest.raises(CommitConflictError, match=r"adoption .* has begun"):
        append(place.table())
    stage(place.table(), early, b"early", {"day": "1"})
    with pytest.raises(CommitConflictError, match=r"adoption .* has begun"):
        early.commit()
    before = contents(place.table())
    place.put_if_absent = put_if_absent  # type: ignore[method-assign]
    if is_late:
        arrives.pop()()
    else:
        place.table().adopt()
    assert contents(place.table()) == before
    append(place.table())
    assert len(contents(place.table())) > len(before)


def test_an_adoption_that_is_refused_leaves_nothing_that_stops_writers() -> None:
    place = two_days()
    place.before = lambda operation, path: place.write("day=1/late.parquet") if path == CHECKPOINT else None
    with pytest.raises(CommitConflictError, match="somebody wrote"):
        place.table().adopt()
    heal(place)
    append(place.table())


def test_what_a_refused_adoption_asked_for_may_land_late_and_harms_no_other_adoption() -> None:
    place = two_days()
    deleted: list[str] = []

    def disturb(operation: str, path: str) -> None:
        if operation == "delete":
            deleted.append(path)
        if path == CHECKPOINT:
            place.write("day=1/late.parquet")

    place.before = disturb
    with pytest.raises(CommitConflictError, match="somebody wrote"):
        place.table().adopt()
    heal(place)
    asked_for = {path: body for path, (body, _) in place.objects.items() if path.startswith("_checkpoint_")}
    visible = live(place.table())
    place.table().adopt()
    assert not any(place.put_if_absent(path, body) for path, body in asked_for.items())
    assert not deleted
    assert live(place.table()) == visible
    append(place.table())
    assert place.table().checkpoint() not in asked_for
    assert visible < live(place.table())


def test_a_refusal_that_lands_behind_an_adoption_of_the_same_number_puts_nothing_out_of_use() -> None:
    """An operator has removed the checkpoint of an adoption that was not dead."""
    place = two_days()
    visible = live(place.table())
    place.table().adopt()
    assert place.put_if_absent(names.checkpoint(2), REFUSAL)
    assert live(place.table()) == visible
    append(place.table())
    assert place.table().checkpoint() == names.checkpoint(3)
    assert visible < live(place.table())


@pytest.mark.parametrize("path", ["_a=1.parquet", "day=1/_x=2.parquet", "_day=1/x.parquet"])
def test_what_readers_see_in_spite_of_its_underscore_is_seen_after_the_adoption_or_refused(path: str) -> None:
    place = Place()
    place.write(path)
    with suppress(DbioError):
        place.table().adopt()
    assert live(place.table()) == {path}


# --- killed, and two at once --------------------------------------------------------------------------------------


@every_place
@pytest.mark.parametrize("after", [False, True])
def test_an_adoption_that_is_killed_at_any_call_leaves_a_directory_or_a_table(
    make: Callable[[], Place], after: bool
) -> None:  # I9
    calls = calls_of_adopt(make)
    scopes = []
    for call in range(calls):
        probe_module._PROBED.clear()
        place = make()
        expected = visible(place.table())
        Killer(place, call, after=after)
        with pytest.raises(Killed):
            place.table().adopt()
        heal(place)
        assert visible(place.table()) == expected
        scopes.append(place.table().snapshot().scope)
        assert place.table().check().ok
        if scopes[-1] is Scope.TABLE:
            with pytest.raises(TableExistsError):
                place.table().adopt()
        else:
            place.table().adopt()
        assert visible(place.table()) == expected
        assert place.table().snapshot().scope is Scope.TABLE
        assert [commit.operation for commit in place.table().history()].count("adopt") == 1
    assert scopes == sorted(scopes)  # a directory, and then a table


def test_a_directory_that_changed_after_a_killed_adoption_is_adopted_as_it_is_now() -> None:
    for call in range(calls_of_adopt(plain)):
        place = plain()
        Killer(place, call, after=True)
        with suppress(Killed):
            place.table().adopt()
        heal(place)
        if is_table(place):
            break
        place.write("later.parquet")
        place.delete_many(["a.parquet"])
        place.table().adopt()
        assert live(place.table()) == {"b c é.parquet", "later.parquet"}
        assert place.table().check().ok
    else:
        pytest.fail("never became a table")


def test_what_a_killed_adoption_left_is_not_taken_for_the_content_of_a_new_table() -> None:  # I1
    """Its directory is emptied, and then written to by somebody who finds nothing there."""
    place = plain()
    Killer(place, [path for _, path in calls_made(place)].index(CHECKPOINT), after=True)
    with pytest.raises(Killed):
        place.table().adopt()
    heal(place)
    place.delete_many([path for path in place.objects if path.endswith((".parquet", ".crc"))])
    with pytest.raises(TableNotFoundError):
        place.table().snapshot()
    try:
        with place.table().begin() as transaction:
            new = stage(place.table(), transaction, b"new")
    except InvalidInputError as error:
        assert CHECKPOINT in str(error)  # noqa: PT017
    else:
        assert live(place.table()) == {new}


def calls_made(place: Place) -> list[tuple[str, str]]:
    """By an adoption, without any effect."""
    before = dict(place.objects)
    with calls_to(place) as calls:
        place.table().adopt()
    place.objects = before
    return calls


def someone_else_adopts(place: Place) -> None:
    """And writes to the table at once."""
    place.table().adopt()
    with place.table().begin(app=("job", 7)) as transaction:
        stage(place.table(), transaction, b"new", dict.fromkeys(transaction.terms.partition_columns, "1"))
    with place.table().begin("rewrite") as transaction:
        transaction.remove([min(live(place.table()))])


def checkpoint_and_purge(place: Place) -> None:
    place.table().checkpoint()
    log = [path for path in place.objects if path.startswith(("_committed_", "_started_"))]
    place.delete_many([path for path in log if "vacuum" not in path])
    place.delete_many([path for path in sorted(place.objects) if path.startswith("_checkpoint_")][:-1])


@every_place
@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("purged", [False, True])
def test_of_two_adoptions_at_once_one_wins_and_nothing_is_lost_of_what_is_written_then(
    make: Callable[[], Place], leftover: bool, purged: bool
) -> None:  # I9
    """The slower one is suspended before any of its calls until the other's table is in use, or even checkpointed."""

    def prepared() -> Place:
        place = make()
        if leftover:
            Killer(place, [path for _, path in calls_made(place)].index(CHECKPOINT), after=True)
            with pytest.raises(Killed):
                place.table().adopt()
            heal(place)
        return place

    losers = 0
    for call in range(calls_of_adopt(prepared)):
        place = prepared()
        seen: list[object] = []

        def meanwhile(place: Place = place, seen: list[object] = seen) -> None:
            with suppress(TableExistsError):
                someone_else_adopts(place)
                if purged:
                    checkpoint_and_purge(place)
                seen += [visible(place.table()), dict(place.table().snapshot().app_versions)]

        interrupt(place, (call, meanwhile))
        error = try_adopt(place)
        if not seen:  # too late for the other
            assert error is None
            continue
        losers += 1
        # Unsupported: its own checkpoint was purged before it could probe the store with that.
        expected = (TableExistsError, CommitConflictError, *([UnsupportedStoreError] if purged else []))
        assert isinstance(error, expected)
        assert [visible(place.table()), dict(place.table().snapshot().app_versions)] == seen
        assert place.table().check().ok
        checkpoint_and_purge(place)
        assert [visible(place.table()), dict(place.table().snapshot().app_versions)] == seen
    assert losers >= 6


@every_place
def test_an_adoption_that_resumes_after_another_has_begun_and_before_it_ends_loses_nothing(
    make: Callable[[], Place],
) -> None:  # I9
    """Two adoptions, call by call, in every order of their puts; a file comes at any moment between."""
    calls = calls_of_adopt(make)
    for first in range(1, calls):
        for late in range(first + 1):
            place = make()
            partition = names.format_partition(dict.fromkeys(place.table().snapshot().partition_columns, "1"))
            new = names.join(partition, "new.parquet")
            before = live(place.table())
            other = Stepper(place, Table.adopt)
            other.advance(first)
            interrupt(place, (late, partial(place.write, new)), (calls - 2, partial(other.advance, 2)))
            mine = try_adopt(place, others=other)
            if new not in place.objects:
                place.write(new)
                continue
            told = any(isinstance(error, StoreError) for error in (mine, other.error))
            assert live(place.table()) == {*before, new} or (told and live(place.table()) == before), (first, late)
