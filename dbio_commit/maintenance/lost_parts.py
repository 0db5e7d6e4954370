"""Finds lost and damaged parts of a checkpoint, and the intact parts that have the rows of lost ones.

A part is replaced by others only if they have exactly its rows. `lost_rows` makes new parts where no part has them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from msgspec import structs

from dbio_commit.base.errors import CheckpointLostError, ObjectNotFoundError
from dbio_commit.log.parts.parquet import DamagedPart
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.protocol.parts import Dropped, Part
from dbio_commit.store import Store


class Loss(NamedTuple):
    """An object of a part that is not as it was written."""

    part: Part
    name: str
    """The object: the part's own, or its statistics."""
    what: str
    """What is wrong with the object, in words."""

    @property
    def is_statistics(self) -> bool:
        return self.name != self.part.name

    def __str__(self) -> str:
        part = self.part
        kind = f"statistics of {part.name}" if self.is_statistics else part.kind
        return f"{self.name} ({kind}, checkpoints {part.since} to {part.until}) {self.what}"


class CannotRebuild(Exception):
    """The lost rows cannot be derived from this source. The text says why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that have all that a checkpoint recorded, or as much of it as could be rebuilt so far."""

    parts: tuple[Part, ...]
    """The parts of the checkpoint, and those that replace some; also lost parts that are not replaced yet."""
    losses: tuple[Loss, ...]
    """The objects that are still lost."""
    objects: Mapping[str, bytes] = field(default_factory=dict)
    """The bodies of new parts and statistics by name. They are not on the store yet."""
    used: tuple[str, ...] = ()
    """What replaces the lost parts, in words."""
    loses: tuple[str, ...] = ()
    """What stays lost, in words."""

    def replaced(self, gone: Iterable[Part], new: Sequence[Part]) -> tuple[Part, ...]:
        """The parts, without some and with new ones."""
        names = {part.name for part in gone}
        return (*(part for part in self.parts if part.name not in names), *new)


class RebuildReader(PartReader):
    """Reads parts, also those that are not on the store yet."""

    def __init__(self, store: Store, number: int) -> None:
        super().__init__(store, number)
        self._tables: dict[str, pa.Table] = {}

    def put(self, part: Part, table: pa.Table) -> None:
        """Makes `table` return these rows for the part."""
        self._tables[part.name] = table

    def table(self, part: Part, groups: Iterable[int] | None = None) -> pa.Table:
        found = self._tables.get(part.name)
        return super().table(part, None if groups is None else [*groups]) if found is None else found


def find_losses(store: Store, reader: PartReader, parts: Sequence[Part]) -> list[Loss]:
    """Reads all objects of these parts, one after the other, and returns those that are not as they were written."""
    names = [name for part in parts for name in part.objects]
    sizes = {entry.path: entry.size for entry in store.stat_many(names) if entry}
    found: list[Loss] = []
    for part in parts:
        if why := _wrong_size(sizes.get(part.name), part.bytes) or _wrong_rows(reader, part):
            found.append(Loss(part, part.name, why))
        statistics = part.statistics
        if statistics and (
            why := _wrong_size(sizes.get(statistics.name), statistics.bytes) or _wrong_statistics(reader, part)
        ):
            found.append(Loss(part, statistics.name, why))
    return found


def _wrong_size(found: int | None, expected: int) -> str | None:
    if found is None:
        return "does not exist"
    return None if found == expected else f"is damaged: it has {found} bytes instead of {expected}"


_DAMAGED = "is damaged: its bytes are not those that were written"


def _wrong_rows(reader: PartReader, part: Part) -> str | None:
    try:
        for group in range(len(part.groups)):
            reader.table(part, [group])
    except CheckpointLostError:
        return _DAMAGED
    except ObjectNotFoundError:
        return "does not exist"
    return None


def _wrong_statistics(reader: PartReader, part: Part) -> str | None:
    try:
        opened = reader.open_statistics(part)
        if opened and sum(opened.group_rows) != part.rows:
            return _DAMAGED
        for group in range(len(opened.group_rows) if opened else 0):
            for some in opened.batches(opened.columns, group) if opened else ():
                opened and opened.read(some, group)
    except (CheckpointLostError, DamagedPart):
        return _DAMAGED
    except ObjectNotFoundError:
        return "does not exist"
    return None


# --- merges that are undone -------------------------------------------------------------------------------------------


def undo_merges(
    store: Store, reader: PartReader, dropped: Sequence[Dropped], state: Parts, *, statistics: bool = True
) -> Parts:
    """Replaces lost parts by the parts from which merges made them, if all of these are intact.

    To undo a merge, all parts that it made are replaced, and later merges of these are undone first. Without
    `statistics`, the parts need not have them: lost ones are among the losses of the result.
    """
    merges = _Merges(dropped)
    checked: dict[str, list[Loss]] = {}

    def is_intact(part: Part) -> bool:
        if part.name not in checked:
            checked[part.name] = find_losses(store, reader, [part])
        return all(loss.is_statistics and not statistics for loss in checked[part.name])

    for loss in state.losses:
        if loss not in state.losses or (loss.is_statistics and not statistics):
            continue  # an earlier step has replaced it, or nothing has to
        if (found := merges.undone(state.parts, loss.part, is_intact)) is None:
            continue
        names = {part.name for part in found}
        new = sorted(names - {part.name for part in state.parts})
        used = f"{', '.join(new)}, from which a merge had made {loss.part.name}"
        left = (
            *(other for other in state.losses if other.part.name in names),
            *(other for name in new for other in checked[name]),
        )
        state = Parts(found, left, state.objects, (*state.used, used), state.loses)
    return state


MergeKey = tuple[int, tuple[str, ...]]
"""The number of the root that did a merge, and the names of the parts that the merge made."""


class _Merges:
    """The merges that a root still records, by the parts that they made."""

    def __init__(self, dropped: Sequence[Dropped]) -> None:
        self._inputs: dict[MergeKey, list[Part]] = {}
        for it in dropped:
            self._inputs.setdefault((it.by, tuple(it.into)), []).append(it.part)
        self._made_by = {output: key for key in self._inputs for output in key[1]}
        self._gone_into = {part.name: key for key, parts in self._inputs.items() for part in parts}

    def undone(self, parts: Sequence[Part], lost: Part, is_intact: Callable[[Part], bool]) -> tuple[Part, ...] | None:
        """The parts, with the inputs of merges in the place of the lost part. None if a merge cannot be undone."""
        found = {part.name: part for part in parts}
        undone = set[MergeKey]()
        due = [lost]
        while due:
            part = due.pop()
            if part.name in found and not self._undo(found, part.name, undone):
                return None
            due += [other for other in found.values() if other not in parts and not is_intact(other)]
        return tuple(sorted(found.values(), key=lambda part: (part.until, part.since)))

    def _undo(self, found: dict[str, Part], name: str, undone: set[MergeKey]) -> bool:
        """Undoes the merge that made this part. Returns whether that is possible."""
        key = self._made_by.get(name)
        if key is None or key in undone:
            return False
        undone.add(key)
        inputs, outputs = self._inputs[key], list[Part]()
        for output in key[1]:
            while output not in found:
                later = self._gone_into.get(output)
                if later is None or not later[1] or not self._undo(found, later[1][0], undone):
                    return False
            outputs.append(found.pop(output))
        since, until = min(part.since for part in inputs), max(part.until for part in inputs)
        if any((part.since, part.until) != (since, until) for part in outputs):
            return False  # the root does not record all that was merged
        found.update({part.name: part for part in inputs})
        return True


# --- statistics -------------------------------------------------------------------------------------------------------


def without_statistics(state: Parts) -> Parts:
    """The parts without the statistics that are lost. Readers then get the same rows, and skip fewer files."""
    lost = {loss.part.name for loss in state.losses if loss.is_statistics}
    if not lost:
        return state
    parts = tuple(structs.replace(part, statistics=None) if part.name in lost else part for part in state.parts)
    rows = sum(part.rows for part in parts if part.name in lost)
    return Parts(
        parts,
        tuple(loss for loss in state.losses if not loss.is_statistics),
        state.objects,
        (*state.used, f"{', '.join(sorted(lost))} without statistics"),
        (*state.loses, f"the statistics of {rows} paths: readers get all rows, and skip none of these files by them"),
    )
