"""Feeds: what a stream reads next, from the history of a table, commit by commit."""
