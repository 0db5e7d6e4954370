"""The words that options of a write can have, on every way to write. Pure."""

from typing import Literal

Mode = Literal["append", "overwrite", "overwrite_partitions", "error", "ignore"]
"""What a write does to a table that is there: `dbio_commit.write` says it of each."""

Compression = Literal["snappy", "zstd", "gzip", "none"]
"""Of the Parquet files that are written."""
