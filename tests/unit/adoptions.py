"""Directories to make tables of, and others at work on them meanwhile, for the tests of `Table.adopt`."""

import json
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from dbio_commit.base.errors import DbioError
from dbio_commit.protocol import names
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.faults import calls_to, heal

FIRST, SECOND, LATE = "1187324659120348471", "5561029384756102938", "7000000000000000001"  # decimal, as DBIO had them


CHECKPOINT = names.checkpoint(1)


def data(tid: str, attempt: int = 0) -> str:
    return f"part-00000-tid-{tid}-5f8a2c1e-0000-4000-8000-000000000000-{attempt}-1-c000.snappy.parquet"


class Place(MemoryStore):
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
