"""Transactional writes to plain Parquet directories, and the committed view of them for every reader.

The public API is what `public` has. It is imported when it is first asked for: commands and Spark's workers begin with
what they need.
"""

from importlib import import_module

TYPE_CHECKING = False  # without an import of `typing`
if TYPE_CHECKING:
    from dbio_commit.public import *  # noqa: F403
    from dbio_commit.public import __all__ as __all__

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    public = import_module("dbio_commit.public")
    if name in globals():  # a module, which that has imported
        return globals()[name]
    try:
        return getattr(public, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("dbio_commit.public").__all__})
