"""Lists what an erasure cannot reach, as sentences for its report."""

from collections.abc import Sequence
from contextlib import suppress

from dbio_commit.base.errors import StoreError
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.erase.find import Finder
from dbio_commit.maintenance.publish import find_others
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.markers.provenance import NOBODY, said_in
from dbio_commit.protocol.settings import CHECK, DEFAULT, GENERATED
from dbio_commit.store import Store

_MAY_HOLD = (Reason.PENDING, Reason.UNKNOWN, Reason.UNTRACKED, Reason.NOT_DATA, Reason.FOREIGN, Reason.PART)
"""The reasons of files that stay, and that an erasure does not read."""

_WITH_SQL = (CHECK, DEFAULT, GENERATED)
"""Kinds of settings whose texts are expressions."""


def remains_of(
    store: Store, executor: Executor, snapshot: Snapshot, finder: Finder, markers_below: Sequence[str]
) -> Sequence[str]:
    """The sentences that hold for this table. `markers_below` are markers of other writers below its root."""
    found = [
        "readers that have read the rows, copies of the table, and backups keep what they have: erase them there, too"
    ]
    if not finder.columns:
        found.append(
            "nothing of the condition is understood without Spark, so all removed files were erased, whatever they held"
        )
    if store.has_directories:
        found.append("snapshots and backups of the disk, and blocks that a file system has freed, may keep old bytes")
    else:
        found += _of_versions(store)
    if snapshot.app_versions:
        found.append(
            f"the ids of {len(snapshot.app_versions):,} applications stay for good, such as "
            f"{min(snapshot.app_versions)[:100]!r}: look whether an id names a person"
        )
    found += _of_texts(snapshot)
    if joint := [it.tid for it in snapshot.transactions if it.marker.dbio_commit and it.marker.dbio_commit.joint]:
        found.append(
            f"{len(joint):,} commits were parts of joint transactions, the newest {joint[-1]}: the table that is the "
            "home of such a one has its marker for all tables, with minima and maxima, until a vacuum there purges it"
        )
    if finder.names_values(snapshot.layouts):
        found.append(
            "names of directories have values of the condition's columns, and logs of the store and of jobs may name "
            "them"
        )
    if markers_below:
        found.append(
            f"{len(markers_below):,} markers below the root are no part of the table, first {markers_below[0]!r:.300}, "
            "and may have minima and maxima of such rows, or names of their files: dbio wrote them before the "
            "directory became a table, or another tool did. Look whether another tool needs them"
        )
    found += _of_uploads(store)
    if others := find_others(store, str(snapshot.table_id)):
        found.append(
            f"{len(others):,} objects beside the publications of this table are not theirs, first {others[0]!r:.300}, "
            "and may have values of such rows: `dbio check` says more about them"
        )
    kept = [it for it in executor.kept if it.reason in _MAY_HOLD]
    if kept:
        found.append(
            f"{len(kept):,} files that are not part of the table, or not yet, may hold such rows, first "
            f"{kept[0].path!r:.300} ({kept[0].reason}); `dbio vacuum --untracked` deletes them after the retention"
        )
    return [*found, *executor.warnings]


def _of_texts(snapshot: Snapshot) -> list[str]:
    """Sentences about texts of people that the log keeps: messages, expressions in settings, comments."""
    with_notes = list[str]()
    who = 0
    expressions, schemas = set[str](), set[bytes]()
    for commit in snapshot.transactions:
        if (info := commit.marker.dbio_commit) is None:
            continue
        who += info.provenance is not None
        if info.provenance and said_in(info.provenance) != NOBODY:
            with_notes.append(commit.tid)
        expressions.update(it for it in info.settings or () if it.partition(".")[0] in _WITH_SQL)
        schemas.add(bytes(info.schema))
    found = list[str]()
    if with_notes:
        found.append(
            f"messages and labels of {len(with_notes):,} commits stay, such as those of {with_notes[-1]}, and so do "
            "those of undecided transactions: look with `dbio log` whether one names a value"
        )
    if who:
        found.append(
            f"{who:,} commits record who made them (users, machines, jobs), and start markers do so, too: look with "
            "`dbio log`"
        )
    if expressions:
        found.append(
            f"expressions in settings, also in those of earlier commits, may name values: "
            f"{', '.join(sorted(expressions))[:300]}"
        )
    if any(b'"comment"' in it for it in schemas):
        found.append("comments of columns stay, also those of earlier commits: look whether one names a value")
    return found


def _of_uploads(store: Store) -> list[str]:
    with suppress(StoreError):  # the report names this error among its failures
        if uploads := store.list_unfinished():
            return [
                f"{len(uploads):,} uploads that nobody has finished may hold such rows, first "
                f"{uploads[0].path!r:.300}; a vacuum ends them after the retention"
            ]
    return []


def _of_versions(store: Store) -> list[str]:
    try:
        keeps = store.keeps_versions()
    except StoreError:
        keeps = False
    if keeps:
        return [
            "the bucket keeps versions of deleted objects: delete the versions that are not current (a lifecycle rule "
            "with NoncurrentDays does), and look for object locks and replicas"
        ]
    return [
        "if the bucket keeps versions or soft-deleted objects, which the store does not say here, they keep the rows: "
        "look at versioning, soft delete, object locks and replicas"
    ]
