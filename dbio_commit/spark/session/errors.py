"""Turns an error that Spark reports as text back into the error of dbio_commit that a task raised."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions import captured

import dbio_commit.base.errors as errors
from dbio_commit.spark.session.other_formats import advice_for_statement
from dbio_commit.spark.session.python import explain


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """Within the block, an error of dbio_commit in a task is raised as itself, without the worker's traceback."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:  # before Spark 4.0, some errors of tasks are only those of Java
        if found := find_error(str(error)) or _lost(str(error)) or explain(error):
            raise found from error
        raise


def _lost(text: str) -> errors.RowsLostError | None:
    """The error if the text says that Spark has lost a block of a local checkpoint."""
    found = _LOST_BLOCK.search(text)
    return errors.RowsLostError(f"no executor has rows any more that were kept, block {found[1]}") if found else None


_LOST_BLOCK = re.compile(r"[Cc]heckpoint block (rdd_\w+) not found")


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


# --- errors that come through the JVM -----------------------------------------------------------------------------


def errors_of_jvm() -> None:
    """From now on, PySpark raises the error of dbio that caused an exception of the JVM instead of the exception."""
    setattr(captured, _convert.__name__, _convert_exception)  # PySpark calls the function by this name


_convert = captured.convert_exception


def _convert_exception(error: Any) -> Any:
    for text in _messages(error):
        if (text.startswith(_PREFIX) or _RAISED in text) and (found := find_error(text)):
            return found
    converted = _convert(error)
    if isinstance(converted, captured.CapturedException) and (traced := _TRACED.search(str(converted))):
        if isinstance(converted, captured.PythonException):  # it makes its own text
            return find_error(traced[1]) or converted
        converted._desc, converted.__traceback__ = traced[1], None
    if isinstance(converted, PySparkException) and (advice := _advice(str(converted))):
        converted.add_note(advice)
    return converted


def errors_of_server() -> None:
    """From now on, errors of dbio's data source and functions reach clients of Spark Connect without a traceback."""
    from pyspark.sql.connect.client import core

    converting: Any = core
    if not hasattr(converting.convert_exception, "__wrapped__"):
        converting.convert_exception = _shortening(converting.convert_exception)


def _shortening(convert: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(convert)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        converted = convert(*args, **kwargs)
        if traced := _TRACED.search(str(getattr(converted, "_message", ""))):
            converted._message, converted._display_stacktrace, converted.__traceback__ = traced[1], False, None
        return converted

    return wrapper


_TRACED = re.compile(
    r"""Traceback\ \(most\ recent\ call\ last\):\n
    .*\ File\ "[^"\n]*dbio_commit/spark/(?:datasource|functions|feed/\w+)\.py",.*
    ^(dbio_commit\.\w+:\ .*?)\s*(?:SQLSTATE:\ \w+\s*)?\Z""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""An error of dbio below the traceback of one of its data sources or table functions."""


def _advice(text: str) -> str | None:
    """What to do about this error of Spark, such as what to type instead of a statement of another format."""
    if "[UNSUPPORTED_DATA_SOURCE_SAVE_MODE]" in text and '"dbio"' in text:
        return (
            'Use .mode("append"), which creates the table if there is none; or dbio.write(df, path, '
            "mode='errorifexists'), which also takes 'ignore'."
        )
    if "provided partitioning or clustering columns do not match" in text:
        return 'For format("dbio"), name the partition columns by .option("partitionBy", "a,b").'
    if "[INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS" in text:
        return "Make the DataFrame again; and if CACHE TABLE has stored the table, first run REFRESH TABLE."
    _, _, shown = text.partition("== SQL ==\n")
    statement = re.sub(r"^[-^]+$\n?", "", shown, flags=re.MULTILINE)
    if found := _DESCRIBED.search(text):  # Spark takes the word for a table, and the name for one of its columns
        catalog, _, path = found[2].partition(".")
        statement = f"DESCRIBE {found[1]} " + (f"{catalog}.`{path}`" if "/" in path else found[2])
    return advice_for_statement(statement)


_DESCRIBED = re.compile(r"table or view `(HISTORY|DETAIL)` .*'DescribeColumn '([^,\n]+),", re.DOTALL | re.IGNORECASE)


_PREFIX = "dbio_commit."
_RAISED = f"java.lang.IllegalStateException: {_PREFIX}"
"""How the Java classes of dbio raise an error. Other exceptions that contain an error of dbio, such as those of the
data source, stay errors of Spark, with its message."""


def _messages(error: Any) -> Iterator[str]:
    while error is not None:
        yield str(error.getMessage())
        error = error.getCause()
