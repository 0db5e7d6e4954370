"""Writes, reads, changes and streams tables with PySpark. `api` has the functions that users call.

Nothing is imported here, so that a Python worker of Spark imports only what its task needs.
"""
