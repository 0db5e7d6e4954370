"""Encodes and decodes the metadata of an Iceberg table, `vN.metadata.json`, and decides what it keeps. Pure.

It follows version 2 of Iceberg's public specification. Columns are in `schema`, manifests in `manifests`.
Rules: NOTES.md, Iceberg.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

from msgspec import UNSET, Meta, MsgspecError, Struct, UnsetType, json
from msgspec import field as struct_field

from dbio_commit.maintenance.publish.difference import ShownCommits
from dbio_commit.maintenance.publish.iceberg.manifests import Form, is_list, is_manifest
from dbio_commit.maintenance.publish.iceberg.schema import FIRST_PARTITION_ID, Field, check_published, has_other_ids
from dbio_commit.maintenance.publish.places import DIRECTORIES, by_number
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format

ROOT = DIRECTORIES[Format.ICEBERG]
"""The table's location, as Iceberg's tools see it. They write below it, if they write at all."""

DIRECTORY = f"{ROOT}/metadata"
HINT = f"{DIRECTORY}/version-hint.text"

MOST_METADATA_BYTES = 16 * 1024**2
"""The most bytes of a metadata file."""

SAVE = f"keep what you need of {ROOT}: move it elsewhere, and publish again"

_VERSION = re.compile(r"v([0-9]{1,30})\.metadata\.json")

KEPT_SNAPSHOTS = 20
"""How many snapshots the metadata has. Their data files stay as long as vacuum's retention."""


def version_path(number: int) -> str:
    return f"{DIRECTORY}/v{number}.metadata.json"


def is_metadata(path: str) -> bool:
    """Whether a tool of Iceberg would take it for metadata of the table."""
    return split(path)[0] == DIRECTORY and path.endswith(".metadata.json")


def is_version(path: str) -> bool:
    return split(path)[0] == DIRECTORY and _VERSION.fullmatch(split(path)[1]) is not None


def is_avro_of_dbio(path: str) -> bool:
    """Whether it is named like a manifest or a list of dbio."""
    directory, name = split(path)
    return directory == DIRECTORY and (is_manifest(name) or is_list(name))


def versions_in(entries: Iterable[Entry], *, root: str) -> dict[int, Entry]:
    """The versions, by number. Raises CorruptMarkerError as `by_number`. `root` is the URL of the table."""
    inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
    return by_number(inside, _VERSION, root=root)


# --- the body -----------------------------------------------------------------------------------------------------


_Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 2)]
"""A number that manifests can repeat, and add 1 to."""


class _Body(Struct, rename="kebab", frozen=True, kw_only=True):
    """A part of the metadata. Keys of other writers are ignored, since their metadata is not followed."""


class SnapshotEntry(_Body, frozen=True, kw_only=True):
    """One publication, as Iceberg's metadata has it."""

    snapshot_id: _Long
    parent_snapshot_id: _Long | UnsetType = UNSET
    sequence_number: _Long
    timestamp_ms: _Long
    manifest_list: str
    summary: dict[str, str]
    schema_id: _Long


class _Logged(_Body, frozen=True, kw_only=True):
    timestamp_ms: _Long
    snapshot_id: _Long


class _Reference(_Body, frozen=True, kw_only=True):
    snapshot_id: _Long
    type: str = struct_field(default="branch")


class _Spec(_Body, frozen=True, kw_only=True):
    spec_id: _Long
    fields: list[dict[str, Any]]


class IcebergMetadata(_Body, frozen=True, kw_only=True):
    """The body of `vN.metadata.json`."""

    format_version: _Long
    table_uuid: str
    location: str
    last_sequence_number: _Long
    last_updated_ms: _Long
    last_column_id: _Long
    current_schema_id: _Long
    schemas: list[dict[str, Any]]
    default_spec_id: _Long
    partition_specs: list[_Spec]
    last_partition_id: _Long
    default_sort_order_id: _Long = 0
    sort_orders: list[dict[str, Any]] = struct_field(default_factory=lambda: [{"order-id": 0, "fields": []}])
    properties: dict[str, str]
    current_snapshot_id: _Long
    refs: dict[str, _Reference]
    snapshots: list[SnapshotEntry]
    snapshot_log: list[_Logged]

    @property
    def current(self) -> SnapshotEntry:
        """The newest snapshot."""
        return next(it for it in self.snapshots if it.snapshot_id == self.current_snapshot_id)

    @property
    def fields(self) -> Sequence[Field]:
        """The columns as they were published."""
        fields: Sequence[Field] = next(it["fields"] for it in self.schemas if it["schema-id"] == self.current_schema_id)
        return fields

    @property
    def partition_fields(self) -> Sequence[Field]:
        """The fields of the partition spec."""
        return next(it.fields for it in self.partition_specs if it.spec_id == self.default_spec_id)

    @property
    def form(self) -> Form:
        """The schema and the partition spec of its manifests."""
        types = {it["id"]: it["type"] for it in self.fields}
        partition = [(it, types[it["source-id"]]) for it in self.partition_fields]
        schema = {"type": "struct", "schema-id": self.current_schema_id, "fields": [*self.fields]}
        return Form(schema, self.default_spec_id, partition)

    @property
    def mapping(self) -> str | None:
        """The text of the name mapping."""
        return self.properties.get(_MAPPING)

    @property
    def shown(self) -> ShownCommits | None:
        """The record of the commits that it shows; None if the record cannot be read."""
        try:
            return json.decode(self.properties.get(_SHOWS, ""), type=ShownCommits)
        except MsgspecError:
            return None

    @property
    def tid(self) -> str | None:
        """The newest commit that it shows; None if it shows none."""
        return self.current.summary.get(_TID)

    @property
    def mark(self) -> "IcebergMark":
        return IcebergMark(self.properties.get(_TABLE_ID), self.properties.get(_NUMBER))


class IcebergMark(NamedTuple):
    """The properties by which dbio knows its own metadata. Other writers keep them, but under another number."""

    table_id: str | None
    number: str | None


_TABLE_ID, _NUMBER, _SHOWS, _TID = "dbio.table-id", "dbio.number", "dbio.shows", "dbio.tid"
_MAPPING = "schema.name-mapping.default"

_DECODER = json.Decoder(IcebergMetadata)


def decode_metadata(body: bytes, number: int, table_id: str) -> IcebergMetadata | None:
    """The metadata with this number; None if dbio did not write it for this table, under this number."""
    try:
        found = _DECODER.decode(body)
        if found.mark != (table_id, str(number)):
            return None
        found.current, found.form  # noqa: B018  (or an error)
        check_published(found.fields, found.mapping)
    except (MsgspecError, UnicodeDecodeError, RecursionError, LookupError, StopIteration, TypeError):
        return None
    return found


def writer_of(body: bytes) -> str:
    """The tool that wrote the newest snapshot of any metadata, as it calls itself."""
    try:
        found = json.decode(body, type=_Foreign)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return "a tool whose metadata cannot be read"
    last = next((it for it in found.snapshots if it.snapshot_id == found.current_snapshot_id), _ForeignSnapshot())
    texts = [last.summary.get(key) for key in ("engine-name", "app-id", "operation")]
    name = next((it for it in texts[:2] if isinstance(it, str)), "a tool that does not say its name")
    return f"{name} ({texts[2]})"[:200] if isinstance(texts[2], str) else name[:200]


class _ForeignSnapshot(_Body, frozen=True, kw_only=True):
    snapshot_id: int | None = None
    summary: dict[str, Any] = struct_field(default_factory=dict)


class _Foreign(_Body, frozen=True, kw_only=True):
    current_snapshot_id: int | None = None
    snapshots: list[_ForeignSnapshot] = struct_field(default_factory=list)


# --- the next one -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IcebergLayout:
    """The schema and the partition spec of a publication, and those of the last ones."""

    form: Form
    schemas: list[dict[str, Any]]
    specs: list[_Spec]
    last_column_id: int
    last_partition_id: int
    forgets: bool = False
    """Whether no earlier snapshot can stay, for one of two reasons. A spec was left out, since a column of it is gone:
    readers bind all specs to the current columns, and some fail altogether if a column is missing. Or a column has
    another id than in an earlier schema: by the current mapping, its readers would take the column for null."""

    @classmethod
    def after(
        cls,
        before: IcebergMetadata | None,
        fields: Sequence[Field],
        last_column_id: int,
        partition: Sequence[Field],
        last_partition_id: int,
    ) -> Self:
        """The layout with these columns and partition fields. What does not differ keeps its id."""
        schemas, specs = ([*before.schemas], [*before.partition_specs]) if before else ([], [])
        schema_id = before.current_schema_id if before else -1
        if before is None or [*before.fields] != [*fields]:
            schema_id = max((it["schema-id"] for it in schemas), default=-1) + 1
            schemas.append({"type": "struct", "schema-id": schema_id, "fields": [*fields]})
        spec_id = before.default_spec_id if before else -1
        if before is None or [*before.partition_fields] != [*partition]:
            spec_id = max((it.spec_id for it in specs), default=-1) + 1
            specs.append(_Spec(spec_id=spec_id, fields=[dict(it) for it in partition]))
        types = {it["id"]: it["type"] for it in fields}
        form = Form(schemas[-1], spec_id, [(it, types[it["source-id"]]) for it in partition])
        kept = KEPT_SNAPSHOTS + 1  # each snapshot has added at most one schema and one spec
        lasting = [spec for spec in specs[-kept:] if all(it["source-id"] in types for it in spec.fields)]
        forgets = len(lasting) < len(specs[-kept:]) or any(
            has_other_ids(it["fields"], fields) for it in schemas[-kept:]
        )
        return cls(form, schemas[-1 if forgets else -kept :], lasting, last_column_id, last_partition_id, forgets)


def last_ids(before: IcebergMetadata | None) -> tuple[int, int]:
    """The highest ids that were ever given to a column, and to a partition field."""
    return (before.last_column_id, before.last_partition_id) if before else (0, FIRST_PARTITION_ID - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOrigin:
    """The table, the place and the number of new metadata."""

    table_id: str
    location: str
    number: int
    uuid: str
    """For the first metadata; all others keep it."""


def next_metadata(
    before: IcebergMetadata | None,
    origin: IcebergOrigin,
    layout: IcebergLayout,
    snapshots: Sequence[SnapshotEntry],
    *,
    mapping: str,
    shown: ShownCommits,
) -> IcebergMetadata:
    """The metadata with the last KEPT_SNAPSHOTS of these snapshots, of which the new one is the last.

    `before` is None if this is the first metadata, or if the table was at another place before.
    """
    snapshot, kept = snapshots[-1], [*snapshots[-KEPT_SNAPSHOTS:]]
    logged = [_Logged(timestamp_ms=it.timestamp_ms, snapshot_id=it.snapshot_id) for it in kept]
    return IcebergMetadata(
        format_version=2,
        table_uuid=before.table_uuid if before else origin.uuid,
        location=origin.location,
        last_sequence_number=snapshot.sequence_number,
        last_updated_ms=snapshot.timestamp_ms,
        last_column_id=layout.last_column_id,
        current_schema_id=layout.form.schema["schema-id"],
        schemas=layout.schemas,
        default_spec_id=layout.form.spec_id,
        partition_specs=layout.specs,
        last_partition_id=layout.last_partition_id,
        properties={
            "write.format.default": "parquet",
            "gc.enabled": "false",  # other tools delete no files of it, except by listing
            _MAPPING: mapping,
            _TABLE_ID: origin.table_id,
            _NUMBER: str(origin.number),
            _SHOWS: json.encode(shown).decode(),
        },
        current_snapshot_id=snapshot.snapshot_id,
        refs={"main": _Reference(snapshot_id=snapshot.snapshot_id)},
        snapshots=kept,
        snapshot_log=logged,
    )


def encode_metadata(metadata: IcebergMetadata) -> bytes:
    return json.encode(metadata)


def summary_of(
    *, operation: str, tid: str | None, added: int, deleted: int, added_rows: int, total: int, rows: int
) -> Mapping[str, str]:
    """The summary of a snapshot."""
    numbers = {
        "added-data-files": added,
        "deleted-data-files": deleted,
        "added-records": added_rows,
        "total-data-files": total,
        "total-records": rows,
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
    }
    named = {_TID: tid} if tid else {}
    return {"operation": operation, "engine-name": "dbio-commit", **named, **{k: str(v) for k, v in numbers.items()}}
