"""Writes new data files in several threads of this process, for writers without Spark.

Arrow encodes the columns of a file in one thread. So each thread, a lane, writes files of its own. All rows of a
partition go to one lane, and a second lane begins only while the first is busy: few rows make few files.
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
from dbio_commit.commit.write.file_sink import FileSink, StoreSink
from dbio_commit.commit.write.files import FilesSpec, Output, Run, runs
from dbio_commit.commit.write.plan import WritePlan
from dbio_commit.data.columns import arrow_type
from dbio_commit.data.footers import CALENDAR
from dbio_commit.data.mapping import has_variant
from dbio_commit.data.parquet import ROW_METADATA
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo

MOST_LANES = 4
"""More would rarely be faster than the store, and each has rows of up to _AHEAD row groups in memory."""

_AHEAD = 2
"""The most runs of rows that a lane has: one that it writes, and one that waits."""


TARGET_BYTES = 128 * 1000 * 1000
"""The size of the files if the caller gives none: that of a compaction."""


def write_rows(
    plan: WritePlan,
    transaction: Transaction,
    batches: Iterable[pa.RecordBatch],
    change: Callable[[FilesSpec], FilesSpec] = lambda spec: spec,
) -> list[FileInfo]:
    """Writes rows with the table's columns to new files. On any error, it deletes these files."""
    schema, terms = plan.mapping.schema, transaction.terms
    target = plan.options.target_file_size or TARGET_BYTES
    spec = FilesSpec(
        terms=terms,
        columns=tuple(enumerate(it["name"] for it in schema["fields"])),
        variants={it["name"]: arrow_type(it["type"]) for it in schema["fields"] if has_variant(it["type"])},
        options=replace(plan.options, target_file_size=target),
        limits=plan.place.limits,
        spark_metadata={**CALENDAR, ROW_METADATA: json.dumps(plan.mapping.data_schema)},
    )
    place = plan.place
    sink = StoreSink(place.store, place.clock, terms)
    return write_in_lanes(change(spec), batches, attempt=place.clock.random_bits(31), files=sink)


def write_in_lanes(
    spec: FilesSpec, batches: Iterable[pa.RecordBatch], *, attempt: int, files: FileSink, lanes: int | None = None
) -> list[FileInfo]:
    """As `files.write_files`, in up to MOST_LANES threads. Without threads if all rows make one run."""
    each = runs(batches, spec)
    working = _Lanes(spec, attempt=attempt, files=files)
    try:
        first = deque(islice(each, 2))
        count = (lanes or min(MOST_LANES, os.cpu_count() or 1)) if len(first) > 1 else 1
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


class _Lane:
    def __init__(self, output: Output) -> None:
        self.output = output
        self.work: deque[Future[None]] = deque()
        self.pool: ThreadPoolExecutor | None = None

    @property
    def waiting(self) -> int:
        """How many runs it has not written yet. Raises the error of one that failed."""
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


class _Lanes:
    def __init__(self, spec: FilesSpec, *, attempt: int, files: FileSink) -> None:
        self._spec, self._attempt, self._files = spec, attempt, files
        self._lanes: list[_Lane] = []
        self._lane_of: dict[str, _Lane] = {}
        """The lane of each partition of which more rows may follow, by its directory."""

    def write_here(self, run: Run) -> None:
        self._lane(0).output.write(run)

    def hand_over(self, run: Run, count: int) -> None:
        directory = names.format_partition(run.partition)
        lane = self._lane_of.get(directory) or self._least_busy(count)
        if directory and not run.last:
            self._lane_of[directory] = lane
        else:
            self._lane_of.pop(directory, None)
        lane.hand_over(run)

    def _least_busy(self, count: int) -> _Lane:
        for lane in self._lanes:
            if not lane.waiting:
                return lane
        if len(self._lanes) < count:
            return self._lane(len(self._lanes))
        return min(self._lanes, key=lambda lane: lane.waiting)

    def _lane(self, number: int) -> _Lane:
        if number == len(self._lanes):
            output = Output(self._spec, task=number, attempt=self._attempt, files=self._files)
            self._lanes.append(_Lane(output))
        return self._lanes[number]

    def finish(self) -> list[FileInfo]:
        for lane in self._lanes:
            while lane.work:
                lane.work.popleft().result()
        ends = [lane.pool.submit(lane.output.finish) if lane.pool else lane.output.finish for lane in self._lanes]
        found = [end.result() if isinstance(end, Future) else end() for end in ends]
        for lane in self._lanes:
            lane.stop()
        return [info for infos in found for info in infos]

    def discard(self, error: BaseException) -> None:
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.output.discard(error)
