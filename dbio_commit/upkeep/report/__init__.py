"""A page for people about the health of tables: `health` gathers facts, `charts` draws, `page` renders.

It needs the extra `cli`: jinja2, and `cli/values`, so that numbers and times look as in a terminal. What vacuum would
free, the caller says: nothing here knows vacuum.
"""
