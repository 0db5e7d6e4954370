"""Python's collector of cycles, kept from looking through a log again and again while that is decoded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from dbio_commit.base.forks import ProcessLock

_paused = 0
"""By how many at once."""
_was_on = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the collector in this process, for who makes millions of objects and no cycle among them.

    It would go through all of them each time that their number has grown by a quarter, a quarter of the time of a
    large snapshot. Threads may overlap: it goes on after the last of them.
    """
    global _paused, _was_on
    with _LOCK:
        if not _paused:
            _was_on = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _LOCK:
            _paused = max(_paused - 1, 0)  # 0 already in a child that was forked inside
            if not _paused and _was_on:
                gc.enable()


def _go_on_in_child() -> None:
    """A process that was forked meanwhile has none of the threads that would end the pause."""
    global _paused
    if _paused and _was_on:
        gc.enable()
    _paused = 0


_LOCK = ProcessLock(_go_on_in_child)
