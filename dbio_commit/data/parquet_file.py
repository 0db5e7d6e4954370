"""Opens Parquet files with pyarrow so that no Arrow thread holds Python objects after a read has returned."""

from typing import Any

import pyarrow.parquet as pq


def parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    """Opens the file. `source` may be a Python file object.

    By default, some versions of pyarrow fetch columns in Arrow threads, which free what they read a moment after the
    read has returned. To free Python bytes, such a thread needs the interpreter's lock. If the interpreter ends in this
    moment, the process ends with SIGABRT. Also, pyarrow would fetch all row groups before the first row.
    """
    return pq.ParquetFile(source, pre_buffer=False, **options)
