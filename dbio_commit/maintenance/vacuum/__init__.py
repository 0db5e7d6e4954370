"""Vacuum: deletes objects that no reader needs. `plan` decides which, `run` deletes them.

The package `vacuum` runs it on a schedule. Nothing in `dbio_commit` imports that package: a user's job may have a
`vacuum.py` of its own.
"""
