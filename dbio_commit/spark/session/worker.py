"""The Python worker of Spark that tasks of ours run in, one after the other."""

import gc
from functools import cache


@cache
def spare_imports(kind: str) -> None:
    """At the end of the first task of a kind: Python's collector of cycles passes over what is there by then.

    Nearly all of it was imported, and is no garbage. Spark has the collector go through everything after each task
    (`pyspark.daemon`), which takes 40 ms with what a table needs, longer than all the rest of a small task.
    """
    gc.collect()
    gc.freeze()
