"""`dbio check`: prints what is wrong with a table, pending or garbage, and what to do about it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from dbio_commit.base.figures import age_text, count_text, number_text, size_text, time_text
from dbio_commit.base.texts import command
from dbio_commit.cli.log import app_json, app_text, by_text
from dbio_commit.cli.output import Column, document, print_facts, print_part, say, text_column
from dbio_commit.commit.root import MAX_LIFE_S
from dbio_commit.log.lost_markers import BRING_BACK
from dbio_commit.maintenance.check import CheckReport, PendingTransaction, WrongSize
from dbio_commit.maintenance.figures import files_text, size_of, total_json, total_text
from dbio_commit.protocol import names
from dbio_commit.protocol.applications import Application
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import OF_FILES, Reason
from dbio_commit.protocol.scope import Scope

KEEPS_VERSIONS = "kept by the store: deleted files take space until a lifecycle rule removes them (docs/VACUUM.md)"


def print_check(report: CheckReport) -> None:
    say(report.url, style="bold")
    print_facts(_facts(report))
    print_part("missing", text_column("path"), report.missing)
    print_part("of another size than recorded", _WRONG_SIZE, report.wrong_size)
    print_part("partition values", text_column("what is wrong"), _named(report.unread_values))
    print_part("files that some engines cannot read, or misread", _MISREAD, list(report.misread.items()))
    print_part("corrupt markers", text_column("what is wrong"), list(report.corrupt.values()))
    print_part("another tool's vacuum", text_column("its traces"), report.another_vacuum)
    print_part("of another table", text_column("path"), report.strange)
    print_part("publications", text_column("what is wrong"), report.publications)
    print_part("engines that cannot read the Delta log", text_column("why"), report.unread_by)
    print_part("settings that no writer evaluates", text_column("what is wrong"), report.refused_settings)
    clustering = report.clustering.sentences() if report.clustering else []
    print_part("clustering", text_column("how well"), clustering)
    print_part("statistics", text_column("what is wrong"), _statistics(report))
    print_part("commit markers that are probably lost", text_column("what shows it"), _lost(report))
    print_part("pending", _PENDING, report.pending)
    print_part("garbage", _GARBAGE, list(report.garbage.items()))
    print_part("applications", _APPLICATION, report.applications)
    print_part("foreign", text_column("path"), [entry.path for entry in report.foreign])
    say("")
    say(advice(report), style="bold green" if report.ok else "bold red")


def check_json(report: CheckReport) -> dict[str, Any]:
    return document(
        report,
        "url scope ok live missing wrong_size unread_values misread corrupt another_vacuum strange redated_until "
        "publications unread_by refused_settings clustering keeps_versions useless_statistics without_statistics "
        "unkept_statistics pending garbage foreign applications advice",
        live={"files": report.live_files, "size": report.live_size},
        missing={"files": len(report.missing), "size": report.missing_size, "paths": report.missing},
        unread_values=_problems_json(report.unread_values),
        misread=_problems_json(report.misread),
        corrupt=_problems_json(report.corrupt),
        useless_statistics=_problems_json(report.useless_statistics),
        without_statistics=[{"path": path, "files": files} for path, files in report.without_statistics.items()],
        unkept_statistics=report.unkept_statistics or None,
        pending=[_pending_json(it) for it in report.pending],
        garbage={kind.name.lower(): total_json(report.garbage.get(kind, [])) for kind in (*OF_FILES, Reason.PART)},
        foreign=[entry.path for entry in report.foreign],
        applications=[document(it, "id version tid committed odd", odd=it.odd or None) for it in report.applications],
        advice=advice(report),
    )


def _problems_json(problems: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"path": path, "problem": problem} for path, problem in problems.items()]


def _pending_json(it: PendingTransaction) -> dict[str, Any]:
    names = "tid started age_s files size whole home lost_marker app provenance"
    age_s = int(it.age.total_seconds())
    return document(it, names, age_s=age_s, lost_marker=it.lost_marker or None, app=app_json(it.app))


def _statistics(report: CheckReport) -> list[str]:
    """Why readers do not skip files by their values. Nothing of this is wrong."""
    left_out = [
        f"{path}: the statistics of {count_text(files, 'file')} were left out, because they would have been too large; "
        "a compaction records statistics of the files that it writes"
        for path, files in report.without_statistics.items()
    ]
    unkept = [report.unkept_statistics] if report.unkept_statistics else []
    return [*unkept, *report.useless_statistics.values(), *left_out]


def _lost(report: CheckReport) -> list[str]:
    return [
        f"{names.committed(it.tid)}: {it.lost_marker}; its {files_text(it.files, it.size)} "
        f"{'can be read' if it.whole else 'cannot all be read' if it.whole is False else 'were not looked at'}"
        for it in report.pending
        if it.lost_marker
    ]


def _named(problems: Mapping[str, str]) -> list[str]:
    return [f"{path}: {problem}" for path, problem in problems.items()]


def _facts(report: CheckReport) -> Mapping[str, str]:
    damaged = sum(damage.found for damage in report.wrong_size)
    garbage = [*report.garbage.values()]
    return {
        "live": files_text(report.live_files, report.live_size),
        "missing": files_text(len(report.missing), report.missing_size) if report.missing else "",
        "wrong size": files_text(len(report.wrong_size), damaged) if report.wrong_size else "",
        "misread": count_text(len(report.misread), "file") if report.misread else "",
        "corrupt": count_text(len(report.corrupt), "marker") if report.corrupt else "",
        "pending": count_text(len(report.pending), "transaction"),
        "garbage": files_text(sum(map(len, garbage)), sum(map(size_of, garbage))),
        "foreign": f"{total_text(report.foreign)}: not Parquet, ignored" if report.foreign else "",
        "copied": f"until {time_text(report.redated_until)}: earlier states cannot be read"
        if report.redated_until
        else "",
        "versions": KEEPS_VERSIONS if report.keeps_versions else "",
    }


def advice(report: CheckReport) -> str:
    """What to do, in one line. Also shown on the page of `dbio report`."""
    wrong: list[str] = []
    if lost := [it.tid for it in report.pending if it.lost_marker]:
        wrong.append(
            f"Readers probably miss {count_text(len(lost), 'commit')}, whose markers somebody has deleted, first "
            f"{names.committed(lost[0])}: {BRING_BACK}. If its writer is at work, or has failed, nothing is lost."
        )
    if count := len(report.corrupt):
        markers = count_text(count, "corrupt marker")
        wrong.append(
            f"Readers refuse this table: bring {markers} back from a version of the bucket or from a backup, and see "
            "docs/OPERATIONS.md."
        )
    if count := len(report.missing) + len(report.wrong_size):
        files = count_text(count, "file")
        wrong.append(f"Readers fail or miss rows: bring {files} back from a backup, or overwrite them.")
    if count := len(report.unread_values):
        wrong.append(
            f"Readers disagree about the partition of {count_text(count, 'file')}: write their rows again, see "
            "docs/OPERATIONS.md."
        )
    if count := len(report.misread):
        wrong.append(
            f"Some engines cannot read, or misread, {count_text(count, 'file')}: "
            f"`{command('dbio', 'compact', report.url)}` rewrites adopted files that spell a column "
            "differently; bring others back from a backup, or overwrite them."
        )
    if report.another_vacuum:
        wrong.append(
            "Another tool's vacuum may have purged commits: do not run it here, and see docs/OPERATIONS.md for losses."
        )
    if count := len(report.strange):
        wrong.append(
            f"{count_text(count, 'object')} of the log belong to another table, and are ignored: see "
            "docs/OPERATIONS.md for what to do."
        )
    if report.refused_settings:
        wrong.append(
            "Writers refuse this table because of its settings: change or remove those listed, with `dbio set`."
        )
    if report.publications:
        wrong.append(
            "Other engines do not see the current table: see docs/PUBLISH.md for how to repair the publications."
        )
    if odd := [it.id for it in report.applications if it.odd]:
        wrong.append(
            f"Writes of {count_text(len(odd), 'application')} may be skipped by mistake, first {odd[0]!r:.100}: find "
            "the commit of its version with `dbio log`, and let the application write under another id."
        )
    if wrong:
        return " ".join(wrong)
    end_it = f"`{command('dbio', 'abort', report.url, 'TID')}`"
    if count := sum(transaction.age > timedelta(seconds=MAX_LIFE_S) for transaction in report.pending):
        return f"Nothing is wrong; {count_text(count, 'transaction')} can no longer commit: abort each with {end_it}."
    if any(it.whole for it in report.pending):
        return (
            "Nothing is known to be wrong. If the writer of a pending transaction has reported a commit, its commit "
            f"marker was deleted: bring it back, see docs/OPERATIONS.md. If the writer is dead, abort it with {end_it}."
        )
    if report.pending:
        return f"Nothing is wrong; if the writer of a pending transaction is dead, abort it with {end_it}."
    if report.unkept_statistics and report.scope is Scope.TABLE:
        return f"Nothing is wrong; `{command('dbio', 'checkpoint', report.url)}` lets readers skip files again."
    if report.garbage:
        return f"Nothing is wrong; `{command('dbio', 'vacuum', report.url)}` deletes garbage once it is old enough."
    return "Nothing is wrong, and there is nothing to do."


_WRONG_SIZE: list[Column[WrongSize]] = [
    Column("path", lambda damage: damage.path, fold=True),
    Column("expected bytes", lambda damage: damage.expected, number_text, right=True),
    Column("found bytes", lambda damage: damage.found, number_text, right=True),
]

_MISREAD: list[Column[tuple[str, str]]] = [
    Column("path", lambda file: file[0], fold=True),
    Column("what is wrong", lambda file: file[1], fold=True),
]

_PENDING: list[Column[PendingTransaction]] = [
    Column("tid", lambda pending: pending.tid),
    Column("age", lambda pending: pending.age, age_text, right=True),
    Column("started", lambda pending: pending.started, time_text, least_width=100),
    Column("files", lambda pending: pending.files, number_text, right=True),
    Column("size", lambda pending: pending.size, size_text, right=True, least_width=60),
    Column("by", lambda pending: by_text(pending.provenance), fold=True, least_width=60),
    Column("application", lambda pending: app_text(pending.app), fold=True, least_width=120),
    Column("decided by", lambda pending: pending.home, fold=True, least_width=100),
    Column(
        "spark", lambda pending: pending.provenance and pending.provenance.spark_application, fold=True, least_width=80
    ),
    Column("message", lambda pending: pending.provenance and pending.provenance.message, fold=True, least_width=140),
]

_GARBAGE: list[Column[tuple[Reason, Sequence[Entry]]]] = [
    Column("why", lambda kind: kind[0], fold=True),
    Column("files", lambda kind: len(kind[1]), number_text, right=True),
    Column("size", lambda kind: size_of(kind[1]), size_text, right=True),
]

_APPLICATION: list[Column[Application]] = [
    Column("application", lambda it: it.id, fold=True),
    Column("version", lambda it: it.version, right=True),
    Column("tid", lambda it: it.tid, least_width=80),
    Column("committed", lambda it: it.committed, time_text, least_width=100),
    Column("odd", lambda it: it.odd, fold=True),
]
