"""What a writer does besides, once its commit is decided: that may fail, and the commit stands."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dbio_commit.base.errors import DbioError


@contextmanager
def courtesy(log: logging.Logger, what: str, *args: object, level: int = logging.WARNING) -> Iterator[None]:
    """Whatever fails within is logged, by `what` and the error: it must not look as if the commit had failed.

    A bug is a warning with its traceback, at any level.
    """
    try:
        yield
    except Exception as error:
        bug = not isinstance(error, DbioError)
        log.log(logging.WARNING if bug else level, f"{what}: %s", *args, error, exc_info=bug)
