"""Spark. What users call is in `api`, and `dbio_commit` hands it on.

Nothing is imported here: each of Spark's Python workers imports the rooms that its task needs, and no others.
"""
