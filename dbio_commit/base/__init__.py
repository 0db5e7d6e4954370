"""Errors, the clock, texts, logs, redaction and locks. Every room may import these; they import no other room."""
