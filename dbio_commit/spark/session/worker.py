"""Keeps a Python worker of Spark fast for the tasks of dbio that it runs one after the other."""

import gc
from functools import cache


@cache
def spare_imports(kind: str) -> None:
    """Excludes all objects that exist now from Python's garbage collection; once, after the first task of a kind.

    Nearly all of these objects belong to imported modules. Spark runs a collection after each task (`pyspark.daemon`).
    With the modules of dbio that takes 40 ms, longer than the rest of a small task.
    """
    gc.collect()
    gc.freeze()
