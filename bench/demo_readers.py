"""How the tools count the same files: Spark, pyarrow, DuckDB and pandas; and how one counts that knows no markers.

All but Spark take `snapshot().urls()`: plain paths on a local disk, else URLs, for which the credentials are the
environment's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import dbio_commit as dbio


class Count(NamedTuple):
    rows: int
    miles: int
    """The sum of the column distance."""


def with_spark(spark: SparkSession, url: str) -> Count:
    row = dbio.read(spark, url).agg(F.count("*"), F.sum("distance")).first()
    assert row is not None
    return Count(*row)


def with_pyarrow(urls: Sequence[str]) -> Count:
    files, paths = _open(urls)
    distance = ds.dataset(paths, filesystem=files, format="parquet").to_table(columns=["distance"])["distance"]
    return Count(len(distance), pc.sum(distance).as_py())


def with_duckdb(urls: Sequence[str]) -> Count:
    with duckdb.connect() as connection:
        connection.register_filesystem(_open(urls)[0])  # else it would download an extension for the store
        row = connection.execute("SELECT count(*), sum(distance) FROM read_parquet(?)", [list(urls)]).fetchone()
    assert row is not None
    return Count(*row)


def with_pandas(urls: Sequence[str]) -> Count:
    files, paths = _open(urls)  # else pandas would take pyarrow's own clients, which look elsewhere for credentials
    distance = pd.concat(pd.read_parquet(it, columns=["distance"], filesystem=files) for it in paths)["distance"]
    return Count(len(distance), int(distance.sum()))


class PlainCount(NamedTuple):
    rows: int
    files: int
    torn: int
    """Files that are no Parquet, because their writer died."""


def without_markers(url: str) -> PlainCount:
    """What is in all Parquet files below the directory, as any tool finds it that lists them."""
    files, (root,) = _open([url])
    rows = torn = 0
    paths = files.glob(f"{root}/**/*.parquet")
    for path in paths:
        try:
            rows += pq.read_metadata(path, filesystem=files).num_rows
        except pa.ArrowInvalid:
            torn += 1
    return PlainCount(rows, len(paths), torn)


def _open(urls: Sequence[str]) -> tuple[fsspec.AbstractFileSystem, list[str]]:
    """The file system of the URLs, and their paths in it."""
    files, _ = fsspec.url_to_fs(urls[0], use_listings_cache=False)
    return files, [files._strip_protocol(url) for url in urls]
