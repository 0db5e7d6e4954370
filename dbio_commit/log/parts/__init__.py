"""The parts of a large table's checkpoint: rows as Arrow, their Parquet files, merges, and reading them back."""
