"""Checks rows against a table's constraints, and fills in defaults and generated columns, without Spark. Pure.

With Spark, `spark/write/constraints` does this. An expression whose result may differ from Spark's is refused before
anything is written.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.base.texts import Cause, command
from dbio_commit.data.conditions import expressions
from dbio_commit.data.examples import as_python, describe, shown
from dbio_commit.protocol.constraints import Constraint, Constraints, violated

Test = Callable[[pa.RecordBatch], Any]
"""Returns a value for each row: whether the row violates a constraint, or the value of a column to fill in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChecks:
    """Fills in and checks each batch of new rows, which have all columns of the table."""

    where: str
    """The URL of the table."""
    fills: Mapping[str, Test] = field(default_factory=dict)
    """For each column that the data lacks, the function that computes its values. They run in this order."""
    tests: Sequence[tuple[Constraint, Test]] = ()

    @classmethod
    def of(
        cls, constraints: Constraints, schema: Mapping[str, Any], *, lacks: Collection[str], where: str, now: datetime
    ) -> Self:
        """`schema` has the table's columns, of which the data lacks some; `now` is the time of the write.

        Raises InvalidInputError for an expression that only Spark can evaluate; MissingPackageError without sqlglot.
        """
        if not constraints:
            return cls(where=where)
        with needs(f"a write to a table with constraints, such as {where},", extra="cli"):
            return cls(where=where, **_bound(constraints, schema, {*lacks}, where, now))

    def apply(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, filled in. Raises InvalidInputError at the first batch with rows that violate a constraint."""
        return map(self.checked, batches)

    def checked(self, rows: pa.RecordBatch, among: Any = None) -> pa.RecordBatch:
        """The rows, filled in and checked. `among` says for each row whether it is new; None: all are."""
        for name, values in self.fills.items():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), values(rows))
        for constraint, violates in self.tests:
            bad = violates(rows)
            bad = bad if among is None else pc.and_(bad, among)
            if pc.any(bad).as_py():
                names = shown(constraint, rows.schema.names)
                at = pc.index(bad, True).as_py()
                example = describe({name: as_python(rows.column(i)[at]) for i, name in names.items()})
                count = pc.sum(bad).as_py()
                said = violated(constraint, count, example, where=self.where)
                raise InvalidInputError(f"at least {said}; nothing was committed")
        return rows


def _bound(
    constraints: Constraints, schema: Mapping[str, Any], lacks: set[str], where: str, now: datetime
) -> dict[str, Any]:
    from dbio_commit.data.conditions.sql import parse_exactly
    from dbio_commit.data.conditions.values import Unsure, Value, read_value

    kinds = {it["name"]: it["type"] for it in schema["fields"]}
    by_lower = {name.lower(): name for name in kinds}
    computed = {column.lower() for column in constraints.generated}
    given = {name: kind for name, kind in kinds.items() if name.lower() not in computed}
    given_names = {("", name.lower()): name for name in given}

    @contextmanager
    def explained(setting: str, sql: str) -> Iterator[None]:
        try:
            yield
        except (Unsure, InvalidInputError) as error:
            raise InvalidInputError(
                f"the setting {setting}={sql!r:.200} of {where} is evaluated by Spark only: {error!s:.300}. "
                "Nothing was written: write a DataFrame of PySpark, or change the setting with "
                f"`{command('dbio', 'set', where, f'{setting}=')}`"
            ) from None

    def evaluated(value: Value, name: str, setting: str) -> Test:
        def of(rows: pa.RecordBatch) -> Any:
            try:
                found = value.of(rows)
                return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
            except pa.ArrowInvalid as error:
                raise InvalidInputError(
                    f"column {name!r} of {where} cannot hold a value of the setting {setting}: {error!s:.200}; nothing "
                    "was committed"
                ) from Cause.of(error)

        return of

    fills: dict[str, Test] = {}
    for column, sql in constraints.defaults.items():
        name = by_lower[column.lower()]
        if name in lacks:
            with explained(f"default.{column}", sql):
                value = read_value(sql, {}, now=now, kind=kinds[name])
            fills[name] = evaluated(value, name, f"default.{column}")
    tests: list[tuple[Constraint, Test]] = []
    for constraint in constraints.each:
        if constraint.sql is None:
            tests.append((constraint, _is_null(by_lower[str(constraint.column).lower()])))
        elif constraint.column is not None:
            name = by_lower[constraint.column.lower()]
            with explained(constraint.setting, constraint.sql):
                value = read_value(constraint.sql, given, now=None, kind=kinds[name], names=given_names)
                if name not in lacks and not expressions.is_same(kinds[name]):
                    raise Unsure(f"values of {kinds[name]} are compared by Spark's rules")
            values = evaluated(value, name, constraint.setting)
            if name in lacks:
                fills[name] = values
            else:
                tests.append((constraint, _differs(name, values)))
        else:
            with explained(constraint.setting, constraint.sql):
                condition = parse_exactly(constraint.sql, schema, zone=None, instead=_SURE)
            tests.append((constraint, _fails(condition)))
    return {"fills": fills, "tests": tests}


_SURE = "Comparisons of columns with values of their types, IS NULL, IN, BETWEEN, AND, OR and NOT are evaluated"


def _is_null(name: str) -> Test:
    return lambda rows: rows.column(name).is_null()


def _differs(name: str, values: Test) -> Test:
    return lambda rows: pc.invert(expressions.same(rows.column(name), values(rows)))


def _fails(condition: Any) -> Test:
    return lambda rows: pc.invert(expressions.holds(condition, rows))
