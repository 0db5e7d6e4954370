"""Progress on stderr for people at a terminal. Prints nothing in a pipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Timer

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars

from dbio_commit.base.progress import Progress
from dbio_commit.cli.output import in_pipe


@contextmanager
def progress() -> Iterator[Progress]:
    """Shows a bar for each phase."""
    console = Console(stderr=True)
    if not console.is_terminal or in_pipe():
        yield lambda phase, done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with ProgressBars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(phase: str, done: int, total: int | None) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=None)
            bars.update(tasks[phase], completed=done, total=total)

        yield show


LATE_S = 2.0
"""A command that takes less shows no spinner."""


@contextmanager
def status(text: str) -> Iterator[None]:
    """Shows the text and a spinner, if the block takes more than 2 s."""
    console = Console(stderr=True)
    if not console.is_terminal or in_pipe():
        yield
        return
    spinner, over, lock = console.status(text), Event(), Lock()

    def show() -> None:
        with lock:
            if not over.is_set():
                spinner.start()

    timer = Timer(LATE_S, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over.set()
            spinner.stop()
