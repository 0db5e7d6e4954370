"""A vacuum of a large table works share by share, and never has the paths of all transactions in memory."""

import random
from datetime import timedelta
from typing import Any
from unittest.mock import PropertyMock, patch
from weakref import ReferenceType, ref

import pytest

from dbio_commit.commit import parts as writers
from dbio_commit.log.parts import windows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.maintenance import walk
from dbio_commit.maintenance.vacuum import table as vacuums
from dbio_commit.maintenance.vacuum.packed import Deletions, Paths
from dbio_commit.maintenance.vacuum.report import Deletion, VacuumOptions, VacuumReport
from dbio_commit.maintenance.vacuum.table import TableVacuum
from dbio_commit.protocol.garbage import Reason
from dbio_commit.table import vacuum_table
from tests.tiny_parts import tiny_parts
from tests.writers import WakingWorld, stage

DAY = timedelta(days=1)
DAYS = [f"2026-{it:02}" for it in range(1, 9)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "SHARE_ROWS", 6)
    monkeypatch.setattr(walk, "CONCURRENCY", 4)  # else the top levels have all directories of such a table
    monkeypatch.setattr(windows, "WINDOW_ROWS", 4)
    monkeypatch.setattr(writers, "MOST_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(vacuums, "MOST_UNKNOWN", 2)


NEVER = PropertyMock(side_effect=AssertionError("all paths of all transactions were read"))


class History(WakingWorld):
    """A random history of a table by day, the same for the same seed, with vacuums between the commits."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.reports: list[VacuumReport] = []
        self.states: list[list[tuple[str, int]]] = []

    def run(self) -> None:
        self._write("append")
        for _ in range(self.random.randint(4, 12)):
            self.step()
            self.clock.advance(DAY / 2)
            self.states.append(sorted((it.path, it.size) for it in self.table.snapshot().files))

    def step(self) -> None:
        match self.random.choice(["append", "append", "replace", "replace", "overwrite", "abort", "unknown", "vacuum"]):
            case "vacuum":
                with patch.object(StoredCommits, "all", NEVER):
                    report = vacuum_table(self.table, VacuumOptions(checkpoint_after=1, retention_hours=24))
                self.reports.append(report)
            case "unknown":
                self.store.put_if_absent(f"day={self._day()}/part-00000-tid-38{self._digits()}-x-0-0-c000.parquet", b"")
            case kind:
                self._write(kind)

    def _write(self, kind: str) -> None:
        operation = {"replace": "overwrite_partitions", "overwrite": "overwrite"}.get(kind, "append")
        job = self.table.begin(operation, partition_by=["day"])  # type: ignore[arg-type]
        for _ in range(self.random.randint(1, 6)):
            stage(self.table, job, partition={"day": self._day()})
        if kind == "abort":
            job.abort()
        else:
            job.commit()

    def _day(self) -> str:
        return self.random.choice(DAYS)

    def _digits(self) -> str:
        return f"{self.random.randrange(10**17):017}"


@pytest.mark.parametrize("seed", range(15))
def test_a_table_in_parts_is_vacuumed_as_one_in_a_body_and_is_never_read_as_a_whole(
    seed: int,
) -> None:
    large, small = History(seed), History(seed)
    with tiny_parts():
        large.run()
    small.run()
    assert all(it.ok for it in large.reports)

    def facts(world: History) -> list[object]:
        of_files = [it for it in Reason if it not in (Reason.PART, Reason.CHECKPOINT)]
        return [
            (
                [sum(it.reason is reason for it in report.deleted) for reason in of_files],
                [sum(it.reason is reason for it in report.kept) for reason in of_files],
                bool(report.checkpoint),
                report.warnings,
            )
            for report in world.reports
        ]

    assert facts(large) == facts(small)
    assert [len(it) for it in large.states] == [len(it) for it in small.states]
    assert len(large.table.snapshot().tids) == len(small.table.snapshot().tids)


def with_all_days() -> WakingWorld:
    """A table with three files in each day."""
    world = WakingWorld()
    for _ in range(3):
        job = world.table.begin(partition_by=["day"])
        for day in DAYS:
            stage(world.table, job, partition={"day": day})
        job.commit()
        world.table.checkpoint()
    return world


def test_files_of_unknown_transactions_are_deleted_also_among_many_shares(tiny_parts: None) -> None:
    world = with_all_days()
    unknown = [f"day={day}/part-00000-tid-3810000000000000000-x-0-0-c000.parquet" for day in DAYS]
    for path in unknown:
        world.store.put_if_absent(path, b"")
    world.clock.advance(3 * DAY)
    with patch.object(StoredCommits, "all", NEVER):
        report = vacuum_table(world.table, VacuumOptions())
    assert sorted(it.path for it in report.deleted if it.reason is Reason.UNKNOWN) == unknown
    assert not {*unknown} & world.store.objects.keys()


# --- what is remembered -------------------------------------------------------------------------------------------


def deletion(i: int) -> Deletion:
    path = f"day={i % 7}/é\ud800\n{i}.parquet"
    return Deletion(path=path, size=i * 7, age=timedelta(seconds=i, microseconds=1), reason=[*Reason][i % len(Reason)])


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 10_000])
def test_packed_deletions_are_a_sequence_of_the_same_ones(count: int) -> None:
    each = [*map(deletion, range(count))]
    packed = Deletions(each)
    assert len(packed) == count
    assert packed == each == [*packed]
    assert bool(packed) is bool(each)
    assert packed[: count // 2] == each[: count // 2]
    assert packed[-1:] == each[-1:]
    for i in {0, count // 2, count - 1, -1} if count else ():
        assert packed[i] == each[i]
    with pytest.raises(IndexError):
        packed[count]
    assert packed != [*each, deletion(0)]
    assert repr(packed) == repr(each)


def test_paths_are_remembered_by_short_codes() -> None:
    paths = Paths()
    for start in range(0, 50_000, 1000):
        paths.update(f"a/{i}" for i in range(start, start + 1000, 2))
    assert all((f"a/{i}" in paths) is (i % 2 == 0) for i in range(50_000))


def test_nothing_of_a_share_is_in_memory_while_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch, tiny_parts: None
) -> None:
    files: list[ReferenceType[object]] = []
    delete, read = TableVacuum._delete_share, StoredCommits._some_below

    def noted(self: TableVacuum, share: walk.Share, *rest: Any, **more: Any) -> None:
        files.append(ref(share.snapshot.files))
        delete(self, share, *rest, **more)

    def checked(self: StoredCommits, *within: Any) -> Any:
        assert [it() for it in files] == [None] * len(files)
        return read(self, *within)

    world = with_all_days()
    monkeypatch.setattr(TableVacuum, "_delete_share", noted)
    monkeypatch.setattr(StoredCommits, "_some_below", checked)
    vacuum_table(world.table, VacuumOptions())
    assert len(files) > 2
