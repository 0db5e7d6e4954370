"""The rows of a snapshot, without Spark: in memory, in batches, or read lazily by Polars, DuckDB and pyarrow."""

from dbio_commit.log.frames.request import Filter, Term, Where

__all__ = ["Filter", "Term", "Where"]
