"""VACUUM: deletes files that no reader needs. `table_plan` and `directory_plan` decide, `run` begins.

The package `vacuum` runs it on a schedule. Nothing in `dbio_commit` imports that package, as a job may have a
`vacuum.py` of its own in its directory.
"""
