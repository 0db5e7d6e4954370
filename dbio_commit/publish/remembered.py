"""What this process has read or written of numbered publications, which never change.

Who creates one is not told its time, by which `recall` knows an object. So it is known by its size and by the one that
was listed before it: where somebody has deleted all and begun anew, that one is another.
"""

from collections.abc import Hashable
from typing import NamedTuple

from dbio_commit.protocol.entry import Entry
from dbio_commit.recall import MEMORY
from dbio_commit.store import Store

_AT_LEAST = 1024
"""Of memory, of each publication."""


class Place(NamedTuple):
    """Whose publications these are."""

    service: str
    principal: str
    url: str
    table_id: str

    @classmethod
    def of(cls, store: Store, table_id: str) -> "Place":
        return cls(store.identity, store.principal, store.url, table_id)


def find(place: Place, entry: Entry, before: Entry | None) -> object:
    """What is remembered of the publication; None where nothing is. `before` is the one that was listed before it."""
    return MEMORY.find(_key(place, entry, before))


def keep(place: Place, entry: Entry, before: Entry | None, value: object, *, bytes: int) -> None:
    """What the publication says, which takes so much memory."""
    MEMORY.keep(_key(place, entry, before), value, bytes=_AT_LEAST + bytes)


def keep_new(place: Place, path: str, size: int, before: Entry | None, value: object, *, bytes: int) -> None:
    """The same of one that was created just now; without one before it, nothing is kept."""
    if before is not None:
        keep(place, Entry(path, size, before.modified), before, value, bytes=bytes)


def _key(place: Place, entry: Entry, before: Entry | None) -> Hashable:
    return (place, before, entry.path, entry.size) if before else (place, entry)
