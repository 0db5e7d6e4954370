"""How anything is said: one JSON document for programs, lines for pipes, tables and facts for people.

A terminal gets tables that fit it and cut nothing off; a pipe gets lines that nothing wraps. Names come from outside:
what people and pipes are shown goes through `visible`, and is never taken for markup. What is said is not known here.
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
"""How many rows a terminal gets at once: rich lays out a few thousand a second."""

_LISTED = 20
"""How many a terminal is shown of a list that is only a part of the answer."""

_NARROWEST = 40
"""Where a terminal is narrower, it wraps our lines itself."""


@dataclass(frozen=True, slots=True)
class Column(Generic[_T]):
    """What a list says about each thing: a value, and how people read it."""

    name: str
    value: Callable[[_T], Any]
    human: Callable[[Any], str] = str
    _: KW_ONLY
    right: bool = False
    fold: bool = False
    """Wraps where the terminal is too narrow."""
    least_width: int = 0
    """Left out where the terminal is narrower."""


def text_column(name: str) -> list[Column[str]]:
    return [Column(name, str, fold=True)]


def in_pipe() -> bool:
    return not sys.stdout.isatty()


# --- for programs -------------------------------------------------------------------------------------------------


def print_json(document: Mapping[str, Any]) -> None:
    """Sizes in bytes, times in UTC."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False, default=iso_text))


# --- for pipes ----------------------------------------------------------------------------------------------------


def print_lines(columns: Sequence[Column[_T]], things: Iterable[_T]) -> None:
    """A line for each thing, exact values between tabs."""
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
    """On stderr."""
    typer.echo(f"dbio: {visible(text)}", err=True)


def one_line(error: DbioError) -> str:
    return " ".join(map(str.strip, str(error).splitlines()))


def print_facts(facts: Mapping[str, str]) -> None:
    """Those that have a text."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        if text:
            table.add_row(name, _cell(text))
    _console().print(Padding.indent(table, 2))


def print_pages(columns: Sequence[Column[_T]], things: Sequence[_T]) -> None:
    """A list that is the answer."""
    for start in range(0, len(things), _PAGE):
        _print_table(columns, things[start : start + _PAGE])


def print_part(title: str, columns: Sequence[Column[_T]], things: Sequence[_T]) -> None:
    """A list as a part of an answer, for pipes in full; nothing where it is empty."""
    if not things:
        return
    shown = things if in_pipe() else things[:_LISTED]
    say("")
    say(title, style="bold")
    _print_table(columns, shown, indent=2)
    if len(shown) < len(things):
        say(f"  and {len(things) - len(shown):,} more: --json lists all")


def _print_table(columns: Sequence[Column[_T]], things: Sequence[_T], *, indent: int = 0) -> None:
    """Without the columns that say nothing; those that find no room are named."""
    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    rows = {column: [_human(column, thing) for thing in things] for column in columns}
    told = {column: texts for column, texts in rows.items() if any(texts)}
    rows = {column: texts for column, texts in told.items() if column.least_width <= console.width}
    for column in rows:
        justify: Any = "right" if column.right else "left"
        table.add_column(_cell(column.name), justify=justify, overflow="fold", no_wrap=not column.fold)
    for texts in zip(*rows.values(), strict=True):
        table.add_row(*map(_cell, texts))
    console.print(Padding.indent(table, indent))
    if left_out := [column.name for column in told if column not in rows]:
        text = f"(too narrow for {', '.join(left_out)}: widen the terminal, or use --json)"
        console.print(Padding.indent(Text(text, style="dim"), indent))


def _human(column: Column[_T], thing: _T) -> str:
    value = column.value(thing)
    return "" if value is None else column.human(value)


def _cell(text: str) -> Text:
    # A column that does not wrap is the last to shrink, but rich would cut its cells then: they fold after all.
    return Text(visible(text), no_wrap=False)


def _console() -> Console:
    """Interprets nothing that it prints. In a pipe it wraps nothing."""
    console = Console(markup=False, emoji=False, highlight=False)
    console.width = 1 << 16 if in_pipe() else max(console.width, _NARROWEST)
    return console
