"""`dbio changes` and `dbio lag`: prints what each commit added and removed, and how far streams are behind."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dbio_commit.cli.output import Column, document, print_list
from dbio_commit.feed.streams import CommitChanges, StreamLag
from dbio_commit.maintenance.figures import age_text, number_text, size_text, time_text


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
