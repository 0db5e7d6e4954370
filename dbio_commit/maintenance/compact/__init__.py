"""Compaction: merges small files of a table into large ones, with the same rows."""
