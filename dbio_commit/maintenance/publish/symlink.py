"""Publishes a table as manifests for Hive, Presto, Trino and Athena: for each partition, the absolute paths of its
files.

A manifest has a fixed name, so that it is replaced. A publisher claims a number before it reads the snapshot. If it
finds a higher claim after it has written, it publishes again. Therefore the last writer has the newest snapshot.
Readers see one consistent state of each single partition only. Rules: NOTES.md, Publications.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import (
    CommitConflictError,
    CorruptMarkerError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreError,
)
from dbio_commit.maintenance.publish.bounds import (
    LINE_BYTES,
    MOST_BYTES,
    MOST_PATHS_BYTES,
    refuse_large,
    refuse_unreadable,
    too_much,
)
from dbio_commit.maintenance.publish.live import Live, names_absent, read_live, withdraw_if_dropped
from dbio_commit.maintenance.publish.lookout import Lookout, OvertakenError
from dbio_commit.maintenance.publish.places import DIRECTORIES, Own, Published, by_number, root_url
from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.markers.bodies import MAX_BYTES
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store

DIRECTORY = DIRECTORIES[Format.SYMLINK]
_NAME = "manifest"
_CLAIM = re.compile(r"\.dbio-([0-9]{20})")
_ATTEMPTS = 20


def claim_path(number: int) -> str:
    return f"{DIRECTORY}/.dbio-{number:020d}"


def manifest_path(directory: str) -> str:
    """The path of the manifest of the partition in this directory, which is "" for a table without partitions."""
    return f"{DIRECTORY}/{names.join(directory, _NAME)}"


@dataclass(frozen=True, slots=True)
class SymlinkListing:
    """The existing manifests, by path, and the claims, by number."""

    manifests: Mapping[str, Entry]
    claims: Mapping[int, Entry]

    @classmethod
    def of(cls, entries: Iterable[Entry], *, root: str) -> Self:
        """From all files of the table at `root`, or only those below its directory of manifests.

        Raises CorruptMarkerError as `by_number`.
        """
        below = [entry for entry in entries if entry.path.startswith(f"{DIRECTORY}/")]
        manifests = {entry.path: entry for entry in below if names.split(entry.path)[1] == _NAME}
        direct = [entry for entry in below if names.split(entry.path)[0] == DIRECTORY]
        return cls(manifests, by_number(direct, _CLAIM, root=root))

    @property
    def last(self) -> int:
        """The highest claim; 0 if there is none."""
        return max(self.claims, default=0)

    @property
    def is_unfinished(self) -> bool:
        """Whether a publisher may be at work, or was killed: the last step of each leaves one claim, which is not the
        first. Earlier publishers left the first one, too."""
        return self.last == 1 or sum(not entry.size for entry in self.claims.values()) > 1


def manifests(live: Live, root: str) -> dict[str, bytes]:
    """The manifests of a snapshot: path -> body. A table without partitions has one, even if it is empty."""
    lines: dict[str, list[bytes]] = {} if live.snapshot.partition_columns else {"": []}
    for path in live.paths():
        lines.setdefault(names.split(path)[0], []).append(f"{root}/{path}\n".encode())
    return {manifest_path(directory): b"".join(sorted(found)) for directory, found in lines.items()}


def look(store: Store) -> SymlinkListing:
    """The existing manifests and claims."""
    return SymlinkListing.of(store.list_files(DIRECTORY, links=False), root=store.url)


def put(store: Store, clock: Clock, listing: SymlinkListing, live: Live) -> Published | None:
    """Updates the manifests to the newest snapshot. Never returns None: it repeats until it is the last.

    Raises CommitConflictError if other publishers keep publishing, and StoreError.
    """
    root = root_url(store, s3="s3")
    is_last = True
    added = removed = 0
    for _ in range(_ATTEMPTS):
        is_settled = is_last and not listing.is_unfinished  # else another publisher may still write older manifests
        live.refuse_unread()
        if is_settled and _has_all(store, listing.manifests, manifests(live, root)):
            return live.published(Format.SYMLINK, listing.last, added=added, removed=removed, is_new=False)
        if not listing.last:
            store.put_if_absent(claim_path(1), b"")  # stays until this publisher has finished, as the claim before does
        number = max(listing.last, 1) + 1
        looked = clock.moment()
        if store.put_if_absent(claim_path(number), b""):
            # Both after the claim: a publisher with a higher claim has a newer snapshot, and one with a lower claim may
            # have written manifests until now.
            live, before = store.together(
                partial(read_live, store, clock, looked), lambda: _read(store, look(store).manifests)
            )
            wanted = manifests(live, root)
            made = {claim_path(number): b"", **wanted}
            try:
                more, less = _write(store, before, wanted, number, Lookout(clock, looked))
                _, listing = store.together(partial(withdraw_if_dropped, store, live, made), partial(look, store))
            except OvertakenError:
                listing, is_last = look(store), False
                continue
            except CommitConflictError:
                listing, is_last = look(store), False
                if not listing.claims:
                    raise
                live = read_live(store, clock, looked)  # another table, whose manifests were replaced
                continue
            added, removed = added + more, removed + less
            is_last = listing.last <= number
            if is_last:
                older = [entry for other, entry in listing.claims.items() if other < number]
                _remove(store, [entry.path for entry in older if not entry.size])  # an object with a body is no claim
                return live.published(Format.SYMLINK, number, added=added, removed=removed, is_new=True)
        else:
            listing, live = look(store), read_live(store, clock, looked)
    raise CommitConflictError(
        f"other processes published {store.url} as manifests {_ATTEMPTS} times meanwhile; let only one process "
        "publish, then try again"
    )


def forget(store: Store, clock: Clock, listing: SymlinkListing, live: Live) -> Sequence[str] | None:
    """Publishes what is new, and removes the empty directories of partitions that have gone. Nothing else is left of
    earlier states. Raises what `put` raises, and StoreError."""
    put(store, clock, listing, live)
    found = [DIRECTORY] if store.has_directories else []
    for directory in found:
        found += store.list_directory(directory).directories
    store.remove_directories(found[1:])
    return ()


def _has_all(store: Store, found: Mapping[str, Entry], wanted: Mapping[str, bytes]) -> bool:
    """Whether the manifests are these. Mostly their sizes show that they are not. Raises as `_read`."""
    refuse_large(found.values(), where=store.url_of(DIRECTORY), most=MOST_BYTES)
    is_alike = {path: it.size for path, it in found.items()} == {path: len(body) for path, body in wanted.items()}
    return is_alike and _read(store, found) == wanted


def _read(store: Store, found: Mapping[str, Entry]) -> dict[str, bytes]:
    """The bodies, read anew each time: a replaced manifest can have the same size, and the same time to the second.

    Raises CorruptMarkerError if they have more bytes than are read.
    """
    where = store.url_of(DIRECTORY)
    refuse_large(found.values(), where=where, most=MOST_BYTES)

    def read(entry: Entry) -> bytes | None:
        with suppress(ObjectNotFoundError):
            return store.get(
                entry.path, limit_bytes=entry.size + MAX_BYTES
            )  # another publisher may have replaced it since
        return None

    bodies = zip(found, store.ask_each(read, list(found.values())), strict=True)
    told = {path: body for path, body in bodies if body is not None}
    if sum(len(body) + LINE_BYTES * body.count(b"\n") for body in told.values()) > MOST_PATHS_BYTES:
        raise too_much(where)
    return told


def _write(
    store: Store, before: Mapping[str, bytes], wanted: Mapping[str, bytes], claim: int, lookout: Lookout
) -> tuple[int, int]:
    """Returns how many files were added and removed. Raises OvertakenError if that takes long, and another publisher
    has a higher claim."""
    changed = [(path, body) for path, body in wanted.items() if before.get(path) != body]
    for path, body in changed:
        refuse_unreadable(body, where=store.url_of(path))

    def replace(it: tuple[str, bytes]) -> None:
        lookout.look(lambda: look(store).last > claim)
        store.replace(*it)

    store.in_parallel(replace, changed)
    _remove(store, [path for path in before if path not in wanted])
    old, new = (set(b"".join(bodies.values()).splitlines()) for bodies in (before, wanted))
    return len(new - old), len(old - new)


def _remove(store: Store, paths: list[str]) -> None:
    for path, error in store.delete_many(paths).items():
        raise StoreError(
            f"{store.url_of(path)!r} could not be deleted, and names files that are not live: {error}; publish again"
        )


def problems(store: Store, entries: Iterable[Entry], table_id: str) -> list[str]:
    """Problems that make readers of manifests read something other than this table. `entries` are its objects."""
    try:
        listing = SymlinkListing.of(entries, root=store.url)
        refuse_large(listing.manifests.values(), where=store.url_of(DIRECTORY), most=MOST_BYTES)
        path = next((entry.path for entry in listing.manifests.values() if entry.size), None)
        if path is None:
            return []
        root = root_url(store, s3="s3")
        line = store.get_some(path, 0, _FIRST_BYTES).partition(b"\n")[0].decode(errors="replace")
    except ObjectNotFoundError:  # replaced, or deleted
        return []
    except (InvalidInputError, CorruptMarkerError) as error:
        return [str(error)]
    if line.startswith(f"{root}/"):
        return names_absent(store, path, line.removeprefix(f"{root}/").strip(), Format.SYMLINK)
    return [
        f"{store.url_of(path)!r} names {line[:300]!r}, and the table is at {root}: Hive, Presto and Athena read the "
        "old place. `dbio publish --to symlink` repairs it"
    ]


_FIRST_BYTES = 8192


def own(store: Store, entries: Iterable[Entry], table_id: str) -> Own:
    """The claims, which are empty. If one exists, the manifests, too, since a publication has replaced them."""
    below = [entry for entry in entries if entry.path.startswith(f"{DIRECTORY}/")]
    claims = [entry for entry in below if not entry.size and _CLAIM.fullmatch(entry.path.removeprefix(f"{DIRECTORY}/"))]
    return Own(claims, [entry for entry in below if claims and names.split(entry.path)[1] == _NAME])
