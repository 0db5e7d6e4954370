"""Reads and writes the manifests of one publication for Iceberg.

`publication` decides which files are added and removed. Readers see these objects once metadata names them. If the
publication fails, `discard` deletes them, or else vacuum does.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import log10
from typing import NamedTuple

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CorruptMarkerError, ObjectNotFoundError, StoreError
from dbio_commit.maintenance.publish.bounds import MOST_PATHS_BYTES, memory_of, too_much
from dbio_commit.maintenance.publish.iceberg.avro import MOST_MANIFEST_BYTES
from dbio_commit.maintenance.publish.iceberg.files import NewEntry
from dbio_commit.maintenance.publish.iceberg.manifests import (
    Form,
    Manifest,
    ManifestEntry,
    ManifestWriter,
    Span,
    as_deleted,
    as_existing,
    decode_list,
    encode_list,
    list_name,
    paths_in,
    read_entries,
)
from dbio_commit.maintenance.publish.iceberg.metadata import DIRECTORY, IcebergMetadata, SnapshotEntry
from dbio_commit.maintenance.publish.reading import is_there
from dbio_commit.maintenance.publish.remembered import TableKey, find_named, keep_named
from dbio_commit.store import Store

_SMALL_BYTES = 64 * 1024
"""Manifests up to this size are remembered, since they are merged soon."""


class UnusableError(Exception):
    """A manifest or a list of the publication before is missing, or cannot be read."""


class Before(NamedTuple):
    """The manifests of the publication before."""

    store: Store
    key: TableKey
    root: str
    """The absolute URL of the table."""
    form: Form
    manifests: Sequence[Manifest]

    def entries(self, manifest: Manifest) -> Iterator[ManifestEntry]:
        """The live entries of a manifest. Raises UnusableError."""
        path = f"{DIRECTORY}/{manifest.name}"
        try:
            body = find_named(self.key, path)
            if not isinstance(body, bytes):
                body = self.store.get(path, limit_bytes=min(manifest.length, MOST_MANIFEST_BYTES))
            yield from read_entries(body, self.form, where=self.store.url_of(path))
        except (ObjectNotFoundError, CorruptMarkerError) as error:
            raise UnusableError(str(error)) from error

    def paths(self, manifest: Manifest) -> frozenset[str]:
        """The paths of its live files, relative to the root of the table. Raises UnusableError."""
        where = self.store.url_of(f"{DIRECTORY}/{manifest.name}")
        try:
            return paths_in(self.entries(manifest), self.root, where=where)
        except CorruptMarkerError as error:
            raise UnusableError(str(error)) from error

    def all_paths(self) -> dict[str, Manifest]:
        """The manifest of each live file. Raises UnusableError, and CorruptMarkerError if they are too many."""
        found: dict[str, Manifest] = {}
        taken = 0
        for manifest in self.manifests:
            paths = self.paths(manifest)
            taken += memory_of(paths)
            if taken > MOST_PATHS_BYTES:
                raise too_much(self.store.url_of(DIRECTORY))
            found.update(dict.fromkeys(paths, manifest))
        return found

    def naming(self, paths: Mapping[str, Span]) -> dict[Manifest, set[str]]:
        """The manifests that name these files, each with those that it names; empty if some file is in none. The spans
        are those of the commits that added the files, and their manifests are read first. Raises UnusableError.
        """
        left, spans = {*paths}, {*paths.values()}

        def may_name(manifest: Manifest) -> bool:
            own = manifest.span
            return any(own.first <= it.last and it.first <= own.last for it in spans)

        found: dict[Manifest, set[str]] = {}
        for manifest in sorted(self.manifests, key=may_name, reverse=True):
            if not left:
                break
            if named := left & self.paths(manifest):
                found[manifest] = named
                left -= named
        return found if not left else {}


def read_list(store: Store, key: TableKey, snapshot: SnapshotEntry) -> list[Manifest]:
    """The manifests in the list of a snapshot. Raises UnusableError."""
    above, _, name = snapshot.manifest_list.rpartition("/")
    path = f"{DIRECTORY}/{name}"
    known = find_named(key, path)
    if isinstance(known, list):
        return known
    try:
        body = store.get(path, limit_bytes=MOST_MANIFEST_BYTES)
        found = decode_list(body, above, where=store.url_of(path))
    except (ObjectNotFoundError, CorruptMarkerError) as error:
        raise UnusableError(str(error)) from error
    keep_named(key, path, found, bytes=_MANIFEST_MEMORY * len(found))
    return found


_MANIFEST_MEMORY = 1000


class ManifestSink:
    """Writes the manifests of one publication. Only one manifest is in memory at a time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        key: TableKey,
        form: Form,
        *,
        snapshot_id: int,
        sequence_number: int,
        refuse_overtaken: Callable[[], None],
    ) -> None:
        """`refuse_overtaken` is called before an object is created."""
        self._store, self._clock, self._key, self._form = store, clock, key, form
        self._snapshot_id, self._sequence_number = snapshot_id, sequence_number
        self._refuse_overtaken = refuse_overtaken
        self._open: ManifestWriter | None = None
        self._paths: list[str] = []
        self.manifests: list[Manifest] = []

    def add(self, new: NewEntry) -> None:
        """Adds a new file to the manifest that is open, and begins another one when this one is full."""
        self._add(new.entry, new.span)

    def _add(self, entry: ManifestEntry, span: Span) -> None:
        writer = self._open = self._open or self._writer()
        writer.add(entry, span)
        if writer.size >= _FULL_BYTES:
            self._close()

    def rewrite(self, before: Before, manifest: Manifest, gone: Collection[str]) -> None:
        """Writes a manifest of the publication before anew, with these files as deleted."""
        self._close()
        start = len(before.root) + 1
        for entry in before.entries(manifest):
            is_gone = entry["data_file"]["file_path"][start:] in gone
            changed = as_deleted(entry, manifest, self._snapshot_id) if is_gone else as_existing(entry, manifest)
            self._add(changed, manifest.span)
        self._close()

    def merge(self, before: Before, rest: Sequence[Manifest]) -> list[Manifest]:
        """Merges manifests of the publication before with the new files, if many are small. Returns the others."""
        merged = to_merge(rest, self._open.live if self._open else 0)
        for manifest in merged:
            for entry in before.entries(manifest):
                self._add(as_existing(entry, manifest), manifest.span)
        return [it for it in rest if it not in merged]

    def finish(self, rest: Sequence[Manifest], location: str, *, parent_id: int | None) -> str:
        """Writes the list of all manifests, and returns its URL. `location` is the URL of the publication."""
        last = self._closed()
        self.manifests = [*rest, *self.manifests]
        name = list_name(self._snapshot_id, self._token())
        directory = f"{location}/metadata"
        body = encode_list(
            self.manifests,
            directory,
            snapshot_id=self._snapshot_id,
            parent_id=parent_id,
            sequence_number=self._sequence_number,
        )
        path = f"{DIRECTORY}/{name}"
        self._store.ask_each(lambda it: self._put(*it), [*last, (path, body)])
        keep_named(self._key, path, self.manifests, bytes=_MANIFEST_MEMORY * len(self.manifests))
        return f"{directory}/{name}"

    def discard(self) -> None:
        """Deletes the objects that were written. If that fails, vacuum deletes them."""
        self._store.delete_many(self._paths)

    def _writer(self) -> ManifestWriter:
        return ManifestWriter(self._form, snapshot_id=self._snapshot_id, sequence_number=self._sequence_number)

    def _close(self) -> None:
        for path, body in self._closed():
            self._put(path, body)

    def _closed(self) -> list[tuple[str, bytes]]:
        """The path and the body of the manifest that was open, which is to be put."""
        if self._open is None:
            return []
        manifest, body = self._open.finish(self._token())
        self._open = None
        self.manifests.append(manifest)
        path = f"{DIRECTORY}/{manifest.name}"
        if len(body) <= _SMALL_BYTES:
            keep_named(self._key, path, body, bytes=len(body))
        return [(path, body)]

    def _put(self, path: str, body: bytes) -> None:
        self._refuse_overtaken()
        if not self._store.put_if_absent(path, body) and not is_there(self._store, path, body):
            raise StoreError(f"{self._store.url_of(path)} exists, and its name is random; publish again")
        self._paths.append(path)

    def _token(self) -> str:
        return f"{self._clock.random_bits(128):032x}"


def read_before(
    store: Store, key: TableKey, metadata: IcebergMetadata, root: str, *, listed: Collection[str] = ()
) -> Before:
    """The manifests of the publication before that have live files. Raises UnusableError, also if one was deleted.

    `listed` are the paths of the objects that exist, if they were listed after the version was written.
    """
    snapshot = metadata.current
    manifests = [it for it in read_list(store, key, snapshot) if it.live]
    if listed:
        paths = {f"{DIRECTORY}/{name}" for name in (_name(snapshot), *(it.name for it in manifests))}
        for path in sorted(paths.difference(listed)):
            _refuse_missing(store, path)
    return Before(store, key, root, metadata.form, manifests)


def _refuse_missing(store: Store, path: str) -> None:
    """Raises UnusableError if the object does not exist. A listing may lack manifests that were written meanwhile."""
    try:
        store.stat(path)
    except ObjectNotFoundError as error:
        raise UnusableError(str(error)) from error


def _name(snapshot: SnapshotEntry) -> str:
    return snapshot.manifest_list.rpartition("/")[2]


# --- which manifests are merged ---------------------------------------------------------------------------------------


_FULL_BYTES = MOST_MANIFEST_BYTES // 8
"""A publisher begins another manifest at this size."""

_TOGETHER = 10
"""How many manifests of one level become one of the next level."""


def _level(live: int, length: int) -> int | None:
    """The level of a manifest with so many live files; None for one that is large enough to stay."""
    return None if length >= _FULL_BYTES // 2 else int(log10(max(live, 1)))


def to_merge(manifests: Sequence[Manifest], new_files: int) -> list[Manifest]:
    """The manifests that are written together with the new files, or by themselves: those of the lowest level that has
    many. So each entry is written once for each level, and a table has few manifests for each level.
    """
    levels = [_level(it.live, it.length) for it in manifests]
    new = [_level(new_files, 0)] if new_files else []
    full = sorted({it for it in levels if it is not None and [*levels, *new].count(it) >= _TOGETHER})
    return [it for it, own in zip(manifests, levels, strict=True) if own == full[0]] if full else []
