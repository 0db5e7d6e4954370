"""Divides the rows of files among several new files by the values of `cluster_by`, without Spark.

The steps are: take a sample, decide where to cut (`cut`), read each file once and keep the rows of each new file on the
local disk, and write the new files. Memory holds the rows of one new file for each thread. Spark's tasks take the same
steps with a shuffle in place of the disk (`spark/rewrite/clustering`).
"""

import errno
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

import pyarrow as pa

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.figures import size_text
from dbio_commit.base.options import Compression
from dbio_commit.commit.write.spill import Spill, Waiting, spill_directory
from dbio_commit.data import encoding
from dbio_commit.data.data_file import ROW_GROUP_BYTES, ROW_GROUP_ROWS, collect
from dbio_commit.data.rows import open_file
from dbio_commit.maintenance.compact.cut import Tree, cut_rows, divide
from dbio_commit.maintenance.compact.plan import Bin
from dbio_commit.maintenance.compact.reading import Reading, SourceFacts, Work
from dbio_commit.maintenance.compact.report import STOPPED
from dbio_commit.maintenance.compact.rewrite import BinOutcome, check_rows, file_name, in_order, outcome_of, write_file
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store

SAMPLE_ROWS = 1000
"""Rows of the sample for each new file. Then a file has about 7 % more or fewer rows than another."""

_FETCHED_BYTES = 4 * 1000 * 1000
"""For the sample, a larger file is not fetched whole, but only its columns of `cluster_by`."""

_DISK_TIMES = 1.5
"""So many times the bytes of the files must be free on the disk. Rows took 1.04 times the bytes of Snappy files."""


def cluster(
    store: Store, work: Work, bin: Bin, *, number: int, at_once: int, stop: Callable[[], bool] = lambda: False
) -> BinOutcome:
    """Writes the rows of the bin's files to `bin.pieces` new files, durably, and checks the number of rows.

    A file that cannot be read, too little space, and a stop are problems of this bin only. Raises StoreError.
    """
    return outcome_of(number, lambda: _Clustering(store, work, bin, number, at_once, stop).run())


class _Clustering:
    def __init__(self, store: Store, work: Work, bin: Bin, number: int, at_once: int, stop: Callable[[], bool]) -> None:
        self._store, self._work, self._bin, self._number = store, work, bin, number
        self._at_once, self._stop = at_once, stop

    def run(self) -> list[FileInfo]:
        refuse_full_disk(spill_directory(self._work.spill), self._bin)
        stride, starts = sampling(self._bin)
        sample, known = take_sample(self._store, self._work, self._bin.files, starts, stride)
        tree = cut_rows(sample, self._bin.pieces)
        del sample
        with Spill(self._work.spill, packs=True) as spill:
            waiting = [Waiting() for _ in range(self._bin.pieces)]
            for piece, rows in divided(self._store, self._work, self._bin.files, tree):
                self._refuse_stop()
                _keep(waiting[piece], rows, spill)
            files = self._write(waiting, spill, known)
        check_rows(self._store, self._bin, files, known.rows)
        return files

    def _write(self, waiting: Sequence[Waiting], spill: Spill, known: SourceFacts) -> list[FileInfo]:
        written: list[FileInfo] = []

        def write(piece: int) -> None:
            self._refuse_stop()
            table = pa.Table.from_batches(waiting[piece].batches(spill), schema=self._work.schema(self._store.url))
            name = piece_name(self._work, self._bin, self._number, piece, attempt=0)
            written.extend(write_piece(self._store, self._work, table, name, known))

        try:
            self._store.in_parallel(write, [i for i, it in enumerate(waiting) if it.rows], at_once=self._at_once)
        except BaseException:
            self._store.delete_many([file.path for file in written])
            raise
        return sorted(written, key=lambda file: file.path)

    def _refuse_stop(self) -> None:
        if self._stop():
            raise InvalidInputError(STOPPED)


def piece_name(work: Work, bin: Bin, number: int, piece: int, *, attempt: int) -> Callable[[Compression], str]:
    """The path of a new file of the bin with this number. Files whose names are neighbours have similar values, so that
    readers skip neighbours together. No other file of the commit has the name."""
    return partial(file_name, work, bin.directory, task=piece, attempt=attempt, number=number + 1)


def sampling(bin: Bin) -> tuple[int, list[int]]:
    """The stride of the sample, in rows, and the number of the first sampled row in each file."""
    stride = max(1, sum(bin.rows) // (SAMPLE_ROWS * bin.pieces))
    return stride, [-before % stride for before in accumulate([0, *bin.rows[:-1]])]


def take_sample(
    store: Store, work: Work, files: Sequence[DataFile], starts: Sequence[int], stride: int
) -> tuple[pa.Table, SourceFacts]:
    """The values of `cluster_by` in some rows of the files, and what their footers say.

    Raises InvalidInputError, ObjectNotFoundError, StoreError.
    """
    schema = work.schema(store.url)
    reading, target = Reading(store, schema, files), pa.schema([schema.field(name) for name in work.cluster_by])
    found, left = [], list(starts)
    for place, batch in reading.batches(target, partial(open_file, whole_bytes=_FETCHED_BYTES)):
        rows = range(left[place], batch.num_rows, stride)
        left[place] += len(rows) * stride - batch.num_rows
        if rows:
            found.append(batch.take(pa.array(rows, pa.int64())))
    return pa.Table.from_batches(found, schema=target), reading.known


def divided(store: Store, work: Work, files: Sequence[DataFile], tree: Tree) -> Iterator[tuple[int, pa.Table]]:
    """All rows of the files, in pieces, each with the number of its new file. Raises as `take_sample`."""
    schema = work.schema(store.url)
    batches = (batch for _, batch in Reading(store, schema, files).batches(schema))
    for table in collect(batches, rows=ROW_GROUP_ROWS, size_bytes=ROW_GROUP_BYTES):
        yield from divide(tree, table)


def write_piece(
    store: Store, work: Work, table: pa.Table, name: Callable[[Compression], str], known: SourceFacts
) -> Sequence[FileInfo]:
    """Writes the rows of one new file. Raises InvalidInputError, StoreError."""
    with_nan = encoding.columns_with_nan(table)
    return [write_file(store, work, name, in_order(table, work), no_statistics=with_nan, known=lambda: known)]


# --- the local disk -----------------------------------------------------------------------------------------------


def refuse_full_disk(directory: str, bin: Bin) -> None:
    """Raises InvalidInputError if the rows of the bin do not fit into the directory."""
    needed = round(_DISK_TIMES * bin.size)
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise InvalidInputError(f"rows cannot wait in {directory}: {error.strerror}; name a directory") from None
    if free < needed:
        raise InvalidInputError(
            f"to divide their rows among {bin.pieces} files, about {size_text(needed)} are needed in {directory}, and "
            f"{size_text(free)} are free there: free some, set TMPDIR to another directory, or rewrite less at once "
            "(`most`)"
        )


def _keep(waiting: Waiting, rows: pa.Table, spill: Spill) -> None:
    """Keeps rows on the disk until their file is written. Raises InvalidInputError if the disk is full."""
    try:
        waiting.add(rows, spill)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise InvalidInputError("the local disk became full while rows waited there: free space, or rewrite less at "
                                "once (`most`)") from None  # fmt: skip
