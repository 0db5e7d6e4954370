"""Rows become new data files and a commit: plans, options, files. Spark's tasks use it, too."""
