"""Errors, the clock, texts, logs, redaction and locks: what every room may import, and what imports no room."""
