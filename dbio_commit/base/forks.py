"""Locks that are free after a fork: no thread of the child could release a lock that a thread of its parent held."""

import os
import threading
from collections.abc import Callable
from types import TracebackType
from weakref import WeakSet

_LOCKS: "WeakSet[ProcessLock]" = WeakSet()


class ProcessLock:
    """A lock of this process. In a forked child the lock is free, even if another thread held it.

    In the child, `begin_anew` resets what the lock guards, because another thread may have half changed it.
    """

    def __init__(self, begin_anew: Callable[[], None] = lambda: None) -> None:
        self._lock, self._begin_anew = threading.Lock(), begin_anew
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock.locked():  # in a forked child, this is another lock, which is free
            self._lock.release()

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._begin_anew()


def _renew_all() -> None:
    for lock in _LOCKS:
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
