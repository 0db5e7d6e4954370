"""Pauses Python's garbage collector while a log is decoded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from dbio_commit.base.forks import ProcessLock

_paused = 0
"""How many threads use the pause now."""
_was_on = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector in this process, for code that makes millions of objects and no cycles.

    The collector would go through all objects each time that their number has grown by a quarter. That takes a quarter
    of the time of a large snapshot. Threads may overlap: collection goes on after the last of them.
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
            _paused = max(_paused - 1, 0)  # already 0 in a child that was forked inside the pause
            if not _paused and _was_on:
                gc.enable()


def _go_on_in_child() -> None:
    """A process that was forked during the pause lacks the threads that would end it."""
    global _paused
    if _paused and _was_on:
        gc.enable()
    _paused = 0


_LOCK = ProcessLock(_go_on_in_child)
