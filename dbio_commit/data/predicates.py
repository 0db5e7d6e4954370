"""Conditions other than comparisons with values: a text is like a pattern, or two columns are compared. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dbio_commit.data.pruning import OPPOSITE, Comparison, Condition, FactsOf, Operator

_MOST_CHARACTERS = 1000
"""Of a pattern. The tools that evaluate it limit the memory of one."""


@dataclass(frozen=True, slots=True)
class Like(Condition):
    """Whether a column of texts is like a pattern, or is not; `like` makes it. Case counts. Null is neither."""

    column: str
    prefix: str
    """What each such text begins with."""
    expression: str
    """A regular expression for the whole text, of the syntax that Python, RE2 and Rust share."""
    is_like: bool = True

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts, size = facts_of(self.column), len(self.prefix)
        if not facts.has_values:
            return False
        if facts.low is not None and facts.low == facts.high:
            return (re.fullmatch(self.expression, facts.low) is not None) == self.is_like
        if not self.is_like:
            return True
        return (facts.low is None or facts.low[:size] <= self.prefix) and (
            facts.high is None or facts.high[:size] >= self.prefix
        )

    def must_hold(self, facts_of: FactsOf) -> bool:
        return facts_of(self.column).nulls == 0 and not self.negated().may_hold(facts_of)

    @property
    def is_provable(self) -> bool:
        return True

    def columns(self) -> Iterator[str]:
        yield self.column

    def negated(self) -> Condition:
        return replace(self, is_like=not self.is_like)


def like(column: str, pattern: str, escape: str | None) -> Like | None:
    """Spark's LIKE: `%` is any text, `_` one character, and what follows the character `escape` means itself.

    None for a pattern that Spark refuses, or that is too long.
    """
    if len(pattern) > _MOST_CHARACTERS or (escape is not None and len(escape) != 1):
        return None
    prefix, expression, is_fixed = "", "", True
    rest = iter(pattern)
    for character in rest:
        is_wild = character in "%_"
        if character == escape:
            character, is_wild = next(rest, ""), False
            if character not in ("%", "_", escape):
                return None
        is_fixed = is_fixed and not is_wild
        prefix += character if is_fixed else ""
        expression += {"%": ".*", "_": "."}[character] if is_wild else _itself(character)
    return Like(column, prefix, f"(?s:{expression})")


def _itself(character: str) -> str:
    """The character in an expression. Letters and digits mean themselves, and so do all that are not ASCII."""
    return character if character.isalnum() or not character.isascii() else f"\\x{ord(character):02x}"


@dataclass(frozen=True, slots=True)
class ColumnPair(Condition):
    """Compares two columns whose values compare alike everywhere: of one type, or both of whole numbers."""

    column: str
    operator: Operator
    other: str

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts = facts_of(self.other)
        if facts.low is None or facts.high is None or not facts.has_values:
            return facts.has_values and facts_of(self.column).has_values
        return Comparison(self.column, self.operator, facts.low, facts.high).may_hold(facts_of)

    def must_hold(self, facts_of: FactsOf) -> bool:
        is_known = facts_of(self.column).nulls == 0 == facts_of(self.other).nulls
        return is_known and not self.negated().may_hold(facts_of)

    @property
    def is_provable(self) -> bool:
        return True

    def columns(self) -> Iterator[str]:
        yield from (self.column, self.other)

    def negated(self) -> Condition:
        return replace(self, operator=OPPOSITE[self.operator])
