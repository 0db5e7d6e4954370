"""A process that was forked waits for no lock that a thread of its parent holds."""

import ast
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

import dbio_commit
from dbio_commit.base.forks import ProcessLock
from dbio_commit.log import collector, object_cache
from dbio_commit.log import seen as memory
from dbio_commit.table import Table
from tests.writers import write


@contextmanager
def held_by_another_thread(lock: ProcessLock) -> Iterator[None]:
    is_held, is_over = Event(), Event()

    def hold() -> None:
        with lock:
            is_held.set()
            is_over.wait(60)

    thread = Thread(target=hold)
    thread.start()
    is_held.wait(60)
    try:
        yield
    finally:
        is_over.set()
        thread.join(60)


def comes_to_its_end(act: Callable[[], bool]) -> bool:
    """Whether a child that is forked now does so, with this result."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # who waits for ever is ended
        ok = False
        try:
            ok = act()
        finally:
            os._exit(0 if ok else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "lock", [object_cache.CACHE._lock, memory._LOCK, collector._LOCK], ids=["cache", "seen", "collector"]
)
def test_a_child_reads_and_writes_whichever_lock_its_parent_held(table: Table, lock: ProcessLock) -> None:
    write(table, "overwrite")

    def act() -> bool:
        write(table, "overwrite")
        return len(table.snapshot().files) == 1

    with held_by_another_thread(lock):
        assert comes_to_its_end(act)
    write(table)
    assert len(table.snapshot().files) == 2


def test_what_a_lock_guards_is_as_at_the_beginning_in_a_child() -> None:
    memory = object_cache.ObjectCache()
    memory.keep("a", 1, bytes=1)
    with held_by_another_thread(memory._lock):
        assert comes_to_its_end(lambda: memory.find("a") is None)
    assert memory.find("a") == 1


def test_a_thread_that_forks_while_it_holds_a_lock_lets_go_of_it_in_both_processes() -> None:
    lock = ProcessLock()
    children: list[int] = []
    with lock:
        children.append(os.fork())
    signal.alarm(0 if children[0] else 20)
    with lock:
        pass
    if not children[0]:
        os._exit(0)
    assert os.waitpid(children[0], 0)[1] == 0


def test_the_package_has_no_lock_that_a_child_would_wait_for() -> None:
    """But for those of what nobody forks: a store in memory, for tests, and the command line."""
    root = Path(dbio_commit.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr) in ("Lock", "RLock", "Semaphore", "BoundedSemaphore")
    }
    assert found == {"base/forks.py", "cli/output.py", "testing.py"}
