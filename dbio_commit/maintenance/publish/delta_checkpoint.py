"""Encodes and decodes checkpoints of a Delta log: one Parquet file each, of Delta's version 1. Pure."""

import io
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.data.pages import footer_bytes, measure
from dbio_commit.data.parquet_file import parquet_file
from dbio_commit.maintenance.publish.bounds import NamedPaths, most_unpacked, too_much
from dbio_commit.maintenance.publish.delta_log import SAVE, DeltaFile, DeltaState, addition, removal


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


class CheckpointWriter:
    """Makes the checkpoint of a version, slice by slice: only its packed rows are in memory as a whole."""

    def __init__(self, *, metadata: Mapping[str, Any], protocol: Mapping[str, Any]) -> None:
        self._body = io.BytesIO()
        self._writer = pq.ParquetWriter(self._body, _SCHEMA)
        meta = {
            **metadata,
            "format": {"provider": "parquet", "options": []},
            "configuration": list(metadata["configuration"].items()),
        }
        self._count = 0
        self._tables: list[pa.Table] = []
        self._take([{"protocol": dict(protocol)}, {"metaData": meta}])

    def add(self, files: Sequence[DeltaFile], removed_ms: Mapping[str, int]) -> None:
        """Adds live files, and the removed paths that others may still read, with their times in ms since 1970."""
        added = (addition(file, data_change=False) for file in files)
        adds = ({"add": {**action, "partitionValues": list(action["partitionValues"].items())}} for action in added)
        removes = ({"remove": removal(path, at_ms, data_change=False)} for path, at_ms in removed_ms.items())
        rows = chain(adds, removes)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            self._take(some)

    def finish(self) -> tuple[int, bytes]:
        """The number of rows, and the body."""
        self._flush()
        self._writer.close()
        return self._count, self._body.getvalue()

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self._tables.append(pa.Table.from_pylist(rows, _SCHEMA))
        self._count += len(rows)
        if sum(table.num_rows for table in self._tables) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables))
        self._tables = []


_ROWS_AT_ONCE = 5000
"""The most rows that are Python values at a time: these take twenty times the memory of packed rows."""

_GROUP_ROWS = 50_000
"""A row group has at least so many rows, except the last, so that a footer stays small."""


def decode_checkpoint(body: bytes, *, where: str) -> DeltaState:
    """The state in a checkpoint, without the mark of its version. Raises CorruptMarkerError, also if it unpacks to too
    many bytes."""
    try:
        return _decode(body, where)
    except (pa.ArrowException, LookupError, TypeError, AttributeError, ValueError, OSError, RuntimeError) as error:
        raise CorruptMarkerError(
            f"{where} is no checkpoint of a Delta log that can be read ({error!r:.200}); {SAVE}"
        ) from None


_WANTED = (
    "add.path",
    *(f"metaData.{it}" for it in ("id", "schemaString", "partitionColumns", "configuration")),
    "protocol",
)
"""Only these columns are read. All others may have any contents."""

_MOST_FOOTER_BYTES = 1024**2
"""A footer has 7 kB for a million rows. pyarrow limits the depth of columns to 100 levels."""

_VALUE_BYTES = 8
"""The memory for a value besides its text, which is kept once."""


def _decode(body: bytes, where: str) -> DeltaState:
    if footer_bytes(body) > _MOST_FOOTER_BYTES:
        raise ValueError(f"its footer has more than {_MOST_FOOTER_BYTES} bytes")
    metadata = pq.read_metadata(io.BytesIO(body))
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    wanted = [i for i, it in enumerate(columns) if any(f"{it.path}.".startswith(f"{name}.") for name in _WANTED)]
    pages = measure(body, wanted)  # before pyarrow unpacks any
    if pages.unpacked_bytes + _VALUE_BYTES * pages.values > most_unpacked(len(body)):
        raise too_much(where)
    # Equal texts are kept once, as in the file: a page of few bytes may repeat a long text a million times.
    texts = [columns[i].path for i in wanted if columns[i].physical_type == "BYTE_ARRAY"]
    file = parquet_file(io.BytesIO(body), metadata=metadata, read_dictionary=texts)
    paths = NamedPaths(where, most_unpacked(len(body)))
    found: dict[str, list[dict[str, Any]]] = {"metaData": [], "protocol": []}
    for group in range(
        metadata.num_row_groups
    ):  # each batch has its own dictionaries, which nested columns cannot join
        table = file.read_row_group(group, columns=list(_WANTED), use_threads=False)
        added = pc.struct_field(table["add"], "path")
        paths.pass_over(added.null_count)
        for chunk in added.chunks:
            for path in chunk.drop_null().unique().to_pylist():
                paths.add(unquote(path))
        for name, records in found.items():
            records += _rows(table[name])
    return DeltaState(paths=paths.found(), metadata=_only(found["metaData"]), protocol=_only(found["protocol"]))


def _only(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(rows) != 1:
        raise ValueError(f"it has {len(rows)} records of a kind of which it must have exactly one")
    return rows[0]


def _rows(column: Any) -> list[dict[str, Any]]:
    """The values that are not null. Raises ValueError for a second record. Each text of its lists is once in memory."""
    rows = [chunk for chunk in column.drop_null().chunks if len(chunk)]
    if sum(map(len, rows)) > 1:
        raise ValueError("it has several records of a kind of which it must have exactly one")
    return [{name: _value(row.field(name)) for name in row.type.names} for row in rows]


def _value(column: Any) -> Any:
    if pa.types.is_map(column.type):
        return dict(column[0].as_py() or ())
    if not pa.types.is_list(column.type):
        return column[0].as_py()
    if not column[0].is_valid:
        return None
    texts = column[0].values
    known = texts.dictionary.to_pylist()
    return [known[i] for i in texts.indices.to_pylist()]
