"""Begins transactions, gives them turns, and decides each one exactly once."""
