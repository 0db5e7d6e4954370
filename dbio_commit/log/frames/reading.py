"""Reads the rows of files with pyarrow, through the table's own store: batch by batch, some files ahead of the caller.

`data/rows` and `data/conform` convert a file's columns to those of the table.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, Full, Queue
from threading import Event
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from dbio_commit.data.columns import file_schema, own_name
from dbio_commit.data.conditions.expressions import for_arrow
from dbio_commit.data.conditions.pruning import column_types, facts_of_file
from dbio_commit.data.conditions.tree import Condition
from dbio_commit.data.rows import WHOLE_BYTES, naming_vacuum, open_file, open_footer, open_parquet, read_rows
from dbio_commit.data.statistics import bounds_in_group, leaf_types
from dbio_commit.log.frames import ahead
from dbio_commit.log.frames.request import Request
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.state import DataFile

_T = TypeVar("_T")

_AT_ONCE = max(2, min(4, os.cpu_count() or 2))
"""Files that are read at once, in the order in which the caller gets them."""
_HELD = 2
"""Batches of each of these files that wait for the caller."""


def read_table(request: Request) -> pa.Table:
    """All rows in memory, with the wanted columns."""
    whole = _whole_bytes(request, request.target, request.condition)
    read = _reader(request, request.target, partial(open_file, request.store, whole_bytes=whole), request.condition)

    def all_of(file: DataFile) -> list[pa.RecordBatch]:
        return list(read(file))

    batches = [batch for some in request.store.in_parallel(all_of, request.files) for batch in some]
    return pa.Table.from_batches(batches, schema=request.target).select(list(request.wanted))


def count(request: Request) -> int:
    """How many rows there are. Reads the columns of the condition. Without a condition, reads only footers of files
    whose number of rows is not recorded."""
    if request.condition is not None:
        used = next(request.condition.columns(), request.wanted[0])
        asked = replace(request, wanted=[used])
        return sum(batch.num_rows for batch in read_batches(asked, asked.files, asked.target))
    recorded = request.snapshot.rows_of(request.files)
    unknown = [file.path for file in request.files if recorded.get(file.path) is None]
    with naming_vacuum():
        read = request.store.ask_each(lambda path: open_footer(request.store, path).metadata.num_rows, unknown)
    return sum(recorded.get(file.path) or 0 for file in request.files) + sum(read)


def read_batches(
    request: Request, files: Sequence[DataFile], target: pa.Schema, *, skipping: Condition | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of the files with the target's columns, in bounded memory. A few files are decoded ahead of the caller,
    and more are fetched ahead from an object store.

    `skipping` leaves out row groups which surely hold no row that the caller wants. It filters no rows; the request's
    own condition does.
    """
    store, whole = request.store, _whole_bytes(request, target, request.condition, skipping)
    small = () if store.is_disk else ((file.path, file.size) for file in files if 0 <= file.size <= whole)
    fetched = ahead.FilesAhead(store, small)

    def open(file: DataFile) -> Any:
        return fetched.open(file.path) if file.path in fetched else open_file(store, file, whole_bytes=whole)

    read = _reader(request, target, open, request.condition, skipping)
    try:
        yield from _ahead([partial(read, file) for file in files])
    finally:
        fetched.close()


def batch_reader(request: Request) -> pa.RecordBatchReader:
    """The rows batch by batch, with the wanted columns."""
    wanted = list(request.wanted)
    schema = pa.schema([request.target.field(name) for name in wanted])
    found = read_batches(request, request.files, request.target)
    return pa.RecordBatchReader.from_batches(schema, (batch.select(wanted) for batch in found))


def _whole_bytes(request: Request, target: pa.Schema, *conditions: Condition | None) -> int:
    """The size up to which files are fetched whole."""
    is_part = any(it is not None for it in conditions) or len(target) < len(request.columns["fields"])
    return ahead.WHOLE_IF_PART if is_part else WHOLE_BYTES


def _reader(
    request: Request, target: pa.Schema, open: Callable[[DataFile], Any], *conditions: Condition | None
) -> Callable[[DataFile], Iterator[pa.RecordBatch]]:
    """A function that reads the rows of one file. Of the conditions, the first filters rows."""
    store, types = request.store, column_types(request.columns)
    keep = None if conditions[0] is None else for_arrow(conditions[0], request.target)
    asked = [it for it in conditions if it is not None]

    def read(file: DataFile) -> Iterator[pa.RecordBatch]:
        where = store.url_of(file.path)
        with naming_vacuum(), open(file) as source:
            parquet = open_parquet(source, where)
            groups = _choose_groups(parquet, asked, types, partition=file.partition) if asked else None
            for batch in read_rows(parquet, target, partition=file.partition, where=where, groups=groups):
                yield from [batch] if keep is None else _kept(batch, keep)

    return read


def _kept(batch: pa.RecordBatch, keep: Any) -> Iterable[pa.RecordBatch]:
    return pa.Table.from_batches([batch]).filter(keep).to_batches()


# --- ahead --------------------------------------------------------------------------------------------------------


class _End:
    """Follows the last item of a source, or is the error that ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _ahead(sources: Sequence[Callable[[], Iterator[_T]]]) -> Iterator[_T]:
    """The items of all sources in order. The next sources run in threads, and wait when the caller is slow."""
    if len(sources) == 1:
        yield from sources[0]()
        return
    stop = Event()
    waiting: deque[Queue[Any]] = deque()
    rest = iter(sources)
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="dbio-read")

    def start() -> None:
        for source in rest:
            queue: Queue[Any] = Queue(_HELD)
            waiting.append(queue)
            pool.submit(_run, source, queue, stop)
            return

    try:
        for _ in range(_AT_ONCE):
            start()
        while waiting:
            queue = waiting.popleft()
            while not isinstance(item := queue.get(), _End):
                yield item
            if item.error is not None:
                raise item.error
            start()
    finally:
        stop.set()
        for queue in waiting:
            with suppress(Empty):
                while True:
                    queue.get_nowait()
        pool.shutdown(wait=True)


def _run(source: Callable[[], Iterator[Any]], queue: "Queue[Any]", stop: Event) -> None:
    """Puts what the source yields into the queue, until the caller wants no more."""

    def put(item: Any) -> bool:
        while not stop.is_set():
            with suppress(Full):
                queue.put(item, timeout=0.05)
                return True
        return False

    end = _End()
    try:
        for item in source():
            if not put(item):
                return
    except BaseException as error:
        end = _End(error)
    put(end)


# --- row groups -------------------------------------------------------------------------------------------------------


def _choose_groups(
    parquet: pq.ParquetFile, conditions: Sequence[Condition], types_of: Mapping[str, str], *, partition: Partition
) -> list[int]:
    """The numbers of the row groups that may hold rows which fulfil all conditions, by the statistics in the footer.

    `types_of` has the table's types, as `column_types` gives them. A column that the file has with another type leaves
    nothing out.
    """
    footer = parquet.metadata
    used = {column for condition in conditions for column in condition.columns()}
    leaves = _leaves(parquet, {column.lower(): types_of[column] for column in used if column in types_of})
    kept = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        bounds = {name: bounds_in_group(kind, footer, number, leaf) for name, (leaf, kind) in leaves.items()}
        info = FileInfo(path="", size=0, rows=group.num_rows, statistics=bounds, partition=dict(partition))
        facts_of = facts_of_file(info, used, types_of)
        if group.num_rows and all(condition.may_hold(facts_of) for condition in conditions):
            kept.append(number)
    return kept


def _leaves(parquet: pq.ParquetFile, wanted: Mapping[str, str]) -> dict[str, tuple[int, Any]]:
    """The columns whose statistics count: the number of the leaf, and Arrow's type."""
    found: dict[str, tuple[int, Any]] = {}
    leaf = 0
    for column, field in zip(file_schema(parquet), parquet.schema_arrow, strict=True):
        inside = list(leaf_types(field.name, field.type))
        is_flat = len(inside) == 1 and inside[0][0] == field.name
        kind = wanted.get(field.name.lower())
        if is_flat and not types.is_floating(field.type) and column.type == field.type and own_name(field.type) == kind:
            found[field.name] = leaf, field.type
        leaf += len(inside)
    return found if leaf == parquet.metadata.num_columns else {}
