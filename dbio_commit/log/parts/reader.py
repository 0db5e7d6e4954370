"""Reads parts from the store."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from dbio_commit.base.errors import CheckpointLostError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.base.texts import command
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.parquet import DamagedPart, OpenStatistics, decode_groups
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import BRING_BACK
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.names import Kind
from dbio_commit.protocol.parts import Part
from dbio_commit.store import Store

_log = get_logger(__name__)

_SCHEMAS = {"files": rows.FILES, "commits": rows.COMMITS}

MOST_BYTES_AT_ONCE = 64 * 1024**2
"""The most bytes of neighbouring row groups that one request fetches."""
_WHOLE_BYTES = 1024**2
"""A part up to this size is fetched whole, also if few of its row groups are needed: a second request takes longer."""


Fetched = tuple[bytes, Mapping[int, memoryview]]
"""The footer of a part, and the bytes of some of its row groups, by their numbers."""


class PartReader:
    """Reads the parts of the root with this number."""

    def __init__(self, store: Store, number: int, *, newest: int | None = None) -> None:
        """`newest` is the highest number of a checkpoint that was listed when the root was chosen. A checkpoint with a
        higher number than the root's may be another table's."""
        self.store, self._number = store, number
        self._newest = number if newest is None else newest

    def table(self, part: Part, groups: Collection[int] | None = None) -> pa.Table:
        """The rows of a part, or of some of its row groups.

        Raises CheckpointLostError if the part is gone or damaged, ObjectNotFoundError if there is a newer root.
        """
        return self.decode(part, self.fetch(part, groups))

    def fetch(self, part: Part, groups: Collection[int] | None = None) -> Fetched:
        """The bytes of these row groups, for `decode`. Raises as `table`."""
        wanted = range(len(part.groups)) if groups is None else sorted(groups)
        try:
            return self._fetch(part, wanted)
        except ObjectNotFoundError:
            raise self._absent(part) from None

    def decode(self, part: Part, fetched: Fetched) -> pa.Table:
        """The rows in the fetched bytes of a part. Raises as `table`."""
        try:
            return decode_groups(part, *fetched, _SCHEMAS[part.kind])
        except DamagedPart as error:
            raise self._lost(part, f"is damaged: {error}") from None

    def _fetch(self, part: Part, wanted: Sequence[int]) -> Fetched:
        end = part.bytes - part.footer
        bodies: dict[int, memoryview] = {}
        if part.bytes <= (MOST_BYTES_AT_ONCE if len(wanted) == len(part.groups) else _WHOLE_BYTES):
            whole = self.store.get(part.name, limit_bytes=MOST_BYTES_AT_ONCE)
            view = memoryview(whole)
            bodies = {i: view[part.groups[i].at :][: part.groups[i].bytes] for i in wanted}
            return whole[end:], bodies
        for first, last in _runs(part, wanted):
            start = part.groups[first].at
            stop = part.groups[last].at + part.groups[last].bytes
            view = memoryview(self.store.get_some(part.name, start, stop - start))
            for i in range(first, last + 1):
                group = part.groups[i]
                bodies[i] = view[group.at - start :][: group.bytes]
        return self.store.get_some(part.name, end, part.footer), bodies

    def statistics(self, part: Part) -> OpenStatistics | None:
        """The statistics of a part; None if it has none, or if they are lost. They are hints: a WARNING says so."""
        try:
            return self.open_statistics(part)
        except (CheckpointLostError, ObjectNotFoundError) as error:
            _log.warning("no file of %s is skipped by its values: %s", part.name, error)
            return None

    def open_statistics(self, part: Part) -> OpenStatistics | None:
        """The statistics of a part; None if it has none. Raises as `table`."""
        statistics = part.statistics
        if statistics is None:
            return None
        try:
            footer = self.store.get_some(statistics.name, statistics.bytes - statistics.footer, statistics.footer)
            found = OpenStatistics(statistics, footer, partial(self.store.get_some, statistics.name))
            if sum(found.group_rows) != part.rows:
                raise DamagedPart("they have another number of rows than the part")
            return found
        except DamagedPart as error:
            raise self._lost(part, f"is damaged: {error}", of_statistics=True) from None
        except ObjectNotFoundError:
            raise self._absent(part, of_statistics=True) from None

    def tables(self, parts: Sequence[Part]) -> list[pa.Table]:
        """The rows of parts, part by part."""
        return list(self.store.in_parallel(self.table, parts))

    def forgetful(self, parts: Sequence[Part]) -> frozenset[str]:
        """The names of the parts with a row that marks a path as forgotten. Reads all parts of files."""
        files = [part for part in parts if part.kind == "files"]
        found = self.store.in_parallel(lambda part: rows.has_gone(self.table(part)), files, at_once=2)
        return frozenset(part.name for part, has in zip(files, found, strict=True) if has)

    def _absent(self, part: Part, *, of_statistics: bool = False) -> Exception:
        newest = parse_log(self.store.list_log(Kind.CHECKPOINT)).last_checkpoint
        if newest > self._newest:
            return ObjectNotFoundError(
                f"{self.store.url_of(part.name)} does not exist any more: it is a part of "
                f"{names.checkpoint(self._number)}, and there is a newer checkpoint, {newest}; take a new snapshot"
            )
        return self._lost(part, "does not exist", of_statistics=of_statistics)

    def _lost(self, part: Part, what: str, *, of_statistics: bool = False) -> CheckpointLostError:
        """The error for a lost part. `of_statistics`: only the object with the statistics of its files is lost."""
        checkpoint = names.checkpoint(self._number)
        if of_statistics and part.statistics:
            rebuild = command("dbio", "checkpoint", self.store.url, "--rebuild")
            return CheckpointLostError(
                f"{self.store.url_of(part.statistics.name)}, the statistics of a part of {checkpoint}, {what}; no row "
                f"is lost: `{rebuild}` records these statistics again, or leaves them out"
            )
        return CheckpointLostError(f"{self.store.url_of(part.name)}, a part of {checkpoint}, {what}; {BRING_BACK}")

    def unreadable(self, error: Exception) -> CheckpointLostError:
        """The error for parts whose rows contradict each other."""
        return CheckpointLostError(
            f"the parts of {self.store.url_of(names.checkpoint(self._number))} contradict each other: {error}; "
            f"{BRING_BACK}"
        )


class HeldParts(PartReader):
    """Reads some parts. The packed bytes of a part up to `MOST_BYTES_AT_ONCE` are fetched once, and stay in memory."""

    def __init__(self, reader: PartReader, parts: Sequence[Part]) -> None:
        """Raises as `table`."""
        super().__init__(reader.store, reader._number, newest=reader._newest)
        small = [part for part in parts if part.bytes <= MOST_BYTES_AT_ONCE]
        self._held = dict(zip((part.name for part in small), self.store.in_parallel(self._whole, small), strict=True))

    def _whole(self, part: Part) -> bytes:
        try:
            return self.store.get(part.name, limit_bytes=MOST_BYTES_AT_ONCE)
        except ObjectNotFoundError:
            raise self._absent(part) from None

    def _fetch(self, part: Part, wanted: Sequence[int]) -> Fetched:
        if (body := self._held.get(part.name)) is None:
            return super()._fetch(part, wanted)
        view = memoryview(body)
        return body[part.bytes - part.footer :], {i: view[part.groups[i].at :][: part.groups[i].bytes] for i in wanted}


def _runs(part: Part, wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and last number of each run of neighbouring row groups that one request fetches."""
    first = last = wanted[0]
    for i in wanted[1:]:
        size = part.groups[i].at + part.groups[i].bytes - part.groups[first].at
        if i != last + 1 or size > MOST_BYTES_AT_ONCE:
            yield first, last
            first = i
        last = i
    yield first, last
