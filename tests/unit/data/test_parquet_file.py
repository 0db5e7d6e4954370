"""No thread of Arrow has an object of Python after a read: it would end the process if the interpreter ends then."""

import io
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from threading import get_ident
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dbio_commit
from dbio_commit.data.parquet_file import parquet_file
from dbio_commit.log.parts.parquet import OpenStatistics, Pieces, decode_groups, encode_part, encode_statistics
from dbio_commit.log.parts.rows import FILES, FileRow, files_table
from dbio_commit.protocol import names

ROWS = 3


def test_columns_are_fetched_by_the_thread_that_asks_for_them(monkeypatch: Any) -> None:
    readers: set[int] = set()
    read = Pieces.read

    def noted(self: Pieces, size: int = -1) -> bytes:
        readers.add(get_ident())
        return read(self, size)

    monkeypatch.setattr(Pieces, "read", noted)
    table = files_table([FileRow("day=1", f"part-{i}", "1", "1", added=i, size=i) for i in range(ROWS)])
    body, part = encode_part(table, kind="files", name=names.part(1, "0" * 32), since=1, until=1)
    group = part.groups[0]
    found = decode_groups(part, body[-part.footer :], {0: body[group.at : group.at + group.bytes]}, FILES)
    assert found.num_rows == ROWS
    body, told = encode_statistics(iter([pa.table({"min.int.id": [1, 2, 3]})]), name=names.part(1, "1" * 32))
    statistics = OpenStatistics(told, body[-told.footer :], lambda start, length: body[start : start + length])
    assert statistics.read(["min.int.id"], 0).num_rows == ROWS
    assert readers == {get_ident()}


def test_row_groups_are_fetched_one_after_the_other() -> None:
    """So a file of any size takes the same memory."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(400)}), sink, row_group_size=100)
    body, sizes = sink.getvalue(), []

    class File(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            sizes.append(size)
            return super().read(size)

    batches = parquet_file(File(body)).iter_batches(100)
    next(batches)
    after_the_first = len(sizes)
    assert sum(batch.num_rows for batch in batches) == 300
    assert len(sizes) - after_the_first >= 3


def test_a_process_may_end_directly_after_a_read() -> None:
    """On one processor, a thread of Arrow has no time to free what it read before the interpreter ends. Each round is a
    fork, since one of three would fail."""
    script = """
        import io, os
        import pyarrow as pa, pyarrow.parquet as pq
        from dbio_commit.data.parquet_file import parquet_file
        from dbio_commit.log.parts.parquet import Pieces

        def read(body):
            file = parquet_file(pa.PythonFile(Pieces(len(body), {0: body})))
            assert file.read_row_group(0, use_threads=False).num_rows == 3

        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [1, 2, 3], "text": ["x" * 50] * 3}), sink)
        for _ in range(8):
            child = os.fork()
            if not child:
                read(sink.getvalue())
                break
            assert os.waitpid(child, 0)[1] == 0
    """
    command = [sys.executable, "-c", dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_else_opens_parquet_files() -> None:
    package = Path(dbio_commit.__file__).parent
    opening = [path.name for path in package.rglob("*.py") if "pq.ParquetFile(" in path.read_text()]
    assert opening == ["parquet_file.py"]
