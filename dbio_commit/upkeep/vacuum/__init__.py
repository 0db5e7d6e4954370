"""VACUUM: deletes what no reader needs. `plan` decides, `run` does; on a schedule the package `vacuum` has it run.

Nothing in `dbio_commit` imports that package: a job may have a `vacuum.py` of its own beside it.
"""
