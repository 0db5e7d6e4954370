"""An HTML page about the health of tables: `health` computes facts, `charts` draws, `page` renders.

The page needs the extra `cli`, for jinja2. It writes numbers and times as in a terminal (`maintenance.figures`). This
room does not import vacuum: the caller passes what a vacuum would free.
"""
