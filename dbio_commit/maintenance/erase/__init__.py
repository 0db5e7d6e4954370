"""Erasure: deletes rows that fulfil a condition for good, with all values of them that the table still has."""
