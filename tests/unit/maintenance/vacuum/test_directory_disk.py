"""Vacuums of directories that DBIO wrote, on a disk: directories that are emptied, links, what is no regular file.

Rules: PROTOCOL.md 11.4.
"""

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from dbio_commit import Table
from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.store.local import LocalStore
from dbio_commit.store.location import parse_location
from tests.unit.dbio_model import (
    OLD,
    A,
    B,
    C,
    commit,
    file_of,
)
from vacuum import Reason, VacuumOptions, VacuumReport, vacuum_table

# --- directories, on a disk --------------------------------------------------------------------------------------


class Disk:
    """The same on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table = Table(root)

    def put(self, path: str, body: bytes = b"rows", *, age: timedelta = OLD) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        self.grow_old(path, age)

    def grow_old(self, path: str, age: timedelta = OLD) -> None:
        then = (self.table.clock.now() - age).timestamp()
        os.utime(self.root / path, (then, then))

    def paths(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}

    def live(self) -> set[str]:
        return {file.path for file in self.table.snapshot().files}

    def vacuum_twice(self) -> list[VacuumReport]:
        """With time for the queue in between, and what a dry run said of each."""
        reports = []
        for _ in range(2):
            said = vacuum_table(self.table, VacuumOptions(), dry_run=True)
            reports.append(vacuum_table(self.table, VacuumOptions()))
            assert [it.path for it in said.deleted] == [it.path for it in reports[-1].deleted]
            assert reports[-1].ok
            for path in self.root.rglob("_committed_vacuum*"):
                self.grow_old(str(path.relative_to(self.root)))
        return reports


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    disk = Disk(tmp_path / "table")
    disk.put("live.parquet")
    return disk


def test_emptied_directories_go_with_their_parents(disk: Disk) -> None:
    for directory in ("year=1/day=1", "year=1/day=2", "plain/deep/deeper"):
        disk.put(f"{directory}/{file_of(B)}")
        disk.put(f"{directory}/_started_{B}", b"")
    first, second = disk.vacuum_twice()
    assert not [it for it in first.deleted if it.reason is Reason.DIRECTORY]  # their queues are in them
    removed = [it.path for it in second.deleted if it.reason is Reason.DIRECTORY]
    assert sorted(removed) == ["plain", "plain/deep", "plain/deep/deeper", "year=1", "year=1/day=1", "year=1/day=2"]
    assert disk.paths() == {"live.parquet"}


def test_a_file_that_failed_leaves_no_directory_behind(disk: Disk) -> None:
    disk.put(f"day=1/{file_of(A)}")
    disk.put(f"day=1/_committed_{A}", b"")
    disk.put(f"day=1/_started_{A}", b"")
    disk.vacuum_twice()
    assert disk.paths() == {"live.parquet"}


@pytest.mark.parametrize("kept", ["_SUCCESS", ".hidden", "a.parquet", "_tmp/x", "day=2/a.parquet"])
def test_a_directory_that_still_holds_something_stays(disk: Disk, kept: str) -> None:
    disk.put(f"year=1/day=1/{file_of(B)}")
    disk.put(f"year=1/day=1/_started_{B}", b"")
    disk.put(f"year=1/{kept}")
    disk.vacuum_twice()
    assert {path for path in disk.paths() if not (disk.root / path).is_dir()} == {"live.parquet", f"year=1/{kept}"}
    assert not (disk.root / "year=1/day=1").exists()


def test_the_root_stays_when_all_is_gone(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "table")
    disk.put(file_of(B))
    disk.put(f"_started_{B}", b"")
    disk.vacuum_twice()
    assert disk.root.is_dir()
    assert not disk.paths()


class FilledMeanwhile(LocalStore):
    """Somebody writes to the directories just before they are removed."""

    def remove_directories(self, paths: Iterable[str]) -> list[str]:
        paths = list(paths)
        for path in paths[:1]:
            self.put_if_absent(f"{path}/new.parquet", b"rows")
        return super().remove_directories(paths)


def test_a_directory_that_somebody_fills_meanwhile_stays(disk: Disk) -> None:
    disk.put(f"year=1/day=1/{file_of(A)}")
    disk.put(f"year=1/day=1/_committed_{A}", b"")
    disk.put(f"year=1/day=1/_started_{A}", b"")
    vacuum_table(disk.table, VacuumOptions())
    for path in disk.root.rglob("_committed_vacuum*"):
        disk.grow_old(str(path.relative_to(disk.root)))
    table = Table.over(FilledMeanwhile(parse_location(str(disk.root)), {}))
    report = vacuum_table(table, VacuumOptions())
    assert report.ok
    assert Reason.DIRECTORY not in {it.reason for it in report.deleted}
    assert disk.live() == {"live.parquet", "year=1/day=1/new.parquet"}


@pytest.mark.parametrize("linked", [file_of(A), f"_committed_{B}", f"_committed_{A}", f"_started_{A}", f"_started_{C}"])
def test_what_readers_see_does_not_change_where_there_are_symbolic_links(
    disk: Disk, tmp_path: Path, linked: str
) -> None:
    """Readers follow those to data, and refuse those to commit markers; vacuum must not delete through them."""
    disk.put(file_of(A))
    disk.put(f"_committed_{A}", commit([file_of(A)]))
    disk.put(f"_committed_{B}", commit(removed=[file_of(A)]))
    disk.put(file_of(C))
    disk.put(f"_committed_{C}", commit([file_of(C)]))
    if linked.startswith("_started_"):
        disk.put(linked, b"")
    elsewhere = tmp_path / "elsewhere"
    (disk.root / linked).rename(elsewhere)
    (disk.root / linked).symlink_to(elsewhere)

    def seen() -> object:
        try:
            return disk.live()
        except CorruptMarkerError as error:
            return str(error)

    before = seen()
    assert ("not a regular file" in str(before)) is linked.startswith("_committed_")
    body = elsewhere.read_bytes()
    for _ in range(2):
        disk.vacuum_twice()
        assert seen() == before
    assert elsewhere.read_bytes() == body
    assert (disk.root / linked).is_symlink()


def test_a_directory_that_holds_only_a_link_stays(disk: Disk) -> None:
    (disk.root / "day=1").mkdir()
    (disk.root / "day=1/link").symlink_to(disk.root / "live.parquet")
    assert [report.deleted for report in disk.vacuum_twice()] == [[], []]
    assert disk.paths() == {"live.parquet", "day=1", "day=1/link"}


def test_what_lies_behind_a_linked_directory_is_left_alone(disk: Disk, tmp_path: Path) -> None:
    other = Disk(tmp_path / "other")
    other.put(file_of(B))
    other.put(f"_started_{B}", b"")
    (disk.root / "day=1").symlink_to(other.root)
    disk.vacuum_twice()
    assert other.paths() == {file_of(B), f"_started_{B}"}
