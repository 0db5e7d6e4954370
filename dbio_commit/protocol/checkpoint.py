"""Checkpoints: all decided transactions of a table in one object, so that readers need not read a marker for each.
Pure.

This module encodes and decodes their bodies, and decides what may be left out. `log/snapshot` reads them, and
`commit/checkpoints` writes them. Format and rules: PROTOCOL.md 7.4, 7.7 and 9.7.
"""

import zlib
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Final, Literal, Protocol

from msgspec import Raw
from msgspec.structs import force_setattr, replace

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import Doubt
from dbio_commit.protocol.brief import BriefLine, brief_marker
from dbio_commit.protocol.commits import Decided, Forgotten, latest
from dbio_commit.protocol.markers.bodies import (
    INSPECT,
    MAX_BYTES,
    VERSION,
    Body,
    Count,
    TableId,
    decode_body,
    encode,
    in_utc,
    in_utc_of_a_clock,
    written,
)
from dbio_commit.protocol.markers.commit import CommitMarker, check_marker, check_statistics, select_files
from dbio_commit.protocol.markers.files import without_statistics
from dbio_commit.protocol.markers.schema import NO_SCHEMA, check_schema, decode_schema, pack_schema
from dbio_commit.protocol.parts import Dropped, Key, Part, State, check_parts
from dbio_commit.protocol.scope import Scope
from dbio_commit.protocol.settings import check_recorded
from dbio_commit.protocol.state import NO_METADATA, Metadata
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.protocol.versions import Versions, only_highest

HISTORY = timedelta(days=30)
"""How long a checkpoint remembers a transaction that has no files left. A late writer must find what was decided."""

MAX_UNPACKED_BYTES = 1024**3
"""No writer packs more bytes into one checkpoint than this, or than `max_unpacked` allows."""

BRING_BACK = (
    "do not remove it: no other object records which of the files in it are live. Stop vacuum, and bring the object "
    "back as it was, from a version of the bucket or from a backup; `dbio check` says whether it can be made anew"
)
"""What to do about a checkpoint that cannot be read."""

_RATIO = 100
"""The most bytes that readers unpack from a byte. Names of files shrink 10 to 25 times, sparse statistics up to 80
times."""


def max_unpacked(packed_bytes: int) -> int:
    """The most bytes that a checkpoint of this size may unpack to: a small object must not take much memory."""
    return min(MAX_UNPACKED_BYTES, 1024**2 + _RATIO * packed_bytes)


class CommitsInParts(Sequence[Decided]):
    """The transactions in the parts of a root, which are read when first needed. `news` are transactions that no part
    has."""

    @abstractmethod
    def outlines(self, removed: Mapping[str, Collection[str]]) -> Sequence[Decided]:
        """The transactions without their paths, which count as forgotten. `removed` has paths to keep, by tid."""

    @property
    @abstractmethod
    def tids(self) -> Set[str]:
        """The tids of the transactions."""

    @abstractmethod
    def whole(self, tids: Collection[str]) -> list[Decided]:
        """The transactions with these tids, with all of their paths."""

    @abstractmethod
    def change_files(self, tids: Collection[str]) -> Mapping[str, int]:
        """How many change files each of these transactions still has, by tid. Those without any are left out."""

    @abstractmethod
    def slices(self, news: Sequence[Decided]) -> Iterator[list[Decided]]:
        """All transactions and the news, slice by slice. A slice has the paths in one range of keys."""

    @abstractmethod
    def below(self, news: Sequence[Decided], each: Iterable[Subtrees]) -> Iterator[list[Decided]]:
        """For each `Subtrees`: all transactions and the news, with only the paths in its directories."""

    @abstractmethod
    def weigh(self, tops: Sequence[str]) -> list[float]:
        """About how many rows of files are in and below each of these directories, which are sorted by prefix."""

    @abstractmethod
    def among(self, news: Sequence[Decided], paths: Collection[str], *, hides: bool) -> list[Decided]:
        """All transactions and the news, with only these paths. Reads only what may have them.

        `hides` is that of the root's state (`State.hides`).
        """

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Collection[str]]:
        """For each tid the columns with statistics, as the files spell them."""


@dataclass(frozen=True)
class Checkpoint:
    """All transactions that were decided when it was written. Each checkpoint covers all that earlier ones cover."""

    number: int
    """The number, from 1 on; 0 for no checkpoint."""
    commits: Sequence[Decided] = field(default=(), repr=False)
    """The transactions, oldest first, with aborted ones. Old commits name only files that still exist."""
    apps: Mapping[str, Versions] = field(default_factory=dict)
    """The versions that each application has committed."""
    metadata: Metadata = NO_METADATA
    known_since: datetime | None = None
    """States before this time lack files that were removed and vacuumed; None if no state does."""
    erased_until: datetime | None = None
    """States before this time were erased on purpose; None if nothing was."""
    last_erasure: str | None = None
    """A random id of the last erasure; None if there was none. A process that finds another id than before has read
    what is erased now."""
    redated_until: datetime | None = None
    """The table was copied: until this time, commits have the times of the copy, in no known order. None if there was
    no copy."""
    doubts: tuple[Doubt, ...] = ()
    """Periods in which it is not known whether some commit had been made: its marker was brought back with another
    time."""
    table_id: str | None = None
    """The id in the table's descriptor; None if an earlier version wrote the checkpoint."""
    parts: tuple[Part, ...] = field(default=(), repr=False)
    """The parts of a root, oldest first. They hold the transactions."""
    dropped: tuple[Dropped, ...] = field(default=(), repr=False)
    """Parts of earlier roots, as far as their objects still exist."""
    cuts: tuple[Key, ...] = field(default=(), repr=False)
    """The keys that divide the parts of a large table into ranges."""
    state: State | None = field(default=None, repr=False)
    """Totals of the files in the parts."""

    @cached_property
    def covered(self) -> Set[str]:
        """The tids of the transactions that it covers. Readers ignore their commit markers."""
        return self.commits.tids if isinstance(self.commits, CommitsInParts) else {it.tid for it in self.commits}

    @property
    def is_root(self) -> bool:
        """Whether its transactions are in parts."""
        return self.state is not None

    def whole(self, tids: Collection[str]) -> Sequence[Decided]:
        """Those of these transactions that it covers, with all of their paths."""
        if isinstance(self.commits, CommitsInParts):
            return self.commits.whole(tids)
        return [commit for commit in self.commits if commit.tid in tids]

    def outlines(self, news: Iterable[Decided]) -> Sequence[Decided]:
        """The transactions without the paths in parts, except for paths that `news` remove: these show which commit
        came first."""
        if not isinstance(self.commits, CommitsInParts):
            return self.commits
        return self.commits.outlines(removed_by(news))


def removed_by(news: Iterable[Decided]) -> Mapping[str, Collection[str]]:
    """The paths that these transactions remove, by the transaction that wrote each of them."""
    removed: dict[str, set[str]] = {}
    for path in (path for commit in news for path in commit.marker.removed):
        if writer := names.parse_data_file(names.split(path)[1]):
            removed.setdefault(writer, set()).add(path)
    return removed


ROOT: Final = 2
"""The version of a checkpoint that names parts."""

NO_CHECKPOINT: Final = Checkpoint(0)


def is_of_adoption(checkpoint: Checkpoint) -> bool:
    """Whether an adoption wrote the checkpoint. Then one line has all files of the directory, and the others have
    none."""
    markers = [
        commit.marker
        for commit in checkpoint.outlines(())
        if commit.marker.dbio_commit or commit.marker.data_files or (checkpoint.is_root and commit.forgotten.added)
    ]
    return [marker.dbio_commit.operation for marker in markers if marker.dbio_commit] == ["adopt"] and len(markers) == 1


def condense(
    commits: Sequence[Decided],
    *,
    gone: Collection[str],
    noted: Collection[str],
    keep_since: datetime,
    known_since: datetime | None,
) -> tuple[list[Decided], datetime | None]:
    """The commits, without the paths of files that are `gone`: vacuum has deleted them. Also the new `known_since`.

    States of the table are complete since `known_since`. A transaction that was decided before `keep_since` is
    forgotten once it has no files left. There are two exceptions. If its tid is `noted` in the log, its marker would
    count again, and bring back files that others have removed. If it was decided at `known_since` itself, it shows that
    states within that moment are incomplete.
    """
    known_since = latest(known_since, lossy_until(commits, gone))
    kept: list[Decided] = []
    for commit in commits:
        left = without_gone(commit, gone)
        has_files = bool(left.marker.added or left.marker.removed)
        if not may_be_forgotten(left, noted=noted, keep_since=keep_since, known_since=known_since) or has_files:
            kept.append(left)
    return kept, known_since


def lossy_until(commits: Iterable[Decided], gone: Collection[str]) -> datetime | None:
    """The time of the newest commit that removed a file which is gone; None if there is none."""
    return max((it.modified for it in commits if any(path in gone for path in it.marker.removed)), default=None)


def may_be_forgotten(
    commit: Decided, *, noted: Collection[str], keep_since: datetime, known_since: datetime | None
) -> bool:
    """Whether a transaction is forgotten if it has no files left."""
    is_old = commit.modified < keep_since and commit.modified != known_since and commit.tid not in noted
    return is_old and not commit.marker.removed_tids


def without_gone(commit: Decided, gone: Collection[str]) -> Decided:
    """The commit without the paths that are gone; itself if it has none of them."""
    added, removed = commit.marker.added, commit.marker.removed
    left_added, left_removed = _indices(added, gone), _indices(removed, gone)
    if (len(left_added), len(left_removed)) == (len(added), len(removed)):
        return commit
    own = set(commit.marker.change_files)  # they count as removed: readers of added files do not need them
    lost_data = sum(path in gone and path not in own for path in added)
    lost = Forgotten(lost_data, len(removed) - len(left_removed))
    return commit._replace(
        marker=select_files(commit.marker, added=left_added, removed=left_removed),
        forgotten=Forgotten(commit.forgotten.added + lost.added, commit.forgotten.removed + lost.removed),
    )


def _indices(paths: Sequence[str], gone: Collection[str]) -> list[int]:
    return [i for i, path in enumerate(paths) if path not in gone]


# --- body: gzip, JSON lines ---------------------------------------------------------------------------------------


class _Doubtful(Body, frozen=True, kw_only=True):
    """A `Doubt` in a header."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        in_utc(self, "since", "until")


class _Header(Body, frozen=True, kw_only=True):
    """The first line of a body."""

    NEWEST: ClassVar[int] = ROOT

    version: Literal[1, 2] = written(VERSION)
    number: Count
    table_id: TableId | None = None
    created: datetime
    commits: Count
    """How many lines follow, one for each commit."""
    apps: dict[str, Count]
    """The highest version of each application, for earlier versions of this software."""
    app_versions: dict[str, Versions] | None = None
    """All versions of the applications of which more than the highest is known."""
    schemas: list[Raw]
    """Each schema once; commits refer to them by index."""
    table_schema: Count | None = None
    schema_turn: Count
    settings: dict[str, str] | None = None
    known_since: datetime | None = None
    erased_until: datetime | None = None
    last_erasure: TableId | None = None
    redated_until: datetime | None = None
    doubtful: list[_Doubtful] | None = None
    parts: list[Part] | None = None
    dropped: list[Dropped] | None = None
    cuts: list[Key] | None = None
    state: State | None = None

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "created", "known_since", "erased_until", "redated_until")
        check_recorded(self.settings)
        is_root = self.version == ROOT
        if {self.parts is not None, self.state is not None} != {is_root} or (is_root and self.commits):
            raise ValueError(
                f"a checkpoint of version {ROOT} has parts and no lines, and no other checkpoint has parts"
            )
        check_parts(self.parts or (), self.dropped or (), self.cuts or (), number=self.number)
        if wrong := [id for id, it in (self.app_versions or {}).items() if self.apps.get(id) != it.highest]:
            raise ValueError(f"apps and app_versions do not agree about {wrong[0][:100]!r}")

    @property
    def versions(self) -> dict[str, Versions]:
        """The committed versions of all applications."""
        return {id: only_highest(highest) for id, highest in self.apps.items()} | (self.app_versions or {})


class _Line(Body, frozen=True, kw_only=True):
    """The line of one decided transaction."""

    tid: str
    modified: datetime
    """The time of its marker, by the store's clock."""
    table_schema: Count | None = None
    forgotten_added: Count = written(0)
    forgotten_removed: Count = written(0)
    marker: CommitMarker

    def __post_init__(self) -> None:
        in_utc_of_a_clock(self, "modified")


def encode_checkpoint(
    checkpoint: Checkpoint,
    *,
    created: datetime,
    limit_bytes: int = MAX_BYTES,
    complete: bool = False,
) -> bytes:
    """The body; without statistics if it would not fit with them, unless it must be `complete`.

    Raises InvalidInputError if it does not fit, or if no reader could read it back.
    """
    try:
        body, unpacked = _encode(checkpoint, created, statistics=True)
        if len(body) > limit_bytes or unpacked > max_unpacked(len(body)):
            if complete:
                raise InvalidInputError(f"the checkpoint does not fit into {limit_bytes} bytes with its statistics")
            body, _ = _encode(checkpoint, created, statistics=False)
        if len(body) <= limit_bytes:
            # earlier versions of this software read no header that is longer
            where = "the checkpoint"
            header, lines = _open(body, number=checkpoint.number, where=where, limit_bytes=MAX_BYTES)
            for _ in _decode_commits(lines, header, where=where, decode=_decode_line):
                pass
            return body
    except (TypeError, ValueError, CorruptMarkerError) as error:
        why = str(error).removesuffix(f"; {BRING_BACK}").removesuffix(f"; {INSPECT}")
        raise InvalidInputError(f"no checkpoint was written, because no reader could read it: {why}") from None
    raise InvalidInputError(
        f"the checkpoint of {len(checkpoint.commits)} commits would have {len(body)} bytes, and one PUT holds "
        f"{limit_bytes}; vacuum the table with a shorter retention, or rewrite its files into fewer"
    )


def encode_root(checkpoint: Checkpoint, *, created: datetime, limit_bytes: int = MAX_BYTES) -> bytes:
    """The body of a checkpoint whose parts hold the transactions.

    If it would be large, it leaves out the directories of row groups. If it would not fit, it also leaves out the
    oldest of the dropped parts. Raises InvalidInputError if it does not fit then, or if no reader could read it.
    """
    line = _root_line(checkpoint, created)
    if len(line) > MAX_BYTES // 2:
        checkpoint = replace_fields(checkpoint, parts=tuple(part.without_directories() for part in checkpoint.parts))
        line = _root_line(checkpoint, created)
    body = _pack_line(line)
    while len(body) > limit_bytes and checkpoint.dropped:
        checkpoint = replace_fields(checkpoint, dropped=_younger_half(checkpoint.dropped))
        body = _pack_line(_root_line(checkpoint, created))
    try:
        if len(body) <= limit_bytes:
            decode_checkpoint(body, number=checkpoint.number, where="the checkpoint")
            return body
    except (TypeError, ValueError, CorruptMarkerError) as error:
        raise InvalidInputError(f"no checkpoint was written, because no reader could read it: {error}") from None
    raise InvalidInputError(
        f"the checkpoint would have {len(body)} bytes for {len(checkpoint.parts)} parts and {len(checkpoint.apps)} "
        f"applications, and one PUT holds {limit_bytes}; rewrite small files into fewer (`dbio compact`), and vacuum "
        "the table: fewer files take fewer parts"
    )


def _younger_half(dropped: Sequence[Dropped]) -> tuple[Dropped, ...]:
    """The younger half, in whole merges: a rebuild undoes a whole merge."""
    start = (len(dropped) + 1) // 2
    while start < len(dropped) and (dropped[start].by, dropped[start].into) == (
        dropped[start - 1].by,
        dropped[start - 1].into,
    ):
        start += 1
    return tuple(dropped[start:])


def _root_line(checkpoint: Checkpoint, created: datetime) -> bytes:
    return _as_line(_header(checkpoint, created, commits=0, schemas={}))


def _pack_line(line: bytes) -> bytes:
    """The body with this line. A repetitive line is compressed less: readers unpack at most 100 times the bytes."""
    body = b""
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):  # the latter packs at most 8 times smaller
        packer = zlib.compressobj(9, wbits=_GZIP, strategy=strategy)
        body = packer.compress(line) + packer.flush()
        if len(line) <= max_unpacked(len(body)):
            break
    return body


def _encode(checkpoint: Checkpoint, created: datetime, *, statistics: bool) -> tuple[bytes, int]:
    """The body, and how many bytes it unpacks to. The unpacked bytes are never in memory all at once."""
    schemas: dict[bytes, int] = {}

    def index(schema: Raw) -> int | None:
        return schemas.setdefault(bytes(schema), len(schemas)) if schema else None

    for commit in checkpoint.commits:  # the header comes first, and has them all
        index(commit.marker.dbio_commit.schema if commit.marker.dbio_commit else NO_SCHEMA)
    header = _header(checkpoint, created, commits=len(checkpoint.commits), schemas=schemas)
    packer, packed, size = zlib.compressobj(9, wbits=_GZIP), list[bytes](), 0
    for body in chain([header], (_line(commit, index, statistics=statistics) for commit in checkpoint.commits)):
        line = _as_line(body)
        size += len(line)
        packed.append(packer.compress(line))
    return b"".join([*packed, packer.flush()]), size


def _as_line(body: Body) -> bytes:
    # JSON that is passed on as text may have line breaks between its tokens
    return encode(body).replace(b"\n", b" ") + b"\n"


def _header(checkpoint: Checkpoint, created: datetime, *, commits: int, schemas: dict[bytes, int]) -> _Header:
    """The header, which adds the table's schema to the `schemas` if they lack it."""
    current, is_root = pack_schema(checkpoint.metadata.schema), checkpoint.is_root
    index = schemas.setdefault(bytes(current), len(schemas)) if current else None
    return _Header(
        version=ROOT if is_root else VERSION,
        number=checkpoint.number,
        table_id=checkpoint.table_id,
        created=created,
        commits=commits,
        apps={id: versions.highest for id, versions in checkpoint.apps.items()},
        app_versions={id: it for id, it in checkpoint.apps.items() if it != only_highest(it.highest)} or None,
        schemas=[Raw(schema) for schema in schemas],
        table_schema=index,
        schema_turn=checkpoint.metadata.turn,
        settings=None if checkpoint.metadata.settings is None else dict(checkpoint.metadata.settings),
        known_since=checkpoint.known_since,
        erased_until=checkpoint.erased_until,
        last_erasure=checkpoint.last_erasure,
        redated_until=checkpoint.redated_until,
        doubtful=[_Doubtful(since=it.since, until=it.until) for it in checkpoint.doubts] or None,
        parts=list(checkpoint.parts) if is_root else None,
        dropped=list(checkpoint.dropped) or None,
        cuts=list(checkpoint.cuts) or None,
        state=checkpoint.state if is_root else None,
    )


def _line(commit: Decided, index: Any, *, statistics: bool) -> _Line:
    marker, info = commit.marker, commit.marker.dbio_commit
    if info is not None:
        files = info.files
        if files and not (statistics and _has_readable_statistics(marker)):
            files = without_statistics(files)
        marker = replace(marker, dbio_commit=replace(info, schema=NO_SCHEMA, files=files))
    return _Line(
        tid=commit.tid,
        modified=commit.modified,
        table_schema=index(info.schema) if info else None,
        forgotten_added=commit.forgotten.added,
        forgotten_removed=commit.forgotten.removed,
        marker=marker,
    )


def _has_readable_statistics(marker: CommitMarker) -> bool:
    with suppress(CorruptMarkerError):
        check_statistics(marker, where="the marker")
        return True
    return False


def decode_checkpoint(body: bytes, *, number: int, where: str, briefly: bool = False) -> Checkpoint:
    """The checkpoint in the body, without the transactions in its parts. `where` is its URL. Every path in it stays
    inside the table.

    `briefly` reads only what decides the places of its transactions. `decode_lines` reads the rest of some of them.
    Raises CorruptMarkerError, and UnsupportedTableError for a later version of the protocol.
    """
    header, lines = _open(body, number=number, where=where)
    commits = _decode_commits(lines, header, where=where, decode=_decode_briefly if briefly else _decode_line)
    current = _schema(header.schemas, header.table_schema, where=where)
    return Checkpoint(
        number=number,
        table_id=header.table_id,
        commits=tuple(commits),
        apps=header.versions,
        metadata=Metadata(decode_schema(current), header.schema_turn, header.settings),
        known_since=header.known_since,
        erased_until=header.erased_until,
        last_erasure=header.last_erasure,
        redated_until=header.redated_until,
        doubts=tuple(Doubt(it.since, it.until) for it in header.doubtful or ()),
        parts=tuple(header.parts or ()),
        dropped=tuple(header.dropped or ()),
        cuts=tuple(header.cuts or ()),
        state=header.state,
    )


def decode_lines(body: bytes, places: Collection[int], *, number: int, where: str) -> dict[int, Decided]:
    """The transactions in these places, by place. Raises as `decode_checkpoint`."""
    header, lines = _open(body, number=number, where=where)
    return {
        place: _decode_line(line, header.schemas, where=where) for place, line in enumerate(lines) if place in places
    }


def _open(body: bytes, *, number: int, where: str, limit_bytes: int | None = None) -> tuple[_Header, Iterator[bytes]]:
    """The header, and the lines of the commits.

    `limit_bytes` is the most bytes of the header, unpacked; by default those of any body of this size.
    """
    lines, limit = _unpack(body, where=where), max_unpacked(len(body)) if limit_bytes is None else limit_bytes
    header = decode_body(_Header, next(lines, b""), where=where, limit_bytes=limit)
    if header.number != number:
        raise CorruptMarkerError(f"{where} records another number, {header.number}; {BRING_BACK}")
    for schema in header.schemas:
        check_schema(schema, where=where)
    return header, lines


class _DecodeLine(Protocol):
    def __call__(self, line: bytes, schemas: Sequence[Raw], *, where: str) -> Decided: ...


def _decode_commits(lines: Iterator[bytes], header: _Header, *, where: str, decode: _DecodeLine) -> Iterator[Decided]:
    """The commits one after the other. Only at their end is it known that the body is valid."""
    tids: set[str] = set()
    for line in lines:
        commit = decode(line, header.schemas, where=where)._replace(place=len(tids))
        if commit.tid in tids:  # at once, since a small body may unpack to many millions of equal lines
            raise CorruptMarkerError(f"{where} names {commit.tid[:100]} twice; {BRING_BACK}")
        tids.add(commit.tid)
        yield commit
    if len(tids) != header.commits:
        raise CorruptMarkerError(
            f"{where} has {len(tids)} commits, and its header counts {header.commits}; {BRING_BACK}"
        )


def _decode_line(line: bytes, schemas: Sequence[Raw], *, where: str) -> Decided:
    it = decode_body(_Line, line, where=where)
    if not names.is_tid(it.tid):
        raise CorruptMarkerError(f"{where} names {it.tid[:100]!r}, which is not a tid; {BRING_BACK}")
    check_marker(it.marker, where=where, scope=Scope.TABLE)
    schema = _schema(schemas, it.table_schema, where=where)
    if it.marker.dbio_commit is not None:
        force_setattr(
            it.marker.dbio_commit, "schema", schema
        )  # one object for equal schemas: tens of thousands of commits share a few
    return Decided(it.modified, it.tid, it.marker, Forgotten(it.forgotten_added, it.forgotten_removed))


def _decode_briefly(line: bytes, schemas: Sequence[Raw], *, where: str) -> Decided:
    it = decode_body(BriefLine, line, where=where)
    try:
        marker = brief_marker(it.marker.dbio_commit, added=it.marker.added, removed=it.marker.removed)
    except ValueError as error:
        raise CorruptMarkerError(f"{where} names {it.tid[:100]!r}: {error}; {BRING_BACK}") from None
    return Decided(it.modified, it.tid, marker)


def _schema(schemas: Sequence[Raw], index: int | None, *, where: str) -> Raw:
    if index is None:
        return NO_SCHEMA
    if index >= len(schemas):
        raise CorruptMarkerError(f"{where} refers to schema {index} of {len(schemas)}; {BRING_BACK}")
    return schemas[index]


def _unpack(body: bytes, *, where: str) -> Iterator[bytes]:
    """The lines, one after the other, so that no body takes unbounded memory."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    limit, size, rest = max_unpacked(len(body)), 0, list[bytes]()
    for piece in _unpack_pieces(unpacker, body, where=where):
        size += len(piece)
        if size > limit:
            raise CorruptMarkerError(f"{where} unpacks to more bytes than any writer packs; {BRING_BACK}")
        end, *more = piece.split(b"\n")
        rest.append(end)
        if more:
            yield b"".join(rest)
            *whole, last = more
            yield from whole
            rest = [last]
    if any(rest) or unpacker.unused_data:
        raise CorruptMarkerError(f"{where} has more bytes after its end; {BRING_BACK}")


def _unpack_pieces(unpacker: Any, body: bytes, *, where: str) -> Iterator[bytes]:
    """The body, unpacked. It is fed in pieces, too: the decompressor copies what it has not unpacked yet at each
    call."""
    for start in range(0, len(body) or 1, _PIECE_BYTES):
        packed = body[start : start + _PIECE_BYTES]
        while not unpacker.eof:
            try:
                piece = unpacker.decompress(packed, _PIECE_BYTES)
            except zlib.error as error:
                raise CorruptMarkerError(f"{where} ({len(body)} bytes) is not gzip: {error}; {BRING_BACK}") from None
            yield piece
            packed = unpacker.unconsumed_tail
            if not packed and len(piece) < _PIECE_BYTES:
                break  # and the decompressor has no output left
        if unpacker.eof and start + _PIECE_BYTES < len(body):
            raise CorruptMarkerError(f"{where} has more bytes after its end; {BRING_BACK}")
    if not unpacker.eof:
        raise CorruptMarkerError(f"{where} ({len(body)} bytes) is cut off; {BRING_BACK}")


_GZIP = zlib.MAX_WBITS | 16
_PIECE_BYTES = 1024 * 1024
