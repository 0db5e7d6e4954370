"""The command line `dbio`: a function for each command in `commands`, and what it says in a module of its own.

`files`, `schema`, `transactions` (log, show, adopt), `check`, `vacuum` and `drop` put a report into words for people,
for pipes and for programs, with numbers and times from `upkeep/figures`; `report` makes a page with `upkeep/report`.
`output` prints that; `progress` is for who waits.

All of these need the extra `cli`: typer, rich and jinja2. This module needs none of them.
"""

import io
import sys
from collections.abc import Callable

from dbio_commit.base.interrupts import run_interruptible


def main() -> None:
    """Where the extra is missing, says so and exits with 1."""
    run_interruptible("dbio", _load)


def _load() -> Callable[[], None]:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks is no error
    from dbio_commit.base.errors import MissingPackageError
    from dbio_commit.base.packages import needs

    try:
        with needs("the command line", extra="cli"):
            from dbio_commit.cli.commands import app
    except MissingPackageError as error:
        sys.exit(f"dbio: {error}")
    return app
