"""Checks conditions and values that users write in Spark's SQL, and makes columns of them."""
