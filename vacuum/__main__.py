"""`python -m vacuum`: runs the commands. If a package is missing, says which extra to install."""

import io
import sys
from collections.abc import Callable

from dbio_commit.base.interrupts import run_interruptible

_EXTRA = ("apscheduler", "jinja2", "prometheus_client", "rich", "structlog", "typer")


def main() -> None:
    try:
        run_interruptible("vacuum", _load)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(f"vacuum: the schedule needs the package {error.name}; install dbio-commit[vacuum]", file=sys.stderr)
        sys.exit(2)


def _load() -> Callable[[], None]:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # escapes characters that the terminal's encoding lacks
    from vacuum.commands import app

    return lambda: app(prog_name="python -m vacuum")


if __name__ == "__main__":
    main()
