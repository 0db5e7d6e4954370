"""Changes rows of a table: `delete`, `update`, `merge`, and `write` with `replace_where`; also compaction by Spark.

A file that holds rows that change is written again, with its other rows. The rewrite reads one snapshot. Its commit
fails if another commit has removed one of these files, or has added rows that the rewrite should have seen
(`isolation`).
"""
