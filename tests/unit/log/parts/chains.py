"""Chains of checkpoints: one body of version 1 each, and a root with parts each, of the same transactions."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from dbio_commit.commit import parts as writers
from dbio_commit.log.parts import forgetting
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.protocol import names, parts
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import (
    NO_CHECKPOINT,
    Checkpoint,
    condense,
    decode_checkpoint,
    encode_checkpoint,
    encode_root,
)
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.log import Log
from dbio_commit.protocol.markers.bodies import REFERRING
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker, abort_marker, bounds_in, columns_in
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.parts import Merge, Part
from dbio_commit.protocol.references import resolve
from dbio_commit.testing import MemoryStore
from tests.builders import NOW, data

WHERE = "memory://table/_checkpoint"


def said(commit: Decided) -> Any:
    """All that a transaction says, without the form in which it says so. Of a repeated path, the first counts.

    The values of partition columns are those of directories, whatever a marker says. What `whole` says of files that
    the transaction no longer names means nothing.
    """
    marker, info = commit.marker, commit.marker.dbio_commit
    files = None
    if info and info.files:
        partitions = [names.parse_partition(names.split(path)[0]) for path in marker.added]
        columns = list(partitions[0]) if partitions else []
        values = {column: [it.get(column) for it in partitions] for column in columns}
        files = (list(info.files.size), list(info.files.rows), values)
    return (
        commit.modified,
        commit.tid,
        marker.added,
        list(dict.fromkeys(marker.removed)),
        commit.forgotten,
        marker.added and [*columns_in(marker)],
        {
            column: ([*map(repr, it.min)], [*map(repr, it.max)], list(it.nulls))
            for column, it in bounds_in(marker).items()
            if marker.added
        },
        info and with_fields(info, schema=b"", files=None, whole=None),
        info and bytes(info.schema),
        info and (None if info.whole is None else {*info.whole} & {*marker.added, *marker.removed}),
        files,
    )


def once(commit: Decided) -> Decided:
    """The transaction with each removed path once, so that both forms count the same paths as forgotten."""
    removed = list(dict.fromkeys(commit.marker.removed))
    if len(removed) == len(commit.marker.removed):
        return commit
    return commit._replace(marker=with_fields(commit.marker, removed=removed))


# --- a chain ------------------------------------------------------------------------------------------------------


def write_root(store: MemoryStore, before: Checkpoint, checkpoint: Checkpoint) -> Checkpoint:
    """Writes the parts of a checkpoint with these transactions, which follows `before`."""
    snapshot: Any = SimpleNamespace(checkpoint=before, transactions=None, log=Log(), layouts=frozenset())
    return writers.write_parts(store, snapshot, checkpoint)


def write_slices(
    store: MemoryStore, before: Checkpoint, news: Sequence[Decided], gone: Collection[str], keep_since: datetime
) -> Checkpoint:
    """The same slice by slice. The checkpoint before it has parts."""
    outlines = {it.tid: it for it in (*before.outlines(news), *news)}
    # An outline says that its transaction adds what is removed now. Only here, that may be a path that is forgotten.
    for commit in before.commits:
        added = [path for path in outlines[commit.tid].marker.added if path in commit.marker.added]
        outlines[commit.tid] = commit._replace(marker=with_fields(outlines[commit.tid].marker, added=added))
    transactions = [outlines[it.tid] for it in in_order([*before.commits, *news])]
    snapshot: Any = SimpleNamespace(
        checkpoint=before, news=news, transactions=transactions, log=Log(), layouts=frozenset()
    )
    checkpoint = replace(NO_CHECKPOINT, number=before.number + 1, known_since=before.known_since)
    with patch.object(forgetting, "resolve", lambda commits: [*map(once, resolve(commits))]):
        found = writers.write_changes(
            store, snapshot, checkpoint, gone=gone, noted=(), keep_since=keep_since, is_due=True
        )
    assert found
    return found


@dataclass
class Chain:
    """Checkpoints of both forms, one after the other. Those with parts are written at once, and slice by slice."""

    store: MemoryStore
    body: Checkpoint = NO_CHECKPOINT
    root: Checkpoint = NO_CHECKPOINT
    sliced: Checkpoint = NO_CHECKPOINT
    other_store: MemoryStore = field(default_factory=MemoryStore)
    """It has the parts of `sliced`."""
    referring: set[str] = field(default_factory=set)
    """The transactions that have removed files by reference."""

    def write(
        self, new: Sequence[Decided], *, gone: Collection[str] = (), keep_since: datetime = NOW - timedelta(days=9999)
    ) -> None:
        """The next checkpoint, as `write_checkpoint` makes it from the last one and the new transactions."""
        number = self.body.number + 1
        self.referring |= {it.tid for it in new if it.marker.removed_tids}
        body, root = (
            replace(
                NO_CHECKPOINT,
                number=number,
                commits=tuple(commits),
                known_since=known_since,
            )
            for commits, known_since in (
                condense(
                    [*map(once, in_order(resolve([*before.commits, *new])))],
                    gone=gone,
                    noted=(),
                    keep_since=keep_since,
                    known_since=before.known_since,
                )
                for before in (self.body, self.root)
            )
        )
        if number == 1:
            self.sliced = write_root(self.other_store, self.sliced, root)
        else:
            self.sliced = write_slices(self.other_store, self.sliced, [*map(once, new)], gone, keep_since)
        self.body = decode_checkpoint(encode_checkpoint(body, created=NOW), number=number, where=WHERE)
        root = write_root(self.store, self.root, root)
        if root.parts:  # of a table without any transaction there are none
            decode_checkpoint(encode_root(root, created=NOW), number=number, where=WHERE)
        self.root = root
        assert (self.sliced.state, self.sliced.known_since) == (root.state, root.known_since)

    def read(self, order: Callable[[list[Part]], Sequence[Part]] = lambda parts: parts) -> list[Decided]:
        """The transactions in the parts, which are read in this order."""
        return list(StoredCommits(PartReader(self.store, self.root.number), order([*self.root.parts])))

    def check(self, order: Callable[[list[Part]], Sequence[Part]] = lambda parts: parts) -> None:
        assert [*map(said, self.read(order))] == [*map(said, self.body.commits)]
        sliced = StoredCommits(PartReader(self.other_store, self.sliced.number), order([*self.sliced.parts]))
        assert [*map(self._said, sliced)] == [*map(self._said, self.body.commits)]

    def _said(self, commit: Decided) -> Any:
        """What is removed by references has no order."""
        told = [*said(commit)]
        if commit.tid in self.referring:
            told[3] = sorted(told[3])
        return told


@contextmanager
def merging(choose: Callable[[Sequence[Part], Sequence[parts.Key]], list[Merge]]) -> Iterator[None]:
    """Checkpoints merge what this chooses."""
    with patch.object(writers, "plan_merges", lambda found, cuts, limits: choose(found, cuts)):
        yield


def any_merges(draw: Any) -> Callable[[Sequence[Part], Sequence[parts.Key]], list[Merge]]:
    """Any parts of one kind, whether or not they are neighbours, at any moment, into any number of pieces."""

    def choose(found: Sequence[Part], cuts: Sequence[parts.Key]) -> list[Merge]:
        merges: list[Merge] = []
        for kind in ("files", "commits"):
            own = [part for part in found if part.kind == kind]
            if len(own) > 1 and draw(st.booleans()):
                chosen = draw(st.sets(st.sampled_from(range(len(own))), min_size=2))
                merged = [own[i] for i in sorted(chosen)]
                whole = parts._is_whole(merged, found)
                is_cut = kind == "files" and draw(st.booleans())
                merges.append(
                    Merge(merged, whole, pieces=draw(st.integers(1, 3)) if is_cut and not cuts else 1,
                          cuts=cuts if is_cut else ())
                )  # fmt: skip
        return merges

    return choose


# --- random transactions ------------------------------------------------------------------------------------------

DIRECTORIES = ["day=0/", "day=1/", "day=é/", "day=__HIVE_DEFAULT_PARTITION__/"]
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.just(1 << 70) | st.sampled_from([0.5, -0.0, "", "ä"])
BOUNDS = st.builds(Bounds, SCALARS, SCALARS, st.none() | st.integers(0, 5))


@dataclass
class Steps:
    """Random news of a table, one checkpoint after the other."""

    draw: Any
    live: list[str]
    removed: list[str]
    tids: list[str]
    later: list[str]
    """Tids that an overwrite has named, and that come to light later."""
    count: int = 0

    def news(self) -> list[Decided]:
        found = [self._commit() for _ in range(self.draw(st.integers(0, 3)))]
        if self.later and self.draw(st.booleans()):
            found.append(self._append(self.later.pop()))
        return found

    def gone(self) -> set[str]:
        return self.draw(st.sets(st.sampled_from(sorted({*self.removed})))) if self.removed else set()

    def _time(self) -> datetime:
        return NOW + timedelta(seconds=self.draw(st.integers(-3, 3)))  # the clock steps back, and many times are equal

    def _new_tid(self) -> str:
        self.count += 1
        return f"{self.draw(st.integers(0, 9))}{self.count}"

    def _commit(self) -> Decided:
        tid = self._new_tid()
        self.tids.append(tid)
        match self.draw(st.sampled_from(["append", "append", "change", "refer", "plain", "abort"])):
            case "abort":
                return Decided(self._time(), tid, abort_marker(commit_id="c", timestamp=NOW))
            case "plain":
                added = [f"a/{data(tid)}"]
                self.live += added
                return Decided(self._time(), tid, CommitMarker(added=added, removed=self._take()))
            case "refer":
                late = f"5{self.count}9"
                self.later.append(late)
                tids = [late, *self.draw(st.lists(st.sampled_from(self.tids), max_size=1))]
                info = self._info([], "overwrite", version=REFERRING, removed_tids=tids)
                marker = CommitMarker(added=[], removed=self._take(), dbio_commit=info)
                return Decided(self._time(), tid, marker)
            case "change":
                return self._append(tid, removed=self._take(), whole=True)
        return self._append(tid)

    def _take(self) -> list[str]:
        found = self.draw(st.lists(st.sampled_from(sorted(self.live)), max_size=3, unique=True)) if self.live else []
        self.removed += found
        return found

    def _append(self, tid: str, removed: Sequence[str] = (), *, whole: bool = False) -> Decided:
        draw = self.draw
        added = [f"{draw(st.sampled_from(DIRECTORIES))}{data(tid, i)}" for i in range(draw(st.integers(0, 3)))]
        name = names.format_data_file(tid=tid, job="j", task=7, attempt=1, number=0, suffix=".parquet", changes=True)
        changes = [f"day=1/{name}"] if whole else []
        self.live += added
        self.removed += changes
        both = [*added, *changes]
        info = self._info(
            both, "rewrite" if whole else "append", whole=both[:1] if whole and draw(st.booleans()) else None
        )
        return Decided(self._time(), tid, CommitMarker(added=both, removed=[*removed, *changes], dbio_commit=info))

    def _info(self, added: Sequence[str], recorded: Any, **more: Any) -> CommitInfo:
        draw = self.draw
        files = [
            FileInfo(
                path=path,
                size=draw(st.integers(0, 9)),
                rows=draw(st.none() | st.integers(0, 9)),
                partition=names.parse_partition(names.split(path)[0]),
                statistics=draw(st.dictionaries(st.sampled_from(["x", "ÿ"]), BOUNDS, max_size=2)),
            )
            for path in added
        ]
        packed = pack_files(files) if draw(st.booleans()) else None
        return CommitInfo(recorded=recorded, commit_id=f"c{self.count}", timestamp=NOW, files=packed, **more)
