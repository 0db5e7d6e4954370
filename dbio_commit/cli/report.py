"""`dbio report`: writes a page about the health of tables, and prints a summary."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.base.figures import count_text
from dbio_commit.base.logs import get_logger
from dbio_commit.cli.check import advice
from dbio_commit.cli.output import one_line, say, say_error
from dbio_commit.feed.streams import StreamLag
from dbio_commit.maintenance.report.health import Vacuumed, look
from dbio_commit.maintenance.report.page import Subject, render_page, rendered
from dbio_commit.maintenance.vacuum.report import VacuumOptions, in_short
from dbio_commit.table import Table, vacuum_table

_log = get_logger(__name__)


def look_at(table: Table, options: VacuumOptions, streams: Sequence[StreamLag] = ()) -> Subject:
    """Reads all markers and lists all files of a table, and changes nothing. Any error is a part of the result, so that
    the page still shows other tables."""
    try:
        check = table.check()
        snapshot = table.snapshot(ignore_corrupt_markers=True)  # `check` names the corrupt ones
        vacuumed, now = _dry_run(table, options), table.clock.now()
        health = look(snapshot, at=now, vacuumed=vacuumed, check=check, advice=advice(check), streams=streams)
    except DbioError as error:
        return Subject(name=table.url, note=one_line(error), failed=True)
    except Exception as error:  # a defect of dbio-commit
        _log.exception("%s cannot be looked at", table.url)
        return Subject(name=table.url, note=f"dbio-commit fails with {type(error).__name__}; see the log", failed=True)
    return Subject(name=table.url, health=health)


def find_streams(tables: Sequence[Table], checkpoints: Sequence[str]) -> dict[str, list[StreamLag]]:
    """How far streams are behind the tables that they read, by the tables' URLs.

    Raises InvalidInputError for a checkpoint of a stream that reads none of them.
    """
    found: dict[str, list[StreamLag]] = {table.url: [] for table in tables}
    for checkpoint in checkpoints:
        lags, error = {}, None
        for table in tables:
            try:
                lags[table.url] = table.lag(checkpoint)
            except DbioError as failure:
                error = failure
        if not lags:
            raise InvalidInputError(f"{checkpoint} is no checkpoint of a stream that reads one of the tables: {error}")
        for url, lag in lags.items():
            found[url].append(lag)
    return found


def _dry_run(table: Table, options: VacuumOptions) -> Vacuumed | str:
    """The result of a dry run, or the error, such as a corrupt marker: the page then shows the rest."""
    try:
        return in_short(vacuum_table(table, options, dry_run=True))
    except DbioError as error:
        return one_line(error)


def write_page(file: Path, subjects: Sequence[Subject], at: datetime) -> Sequence[Subject]:
    """Returns what the page shows. Raises InvalidInputError if the file cannot be written."""
    page, shown = rendered(
        subjects,
        lambda them: render_page(them, at=at),
        lambda it, error: _log.error("%s cannot be shown", it.name, exc_info=error),
    )
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {file}: {error.strerror}; name a file in an existing directory"
        ) from error
    return shown


def print_report(file: Path, subjects: Sequence[Subject]) -> None:
    say(f"wrote {file}: the health of {count_text(len(subjects), 'table')}")
    for subject in subjects:
        if subject.wrong:
            say_error(f"{subject.name}: {_message(subject)}")


def report_json(file: Path, subjects: Sequence[Subject]) -> dict[str, Any]:
    tables = [{"url": it.name, "ok": not it.wrong, "message": _message(it)} for it in subjects]
    return {"report": str(file), "tables": tables}


def _message(subject: Subject) -> str:
    """The advice of the check, or the error."""
    return subject.health.advice if subject.health else subject.note
