"""What is in data files, without Spark: columns, their types and statistics, and rows as Arrow."""
