"""Begins a transaction: looks at the path, creates the table if nothing is there, and claims a tid."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    SchemaMismatchError,
    TableNotFoundError,
)
from dbio_commit.base.logs import get_logger
from dbio_commit.base.options import checkpoint_every
from dbio_commit.commit.applications import is_committed
from dbio_commit.commit.context import JOINING, WriteContext
from dbio_commit.commit.directory_root import DirectoryRoot, left_alone
from dbio_commit.commit.probe import create
from dbio_commit.commit.provenance import NO_NOTE, Note, provenance_of
from dbio_commit.commit.request import Terms
from dbio_commit.commit.root import Target
from dbio_commit.commit.roots import KINDS
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.commit.tids import new_tid, new_uuid
from dbio_commit.commit.transaction import Transaction
from dbio_commit.log.directory_log import DirectoryLog
from dbio_commit.log.listing import until_quiet
from dbio_commit.log.opening import find_log, outer_table, read_snapshot, refuse_inside
from dbio_commit.log.table_log import TableLog
from dbio_commit.protocol import names
from dbio_commit.protocol.etag import check_etag
from dbio_commit.protocol.garbage import is_foreign
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.descriptor import Descriptor, Origin, decode_descriptor
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import PARTITION_COLUMNS, Layout, Settings, change, layout_text
from dbio_commit.protocol.versions import AppVersion, version_number
from dbio_commit.store import Store

_log = get_logger(__name__)


def look(store: Store, clock: Clock, *, must_be_empty: bool = False) -> Target:
    """The target at the root, as it is now; writes nothing.

    Raises TableExistsError if there are commits and `must_be_empty`, InvalidInputError if there is nothing and the root
    lies in a table.
    """
    return until_quiet(store, lambda: _look(store, clock, must_be_empty=must_be_empty))


def _look(store: Store, clock: Clock, *, must_be_empty: bool) -> Target:
    looked = clock.moment()
    if target := TableRoot(store, clock).find_target(must_be_empty=must_be_empty, looked=looked):
        return target
    found, outer = store.together(lambda: find_log(store, clock, at_once=True), lambda: outer_table(store))
    if isinstance(found, DirectoryLog):
        return DirectoryRoot(store, clock).target_in(found, must_be_empty=must_be_empty)
    if isinstance(found, TableLog):
        raise ObjectNotFoundError(f"the table at {store.url} was created while it was looked for; look again")
    if foreign := [entry.path for entry in found.entries if is_foreign(entry.path)]:
        _log.warning("%s: %s", store.url, left_alone(foreign))
    if found.log.checkpoints:
        raise InvalidInputError(
            f"{store.url} holds only the checkpoint of an adoption that did not come to its end; it would count in a "
            f"new table: bring back the files that {names.checkpoint(found.log.last_checkpoint)} names, or write to "
            "another path"
        )
    refuse_inside(store, outer)
    return Target(scope=None, looked=looked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a transaction is to do.

    Raises InvalidInputError for an invalid application or etag, and for other operations than "rewrite" without
    `changes_rows`.
    """

    operation: Operation = "append"
    partition_by: Sequence[str] | None = None
    """The partition columns. None: those of the table."""
    app: AppVersion | None = None
    must_be_empty: bool = False
    """The write requires a table without commits."""
    if_match: str | None = None
    """The write requires a table whose data has not changed since that etag."""
    last_erasure: str | None = None
    """As in `Terms`."""
    sets: Settings = field(default_factory=dict)
    """Checked changes of settings. Existing rows must keep the constraints in them."""
    changes_rows: bool = True
    """If not, the marker of a rewrite records that the rows stay the same."""
    note: Note = NO_NOTE
    """The commit's message and labels."""

    def __post_init__(self) -> None:
        check_app(self.app)
        check_etag(self.if_match)
        if not self.changes_rows and self.operation != "rewrite":
            raise InvalidInputError(f"operation {self.operation!r} changes rows: data_change=False is for a rewrite")

    def at(self, context: WriteContext, target: Target) -> "Intent":
        """This intent with the partition columns that the write gives the table, and as an overwrite if it needs to be
        one.

        Raises SchemaMismatchError, InvalidInputError.
        """
        found, asked = self, self.partition_by
        if self.operation == "append" and _has_free_layout(context, target, asked, must_be_empty=self.must_be_empty):
            found = replace(self, operation="overwrite", must_be_empty=True)
        columns = _choose_partition_columns(target, asked, where=context.url, overwrites=found.operation == "overwrite")
        return replace(found, partition_by=columns)


def begin(
    context: WriteContext,
    intent: Intent,
    *,
    target: Target | None = None,
    claims: bool = True,
    skipped: bool = False,
) -> Transaction:
    """Begins a transaction: creates the table if there is none, and claims a tid.

    - `target` is the result of `look`, if the caller has it.
    - Without `claims`, the transaction claims a tid only when it writes a file, or commits: see `Terms.unclaimed`.
    - `skipped` is the result of `has_committed`.

    Raises SchemaMismatchError for other partition columns than the table's; TableExistsError; CommitConflictError if
    `if_match` names a commit and there is no table; UnsupportedStoreError if the store has no put-if-absent.
    """
    store, clock = context.store, context.clock
    every = checkpoint_every()
    target = target or look(store, clock, must_be_empty=intent.must_be_empty)
    intent = intent.at(context, target)
    application, columns = check_app(intent.app), tuple(intent.partition_by or ())
    moves = target.partition_columns not in (None, columns)
    sets = {**intent.sets, **({PARTITION_COLUMNS: layout_text(columns)} if moves else {})}
    creates = target.scope is None
    if moves:
        _log.warning("%s is partitioned by %s: this overwrite changes that to %s, and its commit aborts every other "
                     "pending transaction", store.url, list(target.partition_columns or ()), list(columns))  # fmt: skip
    if creates and intent.if_match:
        raise CommitConflictError(
            f"there is no table at {store.url} any more, and this write is based on its commit {intent.if_match}; "
            "nothing was written: check the path"
        )
    if intent.if_match is not None and not target.records_columns:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}: its markers do not record what was committed since; make it a "
            "table with `dbio adopt` first"
        )
    joining = JOINING.get()
    joint = joining.take(store.url) if joining else None
    if joint is not None:
        joint.check_place(store)
    if creates:
        target = replace(_create(store, clock, columns), looked=target.looked)
        if target.partition_columns != columns:  # another writer was faster, and the tasks may be planned already
            raise SchemaMismatchError(
                f"{store.url} was created by another writer just now, partitioned by "
                f"{list(target.partition_columns or ())}, not by {list(columns)}; nothing was written: try again"
            )
    if (application or not claims) and not target.records_columns:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}: its markers do not record which versions of an application are "
            "committed; write to a dbio table"
        )
    scope, job = target.scope or Scope.TABLE, new_uuid(clock)
    root = KINDS[scope](store, clock)
    provenance = provenance_of(intent.note, change(target.metadata.settings, sets))
    began = clock.moment()  # before its start marker: a process that waits for the marker counts on that
    terms = Terms(
        tid="",
        operation=intent.operation,
        scope=scope,
        origin=target.origin,
        provenance=provenance,
        partition_columns=columns,
        app=application,
        must_be_empty=intent.must_be_empty,
        if_match=intent.if_match,
        last_erasure=intent.last_erasure,
        commit_id="",
        job=job,
        began=began,
        metadata=target.metadata,
        sets=sets,
        changes_rows=intent.changes_rows,
        creates=creates,
        checkpoint_every=every,
        skipped=skipped,
        unclaimed=None if claims else target.looked or clock.moment(),
    )
    if joint is not None:
        terms = replace(terms, home=joint.home_for(store, clock, target, moves=moves, claims=claims))
    layout, given = None if moves else columns, joint.tid if joint else None
    tid = root.claim(target, layout, terms.begun, tid=given) if claims else new_tid(clock)
    terms = replace(terms, tid=tid, commit_id=new_uuid(clock))
    return Transaction(context, terms, joint=joint)


def has_committed(store: Store, clock: Clock, app: AppVersion | None) -> bool:
    """Whether the table exists, and the application has committed this version to it (I8).

    Raises AppVersionError if the application may not commit this version any more.
    """
    application = check_app(app)
    if application is None:
        return False
    with suppress(TableNotFoundError):
        return is_committed(read_snapshot(store, clock), application)
    return False


def _choose_partition_columns(
    target: Target, partition_by: str | Sequence[str] | None, *, where: str, overwrites: bool = False
) -> Layout:
    """The table's partition columns, or the given ones if the table has none yet, or if an overwrite changes them.

    Upper and lower case count as the same. Raises SchemaMismatchError for other columns in any other write,
    InvalidInputError for impossible columns.
    """
    own = target.partition_columns
    if partition_by is None:
        return own or ()
    asked = names.check_partition_columns(partition_by)
    if own is None:
        return asked
    if _are_same(asked, own):
        return own
    if overwrites and target.records_columns:
        return asked
    if not asked:
        return own  # a write to an existing table need not repeat them
    drop = "remove the table with all of its rows (`dbio drop --everything`)"
    change = f"change them with an overwrite by dbio.write, {drop}, or " if target.records_columns else "or "
    raise SchemaMismatchError(  # Spark's own writer, unlike dbio.write, needs the columns
        f"{where} is partitioned by {list(own)}, not by {list(asked)}; "
        f"write with these columns, in this order, {change}write to another path"
    )


def _has_free_layout(
    context: WriteContext, target: Target, partition_by: str | Sequence[str] | None, *, must_be_empty: bool
) -> bool:
    """Whether this first write changes the table's partition columns, because an earlier first write has failed.

    Then the table has other partition columns, no commit and no pending transaction. The write must be an overwrite
    that commits only if there is still no commit. An empty `partition_by` is a change only if the table
    `must_be_empty`, since a write to a table need not repeat its columns.
    """
    own = target.partition_columns
    if partition_by is None or own is None or target.scope is not Scope.TABLE:
        return False
    asked = names.check_partition_columns(partition_by)
    if _are_same(asked, own) or not (asked or must_be_empty):
        return False
    found = read_snapshot(context.store, context.clock)
    return not found.tids and not found.log.pending


def _are_same(columns: Layout, others: Layout) -> bool:
    return [column.lower() for column in columns] == [column.lower() for column in others]


def check_app(app: AppVersion | None) -> App | None:
    """The application as a marker records it. Raises InvalidInputError."""
    if app is None:
        return None
    try:
        if isinstance(app, str):
            raise ValueError("a text alone")
        id, version = app
        text = str.__str__(id) if isinstance(id, str) else id  # the plain text of a subclass, too
        number, any_order = version_number(version)
        found = msgspec.convert({"id": text, "version": number, "any_order": any_order}, App)
        encode(found)  # or ValueError, for what UTF-8 cannot hold
        return found
    except (ValueError, TypeError):
        raise InvalidInputError(
            f"app={app!r:.200} is not (application id, version): give a text, and a whole number from 0, which counts "
            "up, such as app=('orders', 17), or a day or a time (whole seconds), which may come in any order, such as "
            "app=('nightly', date(2026, 11, 20))"
        ) from None


def _create(store: Store, clock: Clock, partition_by: tuple[str, ...]) -> Target:
    """The new table, or the one that another writer has created since this writer looked."""
    table_id = new_uuid(clock)
    if create_descriptor(store, clock, table_id, partition_by):
        return Target(scope=Scope.TABLE, origin=Origin(table_id), partition_columns=partition_by)
    found = decode_descriptor(store.get(names.DESCRIPTOR), where=store.url_of(names.DESCRIPTOR))
    return Target(scope=Scope.TABLE, origin=Origin(found.id), partition_columns=tuple(found.partition_columns))


def create_descriptor(
    store: Store,
    clock: Clock,
    table_id: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> bool:
    """Makes the root a table; False if it was a table already."""
    descriptor = Descriptor(
        id=table_id, created=clock.now(), partition_columns=list(partition_by), properties=dict(properties or {})
    )
    return create(store, names.DESCRIPTOR, encode(descriptor))
