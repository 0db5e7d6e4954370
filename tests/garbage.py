"""A table with garbage of every kind, for the tests of vacuum; in memory, so that each test gets its own copy."""

from dataclasses import dataclass
from datetime import timedelta
from functools import cache

from dbio_commit import FileInfo, Table, Transaction
from dbio_commit.commit.request import Terms
from dbio_commit.protocol import names
from dbio_commit.store.contract import Unfinished
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import Partition, stage, write, write_days
from vacuum import Reason, VacuumOptions, VacuumReport, vacuum_table

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
STRANGER = "7000000000000000001"
"""The tid of a transaction that our log knows nothing of."""

ALL = VacuumOptions(untracked=True, checkpoint_after=2)
"""So that a vacuum of `everything` does all that it can do."""

LIVE = [b"a2", b"b2", b"c", b"d"]
"""What a reader sees of `everything`."""

YOUNG, LATE = b"young", b"late"
"""What the writers of `everything` have staged."""

DEFAULTS = VacuumOptions()
AT_ONCE = VacuumOptions(checkpoint_after=0)
"""Writes a checkpoint whenever there is anything new."""


@dataclass(frozen=True)
class Writer:
    """A transaction that is pending, with what it has staged."""

    terms: Terms
    staged: FileInfo

    def transaction(self, table: Table) -> Transaction:
        transaction = table.resume(self.terms)
        transaction.add([self.staged], looked_at=True)
        return transaction


def begin_writing(table: Table, body: bytes, day: str) -> Writer:
    transaction = table.begin(partition_by=["day"])
    path = stage(table, transaction, body, {"day": day})
    return Writer(transaction.terms, FileInfo(path=path, size=len(body), partition={"day": day}))


@dataclass
class Scene:
    """A table, and the writers that are at work on it."""

    table: Table
    late: Writer | None = None
    """Began before the horizon."""
    young: Writer | None = None

    @property
    def store(self) -> MemoryStore:
        assert isinstance(self.table.store, MemoryStore)
        return self.table.store

    @property
    def clock(self) -> ManualClock:
        assert isinstance(self.table.clock, ManualClock)
        return self.table.clock

    @property
    def names(self) -> set[str]:
        """Without what a vacuum that was killed has asked for the time with: it goes half an hour later."""
        return {path for path in self.store.objects if not path.startswith(names.Kind.CLOCK)}

    def copy(self) -> "Scene":
        """The same at the same time, for somebody else to change."""
        clock = ManualClock(self.clock.now() - timedelta(seconds=self.clock.monotonic()), seed=len(self.names))
        clock.sleep(self.clock.monotonic())
        store = MemoryStore(clock)
        store.objects, store.unfinished = dict(self.store.objects), list(self.store.unfinished)
        return Scene(Table.over(store, clock), self.late, self.young)

    def late_writer(self) -> Transaction:
        assert self.late is not None
        return self.late.transaction(self.table)

    def young_writer(self) -> Transaction:
        assert self.young is not None
        return self.young.transaction(self.table)


def empty(kind: type[MemoryStore] = MemoryStore) -> Scene:
    clock = ManualClock()
    return Scene(Table.over(kind(clock), clock))


def empty_table() -> Scene:
    scene = empty()
    scene.table.begin().commit()
    return scene


def overwritten() -> Scene:
    """A table of one live file, and one that was removed just now."""
    scene = empty()
    write(scene.table, bodies=[b"old"])
    write(scene.table, "overwrite", bodies=[b"new"])
    return scene


def begin_writing_to(scene: Scene) -> str:
    return stage(scene.table, scene.table.begin())


def leave(scene: Scene, path: str, body: bytes = b"left") -> str:
    """As somebody who keeps to no protocol."""
    scene.store.put(path, body)
    return path


def file_of(tid: str, partition: Partition | None = None, *, number: int = 9) -> str:
    name = names.format_data_file(tid=tid, job="x", task=0, attempt=0, number=number, suffix=".parquet")
    return names.join(names.format_partition(partition or {}), name)


def abort_with_leftovers(scene: Scene, partition: Partition) -> str:
    """A transaction that was aborted, and whose task wrote on: its file is garbage."""
    transaction = scene.table.begin()
    transaction.abort()
    return leave(scene, file_of(transaction.tid, partition))


def unfinished(scene: Scene, path: str) -> None:
    scene.store.unfinished.append(Unfinished(path, f"upload of {path}", 0, scene.clock.now()))


def everything(*, busy: bool = True) -> Scene:
    """A copy of a table, partitioned by day, with garbage of every kind. `busy`: a young writer is at work on it."""
    return _everything(busy).copy()


@cache
def _everything(busy: bool) -> Scene:
    scene = empty()
    _long_ago(scene)
    scene.clock.advance(39 * DAY)
    _before_the_horizon(scene)
    scene.clock.advance(5 * DAY)
    _since_the_horizon(scene)
    if busy:
        scene.young = begin_writing(scene.table, YOUNG, "y")
    scene.clock.advance(DAY)
    return scene


def _long_ago(scene: Scene) -> None:
    """45 days: what is purged in the end, abort markers too."""
    write_days(scene.table, a=b"a1", b=b"b1")
    scene.table.begin().abort()
    write_days(scene.table, "overwrite_partitions", a=b"a2")
    scene.table.checkpoint()


def _before_the_horizon(scene: Scene) -> None:
    """6 days: so the late writer's transaction may still live."""
    table = scene.table
    first = write_days(table, c=b"c", gone=b"all of a partition")
    empty_partition(table, "gone")
    leave(scene, file_of(first.tid, {"day": "c"}))
    leave(scene, f"day=gone/.{names.split(first.added[1])[1]}.crc")
    abort_with_leftovers(scene, {"day": "a"})
    table.checkpoint()
    scene.late = begin_writing(table, LATE, "a")
    dead = begin_writing(table, b"pending", "p")
    leave(scene, names.committed(dead.terms.tid), b"")  # by a disk that failed
    leave(scene, file_of(STRANGER, {"day": "a"}))
    leave(scene, "day=a/export.csv")
    leave(scene, "stray/old.parquet")
    leave(scene, f"day=f/{names.started(STRANGER)}", b"")
    leave(scene, file_of(STRANGER, {"day": "f"}))
    unfinished(scene, "day=a/large.parquet")


def _since_the_horizon(scene: Scene) -> None:
    """One day."""
    write_days(scene.table, d=b"d")
    write_days(scene.table, "overwrite_partitions", b=b"b2")
    abort_with_leftovers(scene, {"day": "d"})
    leave(scene, file_of(STRANGER, {"day": "d"}))
    leave(scene, "day=d/export.csv")
    unfinished(scene, "day=d/large.parquet")


def empty_partition(table: Table, day: str) -> None:
    with table.begin("overwrite_partitions") as transaction:
        transaction.overwrite_partition({"day": day})


# --- to act in the middle of something ----------------------------------------------------------------------------


# --- a vacuum, and what it says -----------------------------------------------------------------------------------


def run(scene: Scene, options: VacuumOptions = DEFAULTS, *, dry_run: bool = False) -> VacuumReport:
    return vacuum_table(scene.table, options, dry_run=dry_run)


def paths(report: VacuumReport, *reasons: Reason) -> set[str]:
    return {it.path for it in report.deleted if not reasons or it.reason in reasons}


def kept(report: VacuumReport, *reasons: Reason) -> set[str]:
    return {it.path for it in report.kept if not reasons or it.reason in reasons}
