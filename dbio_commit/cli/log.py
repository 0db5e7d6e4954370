"""`dbio log`, `changes` and `lag`: chooses commits, and prints them. For `show` and `check`, too: who made a commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.figures import age_text, number_text, size_text, time_text
from dbio_commit.cli.output import Column, document, in_pipe, print_list, say
from dbio_commit.feed.streams import CommitChanges, StreamLag
from dbio_commit.maintenance.trace import FileTrace
from dbio_commit.protocol.as_of import parse_time
from dbio_commit.protocol.commits import KINDS, Commit
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.provenance import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which commits to print. None stands for all."""

    most: int | None = None
    since: str | None = None
    until: str | None = None
    app: str | None = None
    operation: str | None = None

    def of(self, commits: Sequence[Commit]) -> list[Commit]:
        """These commits, in their order. Raises InvalidInputError for a time that cannot be read, and for an operation
        that no commit can have."""
        operation = None if self.operation is None else _operation(self.operation, commits)
        since, until = (_moment(text, commits, name) for text, name in ((self.since, "since"), (self.until, "until")))
        found = [
            commit
            for commit in commits
            if (since is None or _shown(commit.timestamp, since) >= since)
            and (until is None or commit.timestamp <= until)
            and (self.app is None or (commit.app is not None and commit.app[0] == self.app))
            and (operation is None or operation in (commit.operation, commit.kind, commit.what))
        ]
        return found if self.most is None else found[: self.most]


def _operation(text: str, commits: Sequence[Commit]) -> str:
    """The operation, its kind, or both as the log prints them: "rewrite (merge)"."""
    word = text.lower()
    known = {*_OPERATIONS, *KINDS, *(f"{it} ({kind})" for it in _OPERATIONS for kind in KINDS)}
    if word not in known and not any(word in (it.operation, it.what) for it in commits):  # others record other words
        raise InvalidInputError(
            f"--operation {text!r:.100} is none of {', '.join((*_OPERATIONS, *KINDS))}, and not two of them as "
            "the log prints them, such as 'rewrite (merge)'"
        )
    return word


_OPERATIONS = tuple(it for it in get_args(Operation) if it != "abort")


def _shown(at: datetime, since: datetime) -> datetime:
    """The time, in whole seconds if `since` is in whole seconds: then a user has copied it from the log."""
    return at if since.microsecond else at + timedelta(microseconds=-at.microsecond % 1_000_000)


def _moment(text: str | None, commits: Sequence[Commit], name: str) -> datetime | None:
    """The time; of a tid, that of the commit."""
    if text is None:
        return None
    return next((commit.timestamp for commit in commits if commit.tid == text), None) or parse_time(text, what=name)


def print_log(commits: Sequence[Commit], now: datetime) -> None:
    print_list(_commit_columns(now), commits, "no commits")


def log_json(url: str, commits: Sequence[Commit]) -> dict[str, Any]:
    return {"url": url, "commits": [commit_json(it) for it in commits]}


def commit_json(commit: Commit) -> dict[str, Any]:
    return document(
        commit,
        "tid time operation kind data_change added_files removed_files rows size app joint provenance",
        time=commit.timestamp,
        data_change=commit.marker.is_data_change,
        rows=_rows(commit),
        size=_bytes(commit),
        app=app_json(commit.app),
    )


def app_json(app: tuple[str, int] | None) -> dict[str, Any] | None:
    return {"id": app[0], "version": app[1]} if app else None


def app_text(app: tuple[str, int] | None) -> str | None:
    return f"{app[0]}:{app[1]}" if app else None


def _commit_columns(now: datetime) -> list[Column[Commit]]:
    """The columns for people, in the order of lines in a pipe. A terminal of 80 columns has room for the first five."""
    return [
        Column("tid", lambda commit: commit.tid),
        Column("time", _time, time_text, least_width=50),
        Column("age", _time, lambda at: age_text(now - at), right=True, least_width=120, is_for_people=True),
        Column("operation", lambda commit: f"{commit.what}, joint" if commit.joint else commit.what, fold=True),
        Column("added", lambda commit: commit.added_files, number_text, right=True, least_width=70),
        Column("removed", lambda commit: commit.removed_files, number_text, right=True, least_width=80),
        Column("rows", _rows, number_text, right=True, least_width=95),
        Column("size", _bytes, size_text, right=True, least_width=105),
        Column("application", lambda commit: app_text(commit.app), fold=True, least_width=140),
        Column("message", lambda commit: commit.message, fold=True, least_width=130),
        Column("by", lambda commit: by_text(commit.provenance), fold=True, least_width=150),
    ]


def _time(commit: Commit) -> datetime:
    return commit.timestamp


def _rows(commit: Commit) -> int | None:
    return commit.metrics.get("numOutputRows")


def _bytes(commit: Commit) -> int | None:
    return commit.metrics.get("numOutputBytes")


# --- of one file --------------------------------------------------------------------------------------------------


def print_trace(trace: FileTrace, now: datetime) -> None:
    did = {id(commit): name for name, commit in _steps(trace)}
    first: Column[Commit] = Column("the file was", lambda commit: did[id(commit)])
    columns, commits = [first, *_commit_columns(now)], [commit for _, commit in _steps(trace)]
    if in_pipe():
        return print_list(columns, commits)
    say(trace.path, style="bold")
    print_list(columns, commits)
    say("it is live" if trace.is_live else "it is not live")
    if trace.added is None:
        gone = f"; it may be a file of transaction {trace.writer} that was deleted" if trace.writer else ""
        say(f"the history does not remember which commit added it{gone}")


def trace_json(url: str, trace: FileTrace) -> dict[str, Any]:
    added, removed = (commit_json(it) if it else None for it in (trace.added, trace.removed))
    return document(
        trace, "url path live writer added removed", url=url, live=trace.is_live, added=added, removed=removed
    )


def _steps(trace: FileTrace) -> list[tuple[str, Commit]]:
    both = ("removed by", trace.removed), ("added by", trace.added)
    return [(name, commit) for name, commit in both if commit is not None]


def refuse_both(file: str | None, partition: Sequence[str], choice: Choice) -> None:
    """Raises InvalidInputError if commits are asked for in two ways."""
    if file is not None and (partition or choice != Choice()):
        raise InvalidInputError("--file shows at most two commits: give it without the other options")


# --- who made a commit ------------------------------------------------------------------------------------------------


def by_text(by: Provenance | None) -> str | None:
    """The user and the host."""
    return "@".join(filter(None, (by.user, by.host))) or None if by else None


def labels_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in labels.items())


def provenance_facts(by: Provenance | None) -> Mapping[str, str]:
    """All of it, for people."""
    if by is None:
        return {}
    process = f"process {by.process}" if by.process is not None else None
    return {
        "message": by.message or "",
        "labels": labels_text(by.labels or {}),
        "by": ", ".join(filter(None, (by_text(by), process, by.software))),
        "spark": ", ".join(filter(None, (by.spark_application, by.spark_job))),
    }


# --- dbio changes, dbio lag ------------------------------------------------------------------------------------------


def print_changes(changes: Sequence[CommitChanges]) -> None:
    print_list(_CHANGES, changes, "no commits")


def changes_json(url: str, changes: Sequence[CommitChanges]) -> dict[str, Any]:
    return {"url": url, "changes": [_change_json(it) for it in changes]}


def _change_json(it: CommitChanges) -> dict[str, Any]:
    return document(
        it,
        "tid time operation inserted deleted updated recorded",
        time=it.timestamp,
        inserted={"files": len(it.inserted), "rows": it.inserted_rows},
        deleted={"files": len(it.deleted), "rows": it.deleted_rows},
        updated={"rows": it.updated_rows},
        recorded={"files": len(it.recorded)},
    )


_CHANGES: list[Column[CommitChanges]] = [
    Column("tid", lambda it: it.tid),
    Column("time", lambda it: it.timestamp, time_text, least_width=100),
    Column("operation", lambda it: it.operation, fold=True),
    Column("files in", lambda it: len(it.inserted), number_text, right=True, least_width=60),
    Column("rows in", lambda it: it.inserted_rows, number_text, right=True),
    Column("files out", lambda it: len(it.deleted), number_text, right=True, least_width=60),
    Column("rows out", lambda it: it.deleted_rows, number_text, right=True),
    Column("updated", lambda it: it.updated_rows, number_text, right=True, least_width=100),
]


def print_lags(lags: Sequence[StreamLag], now: datetime) -> None:
    print_list(_lag_columns(now), lags)


def lags_json(url: str, lags: Sequence[StreamLag]) -> dict[str, Any]:
    return {"url": url, "streams": [_lag_json(it) for it in lags]}


def _lag_json(it: StreamLag) -> dict[str, Any]:
    behind = {"commits": it.commits, "files": it.files, "size": it.size_bytes}
    return document(it, "query batch behind oldest", behind=behind)


def _lag_columns(now: datetime) -> list[Column[StreamLag]]:
    return [
        Column("query", lambda it: it.query, fold=True),
        Column("batch", lambda it: it.batch, number_text, right=True, least_width=60),
        Column("commits behind", lambda it: it.commits, number_text, right=True),
        Column("files", lambda it: it.files, number_text, right=True),
        Column("size", lambda it: it.size_bytes, size_text, right=True),
        Column("oldest", lambda it: it.oldest, lambda at: age_text(now - at), right=True, least_width=80),
    ]
