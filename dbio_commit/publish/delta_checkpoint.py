"""Checkpoints of a Delta log: Parquet, one part, of Delta's version 1. Pure, but for pyarrow."""

import io
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.errors import CorruptMarkerError
from dbio_commit.publish.delta_log import DIRECTORY, DeltaFile, DeltaState, addition, removal


def _struct(**fields: Any) -> Any:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


_TEXTS: Any = pa.map_(pa.string(), pa.string())
_NAMES: Any = pa.list_(pa.string())
_SCHEMA = pa.schema(
    {
        "protocol": _struct(
            minReaderVersion=pa.int32(), minWriterVersion=pa.int32(), readerFeatures=_NAMES, writerFeatures=_NAMES
        ),
        "metaData": _struct(
            id=pa.string(),
            name=pa.string(),
            description=pa.string(),
            format=_struct(provider=pa.string(), options=_TEXTS),
            schemaString=pa.string(),
            partitionColumns=_NAMES,
            configuration=_TEXTS,
            createdTime=pa.int64(),
        ),
        "add": _struct(
            path=pa.string(),
            partitionValues=_TEXTS,
            size=pa.int64(),
            modificationTime=pa.int64(),
            dataChange=pa.bool_(),
            stats=pa.string(),
        ),
        "remove": _struct(path=pa.string(), deletionTimestamp=pa.int64(), dataChange=pa.bool_()),
        "txn": _struct(appId=pa.string(), version=pa.int64(), lastUpdated=pa.int64()),
    }
)


def encode_checkpoint(
    files: Sequence[DeltaFile],
    removed_ms: Mapping[str, int],
    *,
    metadata: Mapping[str, Any],
    protocol: Mapping[str, Any],
) -> bytes:
    """The state of a version. `removed_ms`: path -> when it was removed, of those that others may still read."""
    meta = {
        **metadata,
        "format": {"provider": "parquet", "options": []},
        "configuration": list(metadata["configuration"].items()),
    }
    rows: list[dict[str, Any]] = [{"protocol": dict(protocol)}, {"metaData": meta}]
    rows += [
        {"add": {**action, "partitionValues": list(action["partitionValues"].items())}}
        for action in (addition(file, data_change=False) for file in files)
    ]
    rows += [{"remove": removal(path, at_ms, data_change=False)} for path, at_ms in removed_ms.items()]
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), body)
    return body.getvalue()


def decode_checkpoint(body: bytes, *, where: str) -> DeltaState:
    """What it says, but for whose its version is. Raises CorruptMarkerError."""
    try:
        table = pq.ParquetFile(io.BytesIO(body)).read(columns=["add.path", "metaData", "protocol"])
        return DeltaState(
            paths=frozenset(unquote(row["path"]) for row in _there(table["add"])),
            metadata=_only(table["metaData"]),
            protocol=_only(table["protocol"]),
        )
    except (pa.ArrowException, KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise CorruptMarkerError(
            f"{where} is no checkpoint of a Delta log that we can read ({error!s:.200}); save what you need of "
            f"{DIRECTORY}, delete it, and publish again"
        ) from None


def _there(column: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = column.drop_null().to_pylist()
    return rows


def _only(column: Any) -> dict[str, Any]:
    (row,) = _there(column)
    return row
