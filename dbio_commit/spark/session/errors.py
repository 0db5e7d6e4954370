"""Turns an error that Spark reports as text back into the error of dbio_commit that a task raised."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import dbio_commit.base.errors as errors
from dbio_commit.spark.session.python import explain


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """Raises an error of dbio_commit from a task as itself, without the traceback of the worker."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # before Spark 4.0, some errors of tasks are only those of Java
        if found := find_error(str(error)) or explain(error):
            raise found from error
        raise


def find_error(text: str) -> errors.DbioError | None:
    """The error of dbio_commit that a text of Spark contains, with its message; None if there is none.

    The message is the rest of the text if the text begins with the error, else the rest of the line.
    """
    found = _ERROR.fullmatch(text) or _ERROR_LINE.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found and isinstance(kind, type) and issubclass(kind, errors.DbioError):
        return kind(*found[2].split("\n"))
    return None


_ERROR = re.compile(r"dbio_commit\.(\w+): (.+)", re.DOTALL)
_ERROR_LINE = re.compile(r"dbio_commit\.(\w+): (.+)")
