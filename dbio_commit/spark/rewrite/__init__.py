"""Rows that change: `delete`, `update`, `merge`, and `write` with `replace_where`.

A commit names files, so a file that holds such rows and others is written again with what becomes of them. What is read
is told by a snapshot; the commit fails where one of its files is gone by then, or where rows came that it would have
had to know of (`isolation`).
"""
