"""Parses Spark's SQL into a tree of sqlglot, in a bounded number of steps. Pure.

sqlglot first tries a word such as `struct` as a type, and then goes back. Each level of nesting doubles its work, and
sqlglot has no limit of its own.
"""

from functools import cache
from typing import Any

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.parser import Parser

_STEPS, _STEPS_A_TOKEN = 50_000, 10
"""A text in which sqlglot never goes back takes one step for each token. 50,000 steps take less than half a second."""


def parse(sql: str) -> Any:
    """The tree. Raises ValueError, with the reason, for a text that sqlglot does not read, or not in so many steps."""
    dialect = Dialect.get_or_raise("spark")
    try:
        sql.encode()
        tokens = dialect.tokenize(sql)
        parser = _bounded()(dialect=dialect)
        parser.steps_left = _STEPS + _STEPS_A_TOKEN * len(tokens)
        found = parser.parse(tokens, sql)
    except (SqlglotError, RecursionError) as error:
        raise ValueError(str(error).partition("\n")[0][:200]) from None
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which is no character") from None
    except Exception as error:  # an error of sqlglot's own, such as for `map(map(map(1)))`
        raise ValueError(f"sqlglot fails on it: {error!r:.200}") from None
    if len(found) != 1 or found[0] is None:
        raise ValueError("it is no single expression")
    return found[0]


class _TooManySteps(RecursionError):
    """Not an error class of sqlglot: sqlglot catches its own, and tries another way to read the text."""


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
