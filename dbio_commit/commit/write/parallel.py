"""Writes new data files in several threads of this process, for writers without Spark.

Arrow encodes the columns of a file in one thread. So each thread, a writer, writes files of its own. All rows of a
partition go to one writer, and a second writer begins only while the first is busy: few rows make few files.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from dbio_commit.commit.transaction import Transaction
from dbio_commit.commit.write.files import FileSink, FilesSpec, Output, Run, StoreSink, runs
from dbio_commit.commit.write.plan import WritePlan
from dbio_commit.data.columns import arrow_type
from dbio_commit.data.footers import CALENDAR
from dbio_commit.data.mapping import has_variant
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo

MOST_WRITERS = 4
"""More would rarely be faster than the store, and each has rows of up to _AHEAD row groups in memory."""

_AHEAD = 2
"""The most runs of rows that a writer has: one that it writes, and one that waits."""


TARGET_BYTES = 128 * 1000 * 1000
"""The target size of files if the caller gives none: that of a compaction."""


def write_rows(
    plan: WritePlan,
    transaction: Transaction,
    batches: Iterable[pa.RecordBatch],
    change: Callable[[FilesSpec], FilesSpec] = lambda spec: spec,
) -> list[FileInfo]:
    """Writes rows with the table's columns to new files, as `files.write_files`, in up to MOST_WRITERS threads; without
    threads if all rows make one run. On any error, it deletes these files."""
    schema, terms = plan.mapping.schema, transaction.terms
    target = plan.options.target_file_size or TARGET_BYTES
    spec = FilesSpec(
        terms=terms,
        columns=tuple(enumerate(it["name"] for it in schema["fields"])),
        variants={it["name"]: arrow_type(it["type"]) for it in schema["fields"] if has_variant(it["type"])},
        options=replace(plan.options, target_file_size=target),
        limits=plan.context.limits,
        spark_metadata={**CALENDAR, ROW_METADATA: json.dumps(plan.mapping.data_schema)},
    )
    context = plan.context
    sink = StoreSink(context.store, context.clock, terms)
    spec = change(spec)
    each = runs(batches, spec)
    working = _Writers(spec, attempt=context.clock.random_bits(31), files=sink)
    try:
        first = deque(islice(each, 2))
        count = min(MOST_WRITERS, os.cpu_count() or 1) if len(first) > 1 else 1
        alone = count == 1
        while run := first.popleft() if first else next(each, None):
            if alone:
                working.write_here(run)
            else:
                working.hand_over(run, count)
            del run  # it is a slice, and would keep its whole table in memory
        return working.finish()
    except BaseException as error:
        working.discard(error)
        raise


class _Writer:
    def __init__(self, output: Output) -> None:
        self.output = output
        self.work: deque[Future[None]] = deque()
        self.pool: ThreadPoolExecutor | None = None

    @property
    def waiting(self) -> int:
        """The number of runs that it has not written yet. Raises the error of a run that failed."""
        while self.work and self.work[0].done():
            self.work.popleft().result()
        return len(self.work)

    def hand_over(self, run: Run) -> None:
        while self.waiting >= _AHEAD:
            self.work.popleft().result()
        self.pool = self.pool or ThreadPoolExecutor(1, thread_name_prefix="dbio-write")
        self.work.append(self.pool.submit(self.output.write, run))

    def stop(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)


class _Writers:
    def __init__(self, spec: FilesSpec, *, attempt: int, files: FileSink) -> None:
        self._spec, self._attempt, self._files = spec, attempt, files
        self._writers: list[_Writer] = []
        self._writer_of: dict[str, _Writer] = {}
        """The writer of each partition of which more rows may follow, by its directory."""

    def write_here(self, run: Run) -> None:
        self._writer(0).output.write(run)

    def hand_over(self, run: Run, count: int) -> None:
        directory = names.format_partition(run.partition)
        writer = self._writer_of.get(directory) or self._least_busy(count)
        if directory and not run.last:
            self._writer_of[directory] = writer
        else:
            self._writer_of.pop(directory, None)
        writer.hand_over(run)

    def _least_busy(self, count: int) -> _Writer:
        for writer in self._writers:
            if not writer.waiting:
                return writer
        if len(self._writers) < count:
            return self._writer(len(self._writers))
        return min(self._writers, key=lambda writer: writer.waiting)

    def _writer(self, number: int) -> _Writer:
        if number == len(self._writers):
            output = Output(self._spec, task=number, attempt=self._attempt, files=self._files)
            self._writers.append(_Writer(output))
        return self._writers[number]

    def finish(self) -> list[FileInfo]:
        for writer in self._writers:
            while writer.work:
                writer.work.popleft().result()
        ends = [
            writer.pool.submit(writer.output.finish) if writer.pool else writer.output.finish
            for writer in self._writers
        ]
        found = [end.result() if isinstance(end, Future) else end() for end in ends]
        for writer in self._writers:
            writer.stop()
        return [info for infos in found for info in infos]

    def discard(self, error: BaseException) -> None:
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            writer.output.discard(error)
