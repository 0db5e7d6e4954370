"""Many rows in one value, column by column as Arrow has them: how rows get to Python fastest.

Spark's own conversion to Arrow goes value by value, and costs as much as all that Python does with the rows. Classes of
ours in the JVM make values of about a megabyte of them, which Spark hands over like any other: `PackRows` is what a
query asks for, `Packer` what a task does; `PackColumns` has it do so to a scan's columns, where there are such, so that
nothing makes rows of them. The numbers of a value have the lowest byte first, and each part begins at a multiple of 8:

    int32 rows, int32 whether they complete their groups
    of each column: int32 nulls, int32 end of its parts
    of each column: where there are nulls, a bit for each row, set where there is a value; then
        the values; or of texts:
            int32 codes, or -1; then, in the place of the rows' texts, those that the codes stand for, if there are any
            the ends of the texts, from 0 on, and their bytes
            of each row a code, in one byte

Texts that repeat come as codes where that is asked for: so they need not be hashed again for the file's dictionary.

Where rows are to be put together by some columns, they are held back, as Spark's own sort would, in the memory
that Spark gives to tasks. Most groups then come whole, one after the other, and Python need not put their rows aside.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import PACK_ROWS, is_ready
from dbio_commit.spark.session.schema import arrow_type, row_of
from dbio_commit.spark.ship.arrow import completing, scaled

VALUE_BYTES = 1024 * 1020
"""Where a value ends; a single row may be larger. Small enough for a processor's cache, through which Spark copies it
several times, and large enough that Python has little to do for each. A little less than a megabyte, since Java's
collector gives a large array whole regions of the heap, of a megabyte or so, and its head needs room, too."""
LONG_DIGITS = 18
"""Of the decimals that are whole numbers of 64 bits to Spark."""

SHORT_DECIMALS = int(pa.__version__.partition(".")[0]) >= 22
"""Whether this pyarrow writes decimals of 64 bits to Parquet; where it does not, they are made of 128 for it."""

_SLOWER = "rows go to Python by Spark's own conversion, which takes longer"

# --- in the JVM ---------------------------------------------------------------------------------------------------


def pack_rows(
    df: DataFrame, *, null_bytes: int, together: Collection[int] = (), coded: bool = False
) -> DataFrame | None:
    """The rows in values, the only column; None where columns have no such form, or Spark does not take the class.

    Behind each value come nulls, each of which stands for so many bytes of it. Rows that are equal in the columns at
    the positions `together` come together, in their order, as far as there is memory for it. Other columns whose texts
    repeat come as dictionaries where they may be `coded`.
    """
    kinds = [_kind(field.dataType) for field in df.schema.fields]
    if coded:
        kinds = ["t" if kind == "v" and at not in together else kind for at, kind in enumerate(kinds)]
    if None in kinds or not is_ready(df.sparkSession, PACK_ROWS, without=_SLOWER):
        return None
    from pyspark.sql.classic.column import Column

    jvm: Any = df.sparkSession._jvm
    java_class(jvm, "dbio_commit.PackColumns").planIn(df.sparkSession._jsparkSession.experimental())
    columns = df._jdf.queryExecution().analyzed().output()  # whatever their names are
    groups = "".join("g" if position in together else "-" for position in range(len(kinds)))
    packed = java_class(jvm, PACK_ROWS.name)(columns, "".join(filter(None, kinds)), groups, VALUE_BYTES, null_bytes)
    return df.select(Column(java_class(jvm, "org.apache.spark.sql.classic.ExpressionUtils").column(packed)))


def _kind(of: t.DataType) -> str | None:
    """How Java tells them apart."""
    row = row_of(of)
    if isinstance(of, t.DecimalType) and of.precision <= LONG_DIGITS:
        return "l"
    return (row.packed or None) if row else None


# --- in Python ----------------------------------------------------------------------------------------------------


def unpack_rows(
    batches: Iterator[pa.RecordBatch], schema: t.StructType, *, coded: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, with columns that are named by their numbers, and the same types in all batches.

    Where they may be `coded`, texts that repeat may be dictionaries, and decimals of up to 18 digits have 64 bits.
    Nothing is copied but codes and, where they may not, such decimals. Batches that complete their groups are
    `arrow.completing`.
    """
    columns = [(_kind(field.dataType), arrow_type(field.dataType)) for field in schema.fields]
    if coded and SHORT_DECIMALS:
        columns = [(kind, _short(arrow) if kind == "l" else arrow) for kind, arrow in columns]
    texts = {at: _Texts(arrow) for at, (kind, arrow) in enumerate(columns) if kind == "v"}
    for batch in batches:
        values: Any = batch.column(0)
        for place in pc.indices_nonzero(values.is_valid()).to_pylist():  # all else is there for its number
            yield _unpack(values[place].as_buffer(), columns, texts)


def _unpack(value: Any, columns: list[tuple[str | None, pa.DataType]], texts: Mapping[int, "_Texts"]) -> pa.RecordBatch:
    rows, completes = struct.unpack_from("<ii", value)
    heads = struct.unpack_from(f"<{2 * len(columns)}i", value, 8)
    at, arrays = 8 + 8 * len(columns), list[Any]()
    for (kind, arrow), nulls, end in zip(columns, heads[::2], heads[1::2], strict=True):
        valid = None
        if nulls:
            valid, at = value.slice(at), at + _padded(-(-rows // 8))
        if kind == "v":
            arrays.append(texts[len(arrays)].array(value.slice(at, end - at), rows, valid, nulls))
        else:
            arrays.append(_array(arrow, kind, rows, [valid, value.slice(at, end - at)], nulls))
        at = end
    batch = pa.RecordBatch.from_arrays(arrays, names=list(map(str, range(len(arrays)))))
    return completing(batch) if completes else batch


class _Texts:
    """A column of texts in the values of a task: all dictionaries, or none, as it is in the first of them."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._plain = arrow
        self._arrow: pa.DataType | None = None
        self._told: Any = None
        self._dictionary: Any = None

    def array(self, part: Any, rows: int, valid: Any, nulls: int) -> Any:
        (known,) = struct.unpack_from("<i", part)
        array = self._plainly(part, rows, valid, nulls) if known < 0 else self._coded(part, known, rows, valid, nulls)
        self._arrow = self._arrow or array.type
        if array.type.equals(self._arrow):
            return array
        # There were too many at last; rows of a group that came before may leave after others.
        return array.dictionary_encode() if known < 0 else array.dictionary_decode()

    def _plainly(self, part: Any, rows: int, valid: Any, nulls: int) -> Any:
        return pa.Array.from_buffers(
            self._plain, rows, [valid, part.slice(8), part.slice(8 + _padded(4 * (rows + 1)))], nulls
        )

    def _coded(self, part: Any, known: int, rows: int, valid: Any, nulls: int) -> Any:
        texts = 8 + _padded(4 * (known + 1))
        (size,) = struct.unpack_from("<i", part, 8 + 4 * known)
        codes = texts + _padded(size)
        told = part.slice(0, codes)
        if self._told is None or not told.equals(self._told):
            own = pa.py_buffer(told.to_pybytes())  # a part of the value would keep all of it in memory
            self._told = own
            self._dictionary = pa.Array.from_buffers(self._plain, known, [None, own.slice(8), own.slice(texts)], 0)
        indices = pa.Array.from_buffers(pa.uint8(), rows, [valid, part.slice(codes)], nulls).cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, self._dictionary)


def _short(arrow: pa.DataType) -> pa.DataType:
    return pa.decimal64(arrow.precision, arrow.scale) if pa.types.is_decimal128(arrow) else arrow


def _array(arrow: pa.DataType, kind: str | None, rows: int, buffers: list[Any], nulls: int) -> Any:
    if kind == "l" and pa.types.is_decimal128(arrow):
        return scaled(pa.Array.from_buffers(pa.int64(), rows, buffers, nulls), arrow)
    return pa.Array.from_buffers(arrow, rows, buffers, nulls)


def _padded(size: int) -> int:
    return -(-size // 8) * 8
