"""Defines what is settled when a transaction begins (`Terms`), and what it would commit (`CommitRequest`)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dbio_commit.commit.operations import RULES
from dbio_commit.commit.provenance import allowed
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, Operation, as_recorded
from dbio_commit.protocol.markers.descriptor import Origin
from dbio_commit.protocol.markers.files import FileInfo, pack_files
from dbio_commit.protocol.markers.joint import Joint, OtherTable
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.protocol.markers.schema import pack_schema
from dbio_commit.protocol.markers.start import App, StartMarker
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import PARTITION_COLUMNS, Settings, bare_columns
from dbio_commit.protocol.state import Metadata

if TYPE_CHECKING:
    from dbio_commit.base.clock import Moment
    from dbio_commit.commit.isolation import Read


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is settled when a transaction begins. It can be pickled, so that another process resumes the transaction."""

    tid: str
    operation: Operation
    scope: Scope
    partition_columns: tuple[str, ...]
    app: App | None
    must_be_empty: bool
    """Whether it may only commit to a table that has no commits yet."""
    if_match: str | None = None
    """The transaction commits only if no data has changed since the state with this etag (`etag.etag_of`); None: in any
    state."""
    last_erasure: str | None = None
    """For a write that brings removed files back: the last erasure, "" for none. It commits only if there is no later
    one. None for any other write."""
    commit_id: str
    job: str
    """A random uuid in the name of each data file, as in DBIO's names."""
    began: "Moment"
    metadata: Metadata
    """The table's columns and settings when it began."""
    sets: Settings = field(default_factory=dict)
    """The settings that it changes, as `settings.check_changes` returns them."""
    changes_rows: bool = True
    """False for a rewrite whose added files hold exactly the rows of the removed ones."""
    creates: bool = False
    """Whether it created the table."""
    checkpoint_every: int = 0
    """After about this many commits, a writer makes a checkpoint. 0 is never."""
    unclaimed: "Moment | None" = None
    """If the tid is not claimed yet: when the table was read. The task that writes the first file claims the tid."""
    skipped: bool = False
    """Whether its application's version was committed before it began. Then it commits nothing and leaves no marker."""
    origin: Origin | None = None
    """Which table it is. None in the directory scope."""
    provenance: Provenance | None = None
    """Who began it; None if that is not recorded."""
    home: OtherTable | None = None
    """For a part of a joint transaction: the table in which that is decided."""

    @property
    def is_table(self) -> bool:
        """Whether it writes to a table with a descriptor, whose commits record its columns."""
        return self.scope is Scope.TABLE

    @property
    def changes_layout(self) -> bool:
        """Whether it changes the table's partition columns."""
        return PARTITION_COLUMNS in self.sets

    @property
    def is_conditional(self) -> bool:
        """Whether it commits only to a table without commits, or with a given etag."""
        return self.must_be_empty or self.if_match is not None

    @property
    def takes_turn(self) -> bool:
        """Whether it commits only in a turn (I7). If not, it is an append. One that keeps the columns is blind: it
        takes no turn."""
        return bool(RULES[self.operation].needs_state or self.app or self.is_conditional or self.sets or self.home)

    @property
    def begun(self) -> bytes:
        """The body of its start marker. It is empty in the directory scope, which has no `origin`."""
        if self.origin is None:
            return b""
        return encode(
            StartMarker(
                table_id=self.origin.table_id,
                app=self.app,
                takes_turn=self.takes_turn,
                provenance=self.provenance,
                home=self.home,
                job=self.job,
            )
        )


def _bare(files: Sequence[FileInfo], without: Collection[str]) -> Sequence[FileInfo]:
    """The files without the statistics of these columns, which are in lower case."""
    if not without:
        return files
    return [
        replace(it, statistics={name: known for name, known in it.statistics.items() if name.lower() not in without})
        if it.statistics
        else it
        for it in files
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """What a transaction would commit. Paths are relative to the root."""

    terms: Terms
    files: Sequence[FileInfo]
    """The files that become live."""
    schema: Mapping[str, Any] | None = None
    """The table's columns after the commit, as Spark's JSON. None leaves them as they are."""
    rewritten: Collection[str] = ()
    """In a rewrite: the live files that it removes."""
    whole: Collection[str] | None = None
    """In a rewrite with change files: the files, added or removed, whose rows were all added or all removed."""
    clustered: Sequence[str] = ()
    """In a rewrite: the columns by whose values its rows are divided among `files`."""
    read: "Read | None" = None
    """In a rewrite: what it has read. None if it depends only on the files that it removes."""
    replaced: Sequence[names.Partition] = ()
    """In a partition replacement: the partitions that it replaces. If empty, those of `files`."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """More metrics, from the writers of the files."""
    provenance: Provenance | None = None
    """Who makes the commit, and its message and labels; None if that is not recorded."""
    began_s: float = 0.0
    """When its commit began, by the monotonic clock."""
    joint: Joint | None = None
    """The tables of its joint transaction."""
    beside: Callable[[Settings | None], object] | None = None
    """Called with the table's settings, if these publish the table: beside the PUT of the commit marker, and beside the
    look after it."""

    @property
    def data_files(self) -> list[FileInfo]:
        """The `files` that hold rows of the table. The others are change files."""
        return [file for file in self.files if not self._has_changes(file)]

    def _has_changes(self, file: FileInfo) -> bool:
        return self.whole is not None and names.is_change_file(file.path)

    @property
    def changes_schema(self) -> bool:
        return self.schema is not None and self.schema != self.terms.metadata.schema

    def metrics(self, now_s: float) -> dict[str, int]:
        files = self.data_files
        rows = [file.rows for file in files]
        metrics = {
            "numFiles": len(files),
            "numOutputBytes": sum(file.size for file in files),
            "numParts": len({names.split(file.path)[0] for file in files} - {""}),
            "jobCommitTime": self.commit_ms(now_s),
            **self.counted,
        }
        known = [count for count in rows if count is not None]
        return {**metrics, "numOutputRows": sum(known)} if len(known) == len(rows) else metrics

    def commit_ms(self, now_s: float) -> int:
        return round((now_s - self.began_s) * 1000)

    def marker(
        self,
        files: Sequence[FileInfo],
        removed: Sequence[str],
        metrics: dict[str, int],
        *,
        now: datetime,
        origin: Origin | None = None,
        turn: int | None = None,
        metadata: Metadata | None = None,
    ) -> CommitMarker:
        """The commit marker for these files. `metadata` is the table's after the commit, `origin` is its current
        one."""
        return CommitMarker(
            added=[file.path for file in files],
            removed=[*removed, *(file.path for file in files if self._has_changes(file))],
            dbio_commit=CommitInfo(
                recorded=as_recorded(self.terms.operation),
                commit_id=self.terms.commit_id,
                timestamp=now,
                table_id=origin.table_id if origin else None,
                dated=origin.dated if origin else None,
                turn=turn,
                app=self.terms.app,
                provenance=allowed(self.provenance, metadata.settings if metadata else None),
                metrics=metrics,
                schema=pack_schema(metadata and metadata.schema),
                schema_turn=metadata.turn if metadata else None,
                settings=dict(metadata.settings) if metadata and metadata.settings is not None else None,
                data_change=None if self.terms.changes_rows else False,
                files=pack_files(_bare(files, bare_columns(metadata.settings if metadata else None))),
                whole=None if self.whole is None else sorted(self.whole),
                clustered=list(self.clustered) or None,
                joint=self.joint,
            ),
        )
