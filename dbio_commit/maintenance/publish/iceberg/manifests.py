"""Encodes and decodes Iceberg's manifests and manifest lists, version 2, which name data files and manifests. Pure.

Their Avro is in `avro`, and the metadata that names a manifest list in `metadata`. `writing` decides which manifests
are merged.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.maintenance.publish.bounds import NamedPaths
from dbio_commit.maintenance.publish.iceberg.avro import LIST_SCHEMA, UNREADABLE, entry_schema, needs_fastavro, records
from dbio_commit.maintenance.publish.iceberg.schema import Field
from dbio_commit.maintenance.publish.iceberg.values import Summary, plain, summarize

ManifestEntry = dict[str, Any]
"""One record of a manifest."""

EXISTING, ADDED, DELETED = 0, 1, 2
"""The status of an entry: added or deleted by the snapshot of its manifest, or there before."""

# --- a data file --------------------------------------------------------------------------------------------------


class ColumnMetrics(NamedTuple):
    """The counts of nulls and the bounds of a data file's columns, by the ids of the columns."""

    nulls: Mapping[int, int]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]


def new_entry(
    url: str, *, size: int, rows: int, partition: Mapping[str, Any], counts: ColumnMetrics, snapshot_id: int
) -> ManifestEntry:
    """The entry of a data file that a snapshot adds. `partition` has plain values by the names of Avro's fields."""

    def pairs(values: Mapping[int, Any]) -> list[dict[str, Any]] | None:
        return [{"key": key, "value": value} for key, value in values.items()] or None

    data_file = {
        "content": 0,
        "file_path": url,
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": rows,
        "file_size_in_bytes": size,
        "value_counts": pairs(dict.fromkeys(counts.nulls, rows)),
        "null_value_counts": pairs(counts.nulls),
        "lower_bounds": pairs(counts.lower),
        "upper_bounds": pairs(counts.upper),
    }
    return {"status": ADDED, "snapshot_id": snapshot_id, "data_file": data_file}


def as_existing(entry: ManifestEntry, manifest: "Manifest") -> ManifestEntry:
    """A live entry of this manifest, for another manifest. Inherited sequence numbers are written out."""
    return {**_numbered(entry, manifest), "status": EXISTING}


def as_deleted(entry: ManifestEntry, manifest: "Manifest", snapshot_id: int) -> ManifestEntry:
    """The entry of the same file, which this snapshot does not have any more."""
    return {**_numbered(entry, manifest), "status": DELETED, "snapshot_id": snapshot_id}


def _numbered(entry: ManifestEntry, manifest: "Manifest") -> ManifestEntry:
    own = {name: entry.get(name) for name in ("sequence_number", "file_sequence_number")}
    inherited = {name: manifest.sequence_number if number is None else number for name, number in own.items()}
    snapshot_id = manifest.added_snapshot_id if entry["snapshot_id"] is None else entry["snapshot_id"]
    return {**entry, "snapshot_id": snapshot_id, **inherited}


# --- manifests ----------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """The schema and the partition spec that all manifests of a publication have."""

    schema: Mapping[str, Any]
    """The columns as Iceberg's JSON, with their `schema-id`."""
    spec_id: int
    partition: Sequence[tuple[Field, str]]
    """The fields of the partition spec, with Iceberg's types."""

    @property
    def partition_names(self) -> list[str]:
        """The partition fields as manifests name them."""
        fields = entry_schema(self.partition)["fields"][-1]["type"]["fields"]
        values = next(it["type"]["fields"] for it in fields if it["name"] == "partition")
        return [it["name"] for it in values]


class Span(NamedTuple):
    """The times, in ms since 1970, of the first and the last commit that added files of a manifest."""

    first: int
    last: int

    def with_(self, other: "Span") -> "Span":
        return Span(min(self.first, other.first), max(self.last, other.last))


class Manifest(NamedTuple):
    """A manifest, as a manifest list records it."""

    name: str
    length: int
    spec_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    files: tuple[int, int, int]
    """How many entries are EXISTING, ADDED and DELETED, in this order."""
    rows: tuple[int, int, int]
    """The rows of these files."""
    partitions: tuple[Summary, ...]

    @property
    def live(self) -> int:
        """How many files it has that are not deleted."""
        return self.files[EXISTING] + self.files[ADDED]

    @property
    def span(self) -> Span:
        """The span in its name."""
        match = _MANIFEST.fullmatch(self.name)
        return Span(int(match[1]), int(match[2])) if match else Span(0, 0)


_MANIFEST = re.compile(r"dbio-([0-9]{1,16})-([0-9]{1,16})-[0-9a-f]{32}\.avro")
_LIST = re.compile(r"dbio-snap-[0-9]{1,19}-[0-9a-f]{32}\.avro")


def is_manifest(name: str) -> bool:
    """Whether publishers give manifests such a name."""
    return _MANIFEST.fullmatch(name) is not None


def is_list(name: str) -> bool:
    """Whether publishers give manifest lists such a name."""
    return _LIST.fullmatch(name) is not None


def list_name(snapshot_id: int, token: str) -> str:
    """The name of a manifest list. `token` is random."""
    return f"dbio-snap-{snapshot_id}-{token}.avro"


class ManifestWriter:
    """Makes one manifest, entry by entry: only its packed entries are in memory."""

    def __init__(self, form: Form, *, snapshot_id: int, sequence_number: int) -> None:
        fastavro = needs_fastavro()
        from fastavro.write import Writer

        self._form, self._snapshot_id, self._sequence = form, snapshot_id, sequence_number
        self._body = io.BytesIO()
        metadata = {
            "schema": json.dumps({key: it for key, it in form.schema.items() if key != "schema-id"}),
            "schema-id": str(form.schema["schema-id"]),
            "partition-spec": json.dumps([field for field, _ in form.partition]),
            "partition-spec-id": str(form.spec_id),
            "format-version": "2",
            "content": "data",
        }
        schema = fastavro.parse_schema(entry_schema(form.partition))
        self._avro = Writer(self._body, schema, codec="deflate", metadata=metadata)
        self._span: Span | None = None
        self._files, self._rows = Counter[int](), Counter[int]()
        self._oldest = sequence_number
        names = form.partition_names
        self._values: dict[str, set[Any]] = {name: set() for name in names}

    def add(self, entry: ManifestEntry, span: Span) -> None:
        """Adds an entry of a file whose commit was in this span."""
        self._avro.write(entry)
        self._span = self._span.with_(span) if self._span else span
        status, file = entry["status"], entry["data_file"]
        self._files[status] += 1
        self._rows[status] += file["record_count"]
        if status != DELETED and entry.get("sequence_number") is not None:
            self._oldest = min(self._oldest, entry["sequence_number"])
        for name, values in self._values.items():
            values.add(file["partition"].get(name))

    @property
    def live(self) -> int:
        """How many live files it has."""
        return self._files[EXISTING] + self._files[ADDED]

    @property
    def entries(self) -> int:
        return self._files.total()

    @property
    def size(self) -> int:
        """Its bytes so far, without what waits to be packed."""
        return self._body.tell()

    def finish(self, token: str) -> tuple[Manifest, bytes]:
        """The manifest as a list records it, and its body. `token` is random."""
        self._avro.flush()
        span, body = self._span or Span(0, 0), self._body.getvalue()
        kinds = [kind for _, kind in self._form.partition]
        each = zip(self._values.values(), kinds, strict=True)
        order = (EXISTING, ADDED, DELETED)
        files, rows = (tuple(counts[it] for it in order) for counts in (self._files, self._rows))
        manifest = Manifest(
            name=f"dbio-{span.first}-{span.last}-{token}.avro",
            length=len(body),
            spec_id=self._form.spec_id,
            sequence_number=self._sequence,
            min_sequence_number=self._oldest,
            added_snapshot_id=self._snapshot_id,
            files=files,  # type: ignore[arg-type]
            rows=rows,  # type: ignore[arg-type]
            partitions=tuple(summarize(values, kind) for values, kind in each),
        )
        return manifest, body


def read_entries(body: bytes, form: Form, *, where: str) -> Iterator[ManifestEntry]:
    """The live entries of a manifest with this form. Raises CorruptMarkerError for what no publisher writes."""
    for entry in records(body, entry_schema(form.partition), where=where):
        if entry["status"] != DELETED:
            partition = entry["data_file"]["partition"]
            entry["data_file"]["partition"] = {name: plain(value) for name, value in partition.items()}
            yield entry


def paths_in(entries: Iterable[ManifestEntry], root: str, *, where: str) -> frozenset[str]:
    """The paths of the data files, relative to the root of the table. Raises CorruptMarkerError for others."""
    paths, start = NamedPaths(where), f"{root}/"
    for entry in entries:
        url = entry["data_file"]["file_path"]
        if not url.startswith(start):
            raise CorruptMarkerError(f"{where} names {url[:300]!r}, which is not below {root}; {UNREADABLE}")
        paths.add(url.removeprefix(start))
    return paths.found()


# --- manifest lists -----------------------------------------------------------------------------------------------


def encode_list(
    manifests: Sequence[Manifest], directory: str, *, snapshot_id: int, parent_id: int | None, sequence_number: int
) -> bytes:
    """The body of a manifest list. `directory` is the URL of the manifests."""
    fastavro = needs_fastavro()
    metadata = {"snapshot-id": str(snapshot_id), "sequence-number": str(sequence_number), "format-version": "2"}
    if parent_id is not None:
        metadata["parent-snapshot-id"] = str(parent_id)
    body = io.BytesIO()
    lines = (_as_record(it, directory) for it in manifests)
    fastavro.writer(body, fastavro.parse_schema(LIST_SCHEMA), lines, codec="deflate", metadata=metadata)
    return body.getvalue()


_COUNTS = ("existing", "added", "deleted")


def _as_record(it: Manifest, directory: str) -> dict[str, Any]:
    return {
        "manifest_path": f"{directory}/{it.name}",
        "manifest_length": it.length,
        "partition_spec_id": it.spec_id,
        "content": 0,
        "sequence_number": it.sequence_number,
        "min_sequence_number": it.min_sequence_number,
        "added_snapshot_id": it.added_snapshot_id,
        **{f"{name}_files_count": count for name, count in zip(_COUNTS, it.files, strict=True)},
        **{f"{name}_rows_count": count for name, count in zip(_COUNTS, it.rows, strict=True)},
        "partitions": [summary._asdict() for summary in it.partitions],
    }


def decode_list(body: bytes, directory: str, *, where: str) -> list[Manifest]:
    """The manifests in a list. Raises CorruptMarkerError for a list that no publisher writes."""
    found = []
    for it in records(body, LIST_SCHEMA, where=where):
        above, _, name = it["manifest_path"].rpartition("/")
        if above != directory or not is_manifest(name):
            raise CorruptMarkerError(f"{where} names the manifest {it['manifest_path'][:300]!r}; {UNREADABLE}")
        found.append(
            Manifest(
                name=name,
                length=it["manifest_length"],
                spec_id=it["partition_spec_id"],
                sequence_number=it["sequence_number"],
                min_sequence_number=it["min_sequence_number"],
                added_snapshot_id=it["added_snapshot_id"],
                files=tuple(it[f"{name}_files_count"] for name in _COUNTS),
                rows=tuple(it[f"{name}_rows_count"] for name in _COUNTS),
                partitions=tuple(Summary(**summary) for summary in it["partitions"] or ()),
            )
        )
    return found
