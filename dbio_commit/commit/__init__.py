"""Transactions: how one begins, takes its turn, and is decided exactly once."""
