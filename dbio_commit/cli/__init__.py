"""The command line `dbio`. `commands` has a function for each command. Other modules print the results.

`files`, `schema`, `transactions` (log, show, adopt), `check`, `vacuum` and others turn a report into text for people,
for pipes and for programs, with numbers and times from `maintenance.figures`. `report` writes a page with
`maintenance.report`. `output` prints, and `progress` shows progress.

These modules need the extra `cli`: typer, rich and jinja2. This module needs none of them.
"""

import io
import sys
from collections.abc import Callable

from dbio_commit.base.interrupts import run_interruptible


def main() -> None:
    """Runs the command line. If the extra is missing, says so and exits with 1."""
    run_interruptible("dbio", _load)


def _load() -> Callable[[], None]:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # escapes characters that the terminal's encoding lacks
    from dbio_commit.base.errors import MissingPackageError
    from dbio_commit.base.packages import needs

    try:
        with needs("the command line", extra="cli"):
            from dbio_commit.cli.commands import app
    except MissingPackageError as error:
        sys.exit(f"dbio: {error}")
    return app
