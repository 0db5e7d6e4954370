"""The Arrow batches in which Spark hands rows to Python: of a size that is fast and has a bound, and cheap to make.

Spark can bound a batch by its bytes, but then measures the whole batch again for every row, which costs half as much as
all the rest. So it is told to count rows only, and rows are made to count for what they weigh: behind a heavy row come
as many rows of fillers as there would have been ordinary rows in its place. Tasks drop them.

On classic sessions, rows go in values of many rows each (`packed`). Spark's own conversion is for nested columns, and
for Spark Connect. Decimals are what it converts slowest, so where Spark lets us, they go as whole numbers.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.session.held import holding, own
from dbio_commit.spark.session.schema import arrow_type, quoted, row_of
from dbio_commit.spark.ship.arrow import FILLER, with_decimals, without_fillers
from dbio_commit.spark.ship.packed import LONG_DIGITS, pack_rows, unpack_rows

BATCH_BYTES = 32 * 1024 * 1024
_MOST_ROWS = 10_000
_FEWEST_ROWS = 64
_FIXED_BYTES = 16
"""Of a value whose width does not depend on it, and of the place of any other; guessed high."""

# --- to Python and back --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How rows are packed for batches, and what a task must do to have them as they were."""

    OPTION: ClassVar = "packing"
    """Of the stream sink; set by `streaming.write_stream`, and by nobody else."""

    schema: StructType | None = None
    """The columns as they were; None where nothing was packed."""
    in_values: bool = False
    """Whether many rows are in one value."""
    coded: bool = False
    """Whether its columns may have other types of Arrow's than Spark gives them, which a file is written of faster."""
    unscaled: tuple[int, ...] = ()
    """The positions of decimals that go as whole numbers."""
    settings: Mapping[str, str] | None = None
    """Where the last column tells the fates of rows: by which settings of the table they were checked."""

    def unpack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that were packed; columns are told by their positions."""
        if self.in_values:
            assert self.schema is not None
            return unpack_rows(batches, self.schema, coded=self.coded)
        kinds = {i: arrow_type(self.schema.fields[i].dataType) for i in self.unscaled} if self.schema else {}
        return (with_decimals(without_fillers(batch), kinds) for batch in batches)

    def to_option(self) -> str:
        """For `parse`, in another process."""
        schema = self.schema and self.schema.jsonValue()
        told = {"schema": schema, "in_values": self.in_values, "unscaled": self.unscaled, "settings": self.settings}
        return json.dumps(told)

    @classmethod
    def parse(cls, text: str) -> "Packing":
        told = json.loads(text)
        return cls(
            schema=StructType.fromJson(told["schema"]),
            in_values=told["in_values"],
            unscaled=tuple(told["unscaled"]),
            settings=told["settings"],
        )


def pack(
    df: DataFrame, settings: Mapping[str, str] | None = None, *, together: Collection[int] = (), coded: bool = False
) -> tuple[DataFrame, Packing]:
    """The rows, ready for `arrow_batches` to hand them over fast and in bounded memory; `settings` as in `Packing`.

    Those of a task may come in another order: `together` where they are equal in the columns at these positions. Texts
    that repeat may come as dictionaries where they may be `coded`.
    """
    values = pack_rows(df, null_bytes=_row_bytes(df.schema), together=together, coded=coded)
    if values is not None:
        return values, Packing(schema=df.schema, in_values=True, coded=coded, settings=settings)
    frame, unscaled = _unscaled(weighted(df))
    return frame, Packing(schema=df.schema, unscaled=tuple(unscaled), settings=settings)


# --- rows count for what they weigh -------------------------------------------------------------------------------


def weighted(df: DataFrame) -> DataFrame:
    """The rows, with columns named by their numbers, ready for batches of bounded size.

    Their order and number are such that a batch of `batch_rows` holds no more than BATCH_BYTES and one row. Where a
    column has no bounded width, a column FILLER is added, and rows in which it is true are none of the data.
    """
    numbered = df.toDF(*map(str, range(len(df.columns))))  # mapInArrow cannot resolve a name such as "a.b"
    weights = {name: _weight(df.schema.fields[int(name)].dataType, f"`{name}`") for name in numbered.columns}
    weighing = [weight for weight in weights.values() if weight]
    if not weighing:
        return numbered
    unit = _row_bytes(df.schema)
    weight = " + ".join(weighing)
    fillers = f"IF({weight} >= {unit}, sequence(0, int(({weight}) div {unit})), array(0))"
    columns = [f"IF({FILLER} = 0, `{name}`, NULL) AS `{name}`" if weights[name] else f"`{name}`" for name in weights]
    return numbered.selectExpr("*", f"explode({fillers}) AS {FILLER}").selectExpr(*columns, f"{FILLER} > 0 AS {FILLER}")


def _unscaled(df: DataFrame) -> tuple[DataFrame, list[int]]:
    """The rows with decimals of up to 18 digits as whole numbers, and the positions of these.

    `UnscaledValue` is an expression of Spark's own, for its sums of decimals, and has no name in SQL. Over Connect,
    which knows names only, decimals stay what they are.
    """
    kinds = {i: it.dataType for i, it in enumerate(df.schema.fields) if isinstance(it.dataType, DecimalType)}
    fitting = [i for i, kind in kinds.items() if kind.precision <= LONG_DIGITS]
    jvm: Any = getattr(df.sparkSession, "_jvm", None) if fitting and not is_connect(df.sparkSession) else None
    if jvm is None:
        return df, []
    from pyspark.sql.classic.column import Column

    unscaled = java_class(jvm, "org.apache.spark.sql.catalyst.expressions.UnscaledValue")
    utils = java_class(jvm, "org.apache.spark.sql.classic.ExpressionUtils")

    def whole(name: str) -> Any:
        return Column(utils.column(unscaled(utils.expression(df[name]._jc)))).alias(name)

    return df.select(*(whole(name) if i in fitting else df[name] for i, name in enumerate(df.columns))), fitting


def _weight(kind: DataType, value: str) -> str | None:
    """SQL for the bytes of a value, or None where their number has a bound anyway."""
    match kind:
        case StructType():
            return _sum(_weight(field.dataType, _field(value, field.name)) for field in kind.fields)
        case ArrayType():
            return _weight_of_all(kind.elementType, value)
        case MapType():
            keys = _weight_of_all(kind.keyType, f"map_keys({value})")
            return f"{keys} + {_weight_of_all(kind.valueType, f'map_values({value})')}"
    row = row_of(kind)
    return f"coalesce(bigint(octet_length({value})), 0)" if row and not row.has_fixed_width else None


def _field(value: str, name: str) -> str:
    """SQL for a field of a struct, or of each in an array, whatever its name is: also one that Spark takes for a
    variable, as it takes any text of SQL that holds a dollar and a brace."""
    escaped = "".join(f"\\u{ord(it):04x}" if it in "${'\\" else it for it in name)
    return f"{value}['{escaped}']" if "${" in name else f"{value}.{quoted(name)}"


def _weight_of_all(kind: DataType, values: str) -> str:
    """SQL for the bytes of all values of an array: by what Spark does at once for all of them, where there is such."""
    places = f"coalesce(greatest(bigint(size({values})), 0), 0) * {_FIXED_BYTES}"
    match kind:
        case StringType() | CharType() | VarcharType():
            inside: str | None = f"coalesce(bigint(octet_length(array_join({values}, ''))), 0)"
        case BinaryType():
            inside = f"coalesce(bigint(octet_length(array_join(CAST({values} AS array<string>), ''))), 0)"
        case StructType():
            inside = _sum(_weight_of_all(field.dataType, _field(values, field.name)) for field in kind.fields)
        case ArrayType() | MapType():
            each = _weight(kind, "x")
            inside = f"coalesce(aggregate({values}, 0L, (total, x) -> total + {each}), 0L)"
        case _:
            inside = None
    return f"{places} + {inside}" if inside else places


def _sum(weights: Iterator[str | None]) -> str | None:
    return " + ".join(weight for weight in weights if weight) or None


def batch_rows(schema: StructType) -> int:
    """So many rows that a batch stays below BATCH_BYTES, as far as the columns' types tell."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, BATCH_BYTES // _fixed_bytes(schema)))


def _row_bytes(schema: StructType) -> int:
    """What a row may have in a batch that is full by its rows and by its bytes."""
    return BATCH_BYTES // batch_rows(schema)


def _fixed_bytes(kind: DataType) -> int:
    match kind:
        case StructType():
            return sum(_fixed_bytes(field.dataType) for field in kind.fields)
        case _:
            return _FIXED_BYTES


# --- the session's settings ---------------------------------------------------------------------------------------

_UNBOUNDED_BYTES = "2147483647"  # any other value makes the JVM measure the batch again for every row
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@contextmanager
def arrow_batches(spark: SparkSession, schema: StructType) -> Iterator[None]:
    """Within, the session hands Arrow batches to Python at full speed: bounded by their rows, which `pack` sees to."""
    rows, configured = batch_rows(schema), int(own(spark, _RECORDS) or 0)
    rows = min(rows, configured) if configured > 0 else rows
    with holding(spark, {_BYTES: _UNBOUNDED_BYTES, _RECORDS: rows}):
        yield
