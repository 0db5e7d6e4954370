"""Do the rows of new files keep a table's constraints, judged by partitions and statistics? Pure.

`pruning` asks whether any row may fulfil a condition. This module asks whether all rows must.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.base.packages import needs
from dbio_commit.data.conditions.pruning import column_types, facts_of_file
from dbio_commit.data.conditions.tree import UNKNOWN, Condition, IsNull
from dbio_commit.protocol.constraints import Constraint, Constraints
from dbio_commit.protocol.markers.files import FileInfo


def find_unproven(
    files: Iterable[FileInfo], constraints: Constraints, schema: Mapping[str, Any] | None
) -> list[tuple[Constraint, FileInfo]]:
    """For each constraint, the files that may hold a row which violates it. `schema` has the columns, as Spark's JSON.

    Raises MissingPackageError without sqlglot if there are conditions to read.
    """
    schema = schema or {}
    types = column_types(schema)
    conditions = [(it, _condition(it, schema)) for it in constraints.each]
    return [
        (constraint, file)
        for file in files
        if file.rows != 0
        for constraint, condition in conditions
        if not condition.must_hold(facts_of_file(file, condition.columns(), types))
    ]


def refuse_unproven(
    files: Sequence[FileInfo], constraints: Constraints, schema: Mapping[str, Any] | None, *, where: str
) -> None:
    """Raises InvalidInputError for the first such file."""
    for constraint, file in find_unproven(files, constraints, schema)[:1]:
        raise InvalidInputError(
            f"the statistics of {file.path} do not prove that its rows keep {constraint.says} of {where}; "
            "nothing was committed: write the rows with dbio.write, which looks at each row, or check them yourself, "
            "and call vouch_for_rows() before the commit"
        )


def refuse_unprovable(constraints: Constraints, schema: Mapping[str, Any] | None, *, where: str) -> None:
    """Raises InvalidInputError, before anything is written, for a constraint that statistics can never prove."""
    for constraint in constraints.each:
        if not _condition(constraint, schema or {}).is_provable:
            raise InvalidInputError(
                f"this way to write cannot check whether rows keep {constraint.says} of {where}, which the "
                "statistics of files do not show; nothing was written: use dbio.write, dbio.write_stream or "
                "dbio.batch_writer, which look at each row"
            )


def _condition(constraint: Constraint, schema: Mapping[str, Any]) -> Condition:
    """The condition that holds for each row that keeps the constraint."""
    if constraint.sql is None:
        names = {field["name"].lower(): field["name"] for field in schema.get("fields", ())}
        column = str(constraint.column)
        return IsNull(names.get(column.lower(), column), False)
    if constraint.column is not None:
        return UNKNOWN
    with needs(f"a write to a table with the setting {constraint.setting}"):
        from dbio_commit.data.conditions.sql import parse_where
    try:
        return parse_where(constraint.sql, schema, zone=None)
    except InvalidInputError:  # Spark reads more of its SQL than sqlglot
        return UNKNOWN
