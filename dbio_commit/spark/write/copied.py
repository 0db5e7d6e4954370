"""Writes files again with some rows changed: Spark sends only these rows, and tasks copy all others from the old file.

Most rows of a rewrite stay as they are, and sending them through Spark is what costs most. So Spark sends only rows
that change, each with the number of its file and its place in the file (FILE, PLACE; both null for a new row), grouped
by file. The task that gets the rows of a file reads the file, replaces its rows by those, and counts them.

Some old files can be read by Spark only. For these, Spark also sends the rows that stay, with the action KEPT.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dbio_commit.base.errors import StoreError
from dbio_commit.data import arrow
from dbio_commit.data.footers import has_old_calendar
from dbio_commit.data.rows import open_file, open_parquet, read_rows, refuse_loss, refuse_other_rows
from dbio_commit.data.widen import fit
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.located import FILE, PLACE, Located
from dbio_commit.spark.read.scan import ReadSpec, group_files
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.conf import parallelism
from dbio_commit.spark.versions import local_rows
from dbio_commit.spark.write.actions import ACTION, RowAction

_SLOT, _OF = "_dbio_slot", "_dbio_slot_of"
_MOST_BYTES = 128 * 1024 * 1024
"""At most so many bytes of old files for a task, as in a scan by Spark."""
_FEWEST_BYTES = 4 * 1024 * 1024
"""At least so many: a smaller task would take longer to start than to run."""
_SLOTS = 2
"""Between these bounds, so many tasks for each core: not all tasks are equally fast."""
_NEW_ROWS = 1_000_000
"""At most so many new rows for a task."""


# --- among tasks --------------------------------------------------------------------------------------------------


def by_file(rows: DataFrame, located: Located, new_rows: int) -> DataFrame:
    """The rows, shuffled: those of one file go to one task, in the order of places. New rows go to any task.

    There are at most `new_rows` new rows.
    """
    spark, files = rows.sparkSession, [*located.files.values()]
    size = sum(max(file.size, 0) for file in files)
    count = max(_SLOTS * parallelism(spark), math.ceil(size / _MOST_BYTES))
    slots = group_files(files, min(count, math.ceil(size / _FEWEST_BYTES)))
    tasks = max(len(slots), math.ceil(new_rows / _NEW_ROWS))
    if tasks > 1:
        numbers = {file.path: number for number, file in located.files.items()}
        keys = [
            (numbers[file.path], key) for key, slot in zip(_keys(spark, tasks), slots, strict=False) for file in slot
        ]
        slot_of = local_rows(spark, pa.table({_OF: [it[0] for it in keys], _SLOT: [it[1] for it in keys]}))
        rows = rows.join(f.broadcast(slot_of), f.expr(f"{FILE} = {_OF}"), "left").drop(_OF)
        rows = rows.withColumn(_SLOT, f.expr(f"coalesce({_SLOT}, bigint(spark_partition_id()))"))
        rows = rows.repartition(tasks, _SLOT)
    else:
        rows = rows.repartition(1)
    return rows.sortWithinPartitions(FILE, PLACE, f.desc(ACTION)).drop(_SLOT)


_known_keys: dict[int, list[int]] = {}


def _keys(spark: SparkSession, slots: int) -> list[int]:
    """A key for each slot, chosen so that Spark's hash puts each slot into a task of its own. It never changes."""
    if slots not in _known_keys:
        numbers = local_rows(spark, pa.table({"id": pa.array(range(32 * slots), pa.int64())}))
        first: dict[int, int] = {}
        for number, slot in numbers.selectExpr("id", f"pmod(hash(id), {slots})").collect():
            first.setdefault(slot, number)
        _known_keys[slots] = [first.get(slot, slot) for slot in range(slots)]
    return _known_keys[slots]


# --- in a task ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFiles:
    """What a task must know of the files that are written again."""

    spec: ReadSpec
    files: Mapping[int, DataFile]
    columns: tuple[str, ...]
    """The columns of the table that Spark sends, in this order, before ACTION, FILE and PLACE."""
    sets: frozenset[str]
    """The columns that change in UPDATED rows; all others keep the value in the file."""
    shipped: frozenset[int] = frozenset()
    """The numbers of the files all of whose rows Spark sends."""
    records_changes: bool = False
    rows: Mapping[int, int] = field(default_factory=dict)
    """By number of the file: how many rows its writer recorded."""


@dataclass(slots=True)
class CopyCounts:
    """What a task reports of the old files that it handled."""

    paths: list[str] = field(default_factory=list)
    only_for_spark: list[int] = field(default_factory=list)
    """The numbers of files that it did not write again: only Spark can read them, and must send all of their rows."""
    twice: bool = False
    """Whether there were several changes of one row."""


_NEW = object()
_Placed = tuple[Any, pa.RecordBatch]
"""Places, and the rows there: their columns and ACTION."""


class _Changes:
    """The rows that Spark sends, read in the order of files and places."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """`schema` has the columns before ACTION."""
        self._batches, self._schema = iter(batches), schema
        self._files: Any = np.array([], np.int64)
        self._news = 0
        self._places: Any = self._files
        self._rows: pa.RecordBatch | None = None

    def next_file(self) -> Any:
        """The number of the file whose rows are next; _NEW for new rows; None at the end."""
        while self._rows is None or not self._rows.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._set(batch)
        return _NEW if self._news else int(self._files[0])

    def take(self, number: Any, before: int | None = None) -> Iterator[_Placed]:
        """Takes the next rows, as long as they are rows of this file with places less than `before`."""
        while self.next_file() == number:
            assert self._rows is not None
            end = self._news or int(np.searchsorted(self._files, number, "right"))
            if before is not None:
                end = int(np.searchsorted(self._places[:end], before, "left"))
            if not end:
                return
            yield self._places[:end], self._rows.slice(0, end)
            self._files, self._places, self._rows = self._files[end:], self._places[end:], self._rows.slice(end)
            self._news = max(0, self._news - end)

    def _set(self, batch: pa.RecordBatch) -> None:
        columns, count = arrow.plain_batch(arrow.sound(batch)).columns, len(self._schema)
        actions, files, places = columns[count : count + 3]
        fitted = [fit(column, it.type) for column, it in zip(columns[:count], self._schema, strict=True)]
        self._rows = pa.RecordBatch.from_arrays([*fitted, actions], names=[*self._schema.names, ACTION])
        self._news = files.null_count  # nulls come first
        self._files = files.fill_null(0).to_numpy(zero_copy_only=False)
        known = self._files[self._news :]
        if files.slice(self._news).null_count or (known[1:] < known[:-1]).any():
            raise AssertionError("rows do not arrive in the order of their files")  # and would replace other rows
        self._places = places.fill_null(0).to_numpy(zero_copy_only=False)


def copy(old: OldFiles, batches: Iterable[pa.RecordBatch], copied: CopyCounts) -> Iterator[pa.RecordBatch]:
    """All rows of the old files with the changes applied, and the new rows; with their actions in the last column.

    `batches` are those of a task of `by_file`. Fills in `copied`.
    """
    return _Copying(old, batches, copied).run()


class _Copying:
    def __init__(self, old: OldFiles, batches: Iterable[pa.RecordBatch], copied: CopyCounts) -> None:
        self._old, self._copied = old, copied
        self._target = arrow.plain_schema(schemas.arrow_schema(old.spec.schema))
        self._changes = _Changes(batches, pa.schema([self._target.field(name) for name in old.columns]))
        self._store = old.spec.table.store

    def run(self) -> Iterator[pa.RecordBatch]:
        while (number := self._changes.next_file()) is not None:
            if number is _NEW:
                yield from (rows.select([*self._target.names, ACTION]) for _, rows in self._changes.take(number))
                continue
            file = self._old.files.get(number)
            if file is None:
                raise AssertionError(f"Spark knows a file of {self._store.url} by another path than dbio")
            where = self._store.url_of(file.path)
            if file.path in self._copied.paths:
                raise AssertionError(f"rows of {where} do not arrive together")  # and would be written twice
            if number in self._old.shipped:
                yield from self._from_spark(number, where)
            else:
                with open_file(self._store, file) as source:
                    parquet = open_parquet(source, where)
                    refuse_loss(parquet, self._target, partition=file.partition, where=where)
                    if has_old_calendar(parquet.metadata):
                        self._copied.only_for_spark.append(number)
                        self._refuse_after(number, where=None)
                        continue
                    yield from self._from_file(parquet, number, where)
            self._refuse_after(number, where)
            self._copied.paths.append(file.path)

    def _from_file(self, parquet: pq.ParquetFile, number: int, where: str) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in read_rows(parquet, self._target, partition=self._old.files[number].partition, where=where):
            places = np.arange(seen, seen + batch.num_rows)
            seen += batch.num_rows
            yield from self._changed(places, batch, [*self._changes.take(number, seen)], where)
        refuse_other_rows(where, self._old.rows.get(number), seen)

    def _from_spark(self, number: int, where: str) -> Iterator[pa.RecordBatch]:
        """For a file all of whose rows Spark sends: at each place, changes come first, and the KEPT row comes last."""
        waiting: _Placed | None = None
        seen = 0
        for places, rows in self._changes.take(number):
            if waiting:
                places, rows = np.concatenate([waiting[0], places]), _joined([waiting[1], rows])
            kept = rows.column(ACTION).to_numpy(zero_copy_only=False) == RowAction.KEPT
            end = len(places) if kept[-1] else int(np.searchsorted(places, places[-1], "left"))
            waiting = (places[end:], rows.slice(end)) if end < len(places) else None  # for the KEPT row there
            places, rows, kept = places[:end], rows.slice(0, end), kept[:end]
            stay = rows.filter(pa.array(kept)).select(self._target.names)
            seen += stay.num_rows
            changes = [(places[~kept], rows.filter(pa.array(~kept)))] if not kept.all() else []
            yield from self._changed(places[kept], stay, changes, where)
        if waiting:
            raise _not_there(len(waiting[0]), where)
        refuse_other_rows(where, self._old.rows.get(number), seen)

    def _changed(
        self, places: Any, rows: pa.RecordBatch, changes: Sequence[_Placed], where: str
    ) -> Iterator[pa.RecordBatch]:
        """The rows at these places, with the changes applied, and with their actions."""
        if not changes:
            yield _with_actions(rows, pa.repeat(pa.scalar(int(RowAction.KEPT), pa.int8()), rows.num_rows))
            return
        changed, new = np.concatenate([at for at, _ in changes]), _joined([it for _, it in changes])
        if (changed[1:] < changed[:-1]).any():
            raise AssertionError(f"rows of {where} do not arrive in order")
        if (changed[1:] == changed[:-1]).any():
            self._copied.twice = True
            changed, first = np.unique(changed, return_index=True)
            new = new.take(first)
        if lost := int(np.count_nonzero(~np.isin(changed, places))):
            raise _not_there(lost, where)
        at, new_actions = np.searchsorted(places, changed), new.column(ACTION).to_numpy(zero_copy_only=False)
        if self._old.records_changes:
            before = rows.filter(_mask(at[new_actions == RowAction.UPDATED], len(places)))
            yield _with_actions(before, pa.repeat(pa.scalar(int(RowAction.WAS), pa.int8()), before.num_rows))
        actions = np.full(len(places), int(RowAction.KEPT), np.int8)
        actions[at] = new_actions
        brings = new_actions != RowAction.DELETED  # deleted rows arrive without their columns
        mask, new = _mask(at[brings], len(places)), new.filter(pa.array(brings))
        columns = [
            arrow.replaced(own, mask, new.column(name)) if name in self._old.sets and new.num_rows else own
            for name, own in zip(self._target.names, rows.columns, strict=True)
        ]
        yield _with_actions(pa.RecordBatch.from_arrays(columns, schema=rows.schema), pa.array(actions))

    def _refuse_after(self, number: int, where: str | None) -> None:
        """Takes the remaining rows of the file. Raises StoreError if there are any; without `where`, drops them."""
        left = sum(len(places) for places, _ in self._changes.take(number))
        if left and where is not None:
            raise _not_there(left, where)


def _mask(at: Any, count: int) -> Any:
    """A mask of `count` values that is true at these indexes."""
    mask = np.zeros(count, np.bool_)
    mask[at] = True
    return pa.array(mask)


def _with_actions(rows: pa.RecordBatch, actions: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, actions], names=[*rows.schema.names, ACTION])


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _not_there(rows: int, where: str) -> StoreError:
    return StoreError(
        f"{rows} rows that Spark saw in {where} are not there: the file was changed in its place; nothing was "
        "committed. Run `dbio check`"
    )
