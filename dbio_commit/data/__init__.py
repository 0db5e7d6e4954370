"""Data files without Spark: columns, their types and statistics, and rows as Arrow."""
