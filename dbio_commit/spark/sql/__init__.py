"""Conditions and values that users write in Spark's SQL: checks them, and makes columns of them."""
