"""Publishes a table as the list of Spark's own file sink, so that any Spark reads one snapshot.

Spark takes the list with the highest number. Paths in it are absolute. Rules: NOTES.md, Publications.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import compress, islice
from typing import Self

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, ObjectNotFoundError, UnsupportedTableError
from dbio_commit.maintenance.publish.bounds import memory_of, refuse_unreadable
from dbio_commit.maintenance.publish.live import Live, names_absent, withdraw_if_dropped
from dbio_commit.maintenance.publish.lookout import Lookout
from dbio_commit.maintenance.publish.places import DIRECTORIES, Own, Published, by_number, root_url
from dbio_commit.maintenance.publish.reading import is_there, read_head, read_lines
from dbio_commit.maintenance.publish.remembered import TableKey, find, keep, keep_new
from dbio_commit.maintenance.publish.sink_log import SinkList, decode_list, encode_list
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import split
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store

DIRECTORY = DIRECTORIES[Format.SPARK]

STEP = 10
"""Spark takes a number for that of a complete list if the next number is a multiple of this."""

_OURS = re.compile(r"(9|[1-9][0-9]{0,17}9)\.compact")
_SPARKS = re.compile(r"[+-]?\d{1,30}(\.compact)?")
"""The names that Spark takes for a batch of a stream, or for its list."""


def list_path(number: int) -> str:
    return f"{DIRECTORY}/{number}.compact"


@dataclass(frozen=True, slots=True)
class SparkListing:
    """The lists that are there, by number."""

    lists: Mapping[int, Entry]
    streams: Sequence[str]
    """Objects that only a Spark stream writes, or something that Spark would take for a stream's."""

    @classmethod
    def of(cls, entries: Iterable[Entry], *, root: str) -> Self:
        """From all files of the table at `root`, or only those of its directory of lists. Raises CorruptMarkerError as
        `by_number`.
        """
        inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
        others = (name for _, name in map(split, sorted(entry.path for entry in inside)) if not _OURS.fullmatch(name))
        return cls(by_number(inside, _OURS, root=root, step=STEP), list(filter(_SPARKS.fullmatch, others)))

    @property
    def last(self) -> int:
        return max(self.lists, default=-1)


def look(store: Store) -> SparkListing:
    """The lists that exist. The next list's number follows from them, before the snapshot is read."""
    return SparkListing.of(store.list_directory(DIRECTORY).entries, root=store.url)


def put(store: Store, clock: Clock, listing: SparkListing, live: Live) -> Published | None:
    """Creates the next list, if anything is new. None if another publisher was faster: then look again.

    Raises UnsupportedTableError if a Spark stream writes to the directory, and InvalidInputError without an absolute
    path.
    """
    live.refuse_unread()
    _refuse_stream(store, listing)
    root, last = root_url(store, s3="s3a"), listing.last
    before = _read(store, listing, root, live.table_id)
    wanted = frozenset(live.paths())
    added, removed = len(wanted - before.paths), len(before.paths - wanted)
    published = partial(live.published, Format.SPARK, added=added, removed=removed)
    if last >= 0 and before.elsewhere is None and before.paths == wanted:
        return published(last, is_new=False)
    number = last + STEP if last >= 0 else STEP - 1
    body = encode_list(root, live.snapshot.files).encode()
    path = list_path(number)
    refuse_unreadable(body, where=store.url_of(path))
    with Lookout(clock, live.looked).creating(
        lambda: look(store).last > last,
        is_useless=lambda: look(store).last > number,
        undo=lambda: store.delete_many([path]),
        is_erased=partial(live.is_erased, store),
        only_late=last >= 0,
    ):
        if not store.put_if_absent(path, body) and not is_there(store, path, body):
            return None
    key, listed = TableKey.of(store, live.table_id), SinkList(wanted, None)
    old = [entry.path for other, entry in listing.lists.items() if other < last]  # one that stays does no harm
    store.together(
        lambda: withdraw_if_dropped(store, live, {path: body}),
        lambda: store.delete_many(old),
        lambda: keep_new(store, key, path, (root, listed), bytes=memory_of(listed.paths)),
    )
    return published(number, is_new=True)


def forget(store: Store, clock: Clock, listing: SparkListing, live: Live) -> Sequence[str] | None:
    """Publishes what is new. Returns the paths of all lists before the last one, which may be deleted now.

    None if another publisher was faster: then look again. Raises what `put` raises.
    """
    published = put(store, clock, listing, live)
    if published is None:
        return None
    return [entry.path for number, entry in look(store).lists.items() if number < published.number]


def _refuse_stream(store: Store, listing: SparkListing) -> None:
    if listing.streams:
        raise _of_a_stream(store, listing.streams[0])


def _of_a_stream(store: Store, name: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{store.url_of(DIRECTORY)} holds {name!r:.50} of a Spark stream: the rows of the stream are in no commit of "
        f"this table. Let the stream write elsewhere, move {DIRECTORY} away, and publish again"
    )


def _read(store: Store, listing: SparkListing, root: str, table_id: str) -> SinkList:
    """The contents of the last list. Raises UnsupportedTableError if a Spark stream wrote it."""
    if listing.last < 0:
        return SinkList(frozenset(), None)
    entry = listing.lists[listing.last]
    key = TableKey.of(store, table_id)
    match find(key, entry):
        case (str() as known_root, SinkList() as listed) if known_root == root:
            return listed
    listed = decode_list(read_lines(store, entry), root, where=store.url_of(entry.path))
    if listed.is_streams:
        raise _of_a_stream(store, split(entry.path)[1])
    keep(key, entry, (root, listed), bytes=memory_of(listed.paths))
    return listed


def problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """Problems that make Spark read something other than this table. `entries` are those of the table."""
    try:
        listing = SparkListing.of(entries, root=store.url)
        _refuse_stream(store, listing)
        if listing.last < 0:
            return []
        entry, root = listing.lists[listing.last], root_url(store, s3="s3a")
        listed = _read(store, listing, root, table_id)
    except (UnsupportedTableError, CorruptMarkerError, InvalidInputError) as error:
        return [str(error)]
    if listed.elsewhere is None:
        return names_absent(store, entry.path, min(listed.paths, default=None), Format.SPARK)
    return [
        f"{store.url_of(entry.path)} names {listed.elsewhere[:300]!r}, and the table is at {root}: Spark reads the old "
        "place. `dbio publish --to spark` mends it"
    ]


def own(store: Store, entries: Iterable[Entry], table_id: str) -> Own:
    """The lists without times of files: streams record times. An empty list counts only if no stream wrote here."""
    inside = [entry for entry in entries if split(entry.path)[0] == DIRECTORY]
    lists = [entry for entry in inside if _OURS.fullmatch(split(entry.path)[1])]
    has_streams = len(lists) < sum(1 for entry in inside if _SPARKS.fullmatch(split(entry.path)[1]))

    def is_own(entry: Entry) -> bool:
        with suppress(CorruptMarkerError, ObjectNotFoundError):
            listed = decode_list(islice(read_head(store, entry), 2), "", where=store.url_of(entry.path))
            return not listed.is_streams and (listed.elsewhere is not None or bool(listed.paths) or not has_streams)
        return False

    return Own(list(compress(lists, store.ask_each(is_own, lists))), [])
