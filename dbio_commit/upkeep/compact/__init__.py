"""Compaction: small files of a table become large ones, with the same rows."""
