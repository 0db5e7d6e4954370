"""Conditions and values that users write in Spark's SQL."""
