"""Writes rows that have an action: runs the tasks, counts the rows of each action, and commits the new files."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.changes import of_changes
from dbio_commit.commit.write.spill import Spill, Waiting
from dbio_commit.data import arrow
from dbio_commit.data.examples import as_python, describe, shown
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints, violated
from dbio_commit.protocol.settings import CHANGE_TYPE
from dbio_commit.spark.read.located import FILE, PLACE, Located
from dbio_commit.spark.read.scan import ReadSpec
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.transfer.batches import OnBatches, in_tasks
from dbio_commit.spark.write.actions import ACTION, CHANGE_TYPES, STAYS, VIOLATES, RowAction, row_action
from dbio_commit.spark.write.copied import CopyCounts, OldFiles, by_file, copy
from dbio_commit.spark.write.plan import WritePlan
from dbio_commit.spark.write.task import (
    RESULT_SCHEMA,
    TaskSpec,
    abort_files,
    commit_files,
    decode_file_info,
    encode_file_info,
    map_in_arrow,
    run_task,
)


class Writing:
    """A write that has begun: writes rows to new files, and commits them."""

    def __init__(self, plan: WritePlan, transaction: Transaction, *, records_changes: bool = False) -> None:
        self._plan, self._transaction, self._constraints = plan, transaction, plan.constraints
        self._spec = plan.task_spec(transaction.terms)
        self._records_changes = records_changes
        self._files: list[str] = []

    @property
    def has_files(self) -> bool:
        """Whether rows were written."""
        return bool(self._files)

    def write_all(self, rows: DataFrame) -> None:
        """Writes rows without actions, to a table without constraints."""
        spec = self._spec
        together = spec.partition_positions
        lines = in_tasks(rows, lambda unpack: map_in_arrow(spec, unpack), RESULT_SCHEMA, together=together, coded=True)
        self._files += [line.file for line in lines]

    def write(self, rows: DataFrame, *, comes_whole: bool = False) -> Counter[RowAction]:
        """Writes rows with the table's columns, in its order, and ACTION. Returns the number of rows of each action.

        `comes_whole`: all rows are new, so their files need no change file. Raises InvalidInputError if rows violate a
        constraint; then what was written is deleted.
        """
        records = self._records_changes and not comes_whole
        lines = self._run_tasks(rows, rows.columns[:-1], None, records=records)
        if self._records_changes and comes_whole:
            self._transaction.record_changes(
                decode_file_info(line.file).path for line in lines if line.file is not None
            )
        return self._counts(lines)

    def write_over(
        self,
        rows: DataFrame,
        located: Located,
        sets: Iterable[str],
        *,
        new_rows: int = 0,
        twice: str | None = "rows would be changed twice",
    ) -> Counter[RowAction]:
        """As `write`, for rows that change existing rows: they have ACTION, and the FILE and PLACE of a located row.

        An UPDATED row gets the columns `sets`, which all of these rows must have, and keeps its other columns. A row
        with all columns, and null for FILE and PLACE, is new; there are at most `new_rows` of these. Files with rows
        that change are written again, and the commit removes the old ones. Raises InvalidInputError with the message
        `twice` also if a located row changes twice; if that is None, the first of its changes counts.
        """
        names = located.schema.fieldNames()
        columns = tuple(name for name in names if name in rows.columns)
        if rows.columns != [*columns, ACTION, FILE, PLACE]:
            rows = rows.select(*map(quoted, columns), ACTION, FILE, PLACE)
        old = OldFiles(
            spec=ReadSpec(located.table, located.schema),
            files=located.files,
            columns=columns,
            sets=frozenset(sets),
            records_changes=self._records_changes,
            rows=located.rows,
        )
        lines = self._run_tasks(by_file(rows, located, new_rows), names, old, records=self._records_changes)
        if left := [number for it in _copied(lines) for number in it.only_for_spark]:
            kept, old = located.only(left), replace(old, columns=tuple(names), shipped=frozenset(left))
            stay = kept.frame.withColumn(ACTION, row_action(RowAction.KEPT))
            again = stay.unionByName(rows.where(f.col(FILE).isin(left)), allowMissingColumns=True)
            again = again.select(*map(quoted, names), ACTION, FILE, PLACE)
            lines += self._run_tasks(by_file(again, kept, 0), names, old, records=self._records_changes)
        copied = _copied(lines)
        paths = [path for it in copied for path in it.paths]
        if len(paths) > len(set(paths)):
            raise AssertionError(
                f"rows of a file of {self._transaction.url} went to several tasks, and would be doubled"
            )
        self._transaction.remove(paths)
        if twice is not None and any(it.twice for it in copied):
            self.refuse(twice)
        return self._counts(lines)

    def _run_tasks(self, rows: DataFrame, columns: Sequence[str], old: OldFiles | None, *, records: bool) -> list[Row]:
        spec = replace(self._spec, columns=tuple(enumerate(columns)))
        together = spec.partition_positions if old is None else ()  # located rows arrive in the order of their places
        coded = old is None and not records  # else the task adds rows of old files, or writes change files
        lines = in_tasks(
            rows,
            lambda unpack: map_with_actions(spec, unpack, self._constraints, old, records),
            _SCHEMA,
            together=together,
            coded=coded,
        )
        self._files += [line.file for line in lines if line.file is not None]
        return lines

    def _counts(self, lines: Sequence[Row]) -> Counter[RowAction]:
        results = [
            TaskResult((), {line.action: line.rows}, {line.action: line.example} if line.example else {})
            for line in lines
            if line.action is not None
        ]
        counts, problem = add_up(results, self._constraints, where=self._transaction.url)
        if problem:
            self.refuse(problem)
        return counts

    def refuse(self, message: str) -> NoReturn:
        """Deletes what was written, and raises InvalidInputError."""
        abort_files(self._transaction, self._files)
        raise InvalidInputError(f"{message}; nothing was committed")

    def commit(self, metrics: Mapping[str, int]) -> Commit:
        self._transaction.vouch_for_rows()
        return commit_files(self._transaction, self._files, self._plan.schema_to_record, metrics=metrics)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task: its files, and the number of rows of each action."""

    files: Sequence[str]
    counts: Mapping[int, int]
    examples: Mapping[int, str]
    """By action: a row that violates a constraint."""


def run_with_actions(
    spec: TaskSpec, batches: Iterable[pa.RecordBatch], constraints: Constraints, *, records_changes: bool = False
) -> TaskResult:
    """As `task.run_task`, for rows whose last column is their action; `records_changes` also writes change files."""
    if not records_changes:
        return _run_with_actions(spec, batches, constraints, lambda batch: None)
    with Spill() as spill:
        changes = Waiting()
        place = len(spec.columns)
        result = _run_with_actions(spec, batches, constraints, lambda batch: changes.add(_changes(batch, place), spill))
        files = run_task(of_changes(spec), changes.batches(spill))
        plain = [
            encode_file_info(replace(info, statistics=None)) for info in files
        ]  # no reader skips change files by statistics
        return replace(result, files=[*result.files, *plain])


def _changes(batch: pa.RecordBatch, place: int) -> pa.Table:
    """The rows of a batch that change, with the change type in the place of the action."""
    changed = arrow.sound(batch.filter(pc.is_in(batch.column(place), value_set=pa.array(CHANGE_TYPES, pa.int8()))))
    types: Any = pa.array([CHANGE_TYPES.get(it) for it in RowAction], pa.string())
    arrays = [*changed.columns[:place], types.take(changed.column(place))]
    return pa.Table.from_arrays(arrays, names=[*map(str, range(place)), CHANGE_TYPE])


def _run_with_actions(
    spec: TaskSpec, batches: Iterable[pa.RecordBatch], constraints: Constraints, see: Callable[[pa.RecordBatch], None]
) -> TaskResult:
    names = [name for _, name in spec.columns]
    named = {VIOLATES + i: shown(constraint, names) for i, constraint in enumerate(constraints.each)}
    counts, examples = Counter[int](), dict[int, str]()

    def stay() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            actions = batch.column(len(names))
            counted: Any = pc.value_counts(actions)
            news = {entry["values"]: entry["counts"] for entry in counted.to_pylist()}
            for number in news.keys() & named.keys() - examples.keys():
                row = pc.index(actions, number).as_py()
                examples[number] = describe(
                    {name: as_python(batch.column(i)[row]) for i, name in named[number].items()}
                )
            counts.update(news)
            see(batch)
            stays = pc.less_equal(actions, pa.scalar(max(STAYS), pa.int8()))
            yield batch if pc.all(stays).as_py() else batch.filter(stays)

    return TaskResult([encode_file_info(info) for info in run_task(spec, stay())], counts, examples)


def add_up(
    results: Iterable[TaskResult], constraints: Constraints, *, where: str
) -> tuple[Counter[RowAction], str | None]:
    """The number of rows of each action, of all tasks; and a message if rows violate a constraint, else None."""
    counts, examples = Counter[int](), dict[int, str]()
    for it in results:
        counts.update(it.counts)
        examples = {**it.examples, **examples}
    if first := min((number for number in counts if number >= VIOLATES), default=None):
        return Counter(), violated(constraints.each[first - VIOLATES], counts[first], examples[first], where=where)
    return Counter({RowAction(number): rows for number, rows in counts.items()}), None


_COLUMNS = ["file", "action", "rows", "example", "copied"]
_SCHEMA = "file string, action byte, rows long, example string, copied string"


def _copied(lines: Iterable[Row]) -> list[CopyCounts]:
    return [msgspec.json.decode(line.copied, type=CopyCounts) for line in lines if line.copied is not None]


def map_with_actions(
    spec: TaskSpec, unpack: OnBatches, constraints: Constraints, old: OldFiles | None, records_changes: bool
) -> OnBatches:
    """`run_with_actions` for DataFrame.mapInArrow: lines for files, for actions, and for old files."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        copied = CopyCounts()
        rows = unpack(batches) if old is None else copy(old, unpack(batches), copied)
        result = run_with_actions(spec, rows, constraints, records_changes=records_changes)
        lines: list[tuple[Any, ...]] = [(file, None, None, None, None) for file in result.files]
        lines += [(None, action, rows, result.examples.get(action), None) for action, rows in result.counts.items()]
        lines += [(None, None, None, None, msgspec.json.encode(copied).decode())]
        kinds = (pa.string(), pa.int8(), pa.int64(), pa.string(), pa.string())
        columns = [pa.array(values, kind) for values, kind in zip(zip(*lines, strict=True), kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=_COLUMNS)

    return write
