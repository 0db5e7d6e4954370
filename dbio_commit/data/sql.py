"""Spark's SQL as a tree of sqlglot's, in a bounded number of steps. Pure.

sqlglot takes a word such as `struct` for a type first, and comes back: nested fifteen deep, each level doubles what it
does. It has no limit of its own.
"""

from functools import cache
from typing import Any

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser

_STEPS, _STEPS_A_TOKEN = 50_000, 10
"""Where it never comes back, it takes one step for each token. 50,000 take less than half a second."""


def parse(sql: str) -> Any:
    """The tree. Raises ValueError, with what is wrong, for what sqlglot does not read, or not in so many steps."""
    dialect = Dialect.get_or_raise("spark")
    try:
        tokens = dialect.tokenize(sql)
        parser = _bounded()(dialect=dialect)
        parser.steps_left = _STEPS + _STEPS_A_TOKEN * len(tokens)
        found = parser.parse(tokens, sql)
    except (SqlglotError, RecursionError) as error:
        raise ValueError(str(error).partition("\n")[0][:200]) from None
    except (LookupError, TypeError, AttributeError) as error:  # its own, such as for `map(map(map(1)))`
        raise ValueError(f"sqlglot fails on it: {error!r:.200}") from None
    if len(found) != 1 or found[0] is None:
        raise ValueError("it is no single expression")
    return found[0]


class _TooManySteps(RecursionError):
    """No error of sqlglot's: those it takes for a way that leads nowhere, and tries the next."""


@cache
def _bounded() -> Any:
    own: type[Parser] = Dialect.get_or_raise("spark").parser_class

    class Bounded(own):  # type: ignore[misc, valid-type]
        steps_left = 0

        def _advance(self, times: int = 1) -> None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise _TooManySteps("it nests so that reading it would take too long")
            super()._advance(times)

    return Bounded
