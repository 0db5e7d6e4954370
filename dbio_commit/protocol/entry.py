"""An object as a store lists it."""

from datetime import datetime
from typing import NamedTuple


class Entry(NamedTuple):
    """An object as a store lists it. `path` is relative to the root; `modified` is aware, by the store's clock."""

    path: str
    size: int
    modified: datetime
