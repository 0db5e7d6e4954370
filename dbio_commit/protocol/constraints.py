"""The constraints, generated columns and defaults that a table's settings give to its rows. Pure.

Their SQL is the part of Spark's SQL that `expressions` allows. Rows are checked in `spark/write/constraints`, without
Spark in `data/row_checks`, and by statistics in `data/conditions/proof`.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.texts import command
from dbio_commit.protocol.expressions import problem_of
from dbio_commit.protocol.settings import CHECK, DEFAULT, GENERATED, NOT_NULL, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A constraint that a row can violate."""

    setting: str
    """The name of the setting."""
    column: str | None = None
    """The column, which must not be null, or which must equal `sql` if that is set."""
    sql: str | None = None
    """The expression of a generated column; a condition if there is no column."""

    @property
    def says(self) -> str:
        """The constraint as text, for messages."""
        return f"{self.setting} ({self.sql:.300})" if self.sql else self.setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The constraints of a table. Names of columns are as they were set; case makes no difference."""

    not_null: tuple[str, ...] = ()
    checks: Mapping[str, str] = field(default_factory=dict)
    """By name: a condition in Spark's SQL that must be true for each row. Null is not true."""
    generated: Mapping[str, str] = field(default_factory=dict)
    """By column: an expression in Spark's SQL of other columns, which gives its values."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """By column that is not generated: an expression in Spark's SQL, for rows that lack the column."""

    @classmethod
    def of(cls, settings: Settings | None) -> Self:
        by_kind: dict[str, dict[str, str]] = {kind: {} for kind in (NOT_NULL, CHECK, GENERATED, DEFAULT)}
        for name, text in sorted((settings or {}).items()):
            kind, dot, rest = name.partition(".")
            if dot and kind in by_kind:
                by_kind[kind][rest] = text
        generated = {column.lower() for column in by_kind[GENERATED]}
        return cls(
            not_null=tuple(by_kind[NOT_NULL]),
            checks=by_kind[CHECK],
            generated=by_kind[GENERATED],
            defaults={column: sql for column, sql in by_kind[DEFAULT].items() if column.lower() not in generated},
        )

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.generated or self.defaults)

    @property
    def each(self) -> tuple[Constraint, ...]:
        """The constraints that a row can violate, in the order in which violations are reported."""
        return (
            *(Constraint(setting=f"{NOT_NULL}.{it}", column=it) for it in self.not_null),
            *(Constraint(setting=f"{GENERATED}.{it}", column=it, sql=sql) for it, sql in self.generated.items()),
            *(Constraint(setting=f"{CHECK}.{it}", sql=sql) for it, sql in self.checks.items()),
        )

    @property
    def filled(self) -> frozenset[str]:
        """The columns, in lower case, that new rows may lack."""
        return frozenset(column.lower() for column in (*self.defaults, *self.generated))

    def refuse_unsafe(self, *, where: str) -> None:
        """Raises InvalidInputError for an expression that no writer evaluates, whatever the columns are."""
        for setting, (sql, problem) in self.unsafe().items():
            raise InvalidInputError(
                f"the setting {setting}={sql!r:.200} of {where} is not evaluated: {problem}. Nothing was written: find "
                "out who set it (`dbio log` lists the commits), and change or remove it with "
                f"`{command('dbio', 'set', where, f'{setting}=')}`"
            )

    def unsafe(self) -> dict[str, tuple[str, str]]:
        """The settings that no writer evaluates, each with its SQL and what is wrong with it."""
        return {setting: (sql, problem) for setting, sql, _ in self._of(()) if (problem := problem_of(sql))}

    def refuse_unfit(self, columns: Iterable[str], *, where: str) -> None:
        """Raises InvalidInputError for a setting that a table with these columns cannot have.

        Such a setting names a column that is not there, or its expression uses a name that is no column. Spark would
        take such a name for a variable of the session.
        """
        columns = [*columns]
        self.refuse_lost(columns, where=where)
        self.refuse_names({setting for setting, _, _ in self._of(columns)}, columns, where=where)

    def refuse_names(self, settings: Container[str], columns: Iterable[str], *, where: str) -> None:
        """Raises InvalidInputError if the expression of one of these settings uses a name that is no column."""
        for setting, sql, own in self._of(columns):
            if setting in settings and (problem := problem_of(sql, own)):
                raise InvalidInputError(unfit(setting, sql, problem, where=where))

    def _of(self, columns: Iterable[str]) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Each setting that has an expression: its name, its SQL, and those of the columns that it may use."""
        columns, computed = [*columns], {column.lower() for column in self.generated}
        given = [name for name in columns if name.lower() not in computed]
        for kind, by_name, own in (
            (CHECK, self.checks, columns),
            (GENERATED, self.generated, given),
            (DEFAULT, self.defaults, ()),
        ):
            for name, sql in by_name.items():
                yield f"{kind}.{name}", sql, own

    def refuse_lost(self, columns: Iterable[str], *, where: str) -> None:
        """Raises InvalidInputError if a column that the settings name is not among the table's new columns."""
        known = {column.lower() for column in columns}
        for kind, named in ((NOT_NULL, self.not_null), (GENERATED, self.generated), (DEFAULT, self.defaults)):
            if lost := [column for column in named if column.lower() not in known]:
                raise InvalidInputError(
                    f"{where} would have the setting {kind}.{lost[0]}, and no such column; nothing was written: write "
                    "the column, or remove the setting with "
                    f"`{command('dbio', 'set', where, f'{kind}.{lost[0]}=')}`"
                )


def unfit(setting: str, sql: str, problem: str, *, where: str) -> str:
    """The message about a setting whose expression cannot be evaluated for the rows of this table."""
    return (
        f"the setting {setting}={sql!r:.200} cannot be evaluated for the rows of {where}: {problem}. Nothing was "
        f"written: change it, or remove it with `{command('dbio', 'set', where, f'{setting}=')}`"
    )


def violated(constraint: Constraint, rows: int, example: str, *, where: str) -> str:
    """The message about rows that violate the constraint, with an example of such a row."""
    count = "1 row violates" if rows == 1 else f"{rows} rows violate"
    return f"{count} {constraint.says} of {where}, such as {example}"
