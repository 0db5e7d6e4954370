"""The log: the markers of one directory, parsed from a listing."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from dbio_commit.protocol import names
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.names import Kind


@dataclass(frozen=True, slots=True)
class Log:
    """The markers of one directory, as listed. Zero-length commit markers count as absent."""

    descriptor: Entry | None = None
    started: Mapping[str, Entry] = field(default_factory=dict)
    committed: Mapping[str, Entry] = field(default_factory=dict)
    checkpoints: Mapping[int, Entry] = field(default_factory=dict)
    turns: Mapping[int, Entry] = field(default_factory=dict)
    queues: Mapping[str, Entry] = field(default_factory=dict)
    """DBIO's own vacuum markers."""
    dropped: Entry | None = None
    """The tombstone of a table that is being dropped."""
    clocks: Mapping[str, Entry] = field(default_factory=dict)
    """Objects that vacuums created to ask for the store's time."""
    later: Mapping[str, Entry] = field(default_factory=dict)
    """Commit markers that were listed, but came too late to count for the reader's state (PROTOCOL.md 8.1)."""
    refusals: Mapping[int, Entry] = field(default_factory=dict)
    """Checkpoints that refused adoptions have cancelled. The number is that of the cancelled checkpoint plus one."""
    purges: Mapping[int, Entry] = field(default_factory=dict)
    """Purge records by the number of the checkpoint that covers what was purged."""
    parts: Mapping[str, Entry] = field(default_factory=dict)
    """The parts of checkpoints, by name, also those that no checkpoint names."""

    @property
    def pending(self) -> list[str]:
        """The tids that are not decided, oldest first."""
        return sorted(self.started.keys() - self.committed.keys() - self.later.keys())

    @property
    def last_turn(self) -> int:
        """The highest turn that was ever taken, also by a writer of another table at the same place; 0 if there was
        none."""
        return max(self.turns, default=0)

    def turn_after(self, number: int) -> int:
        """The next free turn. A writer of another table at the same place may have taken some."""
        return next(it for it in count(number + 1) if it not in self.turns)

    def is_taken_again(self, turn: int) -> bool:
        """Whether the turn is younger than a later one: vacuum purged it, and a writer that stood still took it again.
        Then nobody holds it."""
        return any(number > turn and entry.modified < self.turns[turn].modified for number, entry in self.turns.items())

    @property
    def last_checkpoint(self) -> int:
        """The highest number of a checkpoint; 0 if there is none. Each covers all that earlier checkpoints cover."""
        return max(self.checkpoints, default=0)

    def checkpoint_after(self, number: int) -> int:
        """The next free number, which no writer has used, not even one of another table at the same place."""
        return max((number, *self.checkpoints, *self.refusals)) + 1

    @property
    def is_being_adopted(self) -> bool:
        """Whether an adoption has begun and neither ended nor been refused. Then the descriptor may still come."""
        return self.descriptor is None and self.last_checkpoint > max(self.refusals, default=0)

    def uncovered(self, covered: Collection[str]) -> dict[str, Entry]:
        """The commit markers of all transactions except those in `covered`, by tid."""
        return {tid: entry for tid, entry in self.committed.items() if tid not in covered}


def settle(
    base: Mapping[str, Entry], again: Mapping[str, Entry], newest: datetime
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """The commit markers that count, and those that came too late to count (PROTOCOL.md 8.1).

    `base` was listed before a pause, and `again` after it. The pause is as long as an object takes to appear. `newest`
    is the time of the newest marker of `base`, or of several tables together (8.5). Therefore `again` has each marker
    that came before that marker, and each marker on which such a marker may depend.
    """
    new = {tid: entry for tid, entry in again.items() if tid not in base}
    committed = {**base, **{tid: entry for tid, entry in new.items() if entry.modified <= newest}}
    return committed, {tid: entry for tid, entry in new.items() if tid not in committed}


def newest_of(*bases: Mapping[str, Entry]) -> datetime:
    """The time of the newest of these markers. There must be one."""
    return max(entry.modified for base in bases for entry in base.values())


REFUSAL = b"refused\n"
"""The body of an object that cancels the checkpoint with the number before its own. No checkpoint is as short."""


def parse_log(entries: Iterable[Entry]) -> Log:
    """The log in a listing of one directory. Objects that are not markers are ignored."""
    descriptor: Entry | None = None
    dropped: Entry | None = None
    found: dict[Kind, dict[str, Entry]] = {kind: {} for kind in Kind}
    for entry in entries:
        name = names.split(entry.path)[1]
        if name == names.DESCRIPTOR:
            descriptor = entry
        elif name == names.DROPPED:
            dropped = entry
        elif (parsed := names.parse_log_name(name)) and (entry.size or parsed.kind is not Kind.COMMITTED):
            found[parsed.kind][parsed.id] = entry
    numbered = {int(number): entry for number, entry in found[Kind.CHECKPOINT].items()}
    return Log(
        descriptor=descriptor,
        started=found[Kind.STARTED],
        committed=found[Kind.COMMITTED],
        checkpoints={number: entry for number, entry in numbered.items() if entry.size != len(REFUSAL)},
        refusals={number: entry for number, entry in numbered.items() if entry.size == len(REFUSAL)},
        turns={int(number): entry for number, entry in found[Kind.TURN].items()},
        queues=found[Kind.VACUUM],
        dropped=dropped,
        clocks=found[Kind.CLOCK],
        purges={int(number): entry for number, entry in found[Kind.PURGE].items()},
        parts={entry.path: entry for entry in found[Kind.PART].values()},
    )
