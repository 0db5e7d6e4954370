"""Prints results: one JSON document for programs, lines for pipes, tables and facts for people.

Tables fit the terminal, and nothing is cut off. Lines in a pipe are never wrapped. Names come from outside, so texts
for people and pipes are escaped by `visible`, and never interpreted as markup.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dbio_commit.base.errors import DbioError
from dbio_commit.base.texts import visible
from dbio_commit.upkeep.figures import iso_text

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


def text_column(name: str) -> list[Column[str]]:
    return [Column(name, str, fold=True)]


def in_pipe() -> bool:
    return not sys.stdout.isatty()


# --- for programs -------------------------------------------------------------------------------------------------


def print_json(document: Mapping[str, Any]) -> None:
    """Prints a document. Sizes are in bytes, times in UTC."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False, default=iso_text))


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


def say(text: str, style: str = "") -> None:
    _console().print(visible(text), style=style)


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


def print_pages(columns: Sequence[Column[_T]], things: Sequence[_T]) -> None:
    """Prints all of a list, which is the result."""
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
