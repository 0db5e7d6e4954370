"""Finds problems of a publication for Iceberg, objects that no reader of it needs, and objects that dbio wrote."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import compress

from dbio_commit.base.errors import (
    CorruptMarkerError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsupportedTableError,
)
from dbio_commit.maintenance.publish.iceberg.avro import needs_fastavro
from dbio_commit.maintenance.publish.iceberg.metadata import (
    DIRECTORY,
    HINT,
    ROOT,
    IcebergMetadata,
    decode_metadata,
    is_avro_of_dbio,
    is_metadata,
    is_version,
    version_path,
    versions_in,
    writer_of,
)
from dbio_commit.maintenance.publish.iceberg.versions import IcebergListing, find_last, get_metadata, list_all
from dbio_commit.maintenance.publish.iceberg.writing import UnusableError, read_list
from dbio_commit.maintenance.publish.places import Own, root_url
from dbio_commit.maintenance.publish.remembered import TableKey
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.store import Store

# --- what is wrong ------------------------------------------------------------------------------------------------


def problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """Problems that make readers of Iceberg read something else than this table. `entries` are those of the table."""
    inside = [entry for entry in entries if entry.path.startswith(f"{ROOT}/")]
    if not any(is_metadata(entry.path) for entry in inside):
        return []
    found = [*_of_others(store, inside)]
    try:
        listing = IcebergListing(versions_in(inside, root=store.url))
        last = find_last(store, listing, table_id)
        root = root_url(store, s3="s3")
    except (UnsupportedTableError, CorruptMarkerError, InvalidInputError) as error:
        return [*found, str(error)]
    except ObjectNotFoundError:  # deleted by a vacuum meanwhile
        return found
    if last is None:
        return found
    where = store.url_of(version_path(last.number))
    if last.number < listing.last:
        other = store.url_of(version_path(listing.last))
        body = get_metadata(store, version_path(listing.last)) or b""
        found.append(
            f"{other} was written by {writer_of(body)}, not by dbio: its rows are in no commit of this table, and "
            "readers of Iceberg see them. Save the rows that you need; `dbio publish --to iceberg` then publishes this "
            "table above it"
        )
    if last.metadata.location != f"{root}/{ROOT}":
        found.append(
            f"{where} is of {last.metadata.location[:300]!r}, and the table is at {root}: readers of Iceberg read the "
            "old place. `dbio publish --to iceberg` mends it"
        )
        return found
    there = {entry.path for entry in inside}
    try:
        manifests = read_list(store, TableKey.of(store, table_id), last.metadata.current)
        missing = [it.name for it in manifests if f"{DIRECTORY}/{it.name}" not in there]
    except UnusableError as error:
        return [*found, f"{where} cannot be read: {error}. `dbio publish --to iceberg` writes all manifests anew"]
    if missing:
        found.append(
            f"{where} names {len(missing)} manifests that are missing, first {missing[0]}: readers of Iceberg fail. "
            "`dbio publish --to iceberg` writes all anew"
        )
    return found


def _of_others(store: Store, inside: Iterable[Entry]) -> Iterator[str]:
    """Problems with what tools with a catalog leave: metadata under other names, and data below the location."""
    entries = [*inside]
    names = sorted(it.path for it in entries if is_metadata(it.path) and not is_version(it.path))
    if names:
        with suppress(ObjectNotFoundError):
            writer = writer_of(get_metadata(store, names[-1]) or b"")
            yield (
                f"{store.url_of(names[-1])} was written by {writer}, through a catalog: its rows are in no commit of "
                f"this table ({len(names)} such files). Readers of that catalog see them: register the table there "
                "anew with the last version of dbio"
            )
    outside = sorted(it.path for it in entries if split(it.path)[0] != DIRECTORY)
    if outside:
        yield (
            f"another tool wrote {len(outside)} files below {store.url_of(ROOT)}, first {outside[0]}: they are in no "
            "commit of this table; save the rows that you need, and write them with dbio"
        )


# --- what goes ----------------------------------------------------------------------------------------------------


def find_superseded(store: Store, table_id: str, horizon: datetime) -> list[Entry]:
    """Versions, lists and manifests that no reader needs which began after the horizon.

    Raises UnsupportedTableError if the last version is not of this table, and CorruptMarkerError if a list that is
    still needed cannot be read. Then no object may be deleted.
    """
    listing = list_all(store)
    versions = versions_in(listing, root=store.url)
    at_horizon = max((number for number, entry in versions.items() if entry.modified < horizon), default=0)
    if not at_horizon:
        return []
    needs_fastavro()
    last, before = (_of_table(store, number, table_id) for number in (max(versions), at_horizon))
    if last.location != before.location:
        return []
    kept = {f"{DIRECTORY}/{it.manifest_list.rpartition('/')[2]}" for it in before.snapshots}
    read = partial(read_list, store, TableKey.of(store, table_id))
    try:
        manifests = store.ask_each(read, before.snapshots)
    except UnusableError as error:
        raise CorruptMarkerError(str(error)) from error
    kept |= {f"{DIRECTORY}/{it.name}" for some in manifests for it in some}
    # Objects that only later versions name were written after this one, because their publishers had read it.
    since = versions[at_horizon].modified
    due = [entry for number, entry in sorted(versions.items()) if number < at_horizon and entry.modified < horizon]
    old = compress(due, store.ask_each(lambda entry: _is_own(store, entry, table_id), due))
    avro = [it for it in listing if is_avro_of_dbio(it.path) and it.path not in kept and it.modified < since]
    return [*old, *avro]


def _of_table(store: Store, number: int, table_id: str) -> IcebergMetadata:
    body = get_metadata(store, version_path(number))
    if body and (found := decode_metadata(body, number, table_id)):
        return found
    raise UnsupportedTableError(
        f"{store.url_of(version_path(number))} was not written by dbio for this table; `dbio publish --to iceberg` "
        "publishes this table above it"
    )


def own(store: Store, entries: Iterable[Entry], table_id: str) -> Own:
    """Versions that name this table, and what dbio names like manifests and lists. `entries` are those of the table."""
    inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
    versions = [entry for entry in inside if is_version(entry.path)]
    is_own = store.ask_each(lambda entry: _is_own(store, entry, table_id), versions)
    telling = list(compress(versions, is_own))
    if not telling:
        return Own([], [])
    hint = [entry for entry in inside if entry.path == HINT and all(is_own)]
    return Own(telling, [*(entry for entry in inside if is_avro_of_dbio(entry.path)), *hint])


def _is_own(store: Store, entry: Entry, table_id: str) -> bool:
    number = int(split(entry.path)[1].removeprefix("v").partition(".")[0])
    with suppress(ObjectNotFoundError):
        body = get_metadata(store, entry.path)
        return body is not None and decode_metadata(body, number, table_id) is not None
    return False
