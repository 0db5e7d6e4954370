"""Decided transactions, and the commits that a history shows. Their order is in `as_of`. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, NamedTuple

from dbio_commit.base import shown
from dbio_commit.base.internal import internal
from dbio_commit.protocol.markers.commit import CommitMarker, unpack_files
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.settings import Settings


class Forgotten(NamedTuple):
    """How many paths a checkpoint left out of a commit, because vacuum has deleted these files."""

    added: int = 0
    removed: int = 0


class Decided(NamedTuple):
    """A decided transaction, committed or aborted: its commit marker, and that marker's modification time."""

    modified: datetime
    tid: str
    marker: CommitMarker
    forgotten: Forgotten = Forgotten()
    place: int | None = None
    """Its place in the checkpoint, None if none covers it. That order is kept: the paths that proved it may be
    forgotten."""
    referred: Sequence[str] = ()
    """The transactions that its marker removed by reference, if paths have replaced these references: it comes after
    them."""


class LateCommits(ABC):
    """Reads the paths that an outline of a transaction lacks, because they are in parts of a checkpoint."""

    @abstractmethod
    def whole(self, tid: str) -> Decided:
        """The transaction with all of its paths."""

    @abstractmethod
    def removed_files(self, tid: str) -> int:
        """How many data files it removed."""


@internal("forgotten", "late", "marker")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Commit:
    """A commit: the result of a write, or an entry of a table's history."""

    tid: str
    """The id of its transaction. If `skipped`, the id of the commit that was found; "" if there is none."""
    timestamp: datetime
    """When it was committed: in a history by the store's clock, in the result of a write by the writer's clock."""
    marker: CommitMarker = field(repr=False)
    """The body of its marker."""
    skipped: bool = False
    """True for the result of a write that committed nothing. Its (application id, version) was committed already, or
    its mode was "ignore" and the table exists, or the source of a merge has no rows."""
    forgotten: Forgotten = field(default=Forgotten(), repr=False)
    """How many paths `added` and `removed` lack, because vacuum has deleted those files since."""
    foreign: Sequence[str] = field(default=(), repr=False)
    """The paths of files that are no Parquet and were left alone, relative to the root. Only adoptions, and overwrites
    in the directory scope, have any."""
    notes: Sequence[str] = field(default=(), repr=False)
    """In the result of an adoption: sentences about files that need attention."""
    late: LateCommits | None = field(default=None, repr=False)
    """Reads the paths of a transaction in parts when they are asked for. `marker` and `forgotten` are then those of an
    outline: the marker has no paths, and all paths count as forgotten."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Commit) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has all paths, because another process may have no right to read the parts."""
        return _commit, (self._facts(),)

    def _facts(self) -> dict[str, Any]:
        """The values of the fields, with all paths."""
        facts = {it.name: getattr(self, it.name) for it in fields(self) if it.name != "late"}
        whole = self._whole
        return {**facts, "marker": whole.marker, "forgotten": whole.forgotten}

    @property
    def _whole(self) -> Decided:
        if self.late is not None:
            return self.late.whole(self.tid)
        return Decided(self.timestamp, self.tid, self.marker, self.forgotten)

    def __repr__(self) -> str:
        rows = self.metrics.get("numOutputRows")
        files = f"{self.added_files:,} files added" + (f" with {rows:,} rows" if rows is not None else "")
        what = "skipped" if self.skipped else f"{files}, {self.removed_files:,} removed"
        return f"<Commit {self.tid or 'of nothing'}: {self.what}, {self.timestamp:%Y-%m-%d %H:%M:%S%z}, {what}>"

    def _repr_html_(self) -> str:
        """Tables for notebooks. Reads nothing."""
        filled = {name: value for name, value in zip(_IN_SHORT, _in_short(self), strict=True) if value != ""}
        more = {"Metrics": self.metrics, "Made by": _made_by(self), "Labels": self.labels}
        tables = (shown.facts(title, it) for title, it in more.items() if it)
        return shown.facts("Commit", filled | {"skipped": self.skipped}) + "".join(tables)

    @property
    def operation(self) -> str:
        """What it did: one of "append", "overwrite", "overwrite_partitions", "rewrite", "adopt" or "abort".

        "unknown" for a commit of another DBIO writer.
        """
        return self.marker.dbio_commit.operation if self.marker.dbio_commit else "unknown"

    @property
    def kind(self) -> str | None:
        """What an operation with several uses did: "compact", "restore", "merge", "update", "replace" or "delete".

        None for other commits, as far as the writer's metrics show.
        """
        if not self.marker.is_data_change:
            return "compact"
        return next((kind for metric, kind in _KINDS.items() if metric in self.metrics), None)

    @property
    def what(self) -> str:
        """The operation with its kind, such as "rewrite (merge)"."""
        return f"{self.operation} ({self.kind})" if self.kind else self.operation

    @property
    def provenance(self) -> Provenance | None:
        """Who made it: host, user, process, software, Spark application; None if nobody recorded that."""
        return self.marker.dbio_commit.provenance if self.marker.dbio_commit else None

    @property
    def message(self) -> str | None:
        """The `message` that its caller gave it; None if it has none."""
        return self.provenance.message if self.provenance else None

    @property
    def labels(self) -> Mapping[str, str]:
        """The `labels` that its caller gave it: short texts by name."""
        return (self.provenance.labels if self.provenance else None) or {}

    @property
    def joint(self) -> Sequence[str]:
        """The other tables of its joint transaction, by the paths of their roots from this one; else empty."""
        return self.marker.joint_with

    @property
    def added(self) -> Sequence[str]:
        """The paths of the data files that it added, relative to the root; `added_files` is their number.

        Files that vacuum has deleted since may be left out.
        """
        return self._whole.marker.data_files

    @property
    def removed(self) -> Sequence[str]:
        """The paths of the data files that it removed, relative to the root; `removed_files` is their number.

        Files that vacuum has deleted since may be left out.
        """
        return self._whole.marker.removed_data_files

    @property
    def change_files(self) -> Sequence[str]:
        """The paths of its change files, which record the rows that it changed; relative to the root."""
        return self._whole.marker.change_files

    @property
    def added_files(self) -> int:
        """How many data files it added: a number, also of those that `added` does not list any more."""
        return self.forgotten.added if self.late is not None else len(self.added) + self.forgotten.added

    @property
    def removed_files(self) -> int:
        """How many data files it removed: a number, also of those that `removed` does not list any more."""
        if self.late is not None:
            return self.late.removed_files(self.tid)
        return len(self.removed) + self.forgotten.removed

    @property
    def files(self) -> list[FileInfo]:
        """What its writer recorded about each file in `added`: size, rows, partition and statistics."""
        marker = self._whole.marker
        changes = set(marker.change_files)
        return [info for info in unpack_files(marker) if info.path not in changes]

    @property
    def metrics(self) -> Mapping[str, int]:
        """numFiles, numOutputBytes, numOutputRows, numParts and jobCommitTime, as far as its writer knew them.

        `jobCommitTime` is in milliseconds. In the result of a write, it is the time of the whole commit; in a history,
        it ends before the marker is written. Rewrites add counts of rows, such as `numDeletedRows`.
        """
        return self.marker.dbio_commit.metrics if self.marker.dbio_commit else {}

    @property
    def app(self) -> tuple[str, int] | None:
        """The (application id, version) that the write was given as `app`; a day or a time is a number here."""
        app = self.marker.dbio_commit.app if self.marker.dbio_commit else None
        return (app.id, app.version) if app else None

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The table's columns after it, as Spark's JSON; None if its writer did not record them."""
        return self.marker.dbio_commit.table_schema if self.marker.dbio_commit else None

    @property
    def settings(self) -> Settings | None:
        """The table's settings after it; None if the table had no settings yet."""
        return self.marker.dbio_commit.settings if self.marker.dbio_commit else None


_KINDS = {
    "numRestoredFiles": "restore",
    "numTargetRowsCopied": "merge",
    "numUpdatedRows": "update",
    "numInsertedRows": "replace",
    "numDeletedRows": "delete",
}
"""A commit has the kind of its first metric in this order."""

KINDS = ("compact", *_KINDS.values())
"""The values of `Commit.kind`."""


def _commit(facts: Mapping[str, Any]) -> Commit:
    return Commit(**facts)


class CommitList(list[Commit]):
    """The commits of a history, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return shown.rows("Commits", _IN_SHORT, map(_in_short, self), count=len(self))


_IN_SHORT = ("tid", "committed", "operation", "rows", "files added", "files removed", "application", "user", "message")


def _in_short(commit: Commit) -> tuple[object, ...]:
    """What a table shows of a commit, without reading what is in parts."""
    return (
        commit.tid,
        commit.timestamp,
        commit.what,
        commit.metrics.get("numOutputRows", ""),
        commit.added_files,
        commit.removed_files if commit.late is None else "",
        commit.app or "",
        (commit.provenance.user if commit.provenance else None) or "",
        commit.message or "",
    )


def _made_by(commit: Commit) -> Mapping[str, object]:
    """The facts of its provenance that are known, as texts: a number would be shown as a count."""
    facts = {name: getattr(commit.provenance, name) for name in _FACTS} if commit.provenance else {}
    return {name: str(fact) for name, fact in facts.items() if fact is not None}


_FACTS = ("host", "user", "process", "software", "spark_application", "spark_job")


def recorded_files(commits: Iterable[Decided]) -> dict[str, FileInfo]:
    """What the writers of these commits recorded about each file that they added, by its path."""
    return {info.path: info for commit in commits for info in unpack_files(commit.marker)}


def recorded_rows(commits: Iterable[Decided]) -> dict[str, int | None]:
    """How many rows each added file of these commits has, by its path; None if its writer did not record it."""
    described = ((it.marker.added, it.marker.dbio_commit.files) for it in commits if it.marker.dbio_commit)
    return {path: rows for added, files in described if files for path, rows in zip(added, files.rows, strict=True)}


def count_rows(paths: Iterable[str], known: Mapping[str, int | None]) -> int | None:
    """How many rows these files have together; None if a writer did not record it."""
    counts = [known.get(path) for path in paths]
    return None if None in counts else sum(count or 0 for count in counts)


AsOf = datetime | str | None
"""A state of the table: a time (aware, or ISO 8601 text with a zone), or the tid of a commit. None is now."""


def latest(*times: datetime | None) -> datetime | None:
    """The latest of the times that are known; None if none is."""
    return max((time for time in times if time), default=None)
