"""The rows of a snapshot, without Spark: in memory, in batches, or read lazily by Polars, DuckDB and pyarrow."""
