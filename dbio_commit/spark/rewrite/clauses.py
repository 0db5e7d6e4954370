"""The clauses of a merge, as users write them: which rows a clause is for, and what it does with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dbio_commit.base.errors import InvalidInputError

Rows = Literal["matched", "not_matched", "not_matched_by_source"]
"""Pairs of a row of the table and a row of the source; rows of the source alone; rows of the table alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause of a merge. For each row, the first clause whose condition holds decides."""

    rows: Rows
    where: str | None
    """None: the clause is for all of these rows."""
    action: Literal["update", "delete", "insert"]
    values: Mapping[str, str] | None = None
    """By column; None: each column gets the value of the source's column of the same name."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A clause to be completed, for rows of the table that match a row of the source."""

    where: str | None

    def update(self, values: Mapping[str, str] | None = None) -> Clause:
        """Sets columns to expressions in Spark's SQL; without `values`, sets all columns to those of the source."""
        return Clause(rows="matched", where=self.where, action="update", values=values)

    def delete(self) -> Clause:
        """Deletes these rows."""
        return Clause(rows="matched", where=self.where, action="delete")


@dataclass(frozen=True, slots=True)
class NotMatched:
    """A clause to be completed, for rows of the source that match no row of the table."""

    where: str | None

    def insert(self, values: Mapping[str, str] | None = None) -> Clause:
        """Inserts a row with these values and null in all other columns; without `values`, inserts the source's row."""
        return Clause(rows="not_matched", where=self.where, action="insert", values=values)


@dataclass(frozen=True, slots=True)
class NotMatchedBySource:
    """A clause to be completed, for rows of the table that match no row of the source."""

    where: str | None

    def update(self, values: Mapping[str, str]) -> Clause:
        """Sets columns to expressions in Spark's SQL."""
        return Clause(rows="not_matched_by_source", where=self.where, action="update", values=values)

    def delete(self) -> Clause:
        """Deletes these rows."""
        return Clause(rows="not_matched_by_source", where=self.where, action="delete")


def when_matched(where: str | None = None) -> Matched:
    """For rows of the table that match a row of the source.

    `where` is a condition in Spark's SQL on `target.` and `source.` columns.
    """
    return Matched(where)


def when_not_matched(where: str | None = None) -> NotMatched:
    """For rows of the source that match no row of the table.

    `where` is a condition in Spark's SQL on `source.` columns.
    """
    return NotMatched(where)


def when_not_matched_by_source(where: str | None = None) -> NotMatchedBySource:
    """For rows of the table that match no row of the source.

    `where` is a condition in Spark's SQL on `target.` columns.
    """
    return NotMatchedBySource(where)


UPSERT = (Matched(None).update(), NotMatched(None).insert())


def check_clauses(clauses: Sequence[Clause]) -> Sequence[Clause]:
    """Raises InvalidInputError if these are no clauses, or if one of them can never apply."""
    if not isinstance(clauses, Sequence) or not clauses or not all(isinstance(it, Clause) for it in clauses):
        raise InvalidInputError(
            f"when={clauses!r:.200} are no clauses: give a list such as [dbio.when_matched().update(), "
            "dbio.when_not_matched().insert()]"
        )
    ended = set[Rows]()
    for clause in clauses:
        if clause.rows in ended:
            raise InvalidInputError(
                f"a clause of when= for rows that are {clause.rows} comes after one without a condition, so it can "
                "never apply; put the clause without a condition last"
            )
        if clause.where is None:
            ended.add(clause.rows)
    return clauses
