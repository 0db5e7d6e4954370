"""Old words for what users touch: they work until version 1.0, with a DeprecationWarning that names the new word."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.logs import warn_caller

_P = ParamSpec("_P")
_R = TypeVar("_R")


def deprecate(old: str, new: str) -> None:
    """Warns the program that uses dbio: `old` has become `new`."""
    warn_caller(f"{old} is deprecated, and goes with version 1.0: use {new}", DeprecationWarning)


def takes_if_tid(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function also takes `if_tid`, the old word for `if_match`."""

    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if "if_tid" in kwargs:
            token: Any = kwargs.pop("if_tid")
            deprecate("if_tid", "if_match, with Snapshot.etag")
            if token is None:
                # Snapshot.tid of a table without commits was "", and is None now: the write would be unconditional.
                raise InvalidInputError(
                    "if_tid=None does not say whether the write depends on a state; nothing was written: give "
                    "if_match=Snapshot.etag, or leave it out for a write in any state"
                )
            if "if_match" in kwargs:
                raise InvalidInputError("if_tid is the old word for if_match: give if_match alone")
            kwargs["if_match"] = token
        return function(*args, **kwargs)

    return wrapper
