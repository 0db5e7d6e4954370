"""Small writers for the tests of transactions: a few bytes a file, without Spark or Parquet; and faults for a store."""

from collections.abc import Callable, Mapping, Sequence

from dbio_commit import Commit, Table, TableNotFoundError, Transaction
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.versions import AppVersion
from dbio_commit.testing import ManualClock, MemoryStore

Partition = Mapping[str, str | None]


def stage(
    table: Table,
    transaction: Transaction,
    body: bytes = b"rows",
    partition: Partition | None = None,
    statistics: Mapping[str, Bounds] | None = None,
) -> str:
    """Writes one file of the transaction; returns its path from the root. A few bytes are enough, which need be no
    Parquet."""
    transaction.inspector = None
    path = transaction.new_file(partition=partition).removeprefix(f"{table.url}/")
    with table.store.open_write(path) as stream:
        stream.write(body)
    if statistics:
        file = FileInfo(path=path, size=len(body), rows=1, partition=dict(partition or {}), statistics=statistics)
        transaction.add([file])
    return path


def write(
    table: Table,
    operation: Operation = "append",
    *,
    bodies: Sequence[bytes] = (b"rows",),
    app: AppVersion | None = None,
    schema: Mapping[str, object] | None = None,
    statistics: Mapping[str, Bounds] | None = None,
) -> Commit:
    """A whole write of a file for each body, to a table without partitions."""
    transaction = table.begin(operation, app=app)
    for body in bodies:
        stage(table, transaction, body, statistics=statistics)
    return transaction.commit(schema)


def write_days(table: Table, operation: Operation = "append", **days: bytes) -> Commit:
    """A whole write of a file for each day, to a table that is partitioned by day."""
    transaction = table.begin(operation, partition_by=["day"])
    for day, body in days.items():
        stage(table, transaction, body, {"day": day})
    return transaction.commit()


def live(table: Table) -> set[str]:
    """The paths of the live files."""
    return {file.path for file in table.snapshot().files}


def contents(table: Table) -> list[bytes]:
    """What a reader sees: the bodies of the live files, sorted. Nothing where there is no table yet."""
    try:
        files = table.snapshot().files
    except TableNotFoundError:
        return []
    return sorted(table.store.get(file.path) for file in files)


def data_files(store: MemoryStore) -> set[str]:
    """Every data file in the store, live or not."""
    return {path for path in store.objects if not path.rpartition("/")[2].startswith("_")}


class WakingClock(ManualClock):
    """A manual clock on which somebody acts while others sleep: `at` a time in seconds, once."""

    def __init__(self) -> None:
        super().__init__()
        self._alarms: list[tuple[float, Callable[[], object]]] = []

    def at(self, monotonic_s: float, action: Callable[[], object]) -> None:
        self._alarms.append((monotonic_s, action))

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        due = [alarm for alarm in self._alarms if alarm[0] <= self.monotonic()]
        self._alarms = [alarm for alarm in self._alarms if alarm not in due]
        for _, action in due:
            action()


class WakingWorld:
    """A table on a store in memory, and a clock on which others act while somebody waits."""

    def __init__(self) -> None:
        self.clock = WakingClock()
        self.store = MemoryStore(self.clock)
        self.table = Table.over(self.store, self.clock)
