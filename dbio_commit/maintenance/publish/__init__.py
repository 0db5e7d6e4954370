"""Publishes a dbio table for other engines: as a Delta log, Iceberg's metadata, Spark's list of files, Hive manifests.

A publication shows exactly one snapshot. A publisher chooses the number of the publication before it reads the
snapshot, and creates the publication with put-if-absent. Therefore no publication is older than the one before it, and
none shows what is not committed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, DbioError, ObjectNotFoundError
from dbio_commit.base.logs import best_effort, get_logger
from dbio_commit.commit.context import WriteContext
from dbio_commit.commit.probe import prove_store
from dbio_commit.data.footers import Inspector
from dbio_commit.log.metadata import UNPURGED_S
from dbio_commit.maintenance.publish import delta, spark, symlink
from dbio_commit.maintenance.publish.engines import decimal_columns, find_limits, limited_directories
from dbio_commit.maintenance.publish.iceberg import cleanup as iceberg_upkeep
from dbio_commit.maintenance.publish.iceberg import publication as iceberg_publication
from dbio_commit.maintenance.publish.iceberg import versions as iceberg_versions
from dbio_commit.maintenance.publish.live import Live, read_live
from dbio_commit.maintenance.publish.lookout import OvertakenError
from dbio_commit.maintenance.publish.places import DIRECTORIES, Own, Published, is_published
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.partitions import partition_types
from dbio_commit.protocol.settings import Format, Settings, published_forms
from dbio_commit.store import Store

_log = get_logger(__name__)

_ATTEMPTS = 20
"""How often other publishers may be faster before this one gives up."""


class _Way(NamedTuple):
    """The functions of a module that publishes in one format."""

    look: Callable[[Store], Any]
    put: Callable[[Store, Clock, Any, Live], Published | None]
    problems: Callable[[Store, Iterable[Entry], str], list[str]]
    own: Callable[[Store, Iterable[Entry], str], Own]
    forget: Callable[[Store, Clock, Any, Live], Sequence[str] | None]
    """Makes a publication that shows the same as `put` would, and returns the paths of all objects that have anything
    of earlier states: statistics, paths. They may go then."""
    superseded: Callable[[Store, str, datetime], list[Entry]] | None = None
    """None if a publisher deletes what it replaces."""


_WAYS: Mapping[Format, _Way] = {
    Format.DELTA: _Way(delta.look, delta.put, delta.problems, delta.own, delta.forget, delta.find_superseded),
    Format.SPARK: _Way(spark.look, spark.put, spark.problems, spark.own, spark.forget),
    Format.SYMLINK: _Way(symlink.look, symlink.put, symlink.problems, symlink.own, symlink.forget),
    Format.ICEBERG: _Way(
        iceberg_versions.look,
        iceberg_publication.put,
        iceberg_upkeep.problems,
        iceberg_upkeep.own,
        iceberg_publication.forget,
        iceberg_upkeep.find_superseded,
    ),
}


class Seen(NamedTuple):
    """What was published, and the state of the table after that."""

    listings: Mapping[Format, Any]
    live: Live


def look(store: Store, clock: Clock, to: Sequence[Format]) -> Seen:
    """What is published in these formats, and then the table. Raises what `read_live` raises."""
    looked, listings = clock.moment(), {it: _WAYS[it].look(store) for it in to}
    return Seen(listings, read_live(store, clock, looked))  # no publication that the looks found is newer


def publish(store: Store, clock: Clock, to: Sequence[Format], *, seen: Seen | None = None) -> list[Published]:
    """Publishes the current state of the table in these formats. Writes nothing if nothing has changed.

    `seen` is what a commit has seen of these formats before its commit marker was put, and of the table after that.
    Without it, this looks.

    Raises InvalidInputError if it is no dbio table, has something that a format cannot hold, or has partition values on
    which readers do not agree; UnsupportedTableError if another tool has written to a publication; CommitConflictError
    if other publishers keep being faster; StoreError. Formats that were published before the error stay published.
    """
    done: dict[Format, Published] = {}
    gone: ObjectNotFoundError | None = None
    left: Sequence[Format] = [*dict.fromkeys(to)]
    for _ in range(_ATTEMPTS):
        is_early = seen is not None
        listings, live = seen or look(store, clock, left)
        seen, left = None, []
        prove_store(store)
        for it, listing in listings.items():
            try:
                found = _WAYS[it].put(store, clock, listing, live)
                # Since the look, another publisher may have published the state before the commit marker.
                if found and not found.is_new and is_early and _WAYS[it].look(store) != listing:
                    found = None
            except OvertakenError:
                found = None
            except ObjectNotFoundError as error:  # a vacuum has deleted old publications meanwhile
                gone, found = error, None
            if found is not None:
                done[it] = found.after(done.get(it))
                if it is Format.DELTA and found.is_new and found.number == 0:
                    _warn_of_limits(store, live)
            # Another publisher may have found nothing to do, since the files are again those that were published.
            is_behind = live.news or not clock.is_within(live.looked, UNPURGED_S)
            if found is None or (found.is_new and is_behind):
                left.append(it)
        if not left:
            break
    if any(it not in done for it in left):
        raise gone or _too_many(store)
    return [done[it] for it in to]


def _too_many(store: Store) -> CommitConflictError:
    return CommitConflictError(
        f"other processes published {store.url} {_ATTEMPTS} times meanwhile; let only one process publish, then try "
        "again"
    )


def _warn_of_limits(store: Store, live: Live) -> None:
    """Logs, with the first publication, which engines cannot read it. `dbio check` repeats that."""
    now = live.snapshot
    decimals = decimal_columns(partition_types(now.schema, now.partition_columns))
    for limit in find_limits(
        store.url,
        is_disk=store.is_disk,
        partition_columns=now.partition_columns,
        directories=limited_directories(live.paths(), decimals),
        decimals=decimals,
    ):
        _log.warning("not all engines can read what %s publishes: %s (docs/ENGINES.md)", store.url, limit)


def context_of(store: Store, clock: Clock, inspector: Inspector | None = None) -> WriteContext:
    """The table as its writers need it: after each commit, it is published as its settings say."""
    return WriteContext(store=store, clock=clock, follow_up=_publish_as_set, inspector=inspector)


def _publish_as_set(store: Store, clock: Clock, settings: Settings | None) -> Iterator[None]:
    """The steps that follow a commit (`FollowUp`): a look at what is published in the formats that these settings name,
    a snapshot, and the publication."""
    looked, listings = clock.moment(), dict[Format, Any]()
    for it in _known(published_forms(settings)):
        with suppress(Exception):  # `publish` looks again, and says what is wrong
            listings[it] = _WAYS[it].look(store)
    yield
    seen: dict[Format, Seen] = {}
    if listings:
        with suppress(Exception):
            live = read_live(store, clock, looked)
            seen = {it: Seen({it: listing}, live) for it, listing in listings.items()}
    yield
    publish_each(store, clock, published_forms(settings), seen=seen)


def try_to_publish(store: Store, clock: Clock, settings: Settings | None) -> dict[Format, str]:
    """Publishes in the formats that these settings name. Returns those in which that failed, and why.

    An error is only logged: the next commit, vacuum or `dbio publish` catches up.
    """
    return publish_each(store, clock, published_forms(settings))


def publish_each(
    store: Store, clock: Clock, wanted: Collection[str], *, seen: Mapping[Format, Seen] | None = None
) -> dict[Format, str]:
    """As `try_to_publish`, in these formats. `seen`: as in `publish`, by format."""
    behind: dict[Format, str] = {}
    for it in _known(wanted):  # one by one: a table that one format cannot hold is still published in the others
        with best_effort(_log, _LAGS, store.url, it):
            try:
                publish(store, clock, [it], seen=seen.get(it) if seen else None)
            except Exception as error:
                behind[it] = str(error) if isinstance(error, DbioError) else type(error).__name__
                raise
    return behind


def _known(wanted: Collection[str]) -> list[Format]:
    """Without those that only later versions know."""
    return [it for it in Format if it in wanted]


def published_at(store: Store, format: Format) -> datetime | None:
    """When the table was last published in this format, by a listing of its directory; None if it never was."""
    return max((it.modified for it in store.list_files(DIRECTORIES[format])), default=None)


_LAGS = "%s is behind in the format %s, until it is published again by the next commit, vacuum or `dbio publish`"


def find_formats(store: Store, table_id: str) -> list[Format]:
    """The formats in which this table was ever published, whatever its settings are now."""
    found: list[Format] = []
    for it, way in _WAYS.items():
        own = way.own(store, store.list_files(DIRECTORIES[it], links=False), table_id)
        if own.telling or own.rest:
            found.append(it)
    return found


def find_others(store: Store, table_id: str) -> list[str]:
    """The objects in the directories of all formats that no publisher of this table wrote, as far as is known."""
    others: list[str] = []
    for it, way in _WAYS.items():
        entries = store.list_files(DIRECTORIES[it], links=False)
        own = way.own(store, entries, table_id)
        others += sorted({entry.path for entry in entries} - {entry.path for entry in (*own.telling, *own.rest)})
    return others


def forget_published(store: Store, clock: Clock, it: Format) -> Sequence[str]:
    """Publishes in a format in which the table was published before. Returns the paths of all objects that have
    anything of earlier states: the caller deletes them. Raises what `publish` raises."""
    gone: ObjectNotFoundError | None = None
    for _ in range(_ATTEMPTS):
        listings, live = look(store, clock, [it])
        prove_store(store)
        try:
            if (old := _WAYS[it].forget(store, clock, listings[it], live)) is not None:
                return old
        except OvertakenError:
            continue
        except ObjectNotFoundError as error:  # as in `publish`
            gone = error
    raise gone or _too_many(store)


def find_problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """Problems that make other engines read something other than the table, or that prevent its next publication.

    `entries` are all files of the table. Changes nothing.
    """
    there = [entry for entry in entries if is_published(entry.path)]
    return [problem for way in _WAYS.values() for problem in way.problems(store, there, table_id)] if there else []


def find_own(store: Store, entries: Iterable[Entry], table_id: str) -> list[list[Entry]]:
    """What publishers of this table wrote, in the order in which it is to be deleted. `entries` are all files of the
    table.

    All else in these directories belongs to others: another writer's version, a stream's list, a note.
    """
    there = [entry for entry in entries if is_published(entry.path)]
    found = [way.own(store, there, table_id) for way in _WAYS.values()] if there else []
    return [[entry for own in found for entry in own.rest], [entry for own in found for entry in own.telling]]


SUPERSEDING: Sequence[Format] = [it for it, way in _WAYS.items() if way.superseded]
"""The formats whose old objects vacuum deletes."""


def find_superseded(store: Store, format: Format, table_id: str, horizon: datetime) -> list[Entry]:
    """Objects of the publication that no reader needs which began after the horizon.

    Raises UnsupportedTableError if part of the publication is not this table's, CorruptMarkerError if something that
    the rest depends on cannot be read, and MissingPackageError. Then no object may be deleted.
    """
    find = _WAYS[format].superseded
    return find(store, table_id, horizon) if find else []
