"""Spark: tables are written, read, changed and streamed from PySpark. `api` has the functions that users call.

Nothing is imported here, so that a Python worker of Spark imports only what its task needs.
"""
