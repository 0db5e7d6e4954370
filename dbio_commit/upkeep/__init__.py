"""Maintenance of tables: compaction, vacuum, publications, checks, reports, adoption, copies, restores, drops."""
