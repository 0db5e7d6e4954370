"""The command line: `dbio files | log | show | check | abort`. Shows what `Table` knows, and decides nothing itself.

A terminal gets tables that fit it; a pipe gets plain lines, one for each thing, that nothing cuts; `--json` gets one
document. Credentials come from the environment: on a command line everybody on the machine could read them.
"""

import io
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.filesize import decimal as human_size
from rich.table import Table as Grid
from rich.text import Text

from dbio_commit.check import CheckReport, TransactionReport, TransactionState
from dbio_commit.errors import DbioError, InvalidInputError
from dbio_commit.markers import Bounds, FileInfo
from dbio_commit.names import Partition, format_partition
from dbio_commit.snapshot import Snapshot
from dbio_commit.state import UNKNOWN_SIZE, Commit
from dbio_commit.table import Table
from dbio_commit.transaction import MAX_LIFE_S

app = typer.Typer(
    name="dbio",
    help="Look at tables of plain Parquet files with transactions, and abort a transaction that nobody will finish.",
    epilog="Credentials come from the environment, such as AWS_PROFILE, AWS_ENDPOINT_URL, "
    "AZURE_STORAGE_CONNECTION_STRING. Exit codes: 0 fine, 1 found something wrong, 2 usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Path = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="The table: a path, or s3://, az://, abfss://...")
]
_Tid = Annotated[str, typer.Argument(metavar="TID", show_default=False, help="The transaction, as `log` shows it.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document; errors too.")]


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks is no error
    app()


@app.command()
def files(
    path: _Path,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME|TID", help="As of a time in ISO 8601 with a zone, or a commit.")
    ] = None,
    ignore_corrupt_markers: Annotated[
        bool, typer.Option("--ignore-corrupt-markers", help="Take their transactions for pending ones.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """List the live files."""
    with _errors(as_json):
        snapshot = Table(path).snapshot(as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)
    if as_json:
        _print_json(_files_json(snapshot))
    elif _in_pipe():
        _print_lines((file.path, _exact(file.size), file.tid, format_path(file.partition)) for file in snapshot.files)
    else:
        columns = (
            _Column("path", fold=True),
            _Column("size", right=True),
            _Column("tid", rank=1),
            _Column("partition", rank=2),
        )
        console = _console()
        _print_grid(
            console,
            columns,
            [(file.path, _size(file.size), file.tid or "", format_path(file.partition)) for file in snapshot.files],
        )
        console.print(_total(snapshot), style="bold")


@app.command()
def log(path: _Path, as_json: _Json = False) -> None:
    """List the commits, newest first."""
    with _errors(as_json):
        table = Table(path)
        commits = table.history()
    if as_json:
        _print_json({"url": table.url, "commits": list(map(_commit_json, commits))})
    elif _in_pipe():
        _print_lines(tuple(_exact(value) for value in _commit_facts(commit)) for commit in commits)
    else:
        _print_log(_console(), commits, table.clock.now())


@app.command()
def show(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Show one transaction, whatever its state."""
    with _errors(as_json):
        table = Table(path)
        report = table.inspect(tid)
    if as_json:
        _print_json(_transaction_json(report))
    else:
        _print_transaction(_console(), report, table.clock.now())


@app.command()
def check(path: _Path, as_json: _Json = False) -> None:
    """Look for missing and damaged files, corrupt markers, pending transactions and garbage.

    Exits with 1 if anything is wrong that readers would suffer from.
    """
    with _errors(as_json):
        report = Table(path).check()
    if as_json:
        _print_json(_check_json(report))
    else:
        _print_check(_console(), report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def abort(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Decide a pending transaction against its writer, who can then not commit it any more."""
    with _errors(as_json):
        table = Table(path)
        before = table.inspect(tid)
        table.abort(tid)
    size = sum(file.size for file in before.files)
    if as_json:
        _print_json({"url": table.url, "tid": tid, "state": "aborted", "files": len(before.files), "size": size})
    elif before.state is TransactionState.ABORTED:
        typer.echo(f"{tid} was aborted already.")
    else:
        typer.echo(f"Aborted {tid}. What it wrote is garbage now: {_count(len(before.files), 'file')}, {_size(size)}.")


# --- errors -------------------------------------------------------------------------------------------------------


@contextmanager
def _errors(as_json: bool) -> Iterator[None]:
    """What went wrong with the table or the store becomes a message and an exit code; a bug stays a traceback."""
    try:
        yield
    except DbioError as error:
        if as_json:
            _print_json({"error": type(error).__name__, "message": str(error)})
        else:
            typer.echo(f"dbio: {_visible(' '.join(str(error).split()))}", err=True)
        raise typer.Exit(2 if isinstance(error, InvalidInputError) else 1) from None


# --- terminal and pipe --------------------------------------------------------------------------------------------

_LISTED = 20
"""How many paths a terminal is shown where they are not what was asked for."""


def _in_pipe() -> bool:
    return not sys.stdout.isatty()


def _console() -> Console:
    """Interprets nothing in what it prints: names come from outside. In a pipe nothing is wrapped."""
    return Console(markup=False, emoji=False, highlight=False, width=1 << 16 if _in_pipe() else None)


def _visible(text: str) -> str:
    """The text with everything escaped that would steer a terminal, or show as nothing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _print_lines(rows: Iterator[Sequence[str | None]]) -> None:
    lines = ["\t".join(_visible(cell or "") for cell in row) for row in rows]
    if lines:
        typer.echo("\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    name: str
    right: bool = False
    fold: bool = False
    """Wraps where the terminal is too narrow."""
    rank: int = 0
    """Where the terminal is too narrow the highest goes first; 0 always stays."""


def _print_grid(console: Console, columns: Sequence[_Column], rows: Sequence[Sequence[str]], indent: int = 0) -> None:
    """The rows under the names of their columns; without the columns that say nothing, or find no room."""
    cells = {column: [_visible(row[i]) for row in rows] for i, column in enumerate(columns)}
    cells = {column: texts for column, texts in cells.items() if any(texts)}
    widths = {column: max(map(cell_len, (column.name, *texts))) for column, texts in cells.items()}
    for column in sorted(cells, key=lambda column: -column.rank):
        if column.rank and sum(widths.values()) + 2 * (len(widths) - 1) + indent > console.width:
            del cells[column], widths[column]
    if not cells:
        return
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in cells:
        grid.add_column(
            column.name,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.fold,
        )
    for row in zip(*cells.values(), strict=True):
        grid.add_row(*row)
    console.print(grid)
