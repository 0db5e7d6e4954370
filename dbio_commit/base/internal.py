"""Marks members of public classes that are for other modules of dbio only."""

from collections.abc import Callable
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)


def internal(*names: str) -> Callable[[_C], _C]:
    """Marks members of the class as internal: they may change, and `dir()` and the page of the API leave them out."""

    def mark(kind: _C) -> _C:
        def public_names(self: object) -> list[str]:
            return [name for name in object.__dir__(self) if name not in names]

        marked: Any = kind
        marked.__internal__, marked.__dir__ = frozenset(names), public_names
        return kind

    return mark
