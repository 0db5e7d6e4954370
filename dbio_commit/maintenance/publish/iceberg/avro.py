"""Reads Avro as Iceberg uses it, also from outside, and has the schemas of manifests and lists. Uses fastavro.

The schemas are those of Iceberg's public specification, version 2. What the records mean is in `manifests`.
"""

import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.base.packages import require
from dbio_commit.maintenance.publish.bounds import too_much
from dbio_commit.maintenance.publish.iceberg.schema import Field
from dbio_commit.maintenance.publish.iceberg.values import avro_type

MOST_MANIFEST_BYTES = 64 * 1024**2
"""The most bytes of one manifest or list. A publisher begins another manifest at an eighth of this."""

_MOST_UNPACKED_BYTES = 512 * 1024**2

UNREADABLE = "move _iceberg elsewhere, and publish again"


def needs_fastavro() -> Any:
    """The package fastavro. Raises MissingPackageError."""
    return require("fastavro", what="a publication for Iceberg", extra="iceberg")


# --- the schemas of Avro ------------------------------------------------------------------------------------------


def _field(name: str, kind: Any, number: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _optional(name: str, kind: Any, number: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _map(key: int, value: int, kind: str) -> Any:
    """A map with whole numbers as keys, in Iceberg's form: Avro itself has maps with texts as keys only."""
    fields = [_field("key", "int", key), _field("value", kind, value)]
    return {
        "type": "array",
        "logicalType": "map",
        "items": {"type": "record", "name": f"k{key}_v{value}", "fields": fields},
    }


def _list(element: int, kind: Any) -> Any:
    return {"type": "array", "element-id": element, "items": kind}


def entry_schema(partition: Sequence[tuple[Field, str]]) -> dict[str, Any]:
    """The schema of manifests. `partition` are the fields of the partition spec, with Iceberg's types."""
    names = [_avro_name(it["name"]) for it, _ in partition]
    are_unique = len({*names}) == len(names)
    values, known = [], set[str]()
    for (field, kind), name in zip(partition, names, strict=True):
        avro_kind = avro_type(kind)
        if isinstance(avro_kind, dict) and "name" in avro_kind:
            if avro_kind["name"] in known:  # Avro names a type once, and PyIceberg does not follow names
                avro_kind = {**avro_kind, "name": f"{avro_kind['name']}_{field['field-id']}"}
            known.add(avro_kind["name"])
        values.append(_optional(name if are_unique else f"_{field['field-id']}", avro_kind, field["field-id"]))
    data_file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", "int", 134),
            _field("file_path", "string", 100),
            _field("file_format", "string", 101),
            _field("partition", {"type": "record", "name": "r102", "fields": values}, 102),
            _field("record_count", "long", 103),
            _field("file_size_in_bytes", "long", 104),
            _optional("column_sizes", _map(117, 118, "long"), 108),
            _optional("value_counts", _map(119, 120, "long"), 109),
            _optional("null_value_counts", _map(121, 122, "long"), 110),
            _optional("nan_value_counts", _map(138, 139, "long"), 137),
            _optional("lower_bounds", _map(126, 127, "bytes"), 125),
            _optional("upper_bounds", _map(129, 130, "bytes"), 128),
            _optional("key_metadata", "bytes", 131),
            _optional("split_offsets", _list(133, "long"), 132),
            _optional("equality_ids", _list(136, "int"), 135),
            _optional("sort_order_id", "int", 140),
        ],
    }
    fields = [
        _field("status", "int", 0),
        _optional("snapshot_id", "long", 1),
        _optional("sequence_number", "long", 3),
        _optional("file_sequence_number", "long", 4),
        _field("data_file", data_file, 2),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


LIST_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", "string", 500),
        _field("manifest_length", "long", 501),
        _field("partition_spec_id", "int", 502),
        _field("content", "int", 517),
        _field("sequence_number", "long", 515),
        _field("min_sequence_number", "long", 516),
        _field("added_snapshot_id", "long", 503),
        _field("added_files_count", "int", 504),
        _field("existing_files_count", "int", 505),
        _field("deleted_files_count", "int", 506),
        _field("added_rows_count", "long", 512),
        _field("existing_rows_count", "long", 513),
        _field("deleted_rows_count", "long", 514),
        _optional(
            "partitions",
            _list(
                508,
                {
                    "type": "record",
                    "name": "r508",
                    "fields": [
                        _field("contains_null", "boolean", 509),
                        _optional("contains_nan", "boolean", 518),
                        _optional("lower_bound", "bytes", 510),
                        _optional("upper_bound", "bytes", 511),
                    ],
                },
            ),
            507,
        ),
        _optional("key_metadata", "bytes", 519),
    ],
}


def _avro_name(name: str) -> str:
    """The name with other characters than Avro's replaced, as Iceberg's own writers do."""
    found = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):X}", name)
    return f"_{found}" if found[:1].isdigit() or not found else found


# --- Avro from outside --------------------------------------------------------------------------------------------


def records(body: bytes, schema: Mapping[str, Any], *, where: str) -> Iterator[Any]:
    """The records of an Avro file with exactly this schema. Raises CorruptMarkerError, also if it unpacks to much."""
    fastavro = needs_fastavro()
    try:
        metadata = _read_header(stream := io.BytesIO(body))
        if _canonical(json.loads(metadata[b"avro.schema"])) != _canonical(schema):
            raise ValueError("it has another schema than dbio writes")
        if metadata.get(b"avro.codec") != b"deflate":
            raise ValueError("it is not packed by deflate")
        _measure(stream, where)
        yield from fastavro.reader(io.BytesIO(body))
    except CorruptMarkerError:
        raise
    except Exception as error:  # fastavro may raise any error for bytes that are not Avro
        raise CorruptMarkerError(f"{where} is no Avro file that can be read ({error!r:.200}); {UNREADABLE}") from None


def _canonical(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True)


def _read_header(stream: io.BytesIO) -> dict[bytes, bytes]:
    """The metadata of an Avro file. fastavro would take a schema from outside apart before anybody can refuse it."""
    if stream.read(4) != b"Obj\x01":
        raise ValueError("it does not begin as Avro does")
    found: dict[bytes, bytes] = {}
    while count := _read_long(stream):
        if count < 0:
            _read_long(stream)
        for _ in range(abs(count)):
            name = _read_bytes(stream)
            found[name] = _read_bytes(stream)
    stream.read(16)
    return found


def _measure(stream: io.BytesIO, where: str) -> None:
    """Raises CorruptMarkerError if the blocks of an Avro file unpack to more than is read. fastavro has no limit."""
    left = _MOST_UNPACKED_BYTES
    while stream.tell() < stream.getbuffer().nbytes:
        _read_long(stream)
        packed = _read_bytes(stream)
        stream.read(16)
        unpacker = zlib.decompressobj(-15)
        while packed:
            left -= len(unpacker.decompress(packed, 1024**2))
            packed = unpacker.unconsumed_tail
            if left < 0:
                raise too_much(where)


def _read_bytes(stream: io.BytesIO) -> bytes:
    length = _read_long(stream)
    found = stream.read(length) if length >= 0 else b""
    if len(found) != length:
        raise EOFError("it ends too early")
    return found


def _read_long(stream: io.BytesIO) -> int:
    """A whole number as Avro writes it."""
    found = shift = 0
    while shift < 64:
        (byte,) = stream.read(1)
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (found >> 1) ^ -(found & 1)
    raise ValueError("a number has too many bytes")
