"""Python's collector rests while a log is decoded, and goes on after it, whatever happens."""

import gc
import os
from collections.abc import Iterator
from threading import Barrier, Thread
from weakref import WeakSet

import pytest

from dbio_commit import FileInfo, Table
from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.log.collector import collector_paused
from dbio_commit.protocol import names
from dbio_commit.testing import MemoryStore
from tests.builders import data


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_it_rests_inside_and_goes_on_after() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_it_stays_off_for_who_does_without_it() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_it_goes_on_after_the_last_of_several_threads() -> None:
    both_inside, one_left = Barrier(2), Barrier(2)
    seen: list[bool] = []

    def stay() -> None:
        with collector_paused():
            both_inside.wait(10)
            one_left.wait(10)
            seen.append(gc.isenabled())

    thread = Thread(target=stay)
    thread.start()
    with collector_paused():
        both_inside.wait(10)
    one_left.wait(10)
    thread.join(10)
    assert seen == [False]
    assert gc.isenabled()


def test_it_goes_on_in_a_process_that_is_forked_while_another_thread_rests_it() -> None:
    is_inside, is_forked = Barrier(2), Barrier(2)

    def stay() -> None:
        with collector_paused():
            is_inside.wait(10)
            is_forked.wait(10)

    thread = Thread(target=stay)
    thread.start()
    is_inside.wait(10)
    child = os.fork()
    if not child:
        before = gc.isenabled()
        with collector_paused():
            is_resting = not gc.isenabled()
        os._exit(0 if before and is_resting and gc.isenabled() else 1)
    is_forked.wait(10)
    thread.join(10)
    assert os.waitpid(child, 0)[1] == 0


def test_cycles_that_others_leave_are_collected_however_often_it_rests() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    left = WeakSet[Cycle]()
    most = 0
    for _ in range(20_000):
        left.add(Cycle())
        with collector_paused():
            pass
        most = max(most, len(left))
    assert most < 10_000


def test_it_rests_while_markers_and_checkpoints_are_decoded_only(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for number in range(3):
        transaction = Table.over(store).begin()
        transaction.add([FileInfo(path=data(transaction.tid), size=number)])
        transaction.commit()
    seen: list[bool] = []
    get = store.get

    def look(path: str, **options: int) -> bytes:
        if names.split(path)[1].startswith(names.Kind.COMMITTED):
            seen.append(gc.isenabled())
        return get(path, **options)

    monkeypatch.setattr(store, "get", look)
    assert len(Table.over(store).snapshot().files) == 3
    assert seen == [False] * 3
    assert gc.isenabled()
    Table.over(store).checkpoint()
    assert len(Table.over(store).snapshot().files) == 3
    assert gc.isenabled()


def test_it_goes_on_where_a_marker_cannot_be_read() -> None:
    store = MemoryStore()
    Table.over(store).begin().commit()
    store.put_if_absent(names.committed("5"), b"{")
    with pytest.raises(CorruptMarkerError):
        Table.over(store).snapshot()
    assert gc.isenabled()
