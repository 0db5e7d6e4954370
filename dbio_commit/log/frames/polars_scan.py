"""Makes a Polars LazyFrame of a snapshot. The query decides which files and columns are read.

Polars itself reads files on a disk that hold the table's columns as they are. `reading` reads all others. Polars
filters all rows itself, so `polars_predicate` need not understand all parts of a filter.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError, MissingPackageError
from dbio_commit.base.packages import require
from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.conditions.expressions import for_polars, polars_column
from dbio_commit.data.conditions.tree import AllOf, Condition
from dbio_commit.data.encoding import leaves, problem_of_values
from dbio_commit.log.frames.matching import MatchedFile, match_files, unused_name
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
"""With more files, it is faster to leave out those that a query does not need before footers are read."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_NUMBER, _DATE = re.compile(r"-?[0-9]{1,18}"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TEXTS = {"Int8": _NUMBER, "Int16": _NUMBER, "Int32": _NUMBER, "Int64": _NUMBER, "Date": _DATE}
"""For types of Polars, the texts in names of directories that Polars reads as dbio does."""


def to_lazy(request: Request) -> "polars.LazyFrame":
    """See `Snapshot.to_lazy`."""
    require("polars", what="to_lazy")
    target = request.target
    found: polars.LazyFrame | None = _direct(request)
    if found is None:
        found = _resolved_late(request)
    if request.condition is not None:
        found = found.filter(for_polars(request.condition, target))
    return found if list(request.wanted) == target.names else found.select(list(map(polars_column, request.wanted)))


def _direct(request: Request) -> "polars.LazyFrame | None":
    """The files as a scan of Polars alone, which is the fastest. None if only `_resolved_late` finds all rows, or if it
    reads less.

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


def _resolved_late(request: Request) -> "polars.LazyFrame":
    """A frame whose rows Polars asks for once it knows what a query needs.

    Polars passes the filters as expressions. `register_io_source` alone would pass them as bytes, which needs the
    package cloudpickle for filters with a Python function.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    try:
        from polars.lazyframe.resolver import LazyFrameResolver, ResolvedLazyFrameProps
    except ImportError:
        raise MissingPackageError(
            f"to_lazy needs Polars 2.1 or later, and this is {pl.__version__}; run `pip install --upgrade polars`"
        ) from None
    schema = _polars_schema(request.target)

    class Rows(LazyFrameResolver):
        def schema(self) -> Any:
            return schema

        def resolve_lazyframe(
            self,
            *,
            projection: list[str] | None,
            limit: int | None,
            filters: Sequence[Any],
            filter_columns: Sequence[str],
            **_: Any,
        ) -> tuple["polars.LazyFrame", ResolvedLazyFrameProps]:
            names = request.target.names if projection is None else projection
            source = _Planned(request, names, [it.expr for it in filters], filter_columns, limit)
            found = register_io_source(source.scan, schema={name: schema[name] for name in names}, is_pure=True)
            return found, ResolvedLazyFrameProps(applied_filters=range(len(filters)))

        def cse_eq(self, other: object) -> bool:
            return self is other

    return Rows().lazy()


@dataclass(frozen=True)
class _Planned:
    """The rows and columns that a query needs, as Polars has planned it."""

    request: Request
    names: Sequence[str]
    """The columns."""
    filters: Sequence["polars.Expr"]
    filter_columns: Sequence[str]
    limit: int | None
    """How many rows, counted before the filters."""

    def scan(
        self,
        with_columns: list[str] | None,
        predicate: "polars.Expr | None",
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator["polars.DataFrame"]:
        """Returns the rows. Polars calls this for each run of the query.

        The rows come in the order of the files, whatever the columns and filters are.
        """
        request, target = self.request, self.request.target
        used = [*self.filters, *([] if predicate is None else [predicate])]
        left = min((it for it in (self.limit, n_rows) if it is not None), default=None)
        asked = [outline(it, _polars_schema(target)) for it in used] if left is None else []
        condition = AllOf((*asked, *([request.condition] if request.condition else ()))) if asked else None
        files = request.files if condition is None else request.pruned(condition)
        wanted = self.names if with_columns is None else with_columns
        needed = pa.schema([target.field(name) for name in dict.fromkeys([*wanted, *self.filter_columns])])
        for frame in _frames(request, files, needed, used if left is None else (), condition, batch_size, left):
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
                frame = frame.filter(*used) if used else frame
            yield frame.select(map(polars_column, wanted)) if len(needed) > len(wanted) else frame
            if left == 0:
                return


def _frames(
    request: Request,
    files: Sequence[DataFile],
    target: pa.Schema,
    keep: Sequence["polars.Expr"],
    condition: Condition | None,
    batch_size: int | None,
    n_rows: int | None,
) -> Iterator["polars.DataFrame"]:
    """The rows in the order of the files. Polars itself reads a file if it can."""
    for native, others in _runs(request, files, target):
        if native:
            lazy = _native(request, native, target)
            lazy = lazy.filter(*keep) if keep else lazy
            lazy = lazy if n_rows is None else lazy.head(n_rows)
            yield from lazy.collect_batches(chunk_size=batch_size, maintain_order=True, engine="streaming")
        for batch in read_batches(request, others, target, skipping=condition):
            frame = frame_of(pa.Table.from_batches([batch]))
            yield frame.filter(*keep) if keep else frame


def _runs(
    request: Request, files: Sequence[DataFile], target: pa.Schema
) -> Iterator[tuple[list[MatchedFile], Sequence[DataFile]]]:
    """The files in their order, in runs: files that Polars itself reads, or files that it does not read."""
    if not request.store.is_disk:
        yield [], files
        return
    for start in range(0, len(files), _FILES_AT_ONCE):
        some = match_files(request, files[start : start + _FILES_AT_ONCE], target)
        for is_native, run in groupby(some, key=lambda it: it.is_native(request)):
            found = [*run]
            yield (found, []) if is_native else ([], [it.file for it in found])


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
    """The files as Polars scans them, in their order. The values of partition columns are those of the directories'
    names: one value for all, or one for each path."""
    import polars as pl

    paths = [f"{request.store.url}/{it.file.path}" for it in files]
    parts = {column.lower() for column in request.snapshot.partition_columns}
    outside = [field for field in target if field.name.lower() in parts]
    path = unused_name("path", (it["name"] for it in request.columns["fields"]))
    scan = pl.scan_parquet(
        paths,
        glob=False,
        hive_partitioning=False,
        extra_columns="ignore",
        include_file_paths=path if outside else None,
    )
    for field in outside:
        values = pl.Series(pl.from_arrow(pa.array([it.value_of(field, request) for it in files], field.type)))
        is_one = values.n_unique() == 1 and len(outside) < len(target)
        value = pl.lit(values[0], dtype=values.dtype) if is_one else pl.col(path).replace_strict(paths, values)
        scan = scan.with_columns(value.alias(field.name))
    return scan.select(list(map(polars_column, target.names)))


def _polars_schema(schema: pa.Schema) -> "polars.Schema":
    import polars as pl

    return pl.DataFrame(pl.from_arrow(schema.empty_table())).schema
