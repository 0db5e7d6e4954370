"""Hostile and broken input: whatever it is, a result or a `DbioError`, no path outside the table, bounded memory."""
