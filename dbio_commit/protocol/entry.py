"""An object as a store lists it."""

from datetime import datetime
from typing import NamedTuple


class Entry(NamedTuple):
    """An object as a store lists it."""

    path: str
    """Relative to the root."""
    size: int
    """In bytes."""
    modified: datetime
    """When it was written, by the store's clock; aware."""
