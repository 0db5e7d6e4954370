"""The log: the markers of one directory, as they are listed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

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
    """DBIO's vacuum markers."""
    dropped: Entry | None = None
    """The tombstone of a table that is being removed."""
    clocks: Mapping[str, Entry] = field(default_factory=dict)
    """What vacuums asked for the time with."""
    later: Mapping[str, Entry] = field(default_factory=dict)
    """Commit markers of which a reader knows, and which came too late to count in the state that it has."""
    refusals: Mapping[int, Entry] = field(default_factory=dict)
    """By number, which is higher by one than that of the checkpoint which a refused adoption has put out of use."""
    purges: Mapping[int, Entry] = field(default_factory=dict)
    """By the number of the checkpoint that tells what was purged."""

    @property
    def pending(self) -> list[str]:
        """The tids that are not decided, oldest first."""
        return sorted(self.started.keys() - self.committed.keys() - self.later.keys())

    @property
    def last_turn(self) -> int:
        """The highest turn that was ever taken; 0 for none."""
        return max(self.turns, default=0)

    @property
    def last_checkpoint(self) -> int:
        """The highest number of a checkpoint; 0 for none. Each covers all that those before it cover."""
        return max(self.checkpoints, default=0)

    def checkpoint_after(self, number: int) -> int:
        """The next number that nobody has had, not even a writer of another table that was here."""
        return max((number, *self.checkpoints, *self.refusals)) + 1

    @property
    def is_being_adopted(self) -> bool:
        """Whether an adoption has begun and neither come to its end nor been refused: the descriptor may come."""
        return self.descriptor is None and self.last_checkpoint > max(self.refusals, default=0)

    def uncovered(self, covered: Collection[str]) -> dict[str, Entry]:
        """The commit markers of other transactions than these, by tid."""
        return {tid: entry for tid, entry in self.committed.items() if tid not in covered}


def settle(base: Mapping[str, Entry], again: Mapping[str, Entry]) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Of commit markers those that count, and those that came too late to (PROTOCOL.md 8.1).

    `base` was listed before a pause that is as long as an object takes to appear, `again` after it. So `again` has all
    that came before the newest of `base`, and with each what that may rest on.
    """
    newest = max(entry.modified for entry in base.values())
    new = {tid: entry for tid, entry in again.items() if tid not in base}
    committed = {**base, **{tid: entry for tid, entry in new.items() if entry.modified <= newest}}
    return committed, {tid: entry for tid, entry in new.items() if tid not in committed}


REFUSAL = b"refused\n"
"""Under the name of a checkpoint: the one before it counts no more. No checkpoint is as short."""


def parse_log(entries: Iterable[Entry]) -> Log:
    """The log in a listing of one directory; whatever is not a marker is passed over."""
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
    )
