"""Checks conditions in Spark's SQL before a write uses them, and finds what a merge condition requires of each side."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from sqlglot import exp

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.conditions import sql
from dbio_commit.data.conditions.sql import READ_BY_SETTINGS
from dbio_commit.data.examples import has_word
from dbio_commit.spark.session.conf import is_connect
from dbio_commit.spark.sql.name_resolution import read_as
from dbio_commit.spark.versions import error_condition

TARGET, SOURCE = "target", "source"
"""The names of the table and of the source in the expressions of a merge."""

NOTHING = "1 = 0"
"""A condition that holds for no row."""


def holds(where: str | Column) -> Column:
    """The condition as true or false: null counts as false."""
    return f.coalesce(f.expr(where) if isinstance(where, str) else where, f.lit(False))


def parse(where: str) -> Any:
    """The condition as a tree of sqlglot; None if sqlglot cannot read it, although Spark may."""
    try:
        return sql.parse(where)
    except ValueError:
        return None


def check(rows: DataFrame, where: str, *, name: str = "where") -> None:
    """Checks that a condition depends on the columns of `rows` alone; `rows` is an empty DataFrame.

    Raises InvalidInputError for a condition that is not deterministic, and Spark's errors for an invalid one.
    """
    if not isinstance(where, str) or not where.strip():
        raise InvalidInputError(f'{name}={where!r:.200} is no condition; give one as text, in Spark\'s SQL: "id > 5"')
    filtered = rows.where(where)
    filtered.schema  # noqa: B018  (over Connect, only this looks for errors)
    refuse_queries(filtered, [where], name=name)
    if not is_deterministic(rows, read_as(rows, ["*"], [where])[0]):
        raise InvalidInputError(
            f"{name}={where!r:.200} is not deterministic: it can hold for other rows each time; nothing was written: "
            "give a condition that depends on the rows alone"
        )


def refuse_queries(asked: DataFrame, texts: Sequence[str], *, name: str) -> None:
    """Raises InvalidInputError for a text that reads other tables. `asked` is a DataFrame that uses all texts."""
    guess = is_connect(asked.sparkSession)  # a client sees no plan
    if not guess and not _has_query(asked):
        return
    ask = [text for text in texts if asks_tables(text, guess=guess)]
    if ask or not guess:
        raise InvalidInputError(
            f"{name}={(ask or texts)[0]!r:.200} reads other tables, which may change while rows are written; read them "
            "first, and give the values"
        )


def asks_tables(text: str, *, guess: bool) -> bool:
    """Whether the text contains a query. In a text that sqlglot cannot read, `guess` looks for words of queries."""
    tree = parse(text)
    if tree is None:
        return guess and any(has_word(text, word) for word in _WORDS_OF_QUERIES)
    return tree.find(*_QUERIES) is not None


def _has_query(asked: DataFrame) -> bool:
    """Whether an expression in the analysed plan reads another plan, by the tree patterns that Spark keeps."""
    patterns: Any = asked.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
    plan: Any = asked._jdf.queryExecution().analyzed()
    return any(plan.containsPattern(it) for it in (patterns.PLAN_EXPRESSION(), patterns.OUTER_REFERENCE()))


_QUERIES = (exp.Query, exp.Table, exp.Values)
_WORDS_OF_QUERIES = ("select", "values", "table")
"""Each query has one of these words."""


def refuse_foreign(rows: DataFrame, expressions: Iterable[str]) -> None:
    """Checks that Spark gives these expressions the meaning that `protocol/expressions` gives them.

    Raises InvalidInputError for a user's function, such as one that replaces a function of Spark in the session. Raises
    Spark's errors for an invalid expression. Over Connect, a client sees no plan, so nothing is checked.
    """
    if is_connect(rows.sparkSession):
        return
    for name in classes_of(rows.select(*map(f.expr, expressions))):
        if not SPARKS_OWN.fullmatch(name):
            raise InvalidInputError(
                f"Spark reads a name in it as {name.rpartition('.')[2]}, which is no built-in function of the "
                "columns of one row: a setting of a table runs no user code, and reads no variable of the session. "
                "Drop the function or the variable of that name from the session"
            )


SPARKS_OWN = re.compile(
    r"org\.apache\.spark\.sql\.catalyst\.expressions\.(?!\w*(?:Subquery|ListQuery|OuterReference|Reflect|UD[AT]?F"
    r"|UserDefined|SQLFunction|SQLScalar|ApplyFunction|VariableReference))(?!Exists$)[A-Z]\w*"
)
"""The classes of Spark's expressions that use one row only, and call no user code."""

_MOST_NODES = 10_000


def classes_of(rows: DataFrame) -> Iterator[str]:
    """The classes of the expressions in the analysed plan of `rows`, a projection or filter; on classic sessions.

    Includes those of projections below it, where Spark computes the arguments of functions in SQL. Walks the tree,
    because a printed plan repeats some parts, and nested parts four times. Raises InvalidInputError for more than
    _MOST_NODES expressions.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    waiting = [plan.expressions()]
    while plan.getClass().getSimpleName() in ("Project", "Filter"):
        plan = plan.child()
        waiting.append(plan.expressions())
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        nodes = waiting.pop()
        for i in range(nodes.size()):
            node = nodes.apply(i)
            yield str(node.getClass().getName())
            waiting.append(node.children())
    raise InvalidInputError(f"Spark makes more than {_MOST_NODES:,} parts of the expression: make it simpler")


def is_deterministic(rows: DataFrame, condition: Column) -> bool:
    """Whether the condition is deterministic: Spark accepts only such conditions for a join."""
    try:
        rows.join(rows.sparkSession.createDataFrame([], "_dbio_other string"), condition).schema  # noqa: B018
    except AnalysisException as error:
        if error_condition(error) == "INVALID_USAGE_OF_STAR_OR_REGEX":  # over Connect; see `name_resolution`
            raise InvalidInputError(
                "over Spark Connect, * stands for no columns in a condition, nor in a value that is cast to its "
                "column: name the columns instead; nothing was written"
            ) from None
        if "NON_DETERMINISTIC" not in str(error_condition(error)):
            raise
        return False
    return True


def goes_by_alone(where: str, columns: Collection[str], others: Iterable[str]) -> bool:
    """Whether the condition certainly uses only these columns of a table; `others` are the table's other columns.

    False if a name of `others` is in the text at all: if a column is called `current_date`, Spark takes that word for
    the column, and sqlglot takes it for the function.
    """
    if "*" in where or any(has_word(where, name) for name in ("identifier", *others)):  # * may stand for all columns
        return False
    tree = parse(where)
    if tree is None or tree.find(exp.Lambda):
        return False
    known = {name.lower() for name in columns}
    return all(not it.table and it.name.lower() in known for it in tree.find_all(exp.Column))


def target_part(on: str, columns: Collection[str], source: Collection[str]) -> str | None:
    """The part of a merge's condition that uses the table's columns only, as a condition on the table; None: no part.

    Takes only expressions that mean the same to sqlglot and to Spark.
    """
    sides = _Sides(columns, source)
    parts = []
    for part in _conjuncts(on):
        asked = [*part.find_all(exp.Column)]
        if asked and all(isinstance(it, _PLAIN) for it in part.walk()) and all(sides.of(it) == TARGET for it in asked):
            with suppress(RecursionError):  # then this part leaves out no files
                parts.append(_bare(part))
    return all_of(parts)


def equal_columns(on: str, columns: Collection[str], source: Collection[str]) -> list[tuple[str, str]]:
    """The pairs of a column of the table and a column of the source that a merge's condition requires to be equal."""
    sides = _Sides(columns, source)
    pairs = []
    for part in _conjuncts(on):
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column) and isinstance(part.expression, exp.Column):
            both = {sides.of(it): it.name.lower() for it in (part.this, part.expression)}
            if both.keys() == {TARGET, SOURCE}:
                pairs.append((sides.known[both[TARGET]], sides.others[both[SOURCE]]))
    return pairs


_PLAIN = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT,
    exp.LTE, exp.And, exp.Or, exp.Not, exp.Paren, exp.In, exp.Between, exp.Is,
)  # fmt: skip


def all_of(conditions: Iterable[str]) -> str | None:
    return " AND ".join(f"({it})" for it in conditions) or None


def any_of(conditions: Sequence[str | None]) -> str | None:
    """The conditions, combined by OR. None if one of them is None, which always holds, or if there are none."""
    given = [it for it in conditions if it is not None]
    return " OR ".join(f"({it})" for it in given) if given and len(given) == len(conditions) else None


def _conjuncts(on: str) -> list[Any]:
    tree = None if READ_BY_SETTINGS.search(on) else parse(on)
    found: list[Any] = []
    left = [] if tree is None else [tree]
    while left:  # Spark's own text of a condition has parentheses around each AND
        part = left.pop().unnest()
        if isinstance(part, exp.And):
            left += [part.expression, part.this]
        else:
            found.append(part)
    return found


class _Sides:
    """Decides whether a column in a merge's condition is the table's or the source's."""

    def __init__(self, columns: Collection[str], source: Collection[str]) -> None:
        self.known, self.others = ({name.lower(): name for name in names} for names in (columns, source))
        counts = Counter(name.lower() for name in (*columns, *source))
        self._unsure = {it for it, count in counts.items() if count > (it in self.known) + (it in self.others)}
        """Names, in lower case, of columns of one side that differ in case only."""

    def of(self, column: Any) -> str | None:
        """TARGET or SOURCE; None if it is not certain."""
        name, table = column.name.lower(), column.table.lower()
        if len(column.parts) > 2 or name in self._unsure:
            return None
        if table == TARGET and name in self.known:
            return TARGET
        if table == SOURCE and name in self.others:
            return SOURCE
        if not table and (name in self.known) != (name in self.others):
            return TARGET if name in self.known else SOURCE
        return None


def _bare(part: Any) -> str:
    bare = part.copy()
    for column in [*bare.find_all(exp.Column)]:
        column.set("table", None)
    return str(bare.sql(dialect="spark"))
