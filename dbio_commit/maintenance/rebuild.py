"""Rebuilds a checkpoint that cannot be read, or whose parts are lost: `dbio checkpoint --rebuild`.

Before vacuum purges markers of a transaction, two checkpoints cover it, and a purge record names the checkpoint by
which it purges. If that checkpoint can be read, all later ones can be rebuilt. Lost parts of a checkpoint may also
follow from other objects: `lost_parts` and `lost_rows` find out. A rebuild deletes nothing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import CheckpointLostError, InvalidInputError, ObjectNotFoundError
from dbio_commit.base.logs import get_logger
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.commit.probe import prove_store
from dbio_commit.log.listing import (
    is_of_table,
    read_checkpoint,
    read_descriptor,
    read_numbered_checkpoint,
    read_turn,
    until_quiet,
)
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.log.table_log import TableLog
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import BRING_BACK, Checkpoint
from dbio_commit.protocol.commits import latest
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import FileStates, Reason, find_markers_below
from dbio_commit.protocol.log import Log, parse_log
from dbio_commit.protocol.parts import Dropped, Part
from dbio_commit.store import Store

if TYPE_CHECKING:
    from dbio_commit.maintenance.lost_parts import Loss, Parts
    from dbio_commit.maintenance.lost_rows import Evidence

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """A plan to rebuild a checkpoint: what replaces the lost objects, and what stays lost."""

    base: int
    """The number of the checkpoint that replaces the unreadable ones, together with the markers. 0: the markers alone.
    If a part of it is lost, others replace that."""
    used: Sequence[str]
    """What replaces the unreadable objects, in words."""
    loses: Sequence[str] = ()
    """What stays lost, in words. Rows never are."""
    lost: Sequence[str] = ()
    """The lost and damaged objects of parts, in words."""
    intact: int = 0
    """How many objects of the same parts are intact."""
    snapshot: Snapshot = field(repr=False)
    objects: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """New parts, which are to be written before the checkpoint."""


class Rebuilt(NamedTuple):
    """What a rebuild did."""

    name: str | None = None
    """The new checkpoint; None if another process was faster."""
    used: Sequence[str] = ()
    """See `Rebuild`."""
    loses: Sequence[str] = ()


def rebuild_checkpoint(store: Store, clock: Clock) -> Rebuilt:
    """Writes a checkpoint with all that the unreadable ones, and lost parts, held.

    Raises InvalidInputError if all checkpoints and parts can be read, CheckpointLostError if nothing readable holds
    what was lost.
    """
    plan = plan_rebuild(store, clock)
    if plan is None:
        raise InvalidInputError(f"the checkpoints of {store.url} can be read, so there is nothing to rebuild")
    prove_store(store)
    if plan.objects:
        from dbio_commit.commit.parts import put_part  # imports pyarrow, which small tables do without

        for part, body in plan.objects.items():
            put_part(store, part, body)
    name = write_checkpoint(store, clock, plan.snapshot, again=True)
    if name is None:
        return Rebuilt()
    _refuse_deleted(store, plan.snapshot.checkpoint.parts)
    for loss in plan.loses:
        _log.warning("%s: %s is without %s", store.url, name, loss)
    return Rebuilt(name, plan.used, plan.loses)


def _refuse_deleted(store: Store, parts: Sequence[Part]) -> None:
    """Raises CheckpointLostError if a vacuum that began before the rebuild has deleted a part."""
    objects = [name for part in parts for name in part.objects]
    for name, entry in zip(objects, store.stat_many(objects), strict=True):
        if entry is None:
            raise CheckpointLostError(
                f"{store.url_of(name)} was deleted during the rebuild; stop vacuum, and rebuild the checkpoint again"
            )


def plan_rebuild(store: Store, clock: Clock) -> Rebuild | None:
    """Plans a rebuild, and changes nothing. None if there is nothing to rebuild. Raises as `rebuild_checkpoint`."""
    return until_quiet(store, lambda: _plan(store, clock))


def _plan(store: Store, clock: Clock) -> Rebuild | None:
    entries = store.list_files()  # before the log, so that files of a transaction that begins now are not unknown
    log = parse_log(store.list_log())
    table_id = read_descriptor(store, log).id
    unreadable, damaged = _find_unreadable(store, log, table_id)
    if not unreadable and not damaged:
        read_checkpoint(store, log, table_id=table_id)  # raises CheckpointLostError if all checkpoints are gone
        return None
    sources = _Sources(store, clock, entries, log, table_id, unreadable, damaged)
    if not damaged:
        return sources.from_older()
    return sources.first_that_has_it()


def _find_unreadable(store: Store, log: Log, table_id: str) -> tuple[list[int], list["_Damaged"]]:
    """The checkpoints that are newer than the newest intact one of the table, the highest first: the numbers of those
    that cannot be read, and those that lack parts."""
    found, damaged = list[int](), list[_Damaged]()
    checked: dict[str, Sequence[Loss]] = {}
    for number in sorted(log.checkpoints, reverse=True):
        try:
            checkpoint = read_numbered_checkpoint(store, log, number)
        except CheckpointLostError:
            found.append(number)
            continue
        if not is_of_table(checkpoint.table_id, table_id):
            continue
        losses = [loss for part in checkpoint.parts for loss in _losses(store, log, part, checked)]
        if not losses:
            break
        damaged.append(_Damaged(checkpoint, losses))
    return found, damaged


def refuse_losses(store: Store, log: Log, checkpoint: Checkpoint) -> None:
    """Reads all parts of the checkpoint. Raises CheckpointLostError if one is gone or damaged."""
    if losses := [loss for part in checkpoint.parts for loss in _losses(store, log, part, {})]:
        raise CheckpointLostError(f"{_lacking(store, checkpoint, losses)}; {BRING_BACK}")


def _lacking(store: Store, root: Checkpoint, losses: Collection["Loss"]) -> str:
    objects = "an object" if len(losses) == 1 else f"{len(losses)} objects"
    return f"{store.url_of(names.checkpoint(root.number))} lacks {objects} of its parts: {_some(losses)}"


def _losses(store: Store, log: Log, part: Part, checked: dict[str, Sequence["Loss"]]) -> Sequence["Loss"]:
    """What is lost of the part. `checked` keeps the results, since checkpoints have most parts in common."""
    from dbio_commit.maintenance.lost_parts import RebuildReader, find_losses  # imports pyarrow

    key = " ".join(part.objects)
    if key not in checked:
        checked[key] = find_losses(store, RebuildReader(store, log.last_checkpoint), [part])
    return checked[key]


class _Damaged(NamedTuple):
    """A checkpoint that can be read, but has lost or damaged parts."""

    root: Checkpoint
    losses: Sequence["Loss"]


@dataclass(frozen=True, slots=True)
class _Sources:
    """The objects from which a checkpoint may be rebuilt."""

    store: Store
    clock: Clock
    entries: Sequence[Entry]
    """The files, listed before the log."""
    log: Log
    table_id: str
    unreadable: Sequence[int]
    damaged: Sequence[_Damaged]

    def first_that_has_it(self) -> Rebuild:
        """The plan by the first source that certainly has all that is lost. Raises CheckpointLostError, with what each
        source lacks."""
        from dbio_commit.maintenance.lost_parts import CannotRebuild

        refusals: list[str] = []
        for what, plan in self._each():
            try:
                return self._described(plan())
            except (CannotRebuild, CheckpointLostError) as error:
                refusals.append(f"Not from {what}: {error}")
        root, losses = self.damaged[0]
        higher = f"{self.store.url_of(names.checkpoint(self.unreadable[0]))} cannot be read" if self.unreadable else ""
        raise CheckpointLostError(
            *([higher] if higher else []),
            _lacking(self.store, root, losses),
            *dict.fromkeys(refusals),
            f"Stop vacuum, and bring {losses[0].name} back as it was, from a version of the bucket or from a backup",
        )

    def _described(self, plan: Rebuild) -> Rebuild:
        losses = [loss for it in self.damaged for loss in it.losses]
        objects = {name for it in self.damaged for part in it.root.parts for name in part.objects}
        lost = list(dict.fromkeys(map(str, losses)))
        return replace(plan, lost=lost, intact=len(objects) - len({loss.name for loss in losses}))

    def _each(self) -> Iterator[tuple[str, Callable[[], Rebuild]]]:
        for it in self.damaged:
            root = names.checkpoint(it.root.number)
            yield f"{root} with the parts that merges replaced, and commit markers", partial(self._from_parts, it)
        yield "an older checkpoint and the commit markers", self.from_older
        for it in self.damaged:
            root = names.checkpoint(it.root.number)
            yield f"{root} without lost statistics", partial(self._from_parts, it, statistics=False)
            if any(not loss.is_statistics for loss in it.losses):
                yield f"{root} with a listing of the table", partial(self._from_listing, it)

    # --- older checkpoints ----------------------------------------------------------------------------------------

    def from_older(self) -> Rebuild:
        """The newest intact checkpoint, or none, with the markers that it does not cover."""
        broken = frozenset({*self.unreadable, *(it.root.number for it in self.damaged)})
        snapshot = TableLog(self.store, self.clock, self.log, passing_over=broken).snapshot()
        self._check_all(snapshot, max(broken))
        base = snapshot.checkpoint
        used = [f"{names.checkpoint(base.number)} and the commit markers" if base.number else "the commit markers"]
        if base.parts:
            known = snapshot.log.checkpoint_after(base.number)
            snapshot = replace(snapshot, checkpoint=replace(base, dropped=self._dropped(base, base.parts, known)))
        return Rebuild(base=base.number, used=used, snapshot=snapshot)

    # --- parts ----------------------------------------------------------------------------------------------------

    def _from_parts(self, it: _Damaged, *, statistics: bool = True) -> Rebuild:
        """The parts that merges replaced, and the markers. Without `statistics`, lost statistics stay lost."""
        from dbio_commit.maintenance.lost_parts import undo_merges, without_statistics
        from dbio_commit.maintenance.lost_rows import rows_from_markers

        known, state = self._evidence(it)
        state = undo_merges(self.store, known.reader, it.root.dropped, state)
        if not statistics:
            state = undo_merges(self.store, known.reader, it.root.dropped, state, statistics=False)
            state = without_statistics(state)
        left = state.losses
        state = rows_from_markers(known, state) if left else state
        lacks_commits = any(loss.part.kind == "commits" and not loss.is_statistics for loss in left)
        return self._plan(it.root, known, state, check_all=lacks_commits, check_files=bool(left))

    def _from_listing(self, it: _Damaged) -> Rebuild:
        from dbio_commit.maintenance.lost_parts import undo_merges, without_statistics
        from dbio_commit.maintenance.lost_rows import rows_from_listing

        known, state = self._evidence(it)
        state = undo_merges(self.store, known.reader, it.root.dropped, state)
        state = undo_merges(self.store, known.reader, it.root.dropped, state, statistics=False)
        state, known_since = rows_from_listing(known, without_statistics(state))
        return self._plan(it.root, known, state, check_all=False, check_files=True, known_since=known_since)

    def _evidence(self, it: _Damaged) -> "tuple[Evidence, Parts]":
        from dbio_commit.maintenance.lost_parts import Parts, RebuildReader
        from dbio_commit.maintenance.lost_rows import Evidence

        reader = RebuildReader(self.store, self.log.last_checkpoint)
        known = Evidence(self.store, self.log, self.table_id, it.root, self.entries, reader)
        return known, Parts(it.root.parts, tuple(it.losses))

    def _plan(
        self,
        root: Checkpoint,
        known: "Evidence",
        state: "Parts",
        *,
        check_all: bool,
        check_files: bool,
        known_since: datetime | None = None,
    ) -> Rebuild:
        """The plan that puts these parts in the place of the checkpoint's own."""
        from dbio_commit.log.parts.commits import StoredCommits

        above = [it for it in (*self.unreadable, *(it.root.number for it in self.damaged)) if it > root.number]
        if above and (purged := max(self.log.purges, default=0)) > root.number:
            raise CheckpointLostError(
                f"vacuum has purged commit markers by {names.checkpoint(purged)}, and their transactions need not be "
                f"in {names.checkpoint(root.number)}"
            )
        stored = StoredCommits(known.reader, state.parts)
        known_since = latest(root.known_since, known_since)
        base = replace(root, commits=stored.all, known_since=known_since, parts=(), dropped=(), cuts=(), state=None)
        reading = TableLog(self.store, self.clock, self.log, passing_over=frozenset(above), base=base)
        snapshot = reading.snapshot()
        if snapshot.log.checkpoint_after(root.number) != known.number:
            raise ObjectNotFoundError(f"{self.store.url} has a newer checkpoint; look again")
        if above or check_all:
            self._check_all(snapshot, max(above, default=root.number))
        elif check_files:
            self._check_files(snapshot, root.number)
        dropped = self._dropped(root, state.parts, known.number)
        before = replace(root, commits=stored, known_since=known_since, parts=state.parts, dropped=dropped)
        return Rebuild(
            base=root.number,
            used=state.used,
            loses=state.loses,
            snapshot=replace(snapshot, checkpoint=before),
            objects=state.objects,
        )

    def _dropped(self, root: Checkpoint, parts: Sequence[Part], number: int) -> tuple[Dropped, ...]:
        """The parts that the new checkpoint records as dropped: those of `root`, and of damaged checkpoints above it,
        that it does not name. Readers may still read them, and another rebuild may need them."""
        named = {part.name for part in parts}
        above = [it.root for it in self.damaged if it.root.number > root.number]
        found = {it.part.name: it for source in (*above, root) for it in source.dropped if it.part.name not in named}
        own = {part.name for part in root.parts}
        for part in (part for source in (root, *above) for part in source.parts):
            if part.name not in named and part.name not in found:
                into = [other.name for other in parts if other.kind == part.kind and other.name not in own]
                into = into if part.name in own else []
                found[part.name] = Dropped(part=part, into=into, by=number)
        return tuple(found.values())

    # --- checks ---------------------------------------------------------------------------------------------------

    def _check_files(self, snapshot: Snapshot, number: int) -> None:
        """Raises CheckpointLostError if a live file does not exist: lost rows may have removed it."""
        exist = {entry.path for entry in self.entries}
        if missing := sorted({file.path for file in snapshot.files} - exist):
            raise CheckpointLostError(
                f"{self._which(number)}{len(missing)} files that are live by the other markers do not exist, first "
                f"{missing[0]}.{_BRING}"
            )

    def _check_all(self, snapshot: Snapshot, number: int) -> None:
        """Raises CheckpointLostError if there are signs of transactions that the snapshot does not know."""
        which = self._which(number)
        files = [entry for entry in self.entries if names.is_data_file(entry.path)]
        live = {file.path for file in snapshot.files}
        known = FileStates.of(snapshot.decided, live=live, log=snapshot.log, layouts=snapshot.layouts)
        strangers = find_markers_below(self.entries)
        unknown = [
            it.path for it in files if (why := known.why_not_live(it, strangers)) and why.reason is Reason.UNKNOWN
        ]
        if unknown:
            raise CheckpointLostError(
                f"{which}{len(unknown)} data files, first {unknown[0]}, belong to transactions that nothing else "
                f"records.{_BRING}. If no transaction committed these files, move them out of the table, and then "
                "rebuild it"
            )
        self._check_files(snapshot, number)
        known_tids = {commit.tid for commit in snapshot.decided} | {*snapshot.log.started}
        for turn_number in sorted(snapshot.log.turns):
            turn = read_turn(self.store, snapshot.log, turn_number, table_id=self.table_id)
            if turn and turn.tid not in known_tids:
                raise CheckpointLostError(
                    f"{which}nothing records what transaction {turn.tid} did in turn {turn_number}.{_BRING}"
                )

    def _which(self, number: int) -> str:
        return f"{self.store.url_of(names.checkpoint(number))} cannot be read, and "


_BRING = " The checkpoint may have recorded that: restore it, from a version of the bucket or from a backup"


def _some(losses: Collection[object]) -> str:
    """The first few losses, as text."""
    first = "; ".join(str(loss) for loss, _ in zip(losses, range(_MOST), strict=False))
    return first + (f"; and {len(losses) - _MOST} more" if len(losses) > _MOST else "")


_MOST = 5
