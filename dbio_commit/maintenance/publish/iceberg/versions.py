"""Finds the versions of the Iceberg metadata, and the last one that dbio wrote for this table."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from dbio_commit.base.errors import CorruptMarkerError, ObjectNotFoundError, UnsupportedTableError
from dbio_commit.maintenance.publish.iceberg.metadata import (
    DIRECTORY,
    MOST_METADATA_BYTES,
    ROOT,
    SAVE,
    IcebergMetadata,
    decode_metadata,
    version_path,
    versions_in,
)
from dbio_commit.maintenance.publish.reading import is_there
from dbio_commit.maintenance.publish.remembered import TableKey, find_named, keep_named
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store

_MOST_OF_OTHERS = 1000
"""At most so many versions of other tools are read to find one of dbio."""


@dataclass(frozen=True, slots=True)
class IcebergListing:
    """The versions that exist, by number; or the last one, if this process wrote it and it is still there."""

    versions: Mapping[int, Entry]
    body: bytes = b""
    """The body of the last version, if this process wrote it; its number is `known`."""
    known: int = 0
    names: frozenset[str] = frozenset()
    """The paths of all objects beside the versions, if they were listed."""

    @property
    def last(self) -> int:
        """The number of the last version; 0 if there is none."""
        return self.known or max(self.versions, default=0)


def look(store: Store) -> IcebergListing:
    """The versions that exist. The next version's number follows from them, before the snapshot is read.

    A process that wrote the last version reads it again, which takes one request, and lists nothing. If another process
    has written a higher version, the next number is taken already, and this process lists then.
    """
    match find_named(TableKey.of(store, ""), ROOT):
        case (int() as number, bytes() as body) if body and is_there_still(store, version_path(number), body):
            return IcebergListing({}, body, number)
    return list_anew(store)


def is_there_still(store: Store, path: str, body: bytes) -> bool:
    """Whether the object is there, with this body."""
    with suppress(ObjectNotFoundError):
        return is_there(store, path, body)
    return False


def list_all(store: Store) -> list[Entry]:
    """All objects in the directory of the metadata."""
    return store.list_directory(DIRECTORY).entries


def list_anew(store: Store) -> IcebergListing:
    """Lists the versions that exist, without a look at what this process remembers."""
    entries = list_all(store)
    return IcebergListing(versions_in(entries, root=store.url), names=frozenset(it.path for it in entries))


def is_overtaken(store: Store, listing: IcebergListing) -> bool:
    """Whether there is a higher version by now."""
    return list_anew(store).last > listing.last


def lacks_before(store: Store, number: int) -> bool:
    """Whether the version before this number was deleted, and there are later ones: then no reader can use this one."""
    versions = list_anew(store).versions
    return max(versions, default=0) > number and number - 1 not in versions


def remember(store: Store, number: int, body: bytes) -> None:
    """Remembers the last version, which this process wrote. The number 0 makes the process forget it."""
    keep_named(TableKey.of(store, ""), ROOT, (number, body), bytes=len(body))


class Last(NamedTuple):
    """The last version that dbio wrote for this table."""

    number: int
    metadata: IcebergMetadata


def find_last(store: Store, listing: IcebergListing, table_id: str) -> Last | None:
    """The last version of this table that dbio wrote; None if there is no version. Raises UnsupportedTableError."""
    if listing.body and (known := decode_metadata(listing.body, listing.known, table_id)):
        return Last(listing.known, known)
    numbers = sorted(listing.versions, reverse=True) or ([listing.known] if listing.known else [])
    for number in numbers[:_MOST_OF_OTHERS]:
        if (body := get_metadata(store, version_path(number))) and (
            metadata := decode_metadata(body, number, table_id)
        ):
            return Last(number, metadata)
    if numbers:
        raise UnsupportedTableError(
            f"{store.url_of(DIRECTORY)} has versions up to {numbers[0]}, and none was written by dbio for this table; "
            f"{SAVE}"
        )
    return None


def get_metadata(store: Store, path: str) -> bytes | None:
    """The body of a version; None if it is larger than any that dbio writes."""
    with suppress(CorruptMarkerError):
        return store.get(path, limit_bytes=MOST_METADATA_BYTES)
    return None
