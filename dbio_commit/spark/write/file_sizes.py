"""Rows among Spark's tasks, so that the files of a write come out at about a size: by a shuffle that Spark balances.

The shuffle puts the rows of a partition together, as far as they make one file; what is more than one, in spite of it,
a task cuts (`task`). Spark measures a shuffle in its own bytes, which say little of those of Parquet.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql.types import NullType

from dbio_commit.spark.session.held import holding
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.write.plan import WritePlan

SHUFFLED = 3
"""So many bytes of a shuffle for one of Parquet: 1.2 were measured of random numbers, 1.5 of numbers, 4 and more of
texts that repeat. Guessed high, since a task can cut what is too much, and nobody puts together what is too little."""


@contextmanager
def balanced(df: DataFrame, plan: WritePlan) -> Iterator[DataFrame]:
    """The rows, to be written within, while the session balances shuffles for files of the size that is asked for.

    Where none is, they stay with their tasks.
    """
    target = plan.options.target_file_size
    if target is None:
        yield df
        return
    partition = {name.lower() for name in plan.mapping.partition_columns}
    columns = [
        quoted(field.name)
        for field in df.schema.fields
        if field.name.lower() in partition and not isinstance(field.dataType, NullType)
    ]
    with holding(df.sparkSession, {**_BALANCED, _SIZE: SHUFFLED * target}):
        yield df.hint("rebalance", *columns)  # which Spark forgets at once in a session that is not adaptive


_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_BALANCED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",  # else a task for each core, however little each
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
}
