"""Every pair of operations at once: one is stopped before a call of the store, another runs as a whole, the first goes
on.

Each operation is right alone; what users do is two at once. Afterwards the rows and columns must be those of one order
of the two, or of one of them if the other was refused. Everything is real here, Parquet included, in memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dbio_commit as dbio
from dbio_commit.base.errors import DbioError
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.probe import _PROBED
from dbio_commit.data.footers import inspect_files
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.incremental_copy import update_copy
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.tiny_parts import tiny_parts

PAUSE = timedelta(seconds=90)
"""Passes before and after the operation that runs as a whole: more than what a writer trusts."""


def rows(*ids: int, **columns: Any) -> pa.Table:
    """Rows of the base: an id, a value, and the partition `p`."""
    given: dict[str, Any] = {
        "id": [*ids],
        "v": pa.array([10 * it for it in ids], pa.int32()),
        "p": ["a" if it % 2 else "b" for it in ids],
    }
    return pa.table({name: values for name, values in (given | columns).items() if values is not None})


# --- the place ----------------------------------------------------------------------------------------------------


@dataclass
class Place:
    """A table in memory, places for a whole copy of it and for an incremental copy, and one for another table."""

    clock: ManualClock
    store: MemoryStore
    whole: MemoryStore
    copies: MemoryStore
    joined: MemoryStore

    @classmethod
    def at(cls, clock: ManualClock) -> "Place":
        lake, names = dict[str, MemoryStore](), ("t", "whole", "copies", "joined")
        return cls(clock, *(MemoryStore(clock, url=f"s3://lake/{name}", lake=lake) for name in names))

    @property
    def stores(self) -> tuple[MemoryStore, ...]:
        return self.store, self.whole, self.copies, self.joined

    def table(self, who: str) -> Table:
        return self.over(self.store.seen_by(who))

    def over(self, store: MemoryStore) -> Table:
        return Table.over(store, self.clock, inspector=inspect_files)


@dataclass(frozen=True)
class Image:
    """What a place held, to begin again from there."""

    at: ManualClock
    objects: dict[str, Any]
    copies: dict[str, Any]
    joined: dict[str, Any]
    first: str
    pending: str

    def place(self) -> Place:
        clock = ManualClock(self.at.now(), seed=7)
        clock._monotonic = self.at.monotonic()
        place = Place.at(clock)
        place.store.objects, place.copies.objects = dict(self.objects), dict(self.copies)
        place.joined.objects = dict(self.joined)
        _PROBED.update(it.identity for it in place.stores)
        return place


def _base(*, in_parts: bool) -> Image:
    """Small files to compact, a removed row, a publication, an incremental copy, and a pending transaction."""
    clock = ManualClock()
    place = Place.at(clock)
    table = place.table("base")
    first = table.write(rows(1, 2, 3, 4), partition_by=["p"])
    for more in rows(5, 6), rows(7, 8):
        clock.advance(PAUSE)
        table.write(more)
    clock.advance(PAUSE)
    table.delete("id = 3")
    table.publish([*Format])
    if in_parts:
        table.checkpoint()
    update_copy(place.store, place.copies, clock)
    place.over(place.joined).write(rows(80))
    pending = table.begin()
    clock.advance(PAUSE)
    return Image(clock, place.store.objects, place.copies.objects, place.joined.objects, first.tid, pending.tid)


def _base_directory() -> Image:
    """A directory of DBIO, without a descriptor."""
    clock = ManualClock()
    place = Place.at(clock)
    body = BytesIO()
    pq.write_table(rows(1, 3, p=None), body)
    tid = "3764747105670909148"
    path = f"p=a/part-00000-tid-{tid}-f9debc4b-38d5-4e31-92c2-e01f1d2e316b-1-0-c000.snappy.parquet"
    place.store.put(path, body.getvalue())
    place.store.put(f"p=a/_started_{tid}", b"")
    place.store.put(f"p=a/_committed_{tid}", b'{"added": ["%s"], "removed": []}' % path.removeprefix("p=a/").encode())
    clock.advance(PAUSE)
    return Image(clock, place.store.objects, {}, {}, tid, tid)


@cache
def base(form: str) -> Image:
    """`form` is "table", "parts" or "directory"."""
    with forms(form):
        return _base_directory() if form == "directory" else _base(in_parts=form == "parts")


@contextmanager
def forms(form: str) -> Iterator[None]:
    with tiny_parts() if form == "parts" else nullcontext():
        yield


# --- the operations -----------------------------------------------------------------------------------------------

Run = Callable[[Place, Table, Image], object]


@dataclass(frozen=True)
class Operation:
    """One operation of a user."""

    name: str
    run: Run
    method: str
    """The method of `Table` that it is about."""
    form: str = "table"
    """"table", or "directory" for what is done in a directory without a descriptor."""
    then: Run | None = None
    """What the same user does next. Between the two, the other operation may come."""


def _stream(place: Place, table: Table, image: Image) -> None:
    """A batch of a stream, whose task claims the tid."""
    transaction = begin(context_of(table.store, place.clock, inspect_files), Intent(app=("stream", 3)), claims=False)
    path = transaction.new_file(partition={"p": "a"})
    body = BytesIO()
    pq.write_table(rows(61, p=None), body)
    place.store.put(path.removeprefix(f"{table.url}/"), body.getvalue())
    transaction.commit()


def _writes(name: str, data: pa.Table, *, form: str = "table", **options: Any) -> Operation:
    return Operation(name, lambda place, table, image: table.write(data, **options), "write", form)


def _does(name: str, method: str, **options: Any) -> Operation:
    return Operation(name, lambda place, table, image: getattr(table, method)(**options), method)


def _joins(name: str, *, is_home: bool) -> Operation:
    """A joint transaction with another table, of which this one is the home, or the other one."""

    def run(place: Place, table: Table, image: Image) -> None:
        with dbio.transaction() as tx:
            if not is_home:
                tx.write(rows(81), place.over(place.joined))
            tx.update(table, {"v": "v + 2"}, "id < 4")
            if is_home:
                tx.write(rows(82), place.over(place.joined))

    return Operation(name, run, "begin")


_MODES = "append", "overwrite", "overwrite_partitions"

OPERATIONS = [
    _writes("append", rows(11, 12)),
    _writes("append with app", rows(13), app=("job", 1)),
    _writes("append, new column", rows(14, y=[1]), merge_schema=True),
    _writes("append, wider type", rows(15, v=pa.array([2**40])), merge_schema=True),
    _writes("append to an empty table only", rows(16), mode="error"),
    _writes("append unless there is one", rows(16), mode="ignore"),
    _writes("overwrite", rows(21, 22), mode="overwrite"),
    _writes("overwrite, other type", rows(23, 24, v=["x", "y"]), mode="overwrite"),
    _writes("overwrite, no v", rows(25, v=None), mode="overwrite"),
    _writes("overwrite, other partition type", rows(26, p=[5]), mode="overwrite"),
    _writes("overwrite, new name", rows(27).rename_columns(["ID", "v", "p"]), mode="overwrite"),
    _writes("overwrite, other layout", rows(28), mode="overwrite", partition_by=["id"]),
    _writes("overwrite partitions", rows(31), mode="overwrite_partitions"),
    _writes("overwrite a condition", rows(32), mode="overwrite", replace_where="id > 5"),
    _does("delete", "delete", where="id = 5"),
    _does("delete a partition", "delete", where="p = 'b'"),
    _does("update", "update", updates={"v": "v + 1"}, where="id < 6"),
    Operation("merge", lambda place, table, image: table.merge(rows(5, 41), on=["id"]), "merge"),
    Operation("merge of new rows", lambda place, table, image: table.merge(rows(42), on=["id"]), "merge"),
    _does("compact", "compact"),
    Operation(
        "cluster",
        lambda place, table, image: table.set({"cluster_by": "v"}),
        "compact",
        then=lambda place, table, image: table.compact(500),
    ),
    Operation("restore", lambda place, table, it: table.restore(it.first), "restore"),
    Operation("restore a partition", lambda place, table, it: table.restore(it.first, partition={"p": "a"}), "restore"),
    _does("erase", "erase", where="id = 7"),
    _does("set a constraint", "set", settings={"not_null.v": "true"}),
    _does("set no provenance", "set", settings={"provenance": "off"}),
    _does("publish", "publish", to=[*Format]),
    _does("checkpoint", "checkpoint"),
    _does("rebuild", "checkpoint", rebuild=True),
    _does("vacuum", "vacuum"),
    _does("vacuum all", "vacuum", retention_hours=0, force=True, checkpoint_after=1),
    Operation("abort", lambda place, table, image: table.abort(image.pending), "abort"),
    Operation(
        "drop and make anew",
        lambda place, table, image: table.drop(everything=True),
        "drop",
        then=lambda place, table, image: table.write(rows(71, 72)),
    ),
    Operation("stream", _stream, "begin"),
    _joins("joint, decided here", is_home=True),
    _joins("joint, decided elsewhere", is_home=False),
    Operation("copy", lambda place, table, image: copy_table(table.store, place.whole, place.clock), "copy"),
    Operation("incremental copy", lambda place, table, it: update_copy(table.store, place.copies, place.clock), "copy"),
    Operation("adopt", lambda place, table, image: table.adopt(), "adopt", form="directory"),
    *(_writes(f"{mode} in a directory", rows(51, 52), form="directory", mode=mode) for mode in _MODES),
    Operation("vacuum a directory", lambda place, table, image: table.vacuum(), "vacuum", form="directory"),
]  # fmt: skip


# --- one pair -----------------------------------------------------------------------------------------------------

State = tuple[Any, ...]
"""The rows and columns that a new reader sees in the table, and in its copies."""


def state_of(place: Place) -> State:
    return tuple(_seen(table) for table in _tables(place, "reader"))


def _tables(place: Place, who: str) -> list[Table]:
    return [place.over(store.seen_by(who)) for store in place.stores]


def _seen(table: Table) -> State:
    try:
        found = table.snapshot().to_arrow()
    except DbioError as error:
        return (type(error).__name__,)
    columns = sorted((field.name, str(field.type)) for field in found.schema)
    return tuple(columns), tuple(sorted(map(repr, (dict(sorted(row.items())) for row in found.to_pylist()))))


class Wrong(AssertionError):
    """Two operations at once left something that neither order of them leaves."""


@dataclass
class Outcome:
    """What a pair left."""

    state: State
    refused: tuple[bool, bool]
    """Whether the first, and the second, ended in an error of the library."""
    calls: int = 0
    errors: list[str] = field(default_factory=list)


def play(form: str, first: Operation, second: Operation | None = None, *, stop: int | None = None) -> Outcome:
    """Runs `first`. `second` runs as a whole before call number `stop` of the first, or after all of it."""
    with forms(form):
        image = base(form)
        place = image.place()
        errors = ["", ""]
        calls, is_over = 0, second is None

        def run_second() -> None:
            nonlocal is_over
            is_over = True
            place.clock.advance(PAUSE)
            if second is not None:
                errors[1] = Context().run(_attempt, second, place, place.table("second"), image)
            place.clock.advance(PAUSE)

        def before(operation: str, path: str) -> None:
            nonlocal calls
            calls += 1
            if calls == stop and not is_over:
                run_second()

        store = place.store.seen_by("first")
        store.before = before
        errors[0] = _attempt(first, place, place.over(store), image)
        store.before = lambda operation, path: None
        if not is_over:
            run_second()
        state = state_of(place)
        _require_sound(place, state)
        return Outcome(state, (bool(errors[0]), bool(errors[1])), calls, errors)


def _attempt(operation: Operation, place: Place, table: Table, image: Image) -> str:
    try:
        operation.run(place, table, image)
        if operation.then:
            operation.then(place, table, image)
    except DbioError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _require_sound(place: Place, state: State) -> None:
    """All can read what is there, and a vacuum without retention changes no row."""
    for table in _tables(place, "checker"):
        with suppress(DbioError):  # there may be no table
            table.snapshot()
            report = table.check(files=True)
            if wrong := [*report.missing, *report.wrong_size, *report.corrupt]:
                raise Wrong(f"{table.url}: {wrong}")
            table.vacuum(retention_hours=0, force=True, checkpoint_after=1)
            place.clock.advance(PAUSE)
            table.vacuum(retention_hours=0, force=True, checkpoint_after=1)
    if (after := state_of(place)) != state:
        raise Wrong(f"a vacuum left {after}, not {state}")


@cache
def _in_order(form: str, *names: str) -> State:
    one, *other = (BY_NAME[it] for it in names)
    return play(form, one, other[0] if other else None).state


@cache
def _between(form: str, name: str, second: str) -> State | None:
    """What is left if the second comes between the two things that the first does; None if the first does one."""
    first = BY_NAME[name]
    if first.then is None:
        return None
    with forms(form):
        place = base(form).place()
        for run in replace(first, then=None), BY_NAME[second], replace(first, run=first.then, then=None):
            _attempt(run, place, place.table("one"), base(form))
        return state_of(place)


BY_NAME = {it.name: it for it in OPERATIONS}


def allowed(form: str, first: Operation, second: Operation, refused: tuple[bool, bool]) -> set[State]:
    """What may be left: the state after either order, or of one alone if the other was refused."""
    if refused[0]:
        alone = {_in_order(form, second.name)} if not refused[1] else {state_of(base(form).place())}
        return alone
    if refused[1]:
        return {_in_order(form, first.name)}
    between = _between(form, first.name, second.name)
    return {_in_order(form, first.name, second.name), _in_order(form, second.name, first.name), between or ()}


_OVERWRITES = ("overwrite in a directory", "overwrite_partitions in a directory")

NOT_SERIAL = {
    **{
        frozenset((one, other)): "overwrites of a directory take no turns"
        for one in _OVERWRITES
        for other in _OVERWRITES
    }
}
"""Pairs that need not look like one after the other, by their names, and why."""


def pairs(form: str) -> Iterator[tuple[Operation, Operation]]:
    """All pairs of operations in this form, in both orders."""
    some = [it for it in OPERATIONS if (it.form == "directory") == (form == "directory")]
    for first in some:
        for second in some:
            if frozenset((first.name, second.name)) not in NOT_SERIAL:
                yield first, second


@cache
def calls_of(form: str, name: str) -> int:
    """How many calls of the store the operation makes alone."""
    return play(form, BY_NAME[name]).calls


def require_serial(form: str, first: Operation, second: Operation, stop: int) -> Outcome:
    """Raises Wrong, with how to see it again."""
    try:
        outcome = play(form, first, second, stop=stop)
        if outcome.state not in (may := allowed(form, first, second, outcome.refused)):
            raise Wrong(f"left {outcome.state}, and not one of {may}; refused: {outcome.errors}")
    except Exception as error:
        raise Wrong(f"play({form!r}, {first.name!r} beside {second.name!r}, stop={stop}): {error!r:.2000}") from error
    return outcome
