"""Erasure: rows that fulfil a condition go for good, with all that the table still has of them."""
