"""The command line: `dbio files | log | show | check | abort`. Shows what `Table` knows, and decides nothing itself.

A terminal gets tables that fit it; a pipe gets plain lines that nothing cuts; `--json` gets one document. Credentials
come from the environment: on a command line everybody on the machine could read them.
"""

import io
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import zip_longest
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import typer
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from dbio_commit.check import CheckReport, PendingTransaction, TransactionReport, TransactionState, WrongSize
from dbio_commit.errors import DbioError, InvalidInputError
from dbio_commit.markers import Bounds, FileInfo
from dbio_commit.names import format_partition
from dbio_commit.snapshot import Snapshot
from dbio_commit.state import UNKNOWN_SIZE, Commit, DataFile, Entry, Garbage
from dbio_commit.table import Table
from dbio_commit.transaction import MAX_LIFE_S

app = typer.Typer(
    name="dbio",
    help="Look at tables of plain Parquet files with transactions, and abort transactions that nobody will finish.",
    epilog="Credentials come from the environment: AWS_PROFILE, AWS_ENDPOINT_URL, AZURE_STORAGE_CONNECTION_STRING and "
    "what else the stores' own clients know. Exit codes: 0 fine, 1 something is wrong, 2 usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Path = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="The table: a path, or s3://, az://, abfss://...")
]
_Tid = Annotated[
    str, typer.Argument(metavar="TID", show_default=False, help="The transaction, as log or check shows it.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for errors too.")]


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks is no error
    app()


@app.command()
def files(
    path: _Path,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME|TID", help="As of a time (ISO 8601, with a zone), or of a commit.")
    ] = None,
    ignore_corrupt_markers: Annotated[
        bool, typer.Option("--ignore-corrupt-markers", help="Take their transactions for pending.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """List the live files.

    In a pipe: path, bytes, tid and partition of each, separated by tabs.
    """
    with _errors(as_json):
        snapshot = Table(path).snapshot(as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)
    if as_json:
        _print_json(_snapshot_json(snapshot))
    elif _in_pipe():
        _print_lines(_FILE, snapshot.files)
    else:
        _print_grid(_FILE, snapshot.files)
        partitions = len({format_partition(file.partition) for file in snapshot.files} - {""})
        within = f" in {_count(partitions, 'partition')}" if partitions else ""
        _say(_files(snapshot.files) + within, style="bold")


@app.command()
def log(path: _Path, as_json: _Json = False) -> None:
    """List the commits, newest first.

    In a pipe: tid, time, operation, files added, files removed, rows, bytes and application of each, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        commits = table.history()
    columns = _commit_columns(table.clock.now())
    if as_json:
        _print_json({"url": table.url, "commits": [_commit_json(commit) for commit in commits]})
    elif _in_pipe():
        _print_lines([column for column in columns if column.name != "age"], commits)
    else:
        _print_grid(columns, commits)
        if not commits:
            _say("no commits", style="bold")


@app.command()
def show(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Show one transaction: its state, what it added and removed."""
    with _errors(as_json):
        table = Table(path)
        report = table.inspect(tid)
    if as_json:
        _print_json(_transaction_json(report))
    else:
        _print_transaction(report, table.clock.now())


@app.command()
def check(path: _Path, as_json: _Json = False) -> None:
    """Look for missing and damaged files, corrupt markers, pending transactions and garbage.

    Exits with 1 where readers would fail. What is pending, and garbage, is nothing wrong.
    """
    with _errors(as_json):
        report = Table(path).check()
    if as_json:
        _print_json(_check_json(report))
    else:
        _print_check(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def abort(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Decide a pending transaction against its writer, who can then not commit it any more."""
    with _errors(as_json):
        table = Table(path)
        before = table.inspect(tid)
        table.abort(tid)
    if as_json:
        _print_json({"url": table.url, "tid": tid, "state": TransactionState.ABORTED, "garbage": _total(before.files)})
    elif before.state is TransactionState.ABORTED:
        _say(f"{tid} was aborted already")
    else:
        _say(f"aborted {tid}; what it wrote is garbage now: {_files(before.files)}")


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


# --- one transaction ----------------------------------------------------------------------------------------------


def _print_transaction(report: TransactionReport, now: datetime) -> None:
    commit = report.commit
    _say(f"transaction {report.tid} of {report.url}", style="bold")
    _print_facts(_transaction_facts(report, now))
    if commit:
        _print_part("columns", _COLUMN, _summarise(commit.schema, report.files))
    is_committed = report.state is TransactionState.COMMITTED
    _print_part("added" if is_committed else "written, but in no snapshot", _ADDED, report.files)
    _print_part("removed", _PATH, commit.removed if commit else ())


def _transaction_facts(report: TransactionReport, now: datetime) -> Mapping[str, str]:
    facts = {"state": str(report.state)}
    if report.started:
        facts["started"] = _moment(report.started, now)
    if report.decided:
        facts["decided"] = _moment(report.decided, now)
    if any(report.undecided):  # the root alone is no news
        where = _count(len(report.undecided), "directory", "directories")
        facts["undecided in"] = f"{where}, first {report.undecided[0] or 'the root'}"
    if (commit := report.commit) and report.state is TransactionState.COMMITTED:
        facts["operation"] = commit.operation
        if commit.app:
            facts["application"] = f"{commit.app[0]}, version {commit.app[1]}"
        rows = [file.rows for file in report.files if file.rows is not None]
        facts["added"] = _files(report.files) + (f", {_count(sum(rows), 'row')}" if rows else "")
        facts["removed"] = _count(len(commit.removed), "file")
        facts["metrics"] = ", ".join(f"{name} {value}" for name, value in commit.metrics.items())
    else:
        facts["written"] = _files(report.files)
    return facts


class _ColumnSummary(NamedTuple):
    name: str
    type: str
    bounds: Bounds


def _summarise(schema: Mapping[str, Any] | None, added: Sequence[FileInfo]) -> list[_ColumnSummary]:
    """Each column that the schema or the statistics of a file name, with its bounds over all files."""
    fields = schema.get("fields") if schema else None
    types = {
        str(field["name"]): _type(field.get("type")) + ("" if field.get("nullable", True) else " not null")
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict) and "name" in field
    }
    types |= {column: types.get(column, "") for file in added for column in file.statistics or ()}
    return [_ColumnSummary(name, kind, _overall(added, name, kind)) for name, kind in types.items()]


def _type(kind: Any) -> str:
    """A type of Spark's JSON, near enough to how its SQL writes it."""
    match kind:
        case str():
            return kind
        case {"type": "array", "elementType": element}:
            return f"array<{_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{_type(key)},{_type(value)}>"
        case {"type": "struct", "fields": [*fields]} if all(isinstance(field, dict) for field in fields):
            return f"struct<{','.join(str(field.get('name')) + ':' + _type(field.get('type')) for field in fields)}>"
    return json.dumps(kind)


def _overall(files: Sequence[FileInfo], column: str, kind: str) -> Bounds:
    """The bounds of a column over all files; None for what not every file tells."""
    each = [((file.statistics or {}).get(column, Bounds()), file.rows) for file in files]
    filled = [bounds for bounds, rows in each if bounds.nulls is None or bounds.nulls != rows]
    nulls = [bounds.nulls for bounds, _ in each if bounds.nulls is not None]
    return Bounds(
        min=_extreme(min, [bounds.min for bounds in filled], kind),
        max=_extreme(max, [bounds.max for bounds in filled], kind),
        nulls=sum(nulls) if each and len(nulls) == len(each) else None,
    )


def _extreme(choose: Callable[..., Any], values: Sequence[Any], kind: str) -> Any:
    if not values or None in values:
        return None
    try:
        return choose(values, key=Decimal if kind.startswith("decimal") else None)
    except (TypeError, ValueError, ArithmeticError):  # values that do not compare: not of a writer that we know
        return None


# --- the state of a table -----------------------------------------------------------------------------------------


def _print_check(report: CheckReport) -> None:
    garbage = [entry for entries in report.garbage.values() for entry in entries]
    damaged = sum(damage.found for damage in report.wrong_size)
    facts = {
        "live": _sized(report.live_files, report.live_size),
        "missing": _sized(len(report.missing), report.missing_size) if report.missing else "",
        "wrong size": _sized(len(report.wrong_size), damaged) if report.wrong_size else "",
        "corrupt": _count(len(report.corrupt), "marker") if report.corrupt else "",
        "pending": _count(len(report.pending), "transaction"),
        "garbage": _files(garbage),
    }
    _say(report.url, style="bold")
    _print_facts(facts)
    _print_part("missing", _PATH, report.missing)
    _print_part("of another size than its marker says", _WRONG_SIZE, report.wrong_size)
    _print_part("corrupt markers", _CORRUPT, list(report.corrupt.values()))
    _print_part("pending", _PENDING, report.pending)
    _print_part("garbage", _GARBAGE, list(report.garbage.items()))
    _say("")
    _say(_advice(report), style="bold green" if report.ok else "bold red")


def _advice(report: CheckReport) -> str:
    """What to do, in one line."""
    wrong: list[str] = []
    if count := len(report.corrupt):
        wrong.append(
            f"Readers refuse this table: inspect {_count(count, 'corrupt marker')}, and remove what no writer wrote."
        )
    if count := len(report.missing) + len(report.wrong_size):
        wrong.append(f"Readers fail or miss rows: bring {_count(count, 'file')} back from a backup, or overwrite them.")
    if wrong:
        return " ".join(wrong)
    end_it = f"`dbio abort {shlex.quote(report.url)} TID`"
    if count := sum(transaction.age > timedelta(seconds=MAX_LIFE_S) for transaction in report.pending):
        return f"Nothing is wrong; {_count(count, 'transaction')} can commit no more: end each with {end_it}."
    if report.pending:
        return f"Nothing is wrong; where the writer of a pending transaction is dead, end it with {end_it}."
    if report.garbage:
        return "Nothing is wrong; garbage takes space, and only tools that do not know the markers read it."
    return "Nothing is wrong, and there is nothing to do."


# --- for people and pipes -----------------------------------------------------------------------------------------

_T = TypeVar("_T")

_LISTED = 20
"""How many a terminal is shown of a list that is only a part of the answer."""

_NARROWEST = 10
"""The width below which nothing folds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column(Generic[_T]):
    """What a list says about each thing: a value, and how people read it."""

    name: str
    value: Callable[[_T], Any]
    human: Callable[[Any], str] = str
    right: bool = False
    fold: bool = False
    """Wraps where the terminal is too narrow."""
    rank: int = 0
    """Where the terminal is too narrow, the highest goes first; 0 always stays."""


def _in_pipe() -> bool:
    return not sys.stdout.isatty()


def _console() -> Console:
    """Interprets nothing that it prints, because names come from outside. In a pipe it wraps nothing."""
    return Console(markup=False, emoji=False, highlight=False, width=1 << 16 if _in_pipe() else None)


def _say(text: str, style: str = "") -> None:
    _console().print(_visible(text), style=style)


def _print_lines(columns: Sequence[_Column[_T]], things: Iterable[_T]) -> None:
    """For scripts: a line for each thing, exact values between tabs."""
    lines = ["\t".join(_visible(_exact(column.value(thing))) for column in columns) for thing in things]
    if lines:
        typer.echo("\n".join(lines))


def _print_grid(columns: Sequence[_Column[_T]], things: Sequence[_T], *, indent: int = 0) -> None:
    """For people: a table, without the columns that say nothing or find no room.

    Not rich's, which takes seconds for ten thousand files, and cuts off what does not fit.
    """
    console = _console()
    cells = {column: [_visible(_human(column, thing)) for thing in things] for column in columns}
    cells = {column: texts for column, texts in cells.items() if any(texts)}
    widths = _fit(
        {column: max(map(cell_len, (column.name, *texts))) for column, texts in cells.items()}, console.width - indent
    )
    if not widths:
        return
    console.print(
        " " * indent + "  ".join(_pad(column, column.name, widths[column]) for column in widths).rstrip(),
        style="dim",
        soft_wrap=True,
    )
    lines: list[str] = []
    for row in zip(*(cells[column] for column in widths), strict=True):
        parts = [_fold(text, width, console) for text, width in zip(row, widths.values(), strict=True)]
        for pieces in zip_longest(*parts, fillvalue=""):
            line = "  ".join(_pad(column, piece, widths[column]) for column, piece in zip(widths, pieces, strict=True))
            lines.append(" " * indent + line.rstrip())
    console.out("\n".join(lines), highlight=False)


def _fit(widths: dict[_Column[_T], int], room: int) -> dict[_Column[_T], int]:
    """The widths that stay within the room, if they can: columns go, then paths fold."""

    def excess() -> int:
        return sum(widths.values()) + 2 * (len(widths) - 1) - room

    widest_fold = max(room, _NARROWEST)
    widths = {column: min(width, widest_fold) if column.fold else width for column, width in widths.items()}
    for column in sorted(widths, key=lambda column: -column.rank):
        if column.rank and excess() > 0:
            del widths[column]
    while excess() > 0:
        widest = max((column for column in widths if column.fold), key=lambda column: widths[column], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _fold(text: str, width: int, console: Console) -> list[str]:
    """The text in lines: broken between words where it has words, else anywhere."""
    if " " in text and cell_len(text) > width:
        return [line.plain.rstrip() for line in Text(text).wrap(console, width, overflow="fold")]
    return chop_cells(text, width)


def _pad(column: _Column[_T], text: str, width: int) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column.right else text + space


def _print_part(title: str, columns: Sequence[_Column[_T]], things: Sequence[_T]) -> None:
    """A list as a part of an answer; nothing where it is empty."""
    if not things:
        return
    shown = things if _in_pipe() else things[:_LISTED]
    _say("")
    _say(title, style="bold")
    _print_grid(columns, shown, indent=2)
    if len(shown) < len(things):
        _say(f"  and {len(things) - len(shown):,} more: --json lists all")


def _print_facts(facts: Mapping[str, str]) -> None:
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts.items():
        if text:
            grid.add_row(name, _visible(text))
    _console().print(Padding(grid, (0, 0, 0, 2), expand=False))


def _visible(text: str) -> str:
    """The text, with whatever would steer a terminal, or not show at all, escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _exact(value: Any) -> str:
    if value is None:
        return ""
    return _iso(value) if isinstance(value, datetime) else str(value)


def _human(column: _Column[_T], thing: _T) -> str:
    value = column.value(thing)
    return "" if value is None else column.human(value)


def _number(value: int) -> str:
    return f"{value:,}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _sized(number: int, size: int) -> str:
    return f"{_count(number, 'file')}, {decimal(size)}"


def _files(found: Sequence[DataFile | FileInfo | Entry]) -> str:
    return _sized(len(found), _size_of(found))


def _size_of(found: Iterable[DataFile | FileInfo | Entry]) -> int:
    return sum(_known(file.size) or 0 for file in found)


def _known(size: int) -> int | None:
    return None if size == UNKNOWN_SIZE else size


def _age(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))  # the store's clock may be ahead of ours
    for unit, length_s, enough in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < length_s * enough:
            return f"{seconds // length_s} {unit}"
    return f"{seconds // 86400} days"


def _time(at: datetime) -> str:
    # Rounded up: --as-of this time then includes what happened at it.
    whole = at.astimezone(UTC) + timedelta(microseconds=-at.microsecond % 1_000_000)
    return f"{whole:%Y-%m-%d %H:%M:%S}Z"


def _moment(at: datetime, now: datetime) -> str:
    return f"{_age(now - at)} ago, {_time(at)}"


_PATH: list[_Column[str]] = [_Column(name="path", value=str, fold=True)]

_FILE: list[_Column[DataFile]] = [
    _Column(name="path", value=lambda file: file.path, fold=True),
    _Column(name="size", value=lambda file: _known(file.size), human=decimal, right=True),
    _Column(name="tid", value=lambda file: file.tid, rank=1),
    _Column(name="partition", value=lambda file: format_partition(file.partition), rank=2),
]

_ADDED: list[_Column[FileInfo]] = [
    _Column(name="path", value=lambda file: file.path, fold=True),
    _Column(name="rows", value=lambda file: file.rows, human=_number, right=True),
    _Column(name="size", value=lambda file: _known(file.size), human=decimal, right=True),
]

_COLUMN: list[_Column[_ColumnSummary]] = [
    _Column(name="column", value=lambda column: column.name, fold=True),
    _Column(name="type", value=lambda column: column.type, fold=True),
    _Column(name="min", value=lambda column: column.bounds.min, fold=True),
    _Column(name="max", value=lambda column: column.bounds.max, fold=True),
    _Column(name="nulls", value=lambda column: column.bounds.nulls, human=_number, right=True),
]

_WRONG_SIZE: list[_Column[WrongSize]] = [
    _Column(name="path", value=lambda damage: damage.path, fold=True),
    _Column(name="expected bytes", value=lambda damage: damage.expected, human=_number, right=True),
    _Column(name="found bytes", value=lambda damage: damage.found, human=_number, right=True),
]

_CORRUPT: list[_Column[str]] = [_Column(name="what is wrong", value=str, fold=True)]

_PENDING: list[_Column[PendingTransaction]] = [
    _Column(name="tid", value=lambda pending: pending.tid),
    _Column(name="age", value=lambda pending: pending.age, human=_age, right=True),
    _Column(name="started", value=lambda pending: pending.started, human=_time),
    _Column(name="files", value=lambda pending: pending.files, human=_number, right=True),
    _Column(name="size", value=lambda pending: pending.size, human=decimal, right=True),
]

_GARBAGE: list[_Column[tuple[Garbage, Sequence[Entry]]]] = [
    _Column(name="why", value=lambda kind: kind[0]),
    _Column(name="files", value=lambda kind: len(kind[1]), human=_number, right=True),
    _Column(name="size", value=lambda kind: _size_of(kind[1]), human=decimal, right=True),
]


def _commit_columns(now: datetime) -> list[_Column[Commit]]:
    return [
        _Column(name="tid", value=lambda commit: commit.tid),
        _Column(name="time", value=lambda commit: commit.timestamp, human=_time, rank=2),
        _Column(name="age", value=lambda commit: commit.timestamp, human=lambda at: _age(now - at), right=True),
        _Column(name="operation", value=lambda commit: commit.operation),
        _Column(name="added", value=lambda commit: len(commit.added), human=_number, right=True),
        _Column(name="removed", value=lambda commit: len(commit.removed), human=_number, right=True),
        _Column(name="rows", value=_rows, human=_number, right=True),
        _Column(name="size", value=_bytes, human=decimal, right=True),
        _Column(name="application", value=lambda commit: commit.app and f"{commit.app[0]}:{commit.app[1]}", rank=1),
    ]


def _rows(commit: Commit) -> int | None:
    return commit.metrics.get("numOutputRows")


def _bytes(commit: Commit) -> int | None:
    return commit.metrics.get("numOutputBytes")


# --- for programs: sizes in bytes, times in UTC -------------------------------------------------------------------


def _print_json(document: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False, default=_iso))


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _total(found: Sequence[DataFile | FileInfo | Entry]) -> dict[str, int]:
    return {"files": len(found), "size": _size_of(found)}


def _snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    described = [
        {"path": file.path, "url": url, "size": _known(file.size), "tid": file.tid, "partition": file.partition}
        for file, url in zip(snapshot.files, snapshot.urls(), strict=True)
    ]
    return {
        "url": snapshot.url,
        "scope": snapshot.scope,
        "partition_columns": snapshot.partition_columns,
        "total": _total(snapshot.files),
        "files": described,
    }


def _commit_json(commit: Commit) -> dict[str, Any]:
    return {
        "tid": commit.tid,
        "time": commit.timestamp,
        "operation": commit.operation,
        "added_files": len(commit.added),
        "removed_files": len(commit.removed),
        "rows": _rows(commit),
        "size": _bytes(commit),
        "app": _app_json(commit),
    }


def _app_json(commit: Commit) -> dict[str, Any] | None:
    return {"id": commit.app[0], "version": commit.app[1]} if commit.app else None


def _transaction_json(report: TransactionReport) -> dict[str, Any]:
    commit = report.commit
    return {
        "url": report.url,
        "tid": report.tid,
        "state": report.state,
        "started": report.started,
        "decided": report.decided,
        "undecided_directories": report.undecided,
        "operation": commit.operation if commit else None,
        "app": _app_json(commit) if commit else None,
        "metrics": commit.metrics if commit else {},
        # A stranger's JSON may hold NaN, which is no JSON.
        "schema": json.loads(json.dumps(commit.schema), parse_constant=str) if commit else None,
        "total": _total(report.files),
        "files": [_file_json(file) for file in report.files],
        "removed": commit.removed if commit else [],
    }


def _file_json(file: FileInfo) -> dict[str, Any]:
    bounds = {column: bounds._asdict() for column, bounds in (file.statistics or {}).items()}
    return {
        "path": file.path,
        "size": _known(file.size),
        "rows": file.rows,
        "partition": file.partition,
        "statistics": bounds,
    }


def _check_json(report: CheckReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "scope": report.scope,
        "ok": report.ok,
        "live": {"files": report.live_files, "size": report.live_size},
        "missing": {"files": len(report.missing), "size": report.missing_size, "paths": report.missing},
        "wrong_size": [{"path": it.path, "expected": it.expected, "found": it.found} for it in report.wrong_size],
        "corrupt": [{"path": path, "problem": problem} for path, problem in report.corrupt.items()],
        "pending": [
            {
                "tid": it.tid,
                "started": it.started,
                "age_s": int(it.age.total_seconds()),
                "files": it.files,
                "size": it.size,
            }
            for it in report.pending
        ],
        "garbage": {kind.name.lower(): _total(report.garbage.get(kind, [])) for kind in Garbage},
        "advice": _advice(report),
    }


if __name__ == "__main__":
    main()
