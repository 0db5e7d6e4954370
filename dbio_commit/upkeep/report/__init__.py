"""A page about the health of tables: `health` gathers facts, `charts` draws, `page` renders.

It needs jinja2, of the extra `cli`. The caller finds out what vacuum would free: nothing here imports vacuum.
"""
