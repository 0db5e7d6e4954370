"""Publishes a table as an Iceberg table: metadata of version 2, once for all commits since the last publication.

Each metadata file shows exactly one snapshot of the table, and keeps unchanged manifests of the file before. If that
file records which commits it shows, the difference follows from the commits since. Otherwise the snapshot is compared
with all files that its manifests name. Rules: NOTES.md, Iceberg.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, InvalidInputError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.tids import new_uuid
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.bounds import refuse_unreadable
from dbio_commit.maintenance.publish.delta_log import to_ms
from dbio_commit.maintenance.publish.difference import (
    DifferencePart,
    ShownCommits,
    UnknownError,
    changes_data,
    compared,
    made_by,
)
from dbio_commit.maintenance.publish.iceberg.avro import needs_fastavro
from dbio_commit.maintenance.publish.iceberg.files import EntryMaker
from dbio_commit.maintenance.publish.iceberg.manifests import ADDED, Manifest, Span
from dbio_commit.maintenance.publish.iceberg.metadata import (
    HINT,
    MOST_METADATA_BYTES,
    ROOT,
    IcebergLayout,
    IcebergMetadata,
    IcebergOrigin,
    SnapshotEntry,
    encode_metadata,
    is_avro_of_dbio,
    is_version,
    last_ids,
    next_metadata,
    summary_of,
    version_path,
)
from dbio_commit.maintenance.publish.iceberg.schema import (
    IcebergSchema,
    has_other_types,
    iceberg_schema,
    name_mapping,
    partition_fields,
)
from dbio_commit.maintenance.publish.iceberg.versions import (
    IcebergListing,
    Last,
    find_last,
    is_overtaken,
    is_there_still,
    lacks_before,
    list_all,
    list_anew,
    remember,
)
from dbio_commit.maintenance.publish.iceberg.writing import (
    Before,
    ManifestSink,
    UnusableError,
    read_before,
)
from dbio_commit.maintenance.publish.live import Live, columns_of, withdraw_if_dropped
from dbio_commit.maintenance.publish.lookout import Lookout, OvertakenError
from dbio_commit.maintenance.publish.places import Published, root_url
from dbio_commit.maintenance.publish.reading import is_there
from dbio_commit.maintenance.publish.remembered import TableKey
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store

_log = get_logger(__name__)

_SLOW_S = 1.0
"""If a publisher takes longer than this to point to its version, another may have been faster."""


def put(store: Store, clock: Clock, listing: IcebergListing, live: Live) -> Published | None:
    """Creates the next version, if anything is new. None if another publisher was faster: then look again.

    A version of another tool is not followed: the next one continues the last one of dbio. Raises UnsupportedTableError
    if no version is of this table, InvalidInputError for columns and files that Iceberg cannot hold,
    MissingPackageError without fastavro.
    """
    needs_fastavro()
    last = find_last(store, listing, live.table_id)
    if last and last.number < listing.last:
        _log.warning(
            "%s: version %d is of another tool, and is not followed; the next one continues version %d",
            store.url_of(ROOT), listing.last, last.number,
        )  # fmt: skip
    key = TableKey.of(store, live.table_id)
    next_one = _Next(store, clock, key, live, listing, last)
    try:
        return next_one.publish()
    except UnusableError as error:
        _log.warning("%s: all manifests are written anew: %s", store.url_of(ROOT), error)
        return next_one.publish(is_anew=True)


def forget(store: Store, clock: Clock, listing: IcebergListing, live: Live) -> Sequence[str] | None:
    """Creates a version that has only this state, with manifests of its own. Returns the paths of all older objects.

    These may be deleted now: another publisher that has written some of them must take a higher number, and writes
    others. None if another publisher was faster: then look again. Raises what `put` raises.
    """
    needs_fastavro()
    before = list_all(store)
    last = find_last(store, listing, live.table_id)
    next_one = _Next(store, clock, TableKey.of(store, live.table_id), live, listing, last, forgets=True)
    if next_one.publish(is_anew=True) is None:
        return None
    return [it.path for it in before if is_version(it.path) or is_avro_of_dbio(it.path)]


@dataclass
class _Change:
    """The numbers of files and rows that a publication adds and removes."""

    added: int = 0
    added_rows: int = 0
    gone: dict[str, Span] = field(default_factory=dict)
    """The removed files, with the times of the commits that added them."""
    removed: int = 0
    writers: set[str | None] = field(default_factory=set)


class _Next:
    """Makes the next version. With `forgets`, it has no snapshots of earlier versions."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        key: TableKey,
        live: Live,
        listing: IcebergListing,
        last: Last | None,
        *,
        forgets: bool = False,
    ) -> None:
        self._store, self._clock, self._key, self._live = store, clock, key, live
        self._listing, self._last = listing, last
        self._lookout = Lookout(clock, live.looked)
        self._root = root_url(store, s3="s3")
        self._location = f"{self._root}/{ROOT}"
        before = last.metadata if last else None
        self._is_moved = before is not None and before.location != self._location
        snapshot = live.snapshot
        self._columns = columns_of(store, live)
        column_id, partition_id = last_ids(before)
        self._schema: IcebergSchema = iceberg_schema(self._columns, column_id, where=store.url)
        partition, partition_id = partition_fields(
            self._schema,
            snapshot.partition_columns,
            [it for spec in before.partition_specs for it in spec.fields] if before else (),
            partition_id,
            where=store.url,
        )
        self._layout = IcebergLayout.after(before, self._schema.fields, self._schema.last_id, partition, partition_id)
        self._before = None if self._is_moved else before
        forgets = forgets or self._layout.forgets
        self._parent = None if forgets or not self._before else self._before.current_snapshot_id
        self._kept = () if forgets or not self._before else self._before.snapshots
        form = before.form if before else None
        self._is_other = form is None or form != self._layout.form or self._layout.forgets
        self._is_other_form = form is None or (
            form.spec_id != self._layout.form.spec_id or has_other_types(form.schema["fields"], self._schema.fields)
        )

    def publish(self, *, is_anew: bool = False) -> Published | None:
        """Creates the version. `is_anew` writes all manifests, and uses none of those before."""
        before = None if is_anew or not self._before else self._read_before(self._before)
        if self._is_other or before is None:
            self._live.refuse_unread()
        if before is not None and not self._is_other_form and (news := self._news()) is not None:
            with suppress(UnknownError):
                return self._try(before, made_by(self._live.snapshot, news))
        live = self._live
        live.refuse_unread()
        if before is None:
            return self._try(None, _all(live.snapshot))
        paths = before.all_paths()
        if self._is_other_form:
            return self._try(before, _all(live.snapshot), paths=paths)
        return self._try(before, compared(live.snapshot, paths), paths=paths)

    def _read_before(self, metadata: IcebergMetadata) -> Before:
        return read_before(self._store, self._key, metadata, self._root, listed=self._listing.names)

    def _news(self) -> frozenset[str] | None:
        shown = self._before.shown if self._before else None
        return shown.unseen(self._live.snapshot.tids) if shown else None

    # --- one way to the next version ------------------------------------------------------------------------------

    def _try(
        self,
        before: Before | None,
        differences: Iterable[DifferencePart],
        *,
        paths: Mapping[str, Manifest] | None = None,
    ) -> Published | None:
        """Creates the version by these differences. `paths` are all of the version before, if they were read."""
        metadata = self._before
        snapshot_id = self._clock.random_bits(62) + 1
        sequence_number = metadata.last_sequence_number + 1 if metadata else 1
        sink = ManifestSink(
            self._store,
            self._clock,
            self._key,
            self._layout.form,
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            refuse_overtaken=partial(self._lookout.look, partial(is_overtaken, self._store, self._listing)),
        )
        is_useless = True
        try:
            entries = EntryMaker(
                self._store,
                self._columns,
                self._live.snapshot.partition_columns,
                self._schema,
                self._layout.form,
                root=self._root,
                snapshot_id=snapshot_id,
            )
            change = self._collect(differences, entries, sink, paths)
            mapping = name_mapping(self._schema, self._mapping, entries.spellings)
            if not (change.added or change.removed or self._is_other or self._is_overtaken or before is None):
                return self._confirm()
            rest = self._rewrite(before, change, sink, paths)
            list_url = sink.finish(rest, self._location, parent_id=self._parent)
            snapshot = self._snapshot(snapshot_id, sequence_number, list_url, change, sink)
            is_useless = False  # from now on, another error may mean that the version was created
            try:
                number = self._create(snapshot, mapping)
            except OvertakenError:
                number = None
            is_useless = number is None
        except CommitConflictError:  # the version was withdrawn
            is_useless = True
            raise
        finally:
            if is_useless:
                sink.discard()
        return None if number is None else self._report(number, change)

    @property
    def _mapping(self) -> str | None:
        return self._last.metadata.mapping if self._last else None

    @property
    def _is_overtaken(self) -> bool:
        """Whether another tool wrote a version with a higher number."""
        return self._last is None or self._last.number < self._listing.last

    def _collect(
        self,
        differences: Iterable[DifferencePart],
        entries: EntryMaker,
        sink: ManifestSink,
        paths: Mapping[str, Manifest] | None,
    ) -> _Change:
        change, seen = _Change(), 0
        for come, gone in differences:
            if come.files:
                self._live.refuse_unread(come.files)
                for new in entries.of(come):
                    sink.add(new)
                    is_known = paths is not None and self._is_other_form and new.path in paths
                    seen += is_known
                    if not is_known:
                        change.added += 1
                        change.added_rows += new.entry["data_file"]["record_count"]
                change.writers |= {file.tid for file in come.files}
            if gone:
                change.gone |= _spans(come, gone) if paths is None else dict.fromkeys(gone, Span(0, 0))
        change.removed = len(paths) - seen if paths is not None and self._is_other_form else len(change.gone)
        return change

    def _rewrite(
        self, before: Before | None, change: _Change, sink: ManifestSink, paths: Mapping[str, Manifest] | None
    ) -> list[Manifest]:
        """Writes the manifests that change, and returns those that stay."""
        if before is None or self._is_other_form:
            return []
        if paths is None:
            naming = before.naming(change.gone)
            if change.gone and not naming:
                raise UnknownError
        else:
            naming = {}
            for path in change.gone:
                naming.setdefault(paths[path], set()).add(path)
        names = {manifest.name for manifest in naming}
        rest = sink.merge(before, [it for it in before.manifests if it.name not in names])
        for manifest, gone in naming.items():
            sink.rewrite(before, manifest, gone)
        return rest

    def _snapshot(
        self, snapshot_id: int, sequence_number: int, list_url: str, change: _Change, sink: ManifestSink
    ) -> SnapshotEntry:
        live, before = self._live.snapshot, self._before
        if not change.removed:
            operation = "append"
        elif not change.added:
            operation = "delete"
        else:
            operation = "overwrite" if changes_data(live, change.writers, [*change.gone]) else "replace"
        now_ms = max(to_ms(self._clock.now()), before.last_updated_ms if before else 0)
        summary = summary_of(
            operation=operation,
            tid=live.tid,
            added=change.added,
            deleted=change.removed,
            added_rows=change.added_rows,
            total=sum(it.live for it in sink.manifests),
            rows=sum(sum(it.rows[: ADDED + 1]) for it in sink.manifests),
        )
        parent = {} if self._parent is None else {"parent_snapshot_id": self._parent}
        return SnapshotEntry(
            snapshot_id=snapshot_id,
            sequence_number=sequence_number,
            timestamp_ms=now_ms,
            manifest_list=list_url,
            summary={**summary},
            schema_id=self._layout.form.schema["schema-id"],
            **parent,
        )

    def _create(self, snapshot: SnapshotEntry, mapping: str) -> int | None:
        """The number of the version; None if another publisher was faster. Raises OvertakenError likewise."""
        number = self._listing.last + 1
        origin = IcebergOrigin(
            table_id=self._live.table_id, location=self._location, number=number, uuid=new_uuid(self._clock)
        )
        shown = ShownCommits.of_tids(self._live.snapshot.tids)
        metadata = next_metadata(
            self._before, origin, self._layout, [*self._kept, snapshot], mapping=mapping, shown=shown
        )
        body, path = encode_metadata(metadata), version_path(number)
        if len(body) > MOST_METADATA_BYTES:
            raise InvalidInputError(
                f"nothing was published: {self._store.url_of(path)} would have {len(body)} bytes, and dbio reads at "
                f"most {MOST_METADATA_BYTES}; publish the table in another format, or overwrite it with fewer columns"
            )
        refuse_unreadable(body, where=self._store.url_of(path))
        with self._lookout.creating(
            partial(is_overtaken, self._store, self._listing),
            is_useless=partial(lacks_before, self._store, number),
            undo=lambda: self._store.delete_many([path]),
            is_erased=None if self._listing.last else partial(self._live.is_erased, self._store),
        ):
            if not self._store.put_if_absent(path, body) and not is_there(self._store, path, body):
                remember(self._store, 0, b"")
                return None
        try:
            self._store.together(
                partial(withdraw_if_dropped, self._store, self._live, {path: body}), partial(self._point_to, number)
            )
        except CommitConflictError:  # the hint may be that of another table now
            self._mend_hint(number)
            raise
        remember(self._store, number, body)
        return number

    def _point_to(self, number: int) -> None:
        """Points the hint to the version, since some readers follow it alone. If that was slow, another publisher may
        have pointed to a higher version before, so this looks for one."""
        begun = self._clock.monotonic()
        self._store.replace(HINT, str(number).encode())
        if self._clock.monotonic() - begun > _SLOW_S and (last := list_anew(self._store).last) > number:
            self._store.replace(HINT, str(last).encode())

    def _mend_hint(self, number: int) -> None:
        """Points to the last version that is left after this one was withdrawn. If there is none, no hint stays."""
        if last := list_anew(self._store).last:
            self._store.replace(HINT, str(last).encode())
        else:
            self._store.delete_same(HINT, str(number).encode())

    def _confirm(self) -> Published | None:
        """The report if nothing is new. None if there is a higher version by now. Corrects the hint."""
        last = self._listing.last
        if self._listing.body and list_anew(self._store).last != last:
            remember(self._store, 0, b"")
            return None
        if not is_there_still(self._store, HINT, str(last).encode()):
            self._store.replace(HINT, str(last).encode())
        return self._report(last, _Change(), is_new=False)

    def _report(self, number: int, change: _Change, *, is_new: bool = True) -> Published:
        report = partial(self._live.published, Format.ICEBERG, number, is_new=is_new)
        return report(added=change.added, removed=change.removed)


def _all(snapshot: Snapshot) -> Iterator[DifferencePart]:
    return (DifferencePart(part, ()) for part in snapshot.slices())


def _spans(part: Snapshot, gone: Iterable[str]) -> dict[str, Span]:
    """The times of the commits that added these paths."""
    wanted, found = {*gone}, dict[str, Span]()
    for commit in part.decided:
        for path in commit.marker.added:
            if path in wanted:
                span = Span(to_ms(commit.modified), to_ms(commit.modified))
                found[path] = found[path].with_(span) if path in found else span
    return {path: found.get(path, Span(0, 0)) for path in wanted}
