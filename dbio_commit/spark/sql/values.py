"""Values in Spark's SQL, as columns have them."""

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
from dbio_commit.spark.sql.sight import read_as

Fitted = tuple[Column, Column | None]
"""A value as its column has it, and whether it does not fit, where that can be."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A value that a column is given."""

    value: "Value"
    can_misfit: bool
    _fit: Callable[[Column], Fitted]

    def fitted(self, given: Column | None = None) -> Fitted:
        """`given` is what the value is among some rows, where that is not told by its text alone."""
        return self._fit(_column(self.value) if given is None else given)


def refuse_no_texts(values: Mapping[str, object]) -> None:
    """Raises InvalidInputError for what a caller gives a column, and is no expression."""
    for column, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise InvalidInputError(
                f"the value {value!r:.200} of column {column!r} is no text; give an expression in Spark's SQL, "
                'such as "n + 1" or "\'new\'"'
            )


Value = str | Column
"""What a caller gives in Spark's SQL; or a column of the rows, whose name must not become a text of SQL."""


def assign(
    rows: DataFrame, values: Sequence[tuple[Value, t.StructField]], *, exact: Collection[str] = ()
) -> dict[str, Assigned]:
    """By column, the values that these are given.

    `rows` are what the values may go by. Types fit as for Spark's INSERT; whether a number is too large is found by
    row, and so is, in the columns that are `exact`, whether a cast makes another value of it. Raises InvalidInputError,
    SchemaMismatchError, and Spark's errors for what is wrong in a value.
    """
    if not values:
        return {}
    try:
        kinds = _kinds(rows, [value for value, _ in values])  # of all at once, since each look takes some milliseconds
    except AnalysisException:
        kinds = [_kind(rows, value, field) for value, field in values]  # which says whose fault it is
    if texts := [value for value, _ in values if isinstance(value, str)]:
        refuse_queries(rows.select(*map(f.expr, texts)), texts, name="value")
    return {
        field.name: _fit(rows, value, field, kind, exact=field.name in exact)
        for (value, field), kind in zip(values, kinds, strict=True)
    }


def _column(value: Value) -> Column:
    return f.expr(value) if isinstance(value, str) else value


def _kinds(rows: DataFrame, values: Sequence[Value]) -> list[t.DataType]:
    given = [_column(value) for value in values]
    kinds = [field.dataType for field in rows.select(*(it.alias(str(i)) for i, it in enumerate(given))).schema]
    rows.where(reduce(or_, (it.isNotNull() for it in given))).schema  # noqa: B018  (over Connect, that looks for errors)
    return kinds


def _kind(rows: DataFrame, value: Value, field: t.StructField) -> t.DataType:
    kind = rows.select(_column(value)).schema[0].dataType
    try:
        rows.where(_column(value).isNotNull()).schema  # noqa: B018  (as above)
    except AnalysisException as error:
        raise InvalidInputError(
            f"the value {value!r:.200} of column {field.name!r} does not go by one row ({error.getCondition()}); "
            "look at the rows first, and give what you find"
        ) from None
    return kind


def _fit(rows: DataFrame, value: Value, field: t.StructField, kind: t.DataType, *, exact: bool) -> Assigned:
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
            f"column {field.name!r} has the type {own.simpleString()}, and {value!r:.200} the type "
            f"{kind.simpleString()}, which it does not take; cast it in the expression"
        )
    among = read_as(rows, ["*"], [value])[0] if isinstance(value, str) else value
    if not is_deterministic(rows, among.isNotNull()):
        raise InvalidInputError(
            f"the value {value!r:.200} of column {field.name!r} is another each time, and has the type "
            f"{kind.simpleString()}; cast it to {own.simpleString()} in the expression"
        )
    if fits:
        return Assigned(value, False, lambda given: (as_type(given, kind, own), None))

    def fit(given: Column) -> Fitted:
        fitted = given.try_cast(own)
        misfit = fitted.isNull() | (fitted != given) if exact else fitted.isNull()
        return fitted, given.isNotNull() & misfit

    return Assigned(value, True, fit)


_TIMES = (t.DateType, t.TimestampType, t.TimestampNTZType)


def as_type(value: Column, own: t.DataType, wanted: t.DataType) -> Column:
    """The value, of its `own` type, in another that holds all of it; fields go by name, where a cast goes by place."""
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
