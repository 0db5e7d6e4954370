"""`python -m vacuum`: runs the commands. If a package is missing, says which extra to install."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dbio_commit.base.interrupts import run_interruptible


def main() -> None:
    run_interruptible("vacuum", _load)


def _load() -> Callable[[], None]:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # escapes characters that the terminal's encoding lacks
    with _explained():
        from vacuum.commands import app

    def run() -> None:
        with _explained():  # commands import what only they need
            app(prog_name="python -m vacuum")

    return run


@contextmanager
def _explained() -> Iterator[None]:
    """Ends the process with exit code 2 if a package of the extra is not installed."""
    from dbio_commit.base.errors import MissingPackageError
    from dbio_commit.base.packages import needs

    try:
        with needs("the schedule", extra="vacuum"):
            yield
    except MissingPackageError as error:
        print(f"vacuum: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
