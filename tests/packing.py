"""What tests look at of rows that were packed: all kinds of columns, and how they come out in a task."""

import json
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dbio_commit.data.arrow import is_completing
from dbio_commit.spark.session.schema import arrow_type
from dbio_commit.spark.transfer.batches import arrow_batches, pack
from tests.spark_tables import to_arrow

FEW = "'', 'a', 'b', '1234567', '12345678', '123456789', '123456780', '023456789', repeat('ü', 32)"

# By what number an expression comes to a value; every third is null, if it is to be.
KINDS = {
    "boolean": "id % 3 = 0",
    "byte": "cast(id % 256 - 128 AS byte)",
    "short": "cast(id % 65536 - 32768 AS short)",
    "int": "cast(id * 7919 % 4294967296 - 2147483648 AS int)",
    "long": "id * 7919 - 9223372036854775807",
    "float": "IF(id % 11 = 0, float('NaN'), cast(id AS float) / 7)",
    "double": "IF(id % 11 = 0, double('-Infinity'), -cast(id AS double) / 7)",
    "small decimal": "cast(id * 31 - 5000 AS decimal(12, 2))",
    "decimal of 18 digits": "cast(id * 999999999999 - 500000000000000000 AS decimal(18, 0))",
    "large decimal": "cast(id AS decimal(38, 3)) * -12345678901234567890",
    "text": "repeat('é', cast(id % 50 AS int))",
    "long text": "repeat(cast(id AS string), cast(id % 200 AS int))",
    "binary": "cast(repeat('\\0', cast(id % 9 AS int)) AS binary)",
    "date": "date_add(date'1582-01-01', cast(id AS int))",
    "timestamp": "timestamp_micros(id * 123456789 - 5000000000000)",
    "timestamp_ntz": "cast(timestamp_micros(id * 123456789) AS timestamp_ntz)",
    "a constant": "'the same'",
    "few texts": f"element_at(array({FEW}), 1 + cast(id % 9 AS int))",
    "few, then many": "cast(id div 100 AS string)",
    "short, then long": "repeat('x', cast(id div 200 AS int))",
    "few binaries": "IF(id % 2 = 0, X'', X'00FF')",
    "a.null`": "cast(NULL AS int)",
}


def columns(*, nulls: bool) -> list[str]:
    quoted = {f"`{name.replace('`', '``')}`": sql for name, sql in KINDS.items()}
    return [f"{f'IF(id % 3 = 0, NULL, {sql})' if nulls else sql} AS {name}" for name, sql in quoted.items()]


def unpacked(df: DataFrame, *, coded: bool = False) -> pa.Table:
    """The rows as a task gets them, and their place in Python before they are anything else."""
    frame, packing = pack(df, coded=coded)
    assert packing.in_values
    types = [arrow_type(field.dataType) for field in df.schema.fields]

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = None
        for batch in packing.unpack(batches):
            batch.validate(full=True)
            assert schema in (None, batch.schema)
            schema = batch.schema
            columns = [column.cast(kind) for column, kind in zip(batch.columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    numbered = StructType([])
    for number, field in enumerate(df.schema.fields):
        numbered.add(str(number), field.dataType)
    with arrow_batches(df.sparkSession, df.schema):
        return to_arrow(frame.mapInArrow(send, numbered))


def assert_same(found: pa.Table, df: DataFrame) -> None:
    """In the same order: Spark's own conversion gives the rows task by task, too."""
    expected = to_arrow(df)
    assert found.num_rows == expected.num_rows
    for number, field in enumerate(expected.schema):
        one, other = (_bits(table.column(number).combine_chunks()) for table in (found, expected))
        assert one.type == other.type, field.name
        assert one == other, field.name


def _bits(column: Any) -> Any:
    """No NaN is equal to another."""
    kinds = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return column.view(kinds[column.type]) if column.type in kinds else column


def kinds(df: DataFrame, *, together: Collection[int] = ()) -> list[list[str]]:
    """Of each value of the only task: the types of its columns."""
    frame, packing = pack(df, together=together, coded=True)

    def see(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in packing.unpack(batches):
            yield pa.record_batch({"seen": [json.dumps(list(map(str, batch.schema.types)))]})

    with arrow_batches(df.sparkSession, df.schema):
        return [json.loads(row.seen) for row in frame.mapInArrow(see, "seen string").collect()]


def come_together(df: DataFrame, *positions: int) -> list[tuple[list[tuple[Any, ...]], list[int], bool]]:
    """Of each value of the only task: the groups that it has, the `id` of its rows, and whether it completes them."""
    frame, packing = pack(df, together=positions)

    def see(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in packing.unpack(batches):
            batch.validate(full=True)
            groups = list(dict.fromkeys(zip(*(batch.column(i).to_pylist() for i in positions), strict=True)))
            seen = json.dumps([groups, batch.column(0).to_pylist(), is_completing(batch)], default=str)
            yield pa.record_batch({"seen": [seen]})

    with arrow_batches(df.sparkSession, df.schema):
        seen = [json.loads(row.seen) for row in frame.mapInArrow(see, "seen string").collect()]
    return [([tuple(group) for group in groups], ids, completes) for groups, ids, completes in seen]


def takes_columns(df: DataFrame) -> bool:
    """Whether the rows are packed of a scan's columns, as Spark has planned it."""
    plan: Any = pack(df)[0]._jdf.queryExecution().executedPlan()
    while plan.nodeName() != "PackColumns":
        plan = plan.children().head()
    taken: bool = plan.takesColumns()
    return taken
