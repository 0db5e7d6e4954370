"""What writers and publishers read of a table in parts: what they touch, and never all transactions."""

from collections.abc import Callable, Collection
from datetime import timedelta

import pytest

from dbio_commit.commit.isolation import Read
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.compact import run as compaction
from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.publish import delta
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.protocol.parts import Part
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock
from tests.builders import columns
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)
from tests.writers import live, stage

pytestmark = pytest.mark.usefixtures("tiny_parts")

DAYS, COMMITS = 24, 6
ALL = DAYS * COMMITS
"""How many rows of files the parts have."""


@pytest.fixture
def large(table: Table, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table with a file of each commit in each partition, all in parts. Reading all transactions is an error."""
    for number in range(COMMITS):
        append(table, [str(10 + day) for day in range(DAYS)], least=number)
        clock.advance(timedelta(hours=1))
        table.checkpoint()

    def refused(self: StoredCommits) -> object:
        raise AssertionError("all transactions are read")

    monkeypatch.setattr(StoredCommits, "all", property(refused))
    return table


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """How many rows of files a call reads from parts."""
    fetch, count = PartReader.fetch, [0]

    def counted(self: PartReader, part: Part, groups: Collection[int] | None = None) -> object:
        if part.kind == "files":
            count[0] += sum(part.groups[i].rows for i in (range(len(part.groups)) if groups is None else groups))
        return fetch(self, part, groups)

    def rows_read(call: Callable[[], object]) -> int:
        forget()
        count[0] = 0
        call()
        return count[0]

    monkeypatch.setattr(PartReader, "fetch", counted)
    return rows_read


def append(table: Table, days: Collection[str], *, operation: str = "append", least: int = 0, **more: object) -> None:
    transaction = table.begin(operation, partition_by=["day"], **more)  # type: ignore[arg-type]
    for day in days:
        stage(table, transaction, partition={"day": day}, statistics={"id": Bounds(least, least, 0)})
    transaction.commit(columns("id", "day"))


def in_day(table: Table, day: str) -> list[str]:
    return sorted(path for path in live(table) if path.startswith(f"day={day}/"))


Rows = Callable[[Callable[[], object]], int]

ONE_DAY = COMMITS + 6 * 2 * 3
"""The rows of a partition, and at both ends of it some of a row group of each part."""


def test_an_append_reads_no_file_whatever_it_depends_on(large: Table, read: Rows) -> None:
    etag = large.snapshot().etag
    assert read(lambda: append(large, ["10"], if_match=etag)) == 0
    assert read(lambda: append(large, ["10"], app=("app", 1))) == 0
    assert read(lambda: append(large, ["10"], app=("app", 1))) == 0  # which is skipped
    assert read(lambda: large.snapshot().etag) == 0


def test_a_replaced_partition_costs_what_is_in_it(large: Table, read: Rows) -> None:
    rows = read(lambda: append(large, ["17"], operation="overwrite_partitions"))
    assert COMMITS <= rows <= ONE_DAY < ALL
    assert len(in_day(large, "17")) == 1
    assert read(lambda: append(large, ["18"], operation="overwrite_partitions")) <= ONE_DAY


def test_a_rewrite_in_one_partition_costs_what_is_in_it_though_others_commit(large: Table, read: Rows) -> None:
    (first, *_), snapshot = in_day(large, "15"), large.snapshot()

    def in_the_day(now: Snapshot) -> Collection[object]:
        return now.where("day = 15").files

    def rewrite() -> None:
        transaction = large.begin("rewrite", partition_by=["day"])
        stage(large, transaction, partition={"day": "15"})
        transaction.remove([first])
        transaction.depends_on(Read(tids=frozenset(snapshot.tids), may_match=in_the_day, isolation="serializable"))  # type: ignore[arg-type]
        append(large, ["16"])
        transaction.commit()

    assert read(rewrite) <= ONE_DAY
    assert first not in live(large)


def test_an_overwrite_of_everything_reads_each_row_a_few_times(
    large: Table, read: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableRoot, "refer_above", 1)
    assert read(lambda: append(large, ["10"], operation="overwrite")) <= 3 * ALL
    assert len(live(large)) == 1
    monkeypatch.undo()


def test_a_partition_that_is_replaced_by_reference_reads_the_table_once(
    large: Table, read: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(large, ["13"])
    monkeypatch.setattr(TableRoot, "refer_above", 1)
    rows = read(lambda: append(large, ["13"], operation="overwrite_partitions"))
    assert len(in_day(large, "13")) == 1
    assert rows <= 3 * ALL


def test_conditions_on_chosen_files_read_what_may_have_them(large: Table, read: Rows) -> None:
    found: list[Snapshot] = []
    assert read(lambda: found.append(large.snapshot().where("day = 15").where("id = 3"))) <= 3 * ONE_DAY
    assert len(found[0].files) == 1


def test_a_compaction_of_one_partition_costs_what_is_in_it(large: Table, read: Rows) -> None:
    options = CompactOptions(where="day = 15")

    def nothing(work: object, bins: object) -> list[object]:
        return []

    assert read(lambda: compaction.compact(large.store, large.clock, options, rewriter=nothing)) <= 8 * ONE_DAY  # type: ignore[arg-type]


def test_a_publication_costs_what_the_commits_since_have_changed(
    large: Table, read: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    large.publish("delta")
    monkeypatch.setattr(delta, "replay", lambda *_: pytest.fail("the whole Delta log is read"))
    monkeypatch.setattr(delta, "compared", lambda *_: pytest.fail("all files are compared"))
    append(large, ["11"])
    assert read(lambda: large.publish("delta")) == 0
    append(large, ["17"], operation="overwrite_partitions")
    assert read(lambda: large.publish("delta")) <= 2 * ONE_DAY
    assert read(lambda: large.publish("delta")) <= ONE_DAY  # to count the live files


def test_a_transaction_that_takes_long_or_fails_reads_no_file(large: Table, read: Rows, clock: ManualClock) -> None:
    def slow() -> None:
        transaction = large.begin("append", partition_by=["day"])
        stage(large, transaction, partition={"day": "15"})
        clock.advance(timedelta(minutes=10))
        transaction.commit(columns("id", "day"))

    def failed() -> None:
        transaction = large.begin("append", partition_by=["day"])
        stage(large, transaction, partition={"day": "15"})
        transaction.abort()

    assert read(slow) == 0
    assert read(failed) == 0
