"""Ctrl-C ends a command with one line and exit code 130 at any time: in imports, in a wait, at the very end.

This module imports little, so that it is in place before anything that takes time.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import current_thread, main_thread
from time import monotonic
from types import FrameType
from typing import NoReturn

_ECHO_S = 1.0
"""timeout(1), and some shells, signal the process and then its group: two signals within this time are one."""

_CODE = 128 + signal.SIGINT


class Interrupted(BaseException):
    """Unwinds a command. It is no KeyboardInterrupt, because typer and click handle that in their own way."""


def run_interruptible(program: str, load: Callable[[], Callable[[], None]]) -> None:
    """Runs the function that `load` imports and returns.

    While the function runs, an interrupt unwinds it, so that it aborts what it has begun. Before and after that, an
    interrupt ends the process at once, and so does a second one. After the unwinding the process ends, even if threads
    wait.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        load()()  # as under nohup: interrupts are handled or ignored already
        return
    handler = _Handler(program)
    signal.signal(signal.SIGINT, handler)
    run = load()
    try:
        handler.unwinds = True
        run()
    except BaseException:
        if handler.first_s is not None:  # also if code on the way replaced the exception
            _leave(program)
        raise
    finally:
        handler.unwinds = False


class _Handler:
    def __init__(self, program: str) -> None:
        self._program = program
        self.unwinds = False
        self.first_s: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.unwinds:
            _leave(self._program)
        if self.first_s is None:
            self.first_s = monotonic()
            raise Interrupted
        if monotonic() - self.first_s > _ECHO_S:
            _leave(self._program)


def _leave(program: str) -> NoReturn:
    """Ends the process without Python's own shutdown, which waits for threads and can be interrupted again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, ValueError):  # stderr may be closed, or a pipe that nobody reads
        ended = "\n" if sys.stderr.isatty() else ""  # ends the line on which the terminal has shown ^C
        os.write(sys.stderr.fileno(), f"{ended}{program}: interrupted\n".encode())
    os._exit(_CODE)
