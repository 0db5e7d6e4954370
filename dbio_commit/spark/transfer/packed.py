"""Packs many rows into one binary value, column by column in Arrow's layout, to pass rows to Python fast.

Spark's own conversion to Arrow works value by value, and takes as long as all that Python does with the rows. Instead,
Java classes pack rows into values of about a megabyte, which Spark passes on like any other value. `PackRows` is the
expression in the query. It runs a `Packer` in each task. `PackColumns` is the operator that packs the columns of a scan
directly, so that Spark makes no rows of them.

A value has these parts. Numbers are little-endian, and each part begins at a multiple of 8 bytes:

    int32 number of rows, int32 1 if the rows complete their groups, else 0
    for each column: int32 number of nulls, int32 position of the end of its parts
    for each column: if it has nulls, a bit for each row, set if the row has a value; then
        for a column of another type than text: the values
        for a column of texts: int32 number of codes, or -1 if it has none; then
            without codes: the ends of the rows' texts, with a first 0, and the bytes of the texts
            with codes: the ends and bytes of the texts that the codes stand for, and for each row its code in one byte

Texts that repeat come as codes if the caller allows it. Python then need not hash them again for the file's dictionary.

If rows are grouped by some columns, they are held back in the memory that Spark gives to tasks, as in Spark's own sort.
Most groups then arrive whole, one after the other, and Python need not hold back rows.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from dbio_commit.data.arrow import completing
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import PACK_ROWS, is_ready
from dbio_commit.spark.session.schema import arrow_type, row_of
from dbio_commit.spark.transfer.arrow import scaled
from dbio_commit.spark.versions import SHORT_DECIMALS, column_of

VALUE_BYTES = 1024 * 1020
"""The size of a value, unless a single row is larger. It is large enough that Python's work for each value does not
matter, and fits into the processor's cache, as Spark copies a value several times. Java's garbage collector gives a
large array whole regions of the heap, of about 1 MiB. So the size leaves a little room for the array's header."""
LONG_DIGITS = 18
"""The most digits of decimals that Spark has as integers of 64 bits."""

_SLOWER = "rows go to Python by Spark's own conversion, which is slower"

# --- in the JVM ---------------------------------------------------------------------------------------------------


def pack_rows(
    df: DataFrame, *, null_bytes: int, together: Collection[int] = (), coded: bool = False
) -> DataFrame | None:
    """The rows, packed into values of a single column. None if a column has a nested type, or Spark accepts no class.

    After each value come nulls, one for each `null_bytes` of it. Rows that are equal in the columns at the positions
    `together` arrive together and in their order, as far as memory allows. With `coded`, other columns of texts that
    repeat may come as dictionaries.
    """
    kinds = [_kind(field.dataType) for field in df.schema.fields]
    if coded:
        kinds = ["t" if kind == "v" and at not in together else kind for at, kind in enumerate(kinds)]
    if None in kinds or not is_ready(df.sparkSession, PACK_ROWS, without=_SLOWER):
        return None
    jvm: Any = df.sparkSession._jvm
    java_class(jvm, "dbio_commit.PackColumns").planIn(df.sparkSession._jsparkSession.experimental())
    columns = df._jdf.queryExecution().analyzed().output()  # by reference: names may be ambiguous
    groups = "".join("g" if position in together else "-" for position in range(len(kinds)))
    packed = java_class(jvm, PACK_ROWS.name)(columns, "".join(filter(None, kinds)), groups, VALUE_BYTES, null_bytes)
    return df.select(column_of(df.sparkSession, packed))


def _kind(of: t.DataType) -> str | None:
    """The letter for columns of this type in Java; None if they cannot be packed."""
    row = row_of(of)
    if isinstance(of, t.DecimalType) and of.precision <= LONG_DIGITS:
        return "l"
    return (row.packed or None) if row else None


# --- in Python ----------------------------------------------------------------------------------------------------


def unpack_rows(
    batches: Iterator[pa.RecordBatch], schema: t.StructType, *, coded: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Columns are named by their numbers, and have the same types in all batches.

    With `coded`, texts that repeat may be dictionaries, and decimals of up to 18 digits have 64 bits. Copies only codes
    and, without `coded`, these decimals. Marks batches that complete their groups by `arrow.completing`.
    """
    columns = [(_kind(field.dataType), arrow_type(field.dataType)) for field in schema.fields]
    if coded and SHORT_DECIMALS:
        columns = [(kind, _short(arrow) if kind == "l" else arrow) for kind, arrow in columns]
    texts = {at: _Texts(arrow) for at, (kind, arrow) in enumerate(columns) if kind == "v"}
    for batch in batches:
        values: Any = batch.column(0)
        for place in pc.indices_nonzero(values.is_valid()).to_pylist():  # nulls only fill the batch
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
    """A column of texts in a task. The first batch decides whether the arrays of all batches are dictionaries."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._plain = arrow
        self._arrow: pa.DataType | None = None
        self._encoded: Any = None
        self._dictionary: Any = None

    def array(self, part: Any, rows: int, valid: Any, nulls: int) -> Any:
        (known,) = struct.unpack_from("<i", part)
        array = self._plainly(part, rows, valid, nulls) if known < 0 else self._coded(part, known, rows, valid, nulls)
        self._arrow = self._arrow or array.type
        if array.type.equals(self._arrow):
            return array
        # The texts became too many for codes. Rows that were held back may still have codes after rows without.
        return array.dictionary_encode() if known < 0 else array.dictionary_decode()

    def _plainly(self, part: Any, rows: int, valid: Any, nulls: int) -> Any:
        return pa.Array.from_buffers(
            self._plain, rows, [valid, part.slice(8), part.slice(8 + _padded(4 * (rows + 1)))], nulls
        )

    def _coded(self, part: Any, known: int, rows: int, valid: Any, nulls: int) -> Any:
        texts = 8 + _padded(4 * (known + 1))
        (size,) = struct.unpack_from("<i", part, 8 + 4 * known)
        codes = texts + _padded(size)
        encoded = part.slice(0, codes)
        if self._encoded is None or not encoded.equals(self._encoded):
            own = pa.py_buffer(encoded.to_pybytes())  # a slice would keep the whole value in memory
            self._encoded = own
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
