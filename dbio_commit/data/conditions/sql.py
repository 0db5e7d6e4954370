"""Reads conditions in Spark's SQL: as far as they can exclude files, or exactly. Pure.

`parse_where` is for files. A part that is not fully understood may hold in any row: Spark filters the rows afterwards,
so an extra file costs only time. `parse_exactly` is for rows, and refuses such a part by name. What a literal means is
in `literals`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parser import Parser

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions.literals import as_double, compared, digits_of, fits, has_whole
from dbio_commit.data.conditions.pruning import column_types
from dbio_commit.data.conditions.tree import (
    ALWAYS,
    MIRRORED,
    NEVER,
    UNKNOWN,
    AllOf,
    AnyOf,
    AtMost,
    ColumnPair,
    Comparison,
    Condition,
    IsNull,
    Like,
    OneOf,
    Operator,
    like,
)
from dbio_commit.protocol.types import decimal_digits, is_integer


def parse_where(sql: str, schema: Mapping[str, Any], *, zone: str | None) -> Condition:
    """The condition. `zone` is the time zone of times without a zone; None if it is not known.

    Raises InvalidInputError for what is no condition, or names no column of the schema (Spark's JSON).
    """
    names = names_of(schema)
    tree = parsed(sql, names)
    if READ_BY_SETTINGS.search(sql):
        return UNKNOWN
    with refusing_depth(sql):
        return _Reader(column_types(schema), names, zone).condition(tree)


@contextmanager
def refusing_depth(sql: str) -> Iterator[None]:
    """Raises InvalidInputError if the block finds that the condition is nested too deeply."""
    try:
        yield
    except RecursionError:
        raise InvalidInputError(f"the condition {sql!r:.100}… is nested too deeply; write it flat") from None


Names = Mapping[tuple[str, str], str]
"""The names of columns, by what SQL may call them in lower case: the side of a merge, or an empty text; and a name."""


def names_of(schema: Mapping[str, Any]) -> Names:
    return {("", field["name"].lower()): field["name"] for field in schema.get("fields", ())}


def column_of(tree: Any, names: Names) -> str | None:
    """The name of a column; None for another expression, and for a field inside a column."""
    is_column = isinstance(tree, exp.Column) and len(tree.parts) <= 2
    return names.get((tree.table.lower(), tree.name.lower())) if is_column else None


def parsed(sql: str, names: Names) -> Any:
    """The tree. Raises InvalidInputError for what is no condition, or names no column."""
    refuse_no_text(sql)
    try:
        tree = parse(sql)
    except ValueError as error:
        raise InvalidInputError(
            f'{sql!r:.200} cannot be read as a condition: {error}; give one in Spark\'s SQL, such as "id > 5"'
        ) from None
    sides = {"", *(side for side, _ in names)}
    for column in tree.find_all(exp.Column):
        is_plain = column.table.lower() in sides and len(column.parts) <= 2
        if is_plain and column_of(column, names) is None and not tree.find(exp.Lambda):
            both = [side for side, name in names if name == column.name.lower()]
            why = f"which {' and '.join(both)} have" if both else "which is no column of the table"
            raise InvalidInputError(
                f"the condition {sql!r:.200} names {column.name!r:.100}, {why}; it has "
                f"{', '.join(dict.fromkeys(names.values()))[:1000]}"
            )
    return tree


def refuse_no_text(where: Any) -> None:
    """Raises InvalidInputError for a condition that is no text, such as a list of terms."""
    if not isinstance(where, str):
        raise InvalidInputError(
            f'where={where!r:.200} is no text: give a condition in Spark\'s SQL here, such as "id > 5". Lists of '
            "conditions are for delete, update, replace_where, count and scan"
        )


READ_BY_SETTINGS = re.compile(
    r"""\A(?:[^\\"'`$/-]+|'(?:[^'\\$]|\$(?!\{))*'(?!\s*')|`[^`$]*`|-(?!-)|/(?!\*)|\$(?!\{))*+"""
    r"""(?P<odd>'[^']*?(?:\\|\$\{|'\s*')|--|/\*|\$\{|.)""",
    re.DOTALL,
)
"""Escapes, double quotes, two texts side by side, comments, variables: their meaning depends on Spark's settings.

The pattern passes over what has one meaning, such as whole texts in single quotes. `odd` is the first part that has
several."""


class _Reader:
    """Makes a condition of sqlglot's tree."""

    def __init__(self, types: Mapping[str, str], names: Names, zone: str | None) -> None:
        self.types, self.names, self.zone = types, names, zone

    def condition(self, tree: Any) -> Condition:
        """The condition of a tree, or of a part of it."""
        match tree:
            case exp.Paren():
                return self.condition(tree.this)
            case exp.And():
                return AllOf(tuple(map(self.condition, _terms(tree, exp.And))))
            case exp.Or():
                return any_of(tuple(map(self.condition, _terms(tree, exp.Or))))
            case exp.Not():
                return self.condition(tree.this).negated()
            case exp.Column():
                return self.compare("=", tree, exp.true())
            case exp.Is(expression=exp.Null()):
                column = self.column(tree.this)
                return IsNull(column) if column else UNKNOWN
            case exp.Between() if not tree.args.get("symmetric"):
                low = self.compare(">=", tree.this, tree.args["low"])
                return AllOf((low, self.compare("<=", tree.this, tree.args["high"])))
            case exp.In() if tree.expressions and not tree.args.get("query"):
                found = self._one_of(tree)
                return found if self.is_alike(tree) else AtMost(found)
            case exp.Like() | exp.Escape(this=exp.Like()):
                return self._like(tree)
        operator = _OPERATORS.get(type(tree))
        if operator is None:
            return UNKNOWN
        if self.column(tree.left):
            return self.compare(operator, tree.left, tree.right)
        return self.compare(MIRRORED[operator], tree.right, tree.left)

    def _one_of(self, tree: exp.In) -> Condition:
        """Spark casts the column and all values to one type, and rounds the values if that type has too few digits."""
        kind = self.types.get(self.column(tree.this) or "", "")
        values = [it.unnest() for it in tree.expressions]
        if is_integer(kind) or decimal_digits(kind):
            digits = [digits_of(it) for it in values if it.is_number or it.find(exp.Cast)]
            if not fits(kind, digits):
                return UNKNOWN
        elif kind not in ("float", "double") and any(it.is_number for it in values):
            return UNKNOWN
        parts = [self.compare("=", tree.this, value) for value in tree.expressions]
        exact = [part for part in parts if isinstance(part, Comparison) and part.low == part.high]
        if len(exact) < len(parts):
            return AnyOf(tuple(parts))
        return OneOf(exact[0].column, tuple(sorted({part.low for part in exact})))

    def _like(self, tree: Any) -> Condition:
        tree, escape = (tree.this, tree.expression) if isinstance(tree, exp.Escape) else (tree, None)
        column, pattern = self.column(tree.this), tree.expression
        is_read = pattern.is_string and (escape is None or escape.is_string)
        if column is None or self.types.get(column) != "string" or not is_read:
            return UNKNOWN
        found = like(column, pattern.this, escape and escape.this) or UNKNOWN
        return found.negated() if tree.args.get("negate") else found

    def is_alike(self, tree: exp.In) -> bool:
        """Whether Spark compares the column with the list in the column's own type, and not all of them as texts."""
        texts = [value.unnest().is_string for value in tree.expressions]
        return all(texts) if self.types.get(self.column(tree.this) or "") == "string" else not any(texts)

    def column(self, tree: Any) -> str | None:
        """The table's name of a column; None for a field inside a column."""
        return column_of(tree.unnest(), self.names)

    def compare(self, operator: Operator, left: Any, right: Any) -> Condition:
        column = self.column(left)
        kind = self.types.get(column or "")
        if column is None or kind is None:
            return UNKNOWN
        found = compared(right.unnest(), kind, self.zone)
        if found is None or (is_integer(kind) and right.unnest().is_string and not has_whole(kind, found[0])):
            return UNKNOWN  # Spark's cast of a text may give null
        return Comparison(column, operator, *found)


def any_of(parts: tuple[Condition, ...]) -> Condition:
    """At least one part holds. If all ask for values of one column, they become one list: tools read that faster."""
    equal = [it for it in parts if isinstance(it, Comparison) and it.operator == "=" and it.low == it.high]
    if len(equal) < max(2, len(parts)) or len({it.column for it in equal}) > 1:
        return AnyOf(parts)
    return OneOf(equal[0].column, tuple(sorted({it.low for it in equal})))


def _terms(tree: Any, kind: type[exp.Connector]) -> list[Any]:
    """The operands of a chain of AND, or of OR. A chain may be longer than Python's stack is deep."""
    waiting: list[Any] = [tree]
    found: list[Any] = []
    while waiting:
        it = waiting.pop()
        if isinstance(it, kind):
            waiting += [it.right, it.left]
        else:
            found.append(it)
    return found


_OPERATORS: Mapping[type, Operator] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip


# --- exactly ----------------------------------------------------------------------------------------------------------


def parse_exactly(
    sql: str, schema: Mapping[str, Any], *, zone: str | None, instead: str, names: Names | None = None
) -> Condition:
    """The condition that holds for exactly those rows that Spark's WHERE keeps; `expressions` makes expressions of it.

    `names` are the names of columns in the SQL, if they are not those of the schema. Raises InvalidInputError as
    `parse_where` does, and for a part whose rows are not certain without Spark. `instead` is the end of that message:
    what the caller can do.
    """
    names = names_of(schema) if names is None else names
    tree = parsed(sql, names)
    if found := READ_BY_SETTINGS.search(sql):
        raise InvalidInputError(_refusal(sql, found["odd"], "its meaning depends on Spark's settings", instead))
    with refusing_depth(sql):
        return _ExactReader(sql, column_types(schema), names, zone, instead).condition(tree)


def _refusal(sql: str, part: str, why: str, instead: str) -> str:
    where = f"the condition {sql!r:.200}: {part!r:.200}"
    return f"{where} is not evaluated row by row without Spark, since {why}. {instead}"


class _ExactReader(_Reader):
    """Refuses each part that does not say exactly which rows fulfil it."""

    def __init__(self, sql: str, types: Mapping[str, str], names: Names, zone: str | None, instead: str) -> None:
        super().__init__(types, names, zone)
        self._sql, self._instead = sql, instead

    def condition(self, tree: Any) -> Condition:
        if isinstance(tree, exp.Boolean):
            return ALWAYS if tree.this else NEVER
        found = super().condition(tree)
        if not _is_exact(found):
            is_local = self.zone is None and any(self.types.get(it) == "timestamp" for it in found.columns())
            why = "a time without a zone needs time_zone='…'" if is_local else "not every Spark reads it alike"
            raise InvalidInputError(_refusal(self._sql, tree.sql(dialect="spark"), why, self._instead))
        return found

    def is_alike(self, tree: exp.In) -> bool:
        """A day and its text are alike: Spark makes the one of the other."""
        return self.types.get(self.column(tree.this) or "") == "date" or super().is_alike(tree)

    def compare(self, operator: Operator, left: Any, right: Any) -> Condition:
        column, other = self.column(left), self.column(right)
        if column and other and self._compare_alike(column, other):
            return ColumnPair(column, operator, other)
        if column and (value := as_double(right.unnest(), self.types.get(column, ""))):
            return Comparison(column, operator, *value)
        return super().compare(operator, left, right)

    def _compare_alike(self, column: str, other: str) -> bool:
        kinds = self.types.get(column, ""), self.types.get(other, "")
        if kinds[0] != kinds[1]:
            return all(map(is_integer, kinds)) or all(kind in ("float", "double") for kind in kinds)
        return is_integer(kinds[0]) or kinds[0] in _ORDERED or decimal_digits(kinds[0]) is not None


_ORDERED = ("string", "date", "timestamp", "timestamp_ntz", "float", "double")


def _is_exact(condition: Condition) -> bool:
    match condition:
        case AllOf() | AnyOf():
            return all(map(_is_exact, condition.parts))
        case Comparison():
            return bool(condition.low == condition.high)
    return isinstance(condition, OneOf | IsNull | Like | ColumnPair)


# --- the tree of sqlglot ----------------------------------------------------------------------------------------------


# sqlglot first tries a word such as `struct` as a type, and then goes back. Each level of nesting doubles its work, and
# sqlglot has no limit of its own.

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
    except SqlglotError as error:
        raise ValueError(_what_is_wrong(error)) from None
    except _TooManySteps as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which is no character") from None
    except Exception:  # an error of sqlglot's own, such as for `map(map(map(1)))`
        raise ValueError("the parser of SQL fails on it") from None
    if len(found) != 1 or found[0] is None:
        raise ValueError("it is no single expression")
    return found[0]


def _what_is_wrong(error: SqlglotError) -> str:
    """The reason without the names of sqlglot's classes, and the end of the text up to which it was read."""
    facts = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if facts is None:  # it found no words
        return "a quote or a comment may have no end"
    said = str(facts["description"])
    why = "a part is missing" if "<class" in said else said[:1].lower() + said[1:200]
    return f"{why} at {facts['start_context'][-100:] + facts['highlight'][:100]!r}"


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
