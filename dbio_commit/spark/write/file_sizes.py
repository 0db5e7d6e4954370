"""Shuffles rows among Spark's tasks, so that the files of a write have about the size that is asked for.

Spark balances the shuffle: a task gets the rows of a partition, as many as make one file. If they make more, the task
cuts them (`task`). Spark measures a shuffle in bytes of its own format, which differ much from those of Parquet.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql.types import NullType

from dbio_commit.spark.session.held import holding
from dbio_commit.spark.session.schema import quoted
from dbio_commit.spark.versions import rebalanced
from dbio_commit.spark.write.plan import WritePlan

SHUFFLED = 3
"""Bytes of a shuffle for each byte of Parquet: 1.2 were measured for random numbers, 1.5 for numbers, 4 and more for
texts that repeat. A high estimate: a task cuts a file that would be too large, and nothing joins small files."""


@contextmanager
def balanced(df: DataFrame, plan: WritePlan) -> Iterator[DataFrame]:
    """The rows to write within the block, in which the session balances shuffles for files of `target_file_size`.

    Without `target_file_size`, rows are not shuffled.
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
        yield rebalanced(df, columns)  # Spark drops the hint at once in a session that is not adaptive


_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_BALANCED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",  # else there is a task for each core
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
}
