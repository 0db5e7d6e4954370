"""The driver computes `xxhash64` of a text as Spark does."""

import random
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from dbio_commit.spark.read.located import xxhash64

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_texts_of_all_lengths_have_the_number_that_spark_gives_them(spark: "SparkSession") -> None:
    rng = random.Random(7)
    letters = "abcdefghij/=-_.:é日😀\0"
    texts = ["".join(rng.choices(letters, k=length)) for length in range(150) for _ in range(2)]
    texts += ["file:/tmp/table/day=2026-11-20/part-00000-tid-1-c000.snappy.parquet", "\0" * 64, "ÿ" * 33]
    found = spark.createDataFrame([(text,) for text in texts], "name string").select("name", f.xxhash64("name"))
    assert {text: xxhash64(text) for text in texts} == dict(map(tuple, found.collect()))
