"""Reads a snapshot as a DataFrame, by Spark's own reader or by Python workers."""
