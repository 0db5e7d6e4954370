"""Has Spark check rows against a table's constraints, and fill in generated columns and defaults."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.data.conditions.proof import find_unproven
from dbio_commit.data.examples import describe_texts, shown
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.settings import change_settings
from dbio_commit.protocol.commits import Commit, recorded_files
from dbio_commit.protocol.constraints import Constraint, Constraints, unfit, violated
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.protocol.settings import CHECK, DEFAULT, GENERATED, change, check_changes
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.read.scan import scan_files, whole
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.held import without_case
from dbio_commit.spark.sql.conditions import check, holds, refuse_foreign
from dbio_commit.spark.sql.planned import Named, as_they_are
from dbio_commit.spark.sql.values import Fitted, as_type, assign
from dbio_commit.spark.write.actions import ACTION, VIOLATES, RowAction, row_action
from dbio_commit.spark.write.plan import WritePlan
from dbio_commit.table import Table


def rows_to_write(
    data: DataFrame,
    plan: WritePlan,
    actions: Column | None = None,
    named: Named = as_they_are,
    *,
    fills_nulls: bool = False,
) -> DataFrame:
    """The data with the table's columns, in its order, and ACTION. Fills in defaults and generated columns.

    Rows that violate a constraint get an action that says so (`checked`), and other rows get `actions`; None: INSERTED.
    `named` gives the rows the column ids that `actions` uses. With `fills_nulls`, nulls in generated columns are filled
    in, too. Raises InvalidInputError for constraints that Spark cannot evaluate for such rows.
    """
    rows, schema = _with_columns(data, plan.schema), plan.schema
    with without_case(data.sparkSession):
        bound = _BoundConstraints(data.sparkSession, plan.constraints, schema, where=plan.table.url)
        absent = {*plan.filled}
        rows = bound.with_defaults(rows, {name: name for name in bound.defaults if name in absent})
        for name, (value, _) in bound.generated.items():  # after the defaults, which they may use
            if name in absent:
                rows = rows.withColumn(name, value)
            elif fills_nulls:
                rows = rows.withColumn(name, f.coalesce(f.col(schemas.quoted(name)), value))
    rows = named(rows).withColumn(ACTION, row_action(RowAction.INSERTED if actions is None else actions))
    with without_case(data.sparkSession):
        return bound.check(rows, {})


def checked(
    rows: DataFrame, constraints: Constraints, schema: t.StructType, computed: Mapping[str, Column], *, where: str
) -> DataFrame:
    """The rows. An INSERTED or UPDATED row that violates constraint n gets the action VIOLATES + n.

    Rows have the table's columns and ACTION, and may have others. `computed` has, by generated column, a condition that
    is true for rows without a given value: these get the generated value.
    """
    if not constraints:
        return rows
    with without_case(rows.sparkSession):
        return _BoundConstraints(rows.sparkSession, constraints, schema, where=where).check(rows, computed)


def check_files(spark: SparkSession, plan: WritePlan, files: Sequence[FileInfo]) -> None:
    """Checks new files: by their statistics if these prove the constraints, else by reading them.

    Raises InvalidInputError for rows that violate a constraint.
    """
    _refuse_rows(spark, plan.table, plan.constraints, plan.schema, files)


def check_settings(spark: SparkSession, plan: WritePlan) -> None:
    """Raises InvalidInputError if Spark cannot evaluate the constraints and defaults that the write sets."""
    schema = plan.schema
    with without_case(spark):
        _BoundConstraints(spark, plan.constraints, schema, where=plan.table.url).check_all()


def constrain(spark: SparkSession, table: Table, changes: Mapping[str, str], *, note: Note = NO_NOTE) -> Commit:
    """Changes the constraints of a table, if all of its rows satisfy the new ones. `note` is for the commit.

    Raises InvalidInputError, CommitConflictError.
    """
    sets, snapshot = check_changes(changes), table.snapshot()
    schema = table_schema(table.store, snapshot)
    if schema is None:
        raise InvalidInputError(f"{table.url} holds no files and no recorded columns: write to it first")
    with without_case(spark):
        _BoundConstraints(spark, Constraints.of(change(snapshot.settings, sets)), schema, where=table.url).check_all()
    new = Constraints.of({name: text for name, text in sets.items() if text and snapshot.settings.get(name) != text})
    if new.each:
        _refuse_rows(spark, table, new, schema, _recorded(snapshot))
    return change_settings(table.store, table.clock, sets, if_match=snapshot.etag, note=note)


def _recorded(snapshot: Snapshot) -> Iterator[FileInfo]:
    """What the writer of each live file recorded, or else its path, size and partition."""
    for part in snapshot.slices():
        recorded = recorded_files(part.decided)
        for it in part.files:
            yield recorded.get(it.path) or FileInfo(path=it.path, size=it.size, partition=it.partition)


def _refuse_rows(
    spark: SparkSession,
    table: Table,
    constraints: Constraints,
    schema: t.StructType,
    files: Iterable[FileInfo],
) -> None:
    unproven = {file.path: file for _, file in find_unproven(files, constraints, schema.jsonValue())}
    listed = [DataFile(file.path, file.size, None, file.partition) for file in unproven.values()]
    if not listed:
        return
    rows = whole(scan_files(spark, table, listed, schema)).withColumn(ACTION, row_action(RowAction.INSERTED))
    bad = checked(rows, constraints, schema, {}, where=table.url).where(f.col(ACTION) >= VIOLATES)
    for number, count in sorted(bad.groupBy(ACTION).count().collect())[:1]:
        constraint, names = constraints.each[number - VIOLATES], schema.fieldNames()
        which = shown(constraint, names).values()
        texts = [_as_text(schema[name]) for name in which]  # made by Spark, since Python has fewer dates
        example = bad.where(f.col(ACTION) == number).select(*texts).limit(1).collect()[0]
        values = describe_texts(dict(zip(which, example, strict=True)))
        raise InvalidInputError(f"{violated(constraint, count, values, where=table.url)}; nothing was committed")


def with_defaults(rows: DataFrame, plan: WritePlan, columns: Mapping[str, str]) -> DataFrame:
    """The rows, with columns of defaults added. `columns`: by column of the table, the name of the added column."""
    with without_case(rows.sparkSession):
        bound = _BoundConstraints(rows.sparkSession, plan.constraints, plan.schema, where=plan.table.url)
        return bound.with_defaults(rows, columns)


def _as_text(field: t.StructField) -> Column:
    value = f.col(schemas.quoted(field.name))
    return f.concat(f.lit("'"), value, f.lit("'")) if isinstance(field.dataType, t.StringType) else value.cast("string")


_HIDDEN = "_dbio_column_"


class _BoundConstraints:
    """Constraints as columns of Spark, for rows of a schema. An empty DataFrame serves to check them."""

    def __init__(self, spark: SparkSession, constraints: Constraints, schema: t.StructType, *, where: str) -> None:
        if clash := next((name for name in schema.fieldNames() if name.lower() == ACTION), None):
            raise InvalidInputError(
                f"{where} has a column {clash}, a name that dbio uses itself to check rows; rename the column"
            )
        constraints.refuse_unsafe(where=where)
        constraints.refuse_unfit(schema.fieldNames(), where=where)
        self._nothing, self._schema, self._where = spark.createDataFrame([], schema), schema, where
        self._spark, self._constraints = spark, constraints
        self._fields = {field.name.lower(): field for field in schema.fields}
        self._refuse_foreign(self._nothing, CHECK, constraints.checks)

    @cached_property
    def generated(self) -> Mapping[str, Fitted]:
        """By generated column: its values, which depend on columns that are not generated."""
        own = {column.lower() for column in self._constraints.generated}
        others = self._nothing.select(
            *(f.col(schemas.quoted(field.name)) for name, field in self._fields.items() if name not in own)
        )
        return dict(self._values(GENERATED, self._constraints.generated, others))

    @cached_property
    def defaults(self) -> Mapping[str, Fitted]:
        """By column with a default: its values, which depend on no column."""
        one = self._spark.range(1).select(f.lit(1).alias(f"{_HIDDEN}0"))
        return dict(self._values(DEFAULT, self._constraints.defaults, one))

    def with_defaults(self, rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
        """The rows, and for each table column in `columns` its default, under the name that `columns` gives.

        A column of the rows with that name is replaced.
        """
        if not columns:
            return rows
        # Rename the columns first: else a default such as `current_date` would mean a column of that name.
        hidden = rows.toDF(*(f"{_HIDDEN}{i}" for i in range(len(rows.columns))))
        taken = {*columns.values()}
        own = [f.col(f"{_HIDDEN}{i}").alias(name) for i, name in enumerate(rows.columns) if name not in taken]
        return hidden.select(*own, *(self.defaults[name][0].alias(other) for name, other in columns.items()))

    def _refuse_foreign(self, rows: DataFrame, kind: str, given: Mapping[str, str]) -> None:
        """All at once, since each analysis takes milliseconds. If that fails, one by one, to name the wrong one."""
        if not given:
            return
        with suppress(PySparkException, InvalidInputError):
            return refuse_foreign(rows, given.values())
        for name, sql in given.items():
            with self._explained(f"{kind}.{name}", sql):
                refuse_foreign(rows, [sql])

    def _values(self, which: str, given: Mapping[str, str], rows: DataFrame) -> Iterator[tuple[str, Fitted]]:
        self._refuse_foreign(rows, which, given)
        for column, sql in given.items():
            field = self._fields[column.lower()]
            with self._explained(f"{which}.{column}", sql):
                if which == GENERATED:
                    check(rows, f"({sql}\n) IS NULL", name=f"{which}.{column}")
                value, misfit = assign(lambda: rows, [(sql, field)])[field.name].fitted()
                if which == DEFAULT and misfit is not None and not rows.where(misfit).isEmpty():
                    raise InvalidInputError(
                        f"column {field.name!r} is {field.dataType.simpleString()}, and cannot hold this value"
                    )
                yield field.name, (value, misfit)

    def violation(self, constraint: Constraint) -> Column:
        """Whether a row violates the constraint."""
        if constraint.column is None:
            sql = str(constraint.sql)
            with self._explained(constraint.setting, sql):
                check(self._nothing, sql, name=constraint.setting)
            return ~holds(sql)
        name = self._fields[constraint.column.lower()].name
        column = f.col(schemas.quoted(name))
        if constraint.sql is None:
            return column.isNull()
        value, misfit = self.generated[name]
        differs = ~column.eqNullSafe(value)
        with self._explained(constraint.setting, constraint.sql):
            self._nothing.select(differs).schema  # noqa: B018  (a map cannot be compared)
        return differs if misfit is None else differs | misfit

    def check(self, rows: DataFrame, computed: Mapping[str, Column]) -> DataFrame:
        is_new = f.col(ACTION).isin(int(RowAction.INSERTED), int(RowAction.UPDATED))
        columns = []
        for name in self._schema.fieldNames():
            own = f.col(schemas.quoted(name))
            if name in computed:
                own = f.when(is_new & computed[name], self.generated[name][0]).otherwise(own)
            columns.append(own.alias(name))
        others = [name for name in rows.columns if name.lower() not in {*self._fields, ACTION}]
        rows = rows.select(*columns, ACTION, *map(schemas.quoted, others))
        actions: Column = f.col(ACTION)
        for i, constraint in reversed([*enumerate(self._constraints.each)]):
            actions = f.when(is_new & self.violation(constraint), VIOLATES + i).otherwise(actions)
        return rows.withColumn(ACTION, row_action(actions))

    def check_all(self) -> None:
        """Raises InvalidInputError for a constraint that Spark cannot evaluate."""
        for constraint in self._constraints.each:
            self.violation(constraint)
        self.defaults  # noqa: B018

    @contextmanager
    def _explained(self, setting: str, sql: str) -> Iterator[None]:
        try:
            yield
        except (PySparkException, DbioError) as error:
            raise InvalidInputError(unfit(setting, sql, _first_line(error), where=self._where)) from None


def _with_columns(data: DataFrame, schema: t.StructType) -> DataFrame:
    """The data with the table's columns, in the names, order and types that constraints refer to."""
    given = {field.name.lower(): field for field in data.schema.fields}
    columns = []
    for field in schema.fields:
        own = given.get(field.name.lower())
        if own is None:
            column = f.lit(None).cast(field.dataType)
        else:
            column = as_type(f.col(schemas.quoted(own.name)), own.dataType, field.dataType)
        columns.append(column.alias(field.name))
    return data.select(*columns)


def _first_line(error: Exception) -> str:
    """The message without the plan that Spark adds to it."""
    return f"{str(error).strip().partition(chr(10))[0]:.300}"
