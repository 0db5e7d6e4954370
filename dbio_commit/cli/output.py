"""Prints results: one JSON document for programs, lines for pipes, tables, facts and progress for people.

Tables fit the terminal, and nothing is cut off. Lines in a pipe are never wrapped. Names come from outside, so texts
for people and pipes are escaped by `visible`, and never interpreted as markup.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from threading import Event, Lock, Timer
from typing import Any, Generic, TypeVar

import typer
from msgspec import Struct, structs
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table
from rich.text import Text

from dbio_commit.base.errors import DbioError
from dbio_commit.base.progress import Progress
from dbio_commit.base.texts import visible
from dbio_commit.maintenance.figures import iso_text

_T = TypeVar("_T")

_PAGE = 1000
"""Rows of a table that are laid out together. rich lays out a few thousand rows a second."""

_LISTED = 20
"""Rows that a terminal shows of a list that is only a part of the result."""

_NARROWEST = 40
"""The least width for the layout. A narrower terminal wraps the lines."""


@dataclass(frozen=True, slots=True)
class Column(Generic[_T]):
    """A column of a list: the value of each thing, and its text for people."""

    name: str
    value: Callable[[_T], Any]
    human: Callable[[Any], str] = str
    _: KW_ONLY
    right: bool = False
    fold: bool = False
    """Whether the text wraps if the terminal is too narrow."""
    least_width: int = 0
    """The column is left out if the terminal is narrower."""
    is_for_people: bool = False
    """Whether lines in a pipe lack the column."""


def text_column(name: str) -> list[Column[str]]:
    return [Column(name, str, fold=True)]


def in_pipe() -> bool:
    return not sys.stdout.isatty()


def print_result(
    as_json: bool, document: Callable[[], Mapping[str, Any]], text: Callable[[], None], *, ok: bool = True
) -> None:
    """Prints what a command has found or done: the document for programs, or the text. Exits with 1 if not `ok`."""
    if as_json:
        print_json(document())
    else:
        text()
    if not ok:
        raise typer.Exit(1)


# --- for programs -------------------------------------------------------------------------------------------------


def print_json(document: Mapping[str, Any]) -> None:
    """Prints a document. Sizes are in bytes, times in UTC."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False, default=iso_text))


def document(report: object, names: str, /, **special: Any) -> dict[str, Any]:
    """The fields and properties of these names, in this order. `special` has what is printed under a name instead."""
    return {name: plain(special[name] if name in special else getattr(report, name)) for name in names.split()}


def plain(value: Any) -> Any:
    """The value for JSON: a record is an object of its fields, and a duration `age` is `age_s`, in whole seconds."""
    if isinstance(value, Mapping):
        return {name: plain(it) for name, it in value.items()}
    if isinstance(value, Struct):
        return plain(structs.asdict(value))
    if is_dataclass(value):
        told = {it.name: getattr(value, it.name) for it in fields(value)}
        return dict(_seconds(name, it) if isinstance(it, timedelta) else (name, plain(it)) for name, it in told.items())
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    return [plain(it) for it in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def _seconds(name: str, duration: timedelta) -> tuple[str, int]:
    return f"{name}_s", int(duration.total_seconds())


# --- for pipes ----------------------------------------------------------------------------------------------------


def print_lines(columns: Sequence[Column[_T]], things: Iterable[_T]) -> None:
    """Prints a line for each thing, with exact values separated by tabs."""
    lines = ["\t".join(visible(_exact(column.value(thing))) for column in columns) for thing in things]
    if lines:
        typer.echo("\n".join(lines))


def _exact(value: Any) -> str:
    if value is None:
        return ""
    return iso_text(value) if isinstance(value, datetime) else str(value)


# --- for people ---------------------------------------------------------------------------------------------------


def say(*lines: str, style: str = "") -> None:
    for line in lines:
        _console().print(visible(line), style=style)


def say_error(text: str) -> None:
    """Prints to stderr."""
    typer.echo(f"dbio: {visible(text)}", err=True)


def one_line(error: DbioError) -> str:
    return " ".join(map(str.strip, str(error).splitlines()))


def print_facts(facts: Mapping[str, str]) -> None:
    """Prints the names and texts. Leaves out those with an empty text."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        if text:
            table.add_row(name, _cell(text))
    _console().print(Padding.indent(table, 2))


def say_facts(url: str, facts: Mapping[str, str], *, dry_run: bool) -> None:
    """Prints the same to stderr, on one line: in a pipe, the lines on stdout are for programs."""
    done = "; ".join(f"{name} {text}" for name, text in facts.items() if text)
    say_error(f"{url}: {'dry run, nothing was changed: ' if dry_run else ''}{done}")


def print_list(columns: Sequence[Column[_T]], things: Sequence[_T], nothing: str = "") -> None:
    """Prints a list, which is the result: lines in a pipe; else a table, or `nothing` if the list is empty."""
    if in_pipe():
        print_lines([column for column in columns if not column.is_for_people], things)
    elif things or not nothing:
        print_pages(columns, things)
    else:
        say(nothing, style="bold")


def print_pages(columns: Sequence[Column[_T]], things: Sequence[_T]) -> None:
    """Prints all of a list."""
    for start in range(0, len(things), _PAGE):
        _print_table(columns, things[start : start + _PAGE])


def print_part(title: str, columns: Sequence[Column[_T]], things: Sequence[_T]) -> None:
    """Prints a list that is a part of the result: in full in a pipe, the first rows in a terminal. Nothing if empty."""
    if not things:
        return
    shown = things if in_pipe() else things[:_LISTED]
    say("")
    say(title, style="bold")
    _print_table(columns, shown, indent=2)
    if len(shown) < len(things):
        say(f"  and {len(things) - len(shown):,} more: --json lists all")


def _print_table(columns: Sequence[Column[_T]], things: Sequence[_T], *, indent: int = 0) -> None:
    """Leaves out empty columns, and those without room, whose names it prints."""
    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    rows = {column: [_human(column, thing) for thing in things] for column in columns}
    filled = {column: texts for column, texts in rows.items() if any(texts)}
    rows = {column: texts for column, texts in filled.items() if column.least_width <= console.width}
    for column in rows:
        justify: Any = "right" if column.right else "left"
        table.add_column(_cell(column.name), justify=justify, overflow="fold", no_wrap=not column.fold)
    for texts in zip(*rows.values(), strict=True):
        table.add_row(*map(_cell, texts))
    console.print(Padding.indent(table, indent))
    if left_out := [column.name for column in filled if column not in rows]:
        text = f"(too narrow for {', '.join(left_out)}: widen the terminal, or use --json)"
        console.print(Padding.indent(Text(text, style="dim"), indent))


def _human(column: Column[_T], thing: _T) -> str:
    value = column.value(thing)
    return "" if value is None else column.human(value)


def _cell(text: str) -> Text:
    # rich shrinks a no_wrap column last, and then cuts its cells off. Cells that may wrap are folded instead.
    return Text(visible(text), no_wrap=False)


def _console() -> Console:
    """A console that interprets no markup, and wraps nothing in a pipe."""
    console = Console(markup=False, emoji=False, highlight=False)
    console.width = 1 << 16 if in_pipe() else max(console.width, _NARROWEST)
    return console


# --- progress, on stderr for people at a terminal ---------------------------------------------------------------------


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
