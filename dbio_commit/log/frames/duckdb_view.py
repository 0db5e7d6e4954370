"""Makes a DuckDB relation of a snapshot. Each query reads the files when it runs.

DuckDB itself reads files on a disk that hold the table's columns as they are. pyarrow reads others for it, if pyarrow
finds the table's rows in them (`dataset`). The rows of all other files are converted in memory.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbio_commit.base.packages import require
from dbio_commit.data.conditions.expressions import duckdb_column, for_duckdb
from dbio_commit.log.frames.dataset import dataset_of
from dbio_commit.log.frames.matching import MatchedFile, match_files, unused_name
from dbio_commit.log.frames.reading import read_batches
from dbio_commit.log.frames.request import Request

if TYPE_CHECKING:
    import duckdb


def to_duckdb(request: Request, connection: "duckdb.DuckDBPyConnection | None") -> "duckdb.DuckDBPyRelation":
    """See `Snapshot.to_duckdb`."""
    library = require("duckdb", what="to_duckdb")
    on: duckdb.DuckDBPyConnection = connection or library.default_connection()
    matched = match_files(request, request.files, request.target)
    native = [it for it in matched if it.is_native(request)]
    cast = [it for it in matched if not it.is_native(request) and not it.why]
    other = [it.file for it in matched if not it.is_native(request) and it.why]
    parts = [_plain(_native(request, native, on), request.target)] if native else []
    if cast:
        parts.append(_plain(on.from_arrow(dataset_of(request, cast)), request.target))
    if other or not parts:
        batches = read_batches(request, other, request.target)
        rows = pa.Table.from_batches(batches, schema=request.target)
        parts.append(_plain(on.from_arrow(rows), request.target))
    found = parts[0]
    for part in parts[1:]:
        found = found.union(part)
    if request.condition is not None:
        found = found.filter(for_duckdb(request.condition, request.target))
    if list(request.wanted) == request.target.names:
        return found
    return found.select(*map(duckdb_column, request.wanted))


_MOST_LISTED = 500
"""DuckDB looks up a list of the files for every 2,048 rows, if a query has a partition column. A join with a table of
the files looks up every row, also if a query has no such column, but takes no longer for more files."""


_LISTED: Mapping[Any, str] = {
    pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.date32(): "DATE",
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
}  # fmt: skip
"""The types whose Python values stay exact in a list of DuckDB, whatever the settings of the connection."""


def _native(
    request: Request, files: Sequence[MatchedFile], on: "duckdb.DuckDBPyConnection"
) -> "duckdb.DuckDBPyRelation":
    """The files as DuckDB reads them. The values of partition columns follow from the files' names: DuckDB opens only
    files whose values a filter keeps."""
    target, store = request.target, request.store
    parts = {column.lower() for column in request.snapshot.partition_columns}
    paths = [f"{store.url}/{it.file.path}" for it in files]
    read = "FROM read_parquet($paths, hive_partitioning = false, union_by_name = false"
    outside = [field for field in target if field.name.lower() in parts]
    if not outside:
        return on.sql(f"SELECT {', '.join(map(_quoted, target.names))} {read})", params={"paths": paths})
    values: dict[str, list[Any]] = {field.name: [it.value_of(field, request) for it in files] for field in outside}
    name = unused_name("file", target.names)
    read += f", filename = {_text(name)})"
    if len(files) <= _MOST_LISTED and all(field.type in _LISTED for field in outside):
        position = f"list_position($paths, {_quoted(name)})"
        listed = {
            field.name: f"CAST($values_{at} AS {_LISTED[field.type]}[])[{position}] AS {_quoted(field.name)}"
            for at, field in enumerate(outside)
        }
        columns = [listed.get(field, _quoted(field)) for field in target.names]
        params = {"paths": paths, **{f"values_{at}": values[field.name] for at, field in enumerate(outside)}}
        return on.sql(f"SELECT {', '.join(columns)} {read}", params=params)
    arrays = {field.name: pa.array(values[field.name], field.type) for field in outside}
    partitions = on.from_arrow(pa.table({name: pa.array(paths, pa.string()), **arrays}))
    rows = on.sql(f"SELECT * {read}", params={"paths": paths})
    condition = f"files.{_quoted(name)} = partitions.{_quoted(name)}"
    columns = [f"{'partitions' if field in outside else 'files'}.{_quoted(field.name)}" for field in target]
    return rows.set_alias("files").join(partitions.set_alias("partitions"), condition).project(", ".join(columns))


def _plain(rows: "duckdb.DuckDBPyRelation", target: pa.Schema) -> "duckdb.DuckDBPyRelation":
    """The columns, with floating-point ones wrapped in TRY, so that DuckDB does not filter them by bounds.

    DuckDB and pyarrow take the bounds in a footer for all values, and lose NaN, which many writers leave out of bounds.
    DuckDB knows no bounds of the value of TRY. TRY costs no time.
    """
    columns = [(_quoted(field.name), _has_floats(field.type)) for field in target]
    if not any(is_odd for _, is_odd in columns):
        return rows
    return rows.project(", ".join(f"TRY({name}) AS {name}" if is_odd else name for name, is_odd in columns))


def _has_floats(kind: Any) -> bool:
    inside = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(_has_floats, inside))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
