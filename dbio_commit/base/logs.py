"""Loggers whose lines are one event each, whatever the names and the errors in them hold."""

import logging
import sys
import warnings
from numbers import Number
from traceback import format_exception
from typing import Any

from dbio_commit.base.texts import visible


def get_logger(name: str) -> logging.Logger:
    """The logger of a module. A name or a message in what it logs ends no line, and steers no terminal.

    Every module of the package has one of these: a logger does not inherit the filters of those above it.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_escape)
    return logger


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line outside this package that has led here."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(visible(message), category, stacklevel=level)


def _escape(record: logging.LogRecord) -> bool:
    record.msg = visible(str(record.msg))
    if isinstance(record.args, tuple):
        record.args = tuple(map(_visible, record.args))
    elif record.args:
        record.args = {name: _visible(it) for name, it in record.args.items()}
    if record.exc_info and record.exc_info[1]:
        # Indented: then no line of an exception that is no error of ours looks like another event.
        lines = "".join(format_exception(record.exc_info[1])).splitlines()
        record.exc_text = "\n".join(f"  {visible(line)}" for line in lines)
    return True


def _visible(it: Any) -> Any:
    return it if isinstance(it, Number) else visible(str(it))
