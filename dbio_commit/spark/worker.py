"""The Python worker of Spark that tasks of ours run in, one after the other."""

import gc
from functools import cache


@cache
def spare_imports() -> None:
    """Once in a process: Python's collector of cycles passes over what is there by now, most of which was imported.

    Spark has it go through everything after each task (`pyspark.daemon`), and all that a table needs to have imported
    takes 40 ms there, longer than a small task does.
    """
    gc.collect()
    gc.freeze()
