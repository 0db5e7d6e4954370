"""Reads the log of a table: its listing, its settled state, and the snapshot that a reader gets."""
