"""Forks: a child has one thread, and none of those that held its parent's locks."""

import os
import threading
from collections.abc import Callable
from types import TracebackType
from weakref import WeakSet

_LOCKS: "WeakSet[ProcessLock]" = WeakSet()


class ProcessLock:
    """A lock of this process. In a child that is forked from it, it is free, whichever thread held it.

    What it guards may be half changed there: `begin_anew` makes it as it was at the beginning, before anybody uses it.
    """

    def __init__(self, begin_anew: Callable[[], None] = lambda: None) -> None:
        self._lock, self._begin_anew = threading.Lock(), begin_anew
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock.locked():  # not where the thread that held it has forked: in the child that is another lock
            self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._begin_anew()


def _renew_all() -> None:
    for lock in _LOCKS:
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
