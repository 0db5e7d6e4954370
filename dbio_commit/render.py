"""What the command line says: tables and facts for people, lines for pipes, JSON documents for programs.

A terminal gets tables that fit it and cut nothing off; a pipe gets lines that nothing wraps. Names come from outside:
what people and pipes are shown goes through `visible`, and is never taken for markup.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeVar

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table
from rich.text import Text

from dbio_commit.protocol import names
from dbio_commit.protocol.applications import Application
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Garbage
from dbio_commit.protocol.markers import Bounds, FileInfo
from dbio_commit.protocol.names import HIVE_NULL, Partition, escape
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile
from dbio_commit.roots.root import MAX_LIFE_S
from dbio_commit.snapshot import Snapshot
from dbio_commit.upkeep.check import CheckReport, PendingTransaction, WrongSize
from dbio_commit.upkeep.drop import DropReport
from dbio_commit.upkeep.inspect import TransactionReport, TransactionState
from vacuum.report import Deletion, Progress, Reason, VacuumReport

# --- for programs: sizes in bytes, times in UTC -------------------------------------------------------------------


def print_json(document: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False, default=_iso))


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    described = [
        {
            "path": file.path,
            "url": _url(snapshot, file),
            "size": _known(file.size),
            "tid": file.tid,
            "partition": file.partition,
        }
        for file in snapshot.files
    ]
    return {
        "url": snapshot.url,
        "scope": snapshot.scope,
        "partition_columns": snapshot.partition_columns,
        "total": total_json(snapshot.files),
        "files": described,
    }


def _url(snapshot: Snapshot, file: DataFile) -> str | None:
    """None for what a program might take for a pattern."""
    return None if names.is_pattern(file.path) else f"{snapshot.url}/{file.path}"


def schema_json(schema: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    return {
        "url": snapshot.url,
        "recorded": snapshot.schema is not None,
        "partition_columns": snapshot.partition_columns,
        "schema": json.loads(json.dumps(schema), parse_constant=str),
    }


def commit_json(commit: Commit) -> dict[str, Any]:
    return {
        "tid": commit.tid,
        "time": commit.timestamp,
        "operation": commit.operation,
        "added_files": commit.added_files,
        "removed_files": commit.removed_files,
        "rows": _rows(commit),
        "size": _bytes(commit),
        "app": _app_json(commit),
    }


def transaction_json(report: TransactionReport) -> dict[str, Any]:
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
        "total": total_json(report.files),
        "files": [_file_json(file) for file in report.files],
        "removed": commit.removed if commit else [],
    }


def check_json(report: CheckReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "scope": report.scope,
        "ok": report.ok,
        "live": {"files": report.live_files, "size": report.live_size},
        "missing": {"files": len(report.missing), "size": report.missing_size, "paths": report.missing},
        "wrong_size": [{"path": it.path, "expected": it.expected, "found": it.found} for it in report.wrong_size],
        "corrupt": [{"path": path, "problem": problem} for path, problem in report.corrupt.items()],
        "another_vacuum": report.another_vacuum,
        "pending": [_pending_json(transaction) for transaction in report.pending],
        "garbage": {kind.name.lower(): total_json(report.garbage.get(kind, [])) for kind in Garbage},
        "foreign": [entry.path for entry in report.foreign],
        "applications": [
            {"id": it.id, "version": it.version, "tid": it.tid, "committed": it.committed, "odd": it.odd or None}
            for it in report.applications
        ],
        "advice": _advice(report),
    }


def vacuum_json(report: VacuumReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "scope": report.scope,
        "dry_run": report.dry_run,
        "retention_hours": report.retention_hours,
        "ok": report.ok,
        "stopped": report.stopped,
        "deleted": [_deletion_json(it) for it in report.deleted],
        "failed": [{"path": it.path, "message": it.message} for it in report.failed],
        "aborted": report.aborted,
        "postponed": report.postponed,
        "warnings": report.warnings,
        "checkpoint": report.checkpoint,
        "queued": report.queued,
        "kept": [_deletion_json(it) for it in report.kept],
    }


def drop_json(report: DropReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "deleted": {"objects": report.deleted, "size": report.size},
        "aborted": report.aborted,
        "left": report.left,
    }


def _deletion_json(it: Deletion) -> dict[str, Any]:
    return {"path": it.path, "size": it.size, "age_s": int(it.age.total_seconds()), "reason": it.reason}


def total_json(found: Sequence[DataFile | FileInfo | Entry]) -> dict[str, int]:
    return {"files": len(found), "size": _size(found)}


def _app_json(commit: Commit) -> dict[str, Any] | None:
    return {"id": commit.app[0], "version": commit.app[1]} if commit.app else None


def _file_json(file: FileInfo) -> dict[str, Any]:
    bounds = {column: bounds._asdict() for column, bounds in (file.statistics or {}).items()}
    known = {"path": file.path, "size": _known(file.size), "rows": file.rows, "partition": file.partition}
    return known | {"statistics": bounds}


def _pending_json(it: PendingTransaction) -> dict[str, Any]:
    age_s = int(it.age.total_seconds())
    return {"tid": it.tid, "started": it.started, "age_s": age_s, "files": it.files, "size": it.size}


# --- for people and pipes -----------------------------------------------------------------------------------------

_T = TypeVar("_T")

_PAGE = 1000
"""How many rows a terminal gets at once: rich lays out a few thousand a second."""

_LISTED = 20
"""How many a terminal is shown of a list that is only a part of the answer."""

_NARROWEST = 40
"""Where a terminal is narrower, it wraps our lines itself."""


@dataclass(frozen=True, slots=True)
class _Column(Generic[_T]):
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


def say(text: str, style: str = "") -> None:
    _console().print(visible(text), style=style)


def print_files(snapshot: Snapshot) -> None:
    if _in_pipe():
        _print_lines(_FILE, snapshot.files)
        return
    _print_pages(_FILE, snapshot.files)
    partitions = len({_partition(file.partition) for file in snapshot.files} - {""})
    say(total(snapshot.files) + (f" in {_count(partitions, 'partition')}" if partitions else ""), style="bold")


def print_schema(schema: Mapping[str, Any], snapshot: Snapshot) -> None:
    columns = [
        (name, kind, "partition" if name in snapshot.partition_columns else "")
        for name, kind, _ in _summarise(schema, ())
    ]
    if _in_pipe():
        _print_lines(_SCHEMA, columns)
    else:
        _print_pages(_SCHEMA, columns)


def print_log(commits: Sequence[Commit], now: datetime) -> None:
    columns = _commit_columns(now)
    if _in_pipe():
        _print_lines([column for column in columns if column.name != "age"], commits)
    elif commits:
        _print_pages(columns, commits)
    else:
        say("no commits", style="bold")


def print_transaction(report: TransactionReport, now: datetime) -> None:
    commit = report.commit
    say(f"transaction {report.tid} of {report.url}", style="bold")
    _print_facts(_transaction_facts(report, now))
    if commit:
        _print_part("columns", _COLUMN, _summarise(commit.schema, report.files))
    is_committed = report.state is TransactionState.COMMITTED
    _print_part("added" if is_committed else "written, but in no snapshot", _ADDED, report.files)
    _print_part("removed", _texts("path"), commit.removed if commit else ())


def print_adoption(url: str, commit: Commit) -> None:
    hidden = f"; {len(commit.removed):,} hidden ones count as removed" if commit.removed else ""
    say(f"{url} is a table now: {total(commit.files)}{hidden}")
    _print_part("left alone, since they are no Parquet", _texts("path"), commit.foreign)


def print_check(report: CheckReport) -> None:
    say(report.url, style="bold")
    _print_facts(_check_facts(report))
    _print_part("missing", _texts("path"), report.missing)
    _print_part("of another size than its marker says", _WRONG_SIZE, report.wrong_size)
    _print_part("corrupt markers", _texts("what is wrong"), list(report.corrupt.values()))
    _print_part("another vacuum", _texts("what shows that it was here"), report.another_vacuum)
    _print_part("pending", _PENDING, report.pending)
    _print_part("garbage", _GARBAGE, list(report.garbage.items()))
    _print_part("applications", _APPLICATION, report.applications)
    _print_part("foreign", _texts("path"), [entry.path for entry in report.foreign])
    say("")
    say(_advice(report), style="bold green" if report.ok else "bold red")


def print_drop(report: DropReport) -> None:
    say(f"removed {report.url}: {_count(report.deleted, 'object')}, {decimal(report.size)}")
    _print_part("aborted", _texts("tid"), report.aborted)
    _print_part("left, since no transaction wrote it", _texts("path"), report.left)


def print_vacuum(report: VacuumReport) -> None:
    if _in_pipe():
        _print_lines(_DELETION, report.deleted)
        done = "; ".join(f"{name} {text}" for name, text in _vacuum_facts(report).items() if text)
        dry = "dry run, nothing was changed: " if report.dry_run else ""
        typer.echo(f"dbio: {visible(f'{report.url}: {dry}{done}')}", err=True)  # the lines are for programs
    else:
        say(report.url, style="bold")
        if report.dry_run and report.deleted:
            _print_pages(_DELETION, report.deleted)
            say("")
        _print_facts(_vacuum_facts(report))
        _print_part("would be deleted" if report.dry_run else "deleted", _REASON, _by_reason(report.deleted))
        _print_part("kept", _REASON, _by_reason(report.kept))
    for failure in report.failed:
        typer.echo(
            f"dbio: {visible(failure.path or report.url)}: {visible(' '.join(failure.message.split()))}", err=True
        )


def _vacuum_facts(report: VacuumReport) -> Mapping[str, str]:
    would = "would be " if report.dry_run else ""
    freed = f"{_count(len(report.deleted), 'object')}, {decimal(sum(it.size for it in report.deleted))}"
    return {
        f"{would}deleted": freed,
        "failed": f"{_count(len(report.failed), 'object')}; run it again" if report.failed else "",
        f"{would}aborted": _some(report.aborted),
        "postponed": f"{_count(len(report.postponed), 'transaction')} for the next vacuum" if report.postponed else "",
        "checkpoint": f"{report.checkpoint} {would}written" if report.checkpoint else "",
        "queued": f"{_count(len(report.queued), 'marker')} for the next vacuum" if report.queued else "",
        "stopped": "before the end; the next vacuum does the rest" if report.stopped else "",
    }


def _some(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _by_reason(deletions: Iterable[Deletion]) -> list[tuple[Reason, Sequence[Deletion]]]:
    groups: dict[Reason, list[Deletion]] = {}
    for it in deletions:
        groups.setdefault(it.reason, []).append(it)
    return sorted(groups.items(), key=lambda group: list(Reason).index(group[0]))


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar for people who wait at a terminal; nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal or _in_pipe():
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


@contextmanager
def status(text: str) -> Iterator[None]:
    """Something that moves, for people who wait at a terminal."""
    console = Console(stderr=True)
    if console.is_terminal and not _in_pipe():
        with console.status(text):
            yield
    else:
        yield


def total(found: Sequence[DataFile | FileInfo | Entry]) -> str:
    return _sized(len(found), _size(found))


def visible(text: str) -> str:
    """The text, with whatever would steer a terminal, or not show at all, escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _in_pipe() -> bool:
    return not sys.stdout.isatty()


def _console() -> Console:
    """Interprets nothing that it prints. In a pipe it wraps nothing."""
    console = Console(markup=False, emoji=False, highlight=False)
    console.width = 1 << 16 if _in_pipe() else max(console.width, _NARROWEST)
    return console


def _print_lines(columns: Sequence[_Column[_T]], things: Iterable[_T]) -> None:
    """For scripts: a line for each thing, exact values between tabs."""
    lines = ["\t".join(visible(_exact(column.value(thing))) for column in columns) for thing in things]
    if lines:
        typer.echo("\n".join(lines))


def _print_pages(columns: Sequence[_Column[_T]], things: Sequence[_T]) -> None:
    for start in range(0, len(things), _PAGE):
        _print_table(columns, things[start : start + _PAGE])


def _print_table(columns: Sequence[_Column[_T]], things: Sequence[_T], *, indent: int = 0) -> None:
    """For people, without the columns that say nothing; those that find no room are named."""
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


def _cell(text: str) -> Text:
    # A column that does not wrap is the last to shrink, but rich would cut its cells then: they fold after all.
    return Text(visible(text), no_wrap=False)


def _print_part(title: str, columns: Sequence[_Column[_T]], things: Sequence[_T]) -> None:
    """A list as a part of an answer; nothing where it is empty."""
    if not things:
        return
    shown = things if _in_pipe() else things[:_LISTED]
    say("")
    say(title, style="bold")
    _print_table(columns, shown, indent=2)
    if len(shown) < len(things):
        say(f"  and {len(things) - len(shown):,} more: --json lists all")


def _print_facts(facts: Mapping[str, str]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        if text:
            table.add_row(name, _cell(text))
    _console().print(Padding.indent(table, 2))


# --- one transaction ----------------------------------------------------------------------------------------------


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
        facts["added"] = total(report.files) + (f", {_count(sum(rows), 'row')}" if rows else "")
        facts["removed"] = _count(commit.removed_files, "file")
        facts["metrics"] = ", ".join(f"{name} {value}" for name, value in commit.metrics.items())
    else:
        facts["written"] = total(report.files)
    return facts


def _summarise(schema: Mapping[str, Any] | None, added: Sequence[FileInfo]) -> list[tuple[str, str, Bounds]]:
    """Each column that the schema or the statistics of a file name: its type, and its bounds over all files."""
    fields = schema.get("fields") if schema else None
    types = {
        str(field["name"]): _type(field.get("type")) + ("" if field.get("nullable", True) else " not null")
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict) and "name" in field
    }
    types |= {column: types.get(column, "") for file in added for column in file.statistics or ()}
    return [(name, kind, _overall(added, name, kind)) for name, kind in types.items()]


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


def _check_facts(report: CheckReport) -> Mapping[str, str]:
    damaged = sum(damage.found for damage in report.wrong_size)
    return {
        "live": _sized(report.live_files, report.live_size),
        "missing": _sized(len(report.missing), report.missing_size) if report.missing else "",
        "wrong size": _sized(len(report.wrong_size), damaged) if report.wrong_size else "",
        "corrupt": _count(len(report.corrupt), "marker") if report.corrupt else "",
        "pending": _count(len(report.pending), "transaction"),
        "garbage": total([entry for entries in report.garbage.values() for entry in entries]),
        "foreign": f"{total(report.foreign)}: no Parquet, and left alone" if report.foreign else "",
    }


def _advice(report: CheckReport) -> str:
    """What to do, in one line."""
    wrong: list[str] = []
    if count := len(report.corrupt):
        wrong.append(
            f"Readers refuse this table: inspect {_count(count, 'corrupt marker')}, and remove what no writer wrote."
        )
    if count := len(report.missing) + len(report.wrong_size):
        wrong.append(f"Readers fail or miss rows: bring {_count(count, 'file')} back from a backup, or overwrite them.")
    if report.another_vacuum:
        wrong.append(
            "Another tool's vacuum may have purged commits: keep it away, and see docs/OPERATIONS.md for what is lost."
        )
    if odd := [it.id for it in report.applications if it.odd]:
        wrong.append(
            f"Writes of {_count(len(odd), 'application')} may be skipped without need, first {odd[0]!r:.100}: look "
            "with `dbio log` how its version came about, and let it write under another id."
        )
    if wrong:
        return " ".join(wrong)
    end_it = f"`dbio abort {shlex.quote(report.url)} TID`"
    if count := sum(transaction.age > timedelta(seconds=MAX_LIFE_S) for transaction in report.pending):
        return f"Nothing is wrong; {_count(count, 'transaction')} can commit no more: end each with {end_it}."
    if report.pending:
        return f"Nothing is wrong; where the writer of a pending transaction is dead, end it with {end_it}."
    if report.garbage:
        return f"Nothing is wrong; `dbio vacuum {shlex.quote(report.url)}` deletes garbage once it is old enough."
    return "Nothing is wrong, and there is nothing to do."


# --- values -------------------------------------------------------------------------------------------------------

_number = "{:,}".format


def _partition(partition: Partition) -> str:
    """As its directory is named; unlike what names directories, this refuses nothing that is there."""
    return "/".join(
        f"{escape(name)}={HIVE_NULL if value is None else escape(value)}" for name, value in partition.items()
    )


def _exact(value: Any) -> str:
    if value is None:
        return ""
    return _iso(value) if isinstance(value, datetime) else str(value)


def _human(column: _Column[_T], thing: _T) -> str:
    value = column.value(thing)
    return "" if value is None else column.human(value)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _sized(number: int, size: int) -> str:
    return f"{_count(number, 'file')}, {decimal(size)}"


def _size(found: Iterable[DataFile | FileInfo | Entry]) -> int:
    return sum(_known(file.size) or 0 for file in found)


def _known(size: int) -> int | None:
    return None if size == UNKNOWN_SIZE else size


def _rows(commit: Commit) -> int | None:
    return commit.metrics.get("numOutputRows")


def _bytes(commit: Commit) -> int | None:
    return commit.metrics.get("numOutputBytes")


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


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


# --- columns ------------------------------------------------------------------------------------------------------


def _texts(name: str) -> list[_Column[str]]:
    return [_Column(name, str, fold=True)]


def _commit_columns(now: datetime) -> list[_Column[Commit]]:
    return [
        _Column("tid", lambda commit: commit.tid),
        _Column("time", lambda commit: commit.timestamp, _time, least_width=120),
        _Column("age", lambda commit: commit.timestamp, lambda at: _age(now - at), right=True, least_width=70),
        _Column("operation", lambda commit: commit.operation, fold=True),
        _Column("added", lambda commit: commit.added_files, _number, right=True, least_width=60),
        _Column("removed", lambda commit: commit.removed_files, _number, right=True, least_width=60),
        _Column("rows", _rows, _number, right=True, least_width=80),
        _Column("size", _bytes, decimal, right=True, least_width=100),
        _Column(
            "application", lambda commit: commit.app and f"{commit.app[0]}:{commit.app[1]}", fold=True, least_width=140
        ),
    ]


_FILE: list[_Column[DataFile]] = [
    _Column("path", lambda file: file.path, fold=True),
    _Column("size", lambda file: _known(file.size), decimal, right=True),
    _Column("tid", lambda file: file.tid, least_width=140),
    _Column("partition", lambda file: _partition(file.partition), fold=True, least_width=160),
]

_ADDED: list[_Column[FileInfo]] = [
    _Column("path", lambda file: file.path, fold=True),
    _Column("rows", lambda file: file.rows, _number, right=True),
    _Column("size", lambda file: _known(file.size), decimal, right=True),
]

_COLUMN: list[_Column[tuple[str, str, Bounds]]] = [
    _Column("column", lambda column: column[0], fold=True),
    _Column("type", lambda column: column[1], fold=True),
    _Column("min", lambda column: column[2].min, fold=True),
    _Column("max", lambda column: column[2].max, fold=True),
    _Column("nulls", lambda column: column[2].nulls, _number, right=True),
]

_SCHEMA: list[_Column[tuple[str, str, str]]] = [
    _Column("column", lambda column: column[0], fold=True),
    _Column("type", lambda column: column[1], fold=True),
    _Column("", lambda column: column[2]),
]

_WRONG_SIZE: list[_Column[WrongSize]] = [
    _Column("path", lambda damage: damage.path, fold=True),
    _Column("expected bytes", lambda damage: damage.expected, _number, right=True),
    _Column("found bytes", lambda damage: damage.found, _number, right=True),
]

_APPLICATION: list[_Column[Application]] = [
    _Column("application", lambda it: it.id, fold=True),
    _Column("version", lambda it: it.version, right=True),
    _Column("tid", lambda it: it.tid, least_width=80),
    _Column("committed", lambda it: it.committed, _time, least_width=100),
    _Column("odd", lambda it: it.odd, fold=True),
]

_PENDING: list[_Column[PendingTransaction]] = [
    _Column("tid", lambda pending: pending.tid),
    _Column("age", lambda pending: pending.age, _age, right=True),
    _Column("started", lambda pending: pending.started, _time, least_width=80),
    _Column("files", lambda pending: pending.files, _number, right=True),
    _Column("size", lambda pending: pending.size, decimal, right=True, least_width=60),
]

_DELETION: list[_Column[Deletion]] = [
    _Column("path", lambda it: it.path, fold=True),
    _Column("size", lambda it: it.size, decimal, right=True),
    _Column("age", lambda it: int(it.age.total_seconds()), lambda s: _age(timedelta(seconds=s)), right=True),
    _Column("why", lambda it: it.reason, fold=True),
]

_REASON: list[_Column[tuple[Reason, Sequence[Deletion]]]] = [
    _Column("why", lambda group: group[0], fold=True),
    _Column("objects", lambda group: len(group[1]), _number, right=True),
    _Column("size", lambda group: sum(it.size for it in group[1]), decimal, right=True),
    _Column("oldest", lambda group: max(it.age for it in group[1]), _age, right=True, least_width=70),
]

_GARBAGE: list[_Column[tuple[Garbage, Sequence[Entry]]]] = [
    _Column("why", lambda kind: kind[0], fold=True),
    _Column("files", lambda kind: len(kind[1]), _number, right=True),
    _Column("size", lambda kind: _size(kind[1]), decimal, right=True),
]
