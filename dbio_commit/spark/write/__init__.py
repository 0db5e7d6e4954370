"""Writes the rows of a DataFrame to new data files of a table, in Spark's Python workers, and commits them."""
