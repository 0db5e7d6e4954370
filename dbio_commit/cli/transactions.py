"""`dbio show` and `dbio adopt`: prints a transaction, committed or not."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dbio_commit.base.figures import count_text, number_text, size_text
from dbio_commit.cli.log import app_json, commit_json, provenance_facts
from dbio_commit.cli.output import Column, document, print_facts, print_part, say, text_column
from dbio_commit.cli.snapshot import summarise, without_nan
from dbio_commit.maintenance.figures import known_size, moment_text, total_json, total_text
from dbio_commit.maintenance.inspect import TransactionReport, TransactionState
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.files import Bounds, FileInfo

# --- dbio show ----------------------------------------------------------------------------------------------------


def print_transaction(report: TransactionReport, now: datetime) -> None:
    commit = report.commit
    say(f"transaction {report.tid} of {report.url}", style="bold")
    print_facts(_facts(report, now))
    if commit:
        print_part("columns", _COLUMN, summarise(commit.schema, report.files))
    is_committed = report.state is TransactionState.COMMITTED
    print_part("added" if is_committed else "written, but not visible to readers", _ADDED, report.files)
    print_part("removed", text_column("path"), commit.removed if commit else ())


def transaction_json(report: TransactionReport) -> dict[str, Any]:
    commit = report.commit
    return document(
        report,
        "url tid state started decided home undecided_directories operation kind data_change app joint provenance "
        "metrics schema settings total files removed",
        undecided_directories=report.undecided,
        operation=commit and commit.operation,
        kind=commit and commit.kind,
        data_change=commit and commit.marker.is_data_change,
        app=commit and app_json(commit.app),
        joint=commit.joint if commit else [],
        metrics=commit.metrics if commit else {},
        schema=commit and without_nan(commit.schema),
        settings=commit and commit.settings,
        total=total_json(report.files),
        files=[_file_json(file) for file in report.files],
        removed=commit.removed if commit else [],
    )


def _facts(report: TransactionReport, now: datetime) -> Mapping[str, str]:
    facts = {"state": str(report.state)}
    if report.started:
        facts["started"] = moment_text(report.started, now)
    if report.decided:
        facts["decided"] = moment_text(report.decided, now)
    if any(report.undecided):  # not only the root
        where = count_text(len(report.undecided), "directory", "directories")
        facts["undecided in"] = f"{where}, first {report.undecided[0] or 'the root'}"
    if report.home:
        facts["decided by"] = report.home
    if (commit := report.commit) and report.state is TransactionState.COMMITTED:
        facts["operation"] = commit.what
        if commit.app:
            facts["application"] = f"{commit.app[0]}, version {commit.app[1]}"
        if commit.joint:
            facts["joint with"] = ", ".join(commit.joint)
        rows = [file.rows for file in report.files if file.rows is not None]
        facts["added"] = total_text(report.files) + (f", {count_text(sum(rows), 'row')}" if rows else "")
        facts["removed"] = count_text(commit.removed_files, "file")
        facts["metrics"] = ", ".join(f"{name} {value}" for name, value in commit.metrics.items())
        facts["settings"] = ", ".join(f"{name}={text}" for name, text in (commit.settings or {}).items())
    else:
        facts["written"] = total_text(report.files)
    return {**facts, **provenance_facts(report.provenance)}


def _file_json(file: FileInfo) -> dict[str, Any]:
    told = {"size": known_size(file.size), "statistics": file.statistics or {}}
    return document(file, "path size rows partition statistics", **told)


_COLUMN: list[Column[tuple[str, str, Bounds]]] = [
    Column("column", lambda column: column[0], fold=True),
    Column("type", lambda column: column[1], fold=True),
    Column("min", lambda column: column[2].min, fold=True),
    Column("max", lambda column: column[2].max, fold=True),
    Column("nulls", lambda column: column[2].nulls, number_text, right=True),
]

_ADDED: list[Column[FileInfo]] = [
    Column("path", lambda file: file.path, fold=True),
    Column("rows", lambda file: file.rows, number_text, right=True),
    Column("size", lambda file: known_size(file.size), size_text, right=True),
]


# --- dbio adopt ---------------------------------------------------------------------------------------------------


def print_adoption(url: str, commit: Commit) -> None:
    hidden = f"; {len(commit.removed):,} hidden ones count as removed" if commit.removed else ""
    say(f"{url} is a table now: {total_text(commit.files)}{hidden}")
    print_part("ignored, as they are not Parquet", text_column("path"), commit.foreign)
    print_part("notes", text_column("about which files"), commit.notes)


def adoption_json(url: str, commit: Commit) -> dict[str, Any]:
    return {"url": url, "commit": commit_json(commit), "foreign": commit.foreign, "notes": commit.notes}
