"""Optional packages: one place that imports them, and says what to install if one is missing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dbio_commit.base.errors import MissingPackageError

_EXTRAS = {"sqlglot": "cli", "fastavro": "iceberg"}
"""The extra that installs each package, if the caller names none."""


def missing(package: str, *, what: str, extra: str | None = None, why: str = "") -> MissingPackageError:
    """The error for a package that is not installed: `what` needs it, and `extra` of dbio-commit installs it.

    Without an extra here or in `_EXTRAS`, the message names the package itself. `why` is the reason if an installed
    package cannot be imported. PySpark comes with the Spark of a platform, and no extra may replace it. So the message
    offers the extra only for a Spark on this machine.
    """
    top = package.partition(".")[0]
    is_spark = top in ("pyspark", "py4j")
    extra = "local" if is_spark else extra or _EXTRAS.get(top)
    install = f'pip install "dbio-commit[{extra}]"' if extra else f"pip install {package}"
    state = f"cannot be imported: {why}" if why else "is not installed"
    other = "use the Python of your Spark, or for a Spark on this machine alone " if is_spark else ""
    error = MissingPackageError(f"{what} needs the package {package}, which {state}; {other}run `{install}`")
    error.name = package
    return error


def is_of(package: str, value: object) -> bool:
    """Whether the package defines the class of the value, or one of its base classes. Does not import the package."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)


@contextmanager
def needs(what: str, *, extra: str | None = None) -> Iterator[None]:
    """For imports inside the block: raises MissingPackageError if one of their packages is not installed.

    Other errors pass: a module of dbio itself, or of Python, that cannot be imported is a defect of the installation,
    and no missing package.
    """
    try:
        yield
    except MissingPackageError:
        raise
    except ImportError as error:
        package = error.name or ""
        top = package.partition(".")[0]
        if top in ("", __name__.partition(".")[0]) or top in sys.stdlib_module_names:
            raise
        why = "" if isinstance(error, ModuleNotFoundError) else str(error)
        raise missing(package, what=what, extra=extra, why=why) from error


def require(package: str, *, what: str, extra: str | None = None) -> Any:
    """Imports and returns the package. Raises MissingPackageError, as `needs`."""
    with needs(what, extra=extra):
        return import_module(package)
