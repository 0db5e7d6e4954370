"""Checks values in Spark's SQL against the types of the columns that get them, and converts them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.sql.conditions import is_deterministic, refuse_queries
from dbio_commit.spark.sql.name_resolution import read_as
from dbio_commit.spark.sql.planned import Planned
from dbio_commit.spark.versions import error_condition, try_cast

_Rows = Callable[[], DataFrame]

Fitted = tuple[Column, Column | None]
"""A value converted to the type of its column, and a condition that is true if it does not fit (None: never)."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A value that a column gets."""

    value: "SqlValue"
    can_misfit: bool
    _fit: Callable[[Column], Fitted]

    def is_as(self, other: "Assigned") -> bool:
        """Whether both are certainly the same column, whose values always fit."""
        if self.can_misfit or other.can_misfit:
            return False
        if isinstance(self.value, Planned) and isinstance(other.value, Planned):
            return self.value.id is not None and self.value.id == other.value.id
        return self.value is other.value and not isinstance(self.value, str)

    def fitted(self, given: Column | None = None) -> Fitted:
        """The value for its column. `given` is the value as a column of some rows; None: `value` itself."""
        return self._fit(_column(self.value) if given is None else given)


def refuse_no_texts(values: Mapping[str, object]) -> None:
    """Raises InvalidInputError for a value that is neither text nor analysed."""
    for column, value in values.items():
        if isinstance(value, Planned | InFields):
            continue
        if not isinstance(value, str) or not value.strip():
            raise InvalidInputError(
                f"the value {value!r:.200} of column {column!r} is no text; give an expression in Spark's SQL, "
                'such as "n + 1" or "\'new\'"'
            )


@dataclass(frozen=True, slots=True)
class InFields:
    """New values for fields of a struct column. The other fields keep their values; a null becomes a struct."""

    own: Planned
    """The column."""
    values: Mapping[tuple[str, ...], Planned]
    """The new values, by path: the names of fields from the column down."""


SqlValue = str | Column | Planned | InFields
"""An expression of the caller, in Spark's SQL or analysed; or a column of the rows, which is not turned into SQL."""


def assign(
    rows: _Rows, values: Sequence[tuple[SqlValue, t.StructField]], *, exact: Collection[str] = ()
) -> dict[str, Assigned]:
    """Checks the values that columns get, and returns them by column.

    Texts may use the columns of the empty DataFrame that `rows` returns; analysed values need none. Types must fit as
    for Spark's INSERT. Spark checks row by row whether a number is too large and, for the columns `exact`, whether the
    cast changes it. Raises InvalidInputError, SchemaMismatchError, and Spark's errors for an invalid value.
    """
    planned = {
        field.name: _fit_fields(rows, value, field)
        if isinstance(value, InFields)
        else _fit(rows, value, field, value.type, exact=field.name in exact)
        for value, field in values
        if isinstance(value, Planned | InFields)
    }
    values = [(value, field) for value, field in values if field.name not in planned]
    if not values:
        return planned
    try:
        kinds = _kinds(rows(), [value for value, _ in values])  # all at once, since each analysis takes milliseconds
    except AnalysisException:
        kinds = [_kind(rows(), value, field) for value, field in values]  # one by one: the error names the value
    if texts := [value for value, _ in values if isinstance(value, str)]:
        refuse_queries(rows().select(*map(f.expr, texts)), texts, name="value")
    return planned | {
        field.name: _fit(rows, value, field, kind, exact=field.name in exact)
        for (value, field), kind in zip(values, kinds, strict=True)
    }


def _column(value: SqlValue) -> Column:
    match value:
        case str():
            return f.expr(value)
        case Planned():
            return value.column
        case InFields():
            return value.own.column
    return value


def _kinds(rows: DataFrame, values: Sequence[SqlValue]) -> list[t.DataType]:
    given = [_column(value) for value in values]
    kinds = [field.dataType for field in rows.select(*(it.alias(str(i)) for i, it in enumerate(given))).schema]
    rows.where(reduce(or_, (it.isNotNull() for it in given))).schema  # noqa: B018  (over Connect, that looks for errors)
    return kinds


def _kind(rows: DataFrame, value: SqlValue, field: t.StructField) -> t.DataType:
    kind = rows.select(_column(value)).schema[0].dataType
    try:
        rows.where(_column(value).isNotNull()).schema  # noqa: B018  (as above)
    except AnalysisException as error:
        if error_condition(error) == "INVALID_USAGE_OF_STAR_OR_REGEX":  # of any * before Spark 4.0
            raise InvalidInputError(
                f"the value {value!r:.200} of column {field.name!r} has a *, which this Spark does not take there: "
                "name the columns instead; nothing was written"
            ) from None
        raise InvalidInputError(
            f"the value {value!r:.200} of column {field.name!r} does not depend on one row alone "
            f"({error_condition(error)}); compute it from the rows first, and give the result"
        ) from None
    return kind


def _fit(rows: _Rows, value: SqlValue, field: t.StructField, kind: t.DataType, *, exact: bool) -> Assigned:
    own = field.dataType
    if kind.simpleString() == own.simpleString():
        return Assigned(value, False, lambda given: (given, None))
    fits = isinstance(kind, t.NullType) or schemas.merged(kind, own, merge=False, widen=False) == own
    if fits and isinstance(kind, t.AtomicType | t.NullType):
        return Assigned(value, False, lambda given: (given.cast(own), None))
    numbers = isinstance(kind, t.NumericType) and isinstance(own, t.NumericType)
    times = isinstance(kind, _TIMES) and isinstance(own, _TIMES)
    texts = isinstance(kind, t.AtomicType) and isinstance(own, t.StringType)
    if not (fits or numbers or times or texts):
        raise SchemaMismatchError(
            f"column {field.name!r} has the type {own.simpleString()}, which cannot take {value!r:.200} of the type "
            f"{kind.simpleString()}; cast it in the expression"
        )
    if not _is_deterministic(rows, value):
        raise InvalidInputError(
            f"the value {value!r:.200} of column {field.name!r} is not deterministic, and has the type "
            f"{kind.simpleString()}; cast it to {own.simpleString()} in the expression"
        )
    if fits:
        return Assigned(value, False, lambda given: (as_type(given, kind, own), None))

    def fit(given: Column) -> Fitted:
        fitted = try_cast(given, own)
        misfit = fitted.isNull() | (fitted != given) if exact else fitted.isNull()
        return fitted, given.isNotNull() & misfit

    return Assigned(value, True, fit)


def _is_deterministic(rows: _Rows, value: SqlValue) -> bool:
    if isinstance(value, Planned):
        return value.is_deterministic
    nothing = rows()
    among = read_as(nothing, ["*"], [value])[0] if isinstance(value, str) else _column(value)
    return is_deterministic(nothing, among.isNotNull())


def _fit_fields(rows: _Rows, value: InFields, field: t.StructField) -> Assigned:
    """The column with its new fields, each fitted to its type."""
    fitted: dict[tuple[str, ...], Fitted] = {}
    for path, given in value.values.items():
        kind: t.DataType = field.dataType
        for name in path:
            kind = _member(kind, name, field)
        leaf = t.StructField(".".join((field.name, *path)), kind)
        fitted[path] = _fit(rows, given, leaf, given.type, exact=False).fitted()
    misfits = [misfit for _, misfit in fitted.values() if misfit is not None]
    whole = _with_fields(value.own.column, field.dataType, (), {path: column for path, (column, _) in fitted.items()})
    return Assigned(value, bool(misfits), lambda _: (whole, reduce(or_, misfits) if misfits else None))


def _member(kind: t.DataType, name: str, field: t.StructField) -> t.DataType:
    found = kind[name].dataType if isinstance(kind, t.StructType) and name in kind.fieldNames() else None
    if found is None:
        raise InvalidInputError(f"column {field.name!r} has no field {name!r:.100} that can be set by itself")
    return found


def _with_fields(own: Column, kind: t.DataType, path: tuple[str, ...], new: Mapping[tuple[str, ...], Column]) -> Column:
    if path in new:
        return new[path]
    if not isinstance(kind, t.StructType) or not any(it[: len(path)] == path for it in new):
        return own
    return f.struct(
        *(_with_fields(own.getField(it.name), it.dataType, (*path, it.name), new).alias(it.name) for it in kind.fields)
    )


_TIMES = (t.DateType, t.TimestampType, t.TimestampNTZType)


def as_type(value: Column, own: t.DataType, wanted: t.DataType) -> Column:
    """The value, of the type `own`, as the type `wanted`, which can hold it. Fields match by name, not by position."""
    own = schemas.plain(own)
    match own, wanted:
        case _ if own == wanted:
            return value
        case t.StructType(), t.StructType():
            given = {field.name.lower(): field for field in own.fields}
            parts = [
                as_type(value.getField(it.name), it.dataType, field.dataType).alias(field.name)
                if (it := given.get(field.name.lower()))
                else f.lit(None).cast(field.dataType).alias(field.name)
                for field in wanted.fields
            ]
            return f.when(value.isNotNull(), f.struct(*parts))
        case t.ArrayType(), t.ArrayType():
            return f.transform(value, lambda it: as_type(it, own.elementType, wanted.elementType))
        case t.MapType(), t.MapType():
            keys = f.transform_keys(value, lambda key, _: as_type(key, own.keyType, wanted.keyType))
            return f.transform_values(keys, lambda _, it: as_type(it, own.valueType, wanted.valueType))
    return value.cast(wanted)
