"""Writes rows to new data files and commits them. Spark's tasks use it, too."""
