"""A snapshot as a LazyFrame of Polars: which files and columns to read follows from the query.

Polars reads files that hold the table's columns as they are, if they are on a disk; all others are read by `reading`.
Polars filters all rows itself, so `polars_predicate` may understand a part of a filter only.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import require
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conform import partition_value
from dbio_commit.data.encoding import leaves, problem_of_values
from dbio_commit.data.exact import for_polars, polars_column
from dbio_commit.data.pruning import AllOf, Condition
from dbio_commit.log.frames.matching import MatchedFile, match_files
from dbio_commit.log.frames.polars_predicate import outline
from dbio_commit.log.frames.reading import read_batches
from dbio_commit.log.frames.request import Request
from dbio_commit.protocol.state import DataFile

if TYPE_CHECKING:
    import polars

_FILES_AT_ONCE = 256
"""Files whose footers are looked at before the first of them is read."""


_DIRECT_FILES = 1_000
_DIRECT_IN_PARTITIONS = 200
"""With more files, those that a query does not need are worth leaving out before their footers are read."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_NUMBER, _DATE = re.compile(r"-?[0-9]{1,18}"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TEXTS = {"Int8": _NUMBER, "Int16": _NUMBER, "Int32": _NUMBER, "Int64": _NUMBER, "Date": _DATE}
"""By types of Polars: the texts in names of directories that Polars reads as this package does."""


def to_lazy(request: Request) -> "polars.LazyFrame":
    """See `Snapshot.to_lazy`."""
    require("polars", what="to_lazy")
    from polars.io.plugins import register_io_source

    target = request.target
    found: polars.LazyFrame | None = _direct(request)
    if found is None:
        schema = _polars_schema(target)
        found = register_io_source(partial(_scan, request), schema=schema, is_pure=True)
    if request.condition is not None:
        found = found.filter(for_polars(request.condition, target))
    return found if list(request.wanted) == target.names else found.select(list(map(polars_column, request.wanted)))


def _direct(request: Request) -> "polars.LazyFrame | None":
    """The files as a scan of Polars alone, which is the fastest; None if only `_scan` finds all rows, or reads less.

    Polars itself leaves out row groups, and partitions if it finds their values in the files' paths.
    """
    files, columns = request.files, request.snapshot.partition_columns
    most = _DIRECT_IN_PARTITIONS if columns else _DIRECT_FILES
    if not 0 < len(files) <= most or not request.store.is_disk:
        return None
    kinds = _kinds_in_paths(request) if columns else {}
    if kinds is None:
        return None
    matched = match_files(request, files, request.target)
    if not all(it.is_native(request) for it in matched):
        return None
    if not columns:
        return _native(request, matched, request.target)
    return None if any(it.why for it in matched) else _with_paths(request, kinds)


def _kinds_in_paths(request: Request) -> "dict[str, polars.DataType] | None":
    """The types of the partition columns, if Polars certainly finds their values in the paths of all files."""
    columns = request.snapshot.partition_columns
    schema = _polars_schema(arrow_schema(request.columns, where=request.snapshot.url))
    texts = {name: _TEXTS[str(schema[name])] for name in columns if str(schema.get(name)) in _TEXTS}
    if len(texts) < len(columns) or not all(map(_PLAIN_NAME.fullmatch, texts)) or "=" in request.store.url:
        return None
    for file in request.files:
        for name, grammar in texts.items():
            text = file.partition.get(name)
            if text is None or not grammar.fullmatch(text) or f"{name}={text}" not in file.path.split("/"):
                return None
    return {name: schema[name] for name in texts}


def _with_paths(request: Request, kinds: "dict[str, polars.DataType]") -> "polars.LazyFrame":
    import polars as pl

    paths = [f"{request.store.url}/{file.path}" for file in request.files]
    found = pl.scan_parquet(paths, glob=False, hive_partitioning=True, hive_schema=kinds, extra_columns="ignore")
    return found.select(request.target.names)


def _scan(
    request: Request,
    with_columns: list[str] | None,
    predicate: "polars.Expr | None",
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator["polars.DataFrame"]:
    """What Polars calls for each run of a query."""
    wanted = request.target.names if with_columns is None else with_columns
    target = pa.schema([request.target.field(name) for name in wanted])
    schema = _polars_schema(request.target)
    told = None if predicate is None else outline(predicate, schema)
    asked = [it for it in (request.condition, told) if it is not None]
    files = request.pruned(AllOf(tuple(asked))) if asked else request.files
    left = n_rows
    for frame in _frames(request, files, target, predicate, told, batch_size, left):
        if left is not None:
            frame = frame.head(left)
            left -= frame.height
        yield frame if predicate is None or left is None else frame.filter(predicate)
        if left == 0:
            return


def _frames(
    request: Request,
    files: Sequence[DataFile],
    target: pa.Schema,
    predicate: "polars.Expr | None",
    told: Condition | None,
    batch_size: int | None,
    n_rows: int | None,
) -> Iterator["polars.DataFrame"]:

    keep = predicate if n_rows is None else None  # Polars counts the rows before it filters them
    for start in range(0, len(files), _FILES_AT_ONCE):
        some = match_files(request, files[start : start + _FILES_AT_ONCE], target)
        native = [it for it in some if it.is_native(request)]
        if native:
            lazy = _native(request, native, target)
            lazy = lazy if keep is None else lazy.filter(keep)
            lazy = lazy if n_rows is None else lazy.head(n_rows)
            yield from lazy.collect_batches(chunk_size=batch_size, maintain_order=False, engine="streaming")
        others = [it.file for it in some if not it.is_native(request)]
        for batch in read_batches(request, others, target, skipping=told):
            frame = frame_of(pa.Table.from_batches([batch]))
            yield frame if keep is None else frame.filter(keep)


def frame_of(rows: pa.Table) -> "polars.DataFrame":
    """The rows as a DataFrame. Raises InvalidInputError for texts that are not UTF-8, which Polars would not notice."""
    import polars as pl

    for name in rows.column_names:
        for path, values in (it for chunk in rows.column(name).chunks for it in leaves(name, chunk)):
            if why := problem_of_values(values):
                raise InvalidInputError(
                    f"column {path!r:.200} holds a value that Polars does not have: {why:.200}. Other forms, such as "
                    "to_arrow, return it as it is; an update with Spark can replace it"
                )
    return pl.DataFrame(pl.from_arrow(rows))


def _native(request: Request, files: Sequence[MatchedFile], target: pa.Schema) -> "polars.LazyFrame":
    """The files as Polars scans them. The values of partition columns are those of the directories' names."""
    import polars as pl

    wanted = {name.lower() for name in target.names}
    groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for it in files:
        values_in = ((name, text) for name, text in it.file.partition.items() if name.lower() in wanted)
        groups.setdefault(tuple(values_in), []).append(it.file)
    schema = _polars_schema(target)
    scans = []
    for partition, members in groups.items():
        values = {name.lower(): text for name, text in partition}
        scan = pl.scan_parquet(
            [f"{request.store.url}/{file.path}" for file in members],
            glob=False,
            hive_partitioning=False,
            extra_columns="ignore",
        )
        where = request.store.url_of(members[0].path)
        columns = [
            pl.lit(partition_value(values[field.name.lower()], field, where), dtype=schema[field.name]).alias(
                field.name
            )
            if field.name.lower() in values
            else polars_column(field.name)
            for field in target
        ]
        scans.append(_selected(scan, columns, all(field.name.lower() in values for field in target)))
    return pl.concat(scans)


def _selected(scan: "polars.LazyFrame", columns: list[Any], only_values: bool) -> "polars.LazyFrame":
    """The columns. If all are values of the directory, each row of the files still is a row."""
    if not only_values:
        return scan.select(columns)
    return scan.with_row_index("__row").select("__row", *columns).drop("__row")


def _polars_schema(schema: pa.Schema) -> "polars.Schema":
    import polars as pl

    return pl.DataFrame(pl.from_arrow(schema.empty_table())).schema
