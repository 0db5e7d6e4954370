"""Sends functions and objects to Spark's Python workers, and keeps workers fast between tasks.

A pickle names the classes of this package. A worker with another version of the package would run other code than the
driver means, or fail with an error that hides the reason. So the pickle is packed into another one with the version,
which the worker compares before it unpacks.
"""

import gc
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

from dbio_commit import __version__


class ForWorkers:
    """Wraps a function for workers. A worker unpickles the function itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *given: Any) -> Any:
        return self._function(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (__version__, _pack(self._function))


class Travels:
    """A base of classes whose objects are sent to workers."""

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive_as, (__version__, _pack((type(self), self.__getstate__())))


def arrive(version: str, body: bytes) -> Any:
    """In a worker: unpacks what this version has packed. Raises UnsupportedStoreError if the worker has another one."""
    if version != __version__:
        from dbio_commit.base.errors import UnsupportedStoreError

        raise UnsupportedStoreError(other_version(f"version {__version__} of dbio_commit ({__file__})", version))
    return pickle.loads(body)


def other_version(theirs: str, version: str) -> str:
    """The message for workers that have another version of this package than the driver, which has `version`."""
    return (
        f"Spark's workers have {theirs}, and the driver has version {version}: install one version on all machines, or "
        "ship it with the job (spark.archives, --py-files), and start a new session"
    )


def arrive_as(version: str, body: bytes) -> Any:
    """As `arrive`, for an object of a class that `Travels`."""
    kind, state = arrive(version, body)
    found = kind.__new__(kind)
    found.__dict__.update(state)
    return found


def _pack(what: Any) -> bytes:
    from pyspark import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps(what)


@cache
def spare_imports(kind: str) -> None:
    """Excludes all objects that exist now from Python's garbage collection; once, after the first task of a kind.

    Nearly all of these objects belong to imported modules. Spark runs a collection after each task (`pyspark.daemon`).
    With the modules of dbio that takes 40 ms, longer than the rest of a small task.
    """
    gc.collect()
    gc.freeze()
