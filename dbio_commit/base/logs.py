"""Loggers and warnings. Each event is one line without secrets, even if a name or an error in it has line breaks."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from traceback import format_exception
from typing import Any

from dbio_commit.base.errors import DbioError
from dbio_commit.base.redaction import redact
from dbio_commit.base.texts import visible


def get_logger(name: str) -> logging.Logger:
    """The logger of a module. Line breaks and escape sequences in logged names and messages are escaped, and texts with
    the form of a secret are removed.

    Every module that logs needs one of these: a logger does not inherit the filters of its parents.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_escape)
    return logger


def warn_caller(message: str) -> None:
    """Warns, and names the line of the caller outside this package."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(visible(message), stacklevel=level)


@contextmanager
def best_effort(log: logging.Logger, what: str, *args: object, level: int = logging.WARNING) -> Iterator[None]:
    """Logs what fails in the block, as `what` and the error, instead of raising it. For work that follows a decided
    commit: the commit stands.

    An error that is not a DbioError is a bug: it is logged as a WARNING with its traceback, whatever the `level`.
    """
    try:
        yield
    except Exception as error:
        bug = not isinstance(error, DbioError)
        log.log(logging.WARNING if bug else level, f"{what}: %s", *args, error, exc_info=bug)


def _escape(record: logging.LogRecord) -> bool:
    record.msg = visible(redact(str(record.msg)))
    if isinstance(record.args, tuple):
        record.args = tuple(map(_visible, record.args))
    elif record.args:
        record.args = {name: _visible(it) for name, it in record.args.items()}
    if record.exc_info and record.exc_info[1]:
        # Indented: then no line of another library's exception looks like another event.
        lines = redact("".join(format_exception(record.exc_info[1]))).splitlines()
        record.exc_text = "\n".join(f"  {visible(line)}" for line in lines)
    return True


def _visible(it: Any) -> Any:
    return it if isinstance(it, Number) else visible(redact(str(it)))
