"""`python -m vacuum`: runs the commands. If a package is missing, says which extra to install."""

import io
import sys
from collections.abc import Callable

from dbio_commit.base.interrupts import run_interruptible


def main() -> None:
    run_interruptible("vacuum", _load)


def _load() -> Callable[[], None]:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # escapes characters that the terminal's encoding lacks
    from dbio_commit.base.errors import MissingPackageError
    from dbio_commit.base.packages import needs

    try:
        with needs("the schedule", extra="vacuum"):
            from vacuum.commands import app
    except MissingPackageError as error:
        print(f"vacuum: {error}", file=sys.stderr)
        sys.exit(2)
    return lambda: app(prog_name="python -m vacuum")


if __name__ == "__main__":
    main()
