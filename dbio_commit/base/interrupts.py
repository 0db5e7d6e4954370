"""Ctrl-C ends a command with one line and exit code 130, wherever it comes: in imports, in a wait, at the very end.

Imports little, so that it is in place before anything that takes time.
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
"""timeout(1), and some shells, signal the process and then its group: one wish, two signals."""

_CODE = 128 + signal.SIGINT


class Interrupted(BaseException):
    """Unwinds a command. It is no KeyboardInterrupt, to which typer and click have an answer of their own."""


def run_interruptible(program: str, load: Callable[[], Callable[[], None]]) -> None:
    """Runs the function that `load` imports.

    While that runs, an interrupt unwinds it, so that it aborts what it has begun; before and after, there is nothing to
    unwind. A second one ends the process at once, and so does the end of the unwinding, whatever threads wait for.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        load()()  # as under nohup: somebody has said what becomes of interrupts
        return
    handler = _Handler(program)
    signal.signal(signal.SIGINT, handler)
    run = load()
    try:
        handler.unwinds = True
        run()
    except BaseException:
        if handler.first_s is not None:  # whatever became of it on its way
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
    """Not by the interpreter's own end, which waits for threads and can be interrupted again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, ValueError):  # it may be closed, or a pipe that nobody reads
        ended = "\n" if sys.stderr.isatty() else ""  # of the line on which the terminal has shown ^C
        os.write(sys.stderr.fileno(), f"{ended}{program}: interrupted\n".encode())
    os._exit(_CODE)
