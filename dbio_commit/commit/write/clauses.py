"""The clauses of a merge, and the functions that begin one. They need no PySpark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError

RowKind = Literal["matched", "not_matched", "not_matched_by_source"]
"""Pairs of a row of the table and a row of the source; rows of the source alone; rows of the table alone."""


Expression = Any
"""An expression of a statement in SQL that Spark has analysed: `Planned`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause of a merge, which changes some rows. The first clause that holds for a row applies."""

    rows: RowKind
    """The rows to which it may apply."""
    where: str | Expression | None
    """A condition in Spark's SQL; None: it holds for all of these rows."""
    action: Literal["update", "delete", "insert"]
    """What becomes of the rows."""
    values: Mapping[str, Any] | None = None
    """By column: a text with an expression in Spark's SQL, or a value of Python that is no text. None: each column gets
    the source's column of the same name."""


@dataclass(frozen=True, slots=True)
class Matched:
    """The rows of the table that match a row of the source; `when_matched` makes it."""

    where: str | None
    """A condition in Spark's SQL; None: all of these rows."""

    def update(self, values: Mapping[str, Any] | None = None) -> Clause:
        """Gives columns new values; without `values`, gives all columns those of the source.

        A text is an expression in Spark's SQL, such as "source.n + 1" or "'new'"; other values are values of Python.
        """
        return Clause(rows="matched", where=self.where, action="update", values=values)

    def delete(self) -> Clause:
        """Deletes these rows of the table."""
        return Clause(rows="matched", where=self.where, action="delete")


@dataclass(frozen=True, slots=True)
class NotMatched:
    """The rows of the source that match no row of the table; `when_not_matched` makes it."""

    where: str | None
    """A condition in Spark's SQL; None: all of these rows."""

    def insert(self, values: Mapping[str, Any] | None = None) -> Clause:
        """Inserts rows with these values, as for `Matched.update`; other columns get their defaults, or nulls.

        Without `values`, inserts the source's columns.
        """
        return Clause(rows="not_matched", where=self.where, action="insert", values=values)


@dataclass(frozen=True, slots=True)
class NotMatchedBySource:
    """The rows of the table that match no row of the source; `when_not_matched_by_source` makes it."""

    where: str | None
    """A condition in Spark's SQL; None: all of these rows."""

    def update(self, values: Mapping[str, Any]) -> Clause:
        """Gives columns new values, as `Matched.update` does."""
        return Clause(rows="not_matched_by_source", where=self.where, action="update", values=values)

    def delete(self) -> Clause:
        """Deletes these rows of the table."""
        return Clause(rows="not_matched_by_source", where=self.where, action="delete")


def when_matched(where: str | None = None) -> Matched:
    """A clause of `merge` for rows of the table that match a row of the source.

    `where`, in Spark's SQL, may name columns of `target.` and of `source.`.

        dbio.when_matched("source.deleted").delete()
    """
    return Matched(where)


def when_not_matched(where: str | None = None) -> NotMatched:
    """A clause of `merge` for rows of the source that match no row of the table.

    `where`, in Spark's SQL, may name columns of `source.`.

        dbio.when_not_matched().insert({"id": "source.id", "seen": "1"})
    """
    return NotMatched(where)


def when_not_matched_by_source(where: str | None = None) -> NotMatchedBySource:
    """A clause of `merge` for rows of the table that match no row of the source.

    `where`, in Spark's SQL, may name columns of `target.`.

        dbio.when_not_matched_by_source("target.day = '2026-11-20'").delete()
    """
    return NotMatchedBySource(where)


UPSERT = (Matched(None).update(), NotMatched(None).insert())
"""What `merge` does without clauses."""


def refuse_unknown(source: Iterable[str], table: Iterable[str], *, where: str) -> None:
    """Raises SchemaMismatchError if the source of a merge without clauses has columns that the table lacks.

    Such a column may say what becomes of a row, such as "d" for one that was deleted.
    """
    own = {name.lower() for name in table}
    if more := [name for name in source if name.lower() not in own]:
        raise SchemaMismatchError(
            f"the source has the column {more[0]!r}, which {where} lacks. Nothing was written: leave it out, or say "
            "with when=[…] what becomes of the rows, such as [dbio.when_matched(\"source.op = 'd'\").delete(), "
            "dbio.when_matched().update(), dbio.when_not_matched().insert()]"
        )


def check_clauses(clauses: Sequence[Clause]) -> Sequence[Clause]:
    """Raises InvalidInputError if these are no clauses, or if one of them can never apply."""
    if not isinstance(clauses, Sequence) or not clauses or not all(isinstance(it, Clause) for it in clauses):
        raise InvalidInputError(
            f"when={clauses!r:.200} are no clauses: give a list such as [dbio.when_matched().update(), "
            "dbio.when_not_matched().insert()]"
        )
    ended = set[RowKind]()
    for clause in clauses:
        if clause.rows in ended:
            raise InvalidInputError(
                f"a clause of when= for rows that are {clause.rows} comes after one without a condition, so it can "
                "never apply; put the clause without a condition last"
            )
        if clause.where is None:
            ended.add(clause.rows)
    return clauses
