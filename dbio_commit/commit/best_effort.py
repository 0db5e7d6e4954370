"""Logs failures of the work that follows a decided commit: the commit stands."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dbio_commit.base.errors import DbioError


@contextmanager
def best_effort(log: logging.Logger, what: str, *args: object, level: int = logging.WARNING) -> Iterator[None]:
    """Logs what fails in the block, as `what` and the error, instead of raising it as if the commit had failed.

    An error that is not a DbioError is a bug: it is logged as a WARNING with its traceback, whatever the `level`.
    """
    try:
        yield
    except Exception as error:
        bug = not isinstance(error, DbioError)
        log.log(logging.WARNING if bug else level, f"{what}: %s", *args, error, exc_info=bug)
