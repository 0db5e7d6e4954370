"""A condition as a tree, whichever language it came from: what is known of columns says whether it may hold. Pure.

`sql` and `terms` make trees, `pruning` asks them about files, and `expressions` makes expressions of tools of them.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple


class Facts(NamedTuple):
    """What is known of a column in a file, as values that Python compares; None for what is not known."""

    low: Any = None
    """No value is less; nulls do not count."""
    high: Any = None
    """No value is greater; nulls do not count."""
    nulls: int | None = None
    rows: int | None = None

    @property
    def has_values(self) -> bool:
        """Whether some value may not be null."""
        return self.nulls is None or self.nulls != self.rows


NOTHING_KNOWN = Facts()

FactsOf = Callable[[str], Facts]
"""The facts of a column, by the table's spelling of its name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition. This base class is one that any row may fulfil, since nothing is known of it."""

    def may_hold(self, facts_of: FactsOf) -> bool:
        """Whether it may be true in some row."""
        return True

    def must_hold(self, facts_of: FactsOf) -> bool:
        """Whether it is surely true in every row."""
        return False

    @property
    def is_provable(self) -> bool:
        """Whether `must_hold` can ever be true."""
        return False

    def columns(self) -> Iterator[str]:
        """The columns that it uses."""
        yield from ()

    def negated(self) -> "Condition":
        """The condition that is true if this one is false. If this one is null, neither is true."""
        return UNKNOWN


UNKNOWN = Condition()

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE: Mapping[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class _OnColumn(Condition):
    column: str

    def must_hold(self, facts_of: FactsOf) -> bool:
        return facts_of(self.column).nulls == 0 and not self.negated().may_hold(facts_of)

    @property
    def is_provable(self) -> bool:
        return True

    def columns(self) -> Iterator[str]:
        yield self.column


@dataclass(frozen=True, slots=True)
class Comparison(_OnColumn):
    """Compares a column with a value that lies somewhere from `low` to `high`."""

    operator: Operator
    low: Any
    high: Any

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts = facts_of(self.column)
        if not facts.has_values:
            return False
        match self.operator:
            case "=":
                return (facts.low is None or facts.low <= self.high) and (facts.high is None or facts.high >= self.low)
            case "!=":
                return facts.low is None or not facts.low == facts.high == self.low == self.high
            case "<":
                return facts.low is None or bool(facts.low < self.high)
            case "<=":
                return facts.low is None or bool(facts.low <= self.high)
            case ">":
                return facts.high is None or bool(facts.high > self.low)
            case ">=":
                return facts.high is None or bool(facts.high >= self.low)

    def negated(self) -> Condition:
        return Comparison(self.column, OPPOSITE[self.operator], self.low, self.high)


@dataclass(frozen=True, slots=True)
class OneOf(_OnColumn):
    """Whether a column has one of these sorted values; or, without `is_one`, none of them."""

    values: tuple[Any, ...]
    is_one: bool = True

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts = facts_of(self.column)
        if not facts.has_values:
            return False
        i = 0 if facts.low is None else bisect_left(self.values, facts.low)
        found = self.values[i] if i < len(self.values) else None
        if self.is_one:
            return found is not None and (facts.high is None or found <= facts.high)
        return facts.low is None or not facts.low == facts.high == found

    def negated(self) -> Condition:
        return OneOf(self.column, self.values, not self.is_one)


@dataclass(frozen=True, slots=True)
class IsNull(_OnColumn):
    """Whether a column is null, or is not."""

    is_null: bool = True

    def may_hold(self, facts_of: FactsOf) -> bool:
        facts = facts_of(self.column)
        return facts.nulls != 0 if self.is_null else facts.has_values

    def must_hold(self, facts_of: FactsOf) -> bool:
        return not self.negated().may_hold(facts_of)

    def negated(self) -> Condition:
        return IsNull(self.column, not self.is_null)


@dataclass(frozen=True, slots=True)
class IsNaN(Condition):
    """Whether a floating-point column is NaN, or is another value. Bounds do not show NaN, so no file is left out."""

    column: str
    is_nan: bool = True

    def columns(self) -> Iterator[str]:
        yield self.column

    def negated(self) -> Condition:
        return IsNaN(self.column, not self.is_nan)


@dataclass(frozen=True, slots=True)
class _Joined(Condition):
    parts: tuple[Condition, ...]

    def columns(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.columns()


@dataclass(frozen=True, slots=True)
class AllOf(_Joined):
    """All parts hold. Without parts, it is true."""

    def may_hold(self, facts_of: FactsOf) -> bool:
        return all(part.may_hold(facts_of) for part in self.parts)

    def must_hold(self, facts_of: FactsOf) -> bool:
        return all(part.must_hold(facts_of) for part in self.parts)

    @property
    def is_provable(self) -> bool:
        return all(part.is_provable for part in self.parts)

    def negated(self) -> Condition:
        return AnyOf(tuple(part.negated() for part in self.parts))


@dataclass(frozen=True, slots=True)
class AtMost(Condition):
    """A condition that holds only if another one does, and perhaps not even then."""

    bound: Condition

    def may_hold(self, facts_of: FactsOf) -> bool:
        return self.bound.may_hold(facts_of)

    def columns(self) -> Iterator[str]:
        return self.bound.columns()


@dataclass(frozen=True, slots=True)
class AnyOf(_Joined):
    """At least one part holds."""

    def may_hold(self, facts_of: FactsOf) -> bool:
        return any(part.may_hold(facts_of) for part in self.parts)

    def must_hold(self, facts_of: FactsOf) -> bool:
        return any(part.must_hold(facts_of) for part in self.parts)

    @property
    def is_provable(self) -> bool:
        return any(part.is_provable for part in self.parts)

    def negated(self) -> Condition:
        return AllOf(tuple(part.negated() for part in self.parts))


ALWAYS, NEVER = AllOf(()), AnyOf(())

# --- texts and pairs of columns -----------------------------------------------------------------------------------

_MOST_CHARACTERS = 1000
"""Of a pattern. The tools that evaluate it limit the memory of one."""


@dataclass(frozen=True, slots=True)
class Like(_OnColumn):
    """Whether a column of texts is like a pattern, or is not; `like` makes it. Case counts. Null is neither."""

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
class ColumnPair(_OnColumn):
    """Compares two columns whose values compare alike everywhere: of one type, or both of whole numbers."""

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

    def columns(self) -> Iterator[str]:
        yield from (self.column, self.other)

    def negated(self) -> Condition:
        return replace(self, operator=OPPOSITE[self.operator])
