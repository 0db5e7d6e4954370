"""What other engines read: a table of ours published as a Delta log, as Spark's list of files, as Hive's manifests.

What is published is always exactly one snapshot. Each publication has a number, which is known before the snapshot is
read, and is created with put-if-absent: so none is older than the one before, and none shows what is not committed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CommitConflictError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.courtesies import courtesy
from dbio_commit.commit.probe import prove_store
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.partitions import partition_types, refuse_unread
from dbio_commit.protocol.settings import Format, Settings, published_forms
from dbio_commit.store import Store
from dbio_commit.upkeep.publish import delta, spark, symlink
from dbio_commit.upkeep.publish.delta import find_superseded
from dbio_commit.upkeep.publish.live import Live, read_live
from dbio_commit.upkeep.publish.places import DIRECTORIES, Own, Published, is_published, parse_formats

__all__ = [
    "DIRECTORIES",
    "Format",
    "Published",
    "find_own",
    "find_problems",
    "find_superseded",
    "is_published",
    "parse_formats",
    "publish",
    "publish_as_set",
]

_log = get_logger(__name__)

_ATTEMPTS = 20
"""How often others may be faster."""


class _Way(NamedTuple):
    """How a table is published in one format."""

    look: Callable[[Store], Any]
    put: Callable[[Store, Clock, Any, Live], Published | None]
    problems: Callable[[Store, Iterable[Entry], str], list[str]]
    own: Callable[[Store, Iterable[Entry], str], Own]


_WAYS: Mapping[Format, _Way] = {
    Format.DELTA: _Way(delta.look, delta.put, delta.problems, delta.own),
    Format.SPARK: _Way(spark.look, spark.put, spark.problems, spark.own),
    Format.SYMLINK: _Way(symlink.look, symlink.put, symlink.problems, symlink.own),
}


def publish(store: Store, clock: Clock, to: Sequence[Format]) -> list[Published]:
    """Publishes the table as it is now, in these formats; writes nothing where nothing has changed.

    Raises InvalidInputError where it is no table of ours, has what a format cannot hold, or lies in partitions on whose
    values readers do not agree; UnsupportedTableError where
    somebody else has written to a publication; CommitConflictError where others keep being faster; StoreError. What
    was published before such an error, in another format, stays.
    """
    done: dict[Format, Published] = {}
    gone: ObjectNotFoundError | None = None
    for _ in range(_ATTEMPTS):
        seen = {it: _WAYS[it].look(store) for it in to if it not in done}
        live = read_live(store, clock)  # after the looks: no publication that they showed is newer
        now = live.snapshot
        refuse_unread(now.files, partition_types(now.schema, now.partition_columns), where=store.url)
        prove_store(store)
        for it, listing in seen.items():
            try:
                found = _WAYS[it].put(store, clock, listing, live)
            except ObjectNotFoundError as error:  # somebody has tidied up since the look
                gone, found = error, None
            if found is not None:
                done[it] = found
        if len(done) == len(set(to)):
            return [done[it] for it in to]
    raise gone or CommitConflictError(
        f"others published {store.url} {_ATTEMPTS} times meanwhile; let one process publish, then try again"
    )


def publish_as_set(store: Store, clock: Clock, settings: Settings | None) -> None:
    """Publishes in the formats that the table's settings name, after something was committed or found lagging.

    What fails is logged, for what was committed is: the next commit, vacuum or `dbio publish` makes up for it.
    """
    wanted = published_forms(settings)
    for it in Format:  # one by one, so that what one format cannot hold keeps no other back
        if it not in wanted:
            continue
        with courtesy(_log, _LAGS, store.url, it):
            publish(store, clock, [it])


_LAGS = "%s lags in the form %s, until it is published again by the next commit, vacuum or `dbio publish`"


def find_problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """What makes other engines read something else than the table, or keeps it from being published on.

    `entries` are all files of the table. Changes nothing.
    """
    there = [entry for entry in entries if is_published(entry.path)]
    return [problem for way in _WAYS.values() for problem in way.problems(store, there, table_id)] if there else []


def find_own(store: Store, entries: Iterable[Entry], table_id: str) -> list[list[Entry]]:
    """What publishers of this table wrote, in the steps to delete it in; `entries` are all files of the table.

    Whatever else lies there is somebody else's: another writer's version, a stream's list, a note.
    """
    there = [entry for entry in entries if is_published(entry.path)]
    found = [way.own(store, there, table_id) for way in _WAYS.values()] if there else []
    return [[entry for own in found for entry in own.rest], [entry for own in found for entry in own.telling]]
