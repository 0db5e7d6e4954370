"""What a condition in Spark's SQL asks, and whether a write may go by it."""

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
from dbio_commit.data import sql
from dbio_commit.data.where import READ_BY_SETTINGS
from dbio_commit.spark.session.conf import is_connect
from dbio_commit.spark.sql.sight import read_as

TARGET, SOURCE = "target", "source"
"""What a merge calls the rows of the table, and those that come."""

NOTHING = "1 = 0"
"""A condition that holds for no row."""


def holds(where: str | Column) -> Column:
    """True, or false: a condition that is null does not hold."""
    return f.coalesce(f.expr(where) if isinstance(where, str) else where, f.lit(False))


def parse(where: str) -> Any:
    """The condition as a tree; None where Spark knows more of its SQL than sqlglot does."""
    try:
        return sql.parse(where)
    except ValueError:
        return None


def check(rows: DataFrame, where: str, *, name: str = "where") -> None:
    """Whether a condition goes by these rows alone, of which there are none.

    Raises InvalidInputError for what holds for other rows each time, and Spark's errors for what is wrong.
    """
    if not isinstance(where, str) or not where.strip():
        raise InvalidInputError(f'{name}={where!r:.200} is no condition; give one as text, in Spark\'s SQL: "id > 5"')
    filtered = rows.where(where)
    filtered.schema  # noqa: B018  (over Connect, asking for it is what looks for errors)
    refuse_queries(filtered, [where], name=name)
    if not is_deterministic(rows, read_as(rows, ["*"], [where])[0]):
        raise InvalidInputError(
            f"{name}={where!r:.200} does not go by the rows alone: it holds for others each time; nothing was written"
        )


def refuse_queries(asked: DataFrame, texts: Sequence[str], *, name: str) -> None:
    """Raises InvalidInputError for what asks more than the rows at hand; `asked` is what Spark makes of all texts."""
    ask = [text for text in texts if asks_tables(text, guess=is_connect(asked.sparkSession))]
    if not ask and not is_connect(asked.sparkSession) and any(map(_QUERY.search, classes_of(asked))):
        ask = [*texts]
    if ask:
        raise InvalidInputError(
            f"{name}={ask[0]!r:.200} asks other tables, which may change while rows are written; look there first, and "
            "give the values"
        )


def asks_tables(text: str, *, guess: bool) -> bool:
    """Whether there is a query in it, as sqlglot reads it; where that cannot, by a `guess` that is too careful."""
    tree = parse(text)
    if tree is None:
        return guess and any(has_word(text, word) for word in _WORDS_OF_QUERIES)
    return tree.find(*_QUERIES) is not None


_QUERY = re.compile(r"\.(\w*Subquery\w*|ListQuery|Exists|\w*OuterReference)$")
"""The classes of Spark's expressions that ask other tables."""
_QUERIES = (exp.Query, exp.Table, exp.Values)
_WORDS_OF_QUERIES = ("select", "values", "table")
"""One of which each query has."""


def refuse_foreign(rows: DataFrame, expressions: Iterable[str]) -> None:
    """Whether Spark takes expressions of `protocol/expressions` for what that module takes them for.

    Raises InvalidInputError for functions of users, such as one that the session has in the place of Spark's own, and
    Spark's errors for what is wrong. Over Connect, a client sees no plan, and nothing is looked at.
    """
    if is_connect(rows.sparkSession):
        return
    for name in classes_of(rows.select(*map(f.expr, expressions))):
        if not SPARKS_OWN.fullmatch(name):
            raise InvalidInputError(
                f"Spark makes {name.rpartition('.')[2]} of it, and no built-in function of one row and its columns: a "
                "setting of a table runs nobody's code, and reads no variable of the session. Drop the function, or "
                "the variable, that the session has under such a name"
            )


SPARKS_OWN = re.compile(
    r"org\.apache\.spark\.sql\.catalyst\.expressions\.(?!\w*(?:Subquery|ListQuery|OuterReference|Reflect|UD[AT]?F"
    r"|UserDefined|SQLFunction|SQLScalar|ApplyFunction|VariableReference))(?!Exists$)[A-Z]\w*"
)
"""The classes of Spark's expressions that neither leave the row nor call code."""

_MOST_NODES = 10_000


def classes_of(rows: DataFrame) -> Iterator[str]:
    """Of the expressions that the rows are selected by, as Spark has analysed them; on classic sessions.

    Those of all looks at a row that this takes: functions in SQL have their arguments computed before.

    One by one: Spark's own ways to write a plan write some parts twice, and what is in them four times. Raises
    InvalidInputError for very many.
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
    raise InvalidInputError(f"Spark makes more than {_MOST_NODES:,} parts of it: make it simpler")


def is_deterministic(rows: DataFrame, condition: Column) -> bool:
    """Whether Spark would take the condition for one of a join."""
    try:
        rows.join(rows.sparkSession.createDataFrame([], "_dbio_other string"), condition).schema  # noqa: B018
    except AnalysisException as error:
        if error.getCondition() == "INVALID_USAGE_OF_STAR_OR_REGEX":  # over Connect; see `sight`
            raise InvalidInputError(
                "over Spark Connect, * stands for no columns in a condition, nor in a value that is cast to its "
                "column: name the columns that are meant; nothing was written"
            ) from None
        if "NON_DETERMINISTIC" not in str(error.getCondition()):
            raise
        return False
    return True


def goes_by_alone(where: str, columns: Collection[str], others: Iterable[str]) -> bool:
    """Whether it asks for none but these columns of a table, as far as that is clear.

    By the text, too: Spark takes `current_date` for a column where there is one, and sqlglot for a function.
    """
    tree = parse(where)
    if tree is None or tree.find(exp.Lambda) or any(has_word(where, name) for name in ("identifier", *others)):
        return False
    if "*" in where:  # which may stand for all columns
        return False
    known = {name.lower() for name in columns}
    return all(not it.table and it.name.lower() in known for it in tree.find_all(exp.Column))


def has_word(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def target_part(on: str, columns: Collection[str], source: Collection[str]) -> str | None:
    """What a merge's condition asks of the table's rows alone, in the table's own terms; None where that is nothing.

    Only of parts that are written again as they were: not every text is the same to Spark and to sqlglot.
    """
    sides = _Sides(columns, source)
    parts = []
    for part in _conjuncts(on):
        asked = [*part.find_all(exp.Column)]
        if asked and all(isinstance(it, _PLAIN) for it in part.walk()) and all(sides.of(it) == TARGET for it in asked):
            with suppress(RecursionError):  # then it stays a part of the merge's condition alone
                parts.append(_bare(part))
    return all_of(parts)


def equal_columns(on: str, columns: Collection[str], source: Collection[str]) -> list[tuple[str, str]]:
    """The columns of the table that a merge's condition wants to be equal to a column of the source, and to which."""
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
    """None where one of them, which is None, holds always; and where there are none."""
    given = [it for it in conditions if it is not None]
    return " OR ".join(f"({it})" for it in given) if given and len(given) == len(conditions) else None


def _conjuncts(on: str) -> list[Any]:
    tree = None if READ_BY_SETTINGS.search(on) else parse(on)
    if tree is None:
        return []
    return [part.unnest() for part in (tree.flatten() if isinstance(tree, exp.And) else [tree.unnest()])]


class _Sides:
    """Whose columns are meant in a merge."""

    def __init__(self, columns: Collection[str], source: Collection[str]) -> None:
        self.known, self.others = ({name.lower(): name for name in names} for names in (columns, source))
        counts = Counter(name.lower() for name in (*columns, *source))
        self._unsure = {it for it, count in counts.items() if count > (it in self.known) + (it in self.others)}
        """Of columns that differ by case alone."""

    def of(self, column: Any) -> str | None:
        """None where it is not sure."""
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
