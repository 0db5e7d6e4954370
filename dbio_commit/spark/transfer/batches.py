"""Has Spark pass rows to Python fast, in Arrow batches of bounded size.

Spark can bound a batch by its bytes. But it then measures the whole batch again for each row, which costs half as much
as all the rest. So Spark only counts rows here. To bound the bytes, a large row is followed by filler rows, as many as
ordinary rows fit in its place. Tasks drop the fillers.

In classic sessions, many rows are packed into one value (`packed`). Nested columns and Spark Connect use Spark's own
conversion. It is slowest for decimals, so these are passed as integers if Spark allows it.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
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

from dbio_commit.data.arrow import fitted
from dbio_commit.protocol.types import Family
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.session.errors import errors_of_workers
from dbio_commit.spark.session.held import holding, own
from dbio_commit.spark.session.schema import arrow_type, quoted, row_of, variants_of
from dbio_commit.spark.session.worker import ForWorkers
from dbio_commit.spark.transfer.arrow import FILLER, with_decimals, without_fillers
from dbio_commit.spark.transfer.packed import LONG_DIGITS, pack_rows, unpack_rows
from dbio_commit.spark.versions import column_of, expression_of

BATCH_BYTES = 32 * 1024 * 1024
_MOST_ROWS = 10_000
_FEWEST_ROWS = 64
_FIXED_BYTES = 16
"""An upper bound for the bytes of a value of fixed width, and for what any other value takes beside its content."""

# --- to Python and back --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How rows were packed, so that a task can unpack them."""

    OPTION: ClassVar = "packing"
    """The option of the stream sink that has a `Packing` as text. Only `dbio.write_stream` sets it."""

    schema: StructType | None = None
    """The columns before packing; None if nothing was packed."""
    in_values: bool = False
    """Whether each value has many rows, see `packed`."""
    coded: bool = False
    """Whether columns may have Arrow types that Spark does not use (dictionaries, decimals of 64 bits): files of these
    are written faster."""
    unscaled: tuple[int, ...] = ()
    """The positions of decimals that are passed as integers."""
    settings: Mapping[str, str] | None = None
    """The settings of the table by which rows were checked; None if they were not. If they were, the last column has
    the actions of the rows."""

    def unpack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as they were before packing, with columns by their positions."""
        if self.in_values:
            assert self.schema is not None
            return unpack_rows(batches, self.schema, coded=self.coded)
        fields = self.schema.fields if self.schema else []
        kinds = {i: arrow_type(fields[i].dataType) for i in self.unscaled}
        variants = variants_of(self.schema) if self.schema else {}
        return (fitted(with_decimals(without_fillers(batch), kinds), variants) for batch in batches)

    def to_option(self) -> str:
        """A text that `parse` reads in another process."""
        schema = self.schema and self.schema.jsonValue()
        fields = {"schema": schema, "in_values": self.in_values, "unscaled": self.unscaled, "settings": self.settings}
        return json.dumps(fields)

    @classmethod
    def parse(cls, text: str) -> "Packing":
        fields = json.loads(text)
        return cls(
            schema=StructType.fromJson(fields["schema"]),
            in_values=fields["in_values"],
            unscaled=tuple(fields["unscaled"]),
            settings=fields["settings"],
        )


def pack(
    df: DataFrame, settings: Mapping[str, str] | None = None, *, together: Collection[int] = (), coded: bool = False
) -> tuple[DataFrame, Packing]:
    """The rows, packed so that `arrow_batches` passes them on fast and in bounded memory. `settings`: see `Packing`.

    With `together`, the positions of columns, rows of a task that are equal in these columns arrive together. With
    `coded`, texts that repeat may come as dictionaries.
    """
    values = pack_rows(df, null_bytes=_row_bytes(df.schema), together=together, coded=coded)
    if values is not None:
        return values, Packing(schema=df.schema, in_values=True, coded=coded, settings=settings)
    frame, unscaled = _unscaled(weighted(df))
    return frame, Packing(schema=df.schema, unscaled=tuple(unscaled), settings=settings)


OnBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def in_tasks(
    rows: DataFrame,
    task: Callable[[OnBatches], OnBatches],
    schema: str,
    *,
    together: Collection[int] = (),
    coded: bool = False,
) -> list[Row]:
    """Runs tasks over the rows, and returns their results, which have this schema.

    `task` makes the function of a task from the function that unpacks its batches. `together`, `coded`: see `pack`.
    Raises the errors of dbio_commit that a task raises.
    """
    with arrow_batches(rows.sparkSession, rows.schema), errors_of_workers():
        packed, packing = pack(rows, together=together, coded=coded)
        return packed.mapInArrow(ForWorkers(task(packing.unpack)), schema).collect()


# --- smaller batches of large rows --------------------------------------------------------------------------------


def weighted(df: DataFrame) -> DataFrame:
    """The rows, with columns named by their numbers, and with filler rows if a column has no bounded width.

    A batch of `batch_rows` rows then has at most BATCH_BYTES, plus one row. Rows in which the added column FILLER is
    true hold no data.
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
    """The rows with decimals of up to 18 digits as integers, and the positions of these columns.

    `UnscaledValue` is an internal expression of Spark, without a name in SQL. Spark Connect knows expressions only by
    name, so decimals stay as they are there.
    """
    kinds = {i: it.dataType for i, it in enumerate(df.schema.fields) if isinstance(it.dataType, DecimalType)}
    fitting = [i for i, kind in kinds.items() if kind.precision <= LONG_DIGITS]
    spark = df.sparkSession
    jvm: Any = getattr(spark, "_jvm", None) if fitting and not is_connect(spark) else None
    if jvm is None:
        return df, []
    unscaled = java_class(jvm, "org.apache.spark.sql.catalyst.expressions.UnscaledValue")

    def whole(name: str) -> Any:
        return column_of(spark, unscaled(expression_of(spark, df[name]))).alias(name)

    return df.select(*(whole(name) if i in fitting else df[name] for i, name in enumerate(df.columns))), fitting


def _weight(kind: DataType, value: str) -> str | None:
    """SQL for the bytes of a value; None if the type bounds them."""
    match kind:
        case StructType():
            return _sum(_weight(field.dataType, _field(value, field.name)) for field in kind.fields)
        case ArrayType():
            return _weight_of_all(kind.elementType, value)
        case MapType():
            keys = _weight_of_all(kind.keyType, f"map_keys({value})")
            return f"{keys} + {_weight_of_all(kind.valueType, f'map_values({value})')}"
    row = row_of(kind)
    if row is None or row.has_fixed_width:
        return None
    text = f"to_json({value})" if row.family is Family.VARIANT else value  # no function has the bytes of a variant
    return f"coalesce(bigint(octet_length({text})), 0)"


def _field(value: str, name: str) -> str:
    """SQL for a field of a struct, or of each struct in an array. Escapes "${" in the name, which Spark would replace
    as a variable anywhere in SQL."""
    escaped = "".join(f"\\u{ord(it):04x}" if it in "${'\\" else it for it in name)
    return f"{value}['{escaped}']" if "${" in name else f"{value}.{quoted(name)}"


def _weight_of_all(kind: DataType, values: str) -> str:
    """SQL for the bytes of all values of an array, by functions on the whole array if Spark has them, which is fast."""
    places = f"coalesce(greatest(bigint(size({values})), 0), 0) * {_FIXED_BYTES}"
    match kind:
        case StringType() | CharType() | VarcharType():
            inside: str | None = f"coalesce(bigint(octet_length(array_join({values}, ''))), 0)"
        case BinaryType():
            inside = f"coalesce(bigint(octet_length(array_join(CAST({values} AS array<string>), ''))), 0)"
        case StructType():
            inside = _sum(_weight_of_all(field.dataType, _field(values, field.name)) for field in kind.fields)
        case _:
            each = _weight(kind, "x")
            inside = f"coalesce(aggregate({values}, 0L, (total, x) -> total + {each}), 0L)" if each else None
    return f"{places} + {inside}" if inside else places


def _sum(weights: Iterator[str | None]) -> str | None:
    return " + ".join(weight for weight in weights if weight) or None


def batch_rows(schema: StructType) -> int:
    """How many rows of fixed width a batch of BATCH_BYTES has."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, BATCH_BYTES // _fixed_bytes(schema)))


def _row_bytes(schema: StructType) -> int:
    """The bytes of an ordinary row: a full batch has BATCH_BYTES."""
    return BATCH_BYTES // batch_rows(schema)


def _fixed_bytes(kind: DataType) -> int:
    match kind:
        case StructType():
            return sum(_fixed_bytes(field.dataType) for field in kind.fields)
        case _:
            return _FIXED_BYTES


# --- the session's settings ---------------------------------------------------------------------------------------

_UNBOUNDED_BYTES = "2147483647"  # with any other value, the JVM measures the batch again for each row
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@contextmanager
def arrow_batches(spark: SparkSession, schema: StructType) -> Iterator[None]:
    """Within the block, the session bounds Arrow batches only by rows, which is fast. `pack` makes this bound bytes."""
    rows, configured = batch_rows(schema), int(own(spark, _RECORDS) or 0)
    rows = min(rows, configured) if configured > 0 else rows
    with holding(spark, {_BYTES: _UNBOUNDED_BYTES, _RECORDS: rows}):
        yield
