"""Opens Parquet files with pyarrow so that no thread of Arrow has Python's objects when a read has returned."""

from typing import Any

import pyarrow.parquet as pq


def parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    """The file. `source` may be a file of Python.

    By default, some versions of pyarrow fetch columns in threads of Arrow's, which free what they read a moment after
    the read has returned. To free bytes of Python such a thread needs the interpreter's lock. If the interpreter ends
    in this moment, the process ends with SIGABRT. And pyarrow would fetch all row groups before the first row.
    """
    return pq.ParquetFile(source, pre_buffer=False, **options)
