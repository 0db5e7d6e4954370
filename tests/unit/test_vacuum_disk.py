"""What vacuum does to a table of ours in real directories."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from dbio_commit import (
    Table,
)
from tests.garbage import (
    DAY,
    STRANGER,
    file_of,
    paths,
)
from tests.writers import stage
from vacuum import Reason, VacuumReport, vacuum

# --- real directories ---------------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path) -> Table:
    """Ten days old: a live file, and others that were removed, from partitions within partitions too."""
    table = Table(tmp_path / "table")
    transaction = table.begin(partition_by=["day", "hour"])
    for day, hour in ("11", "12", "21"):
        stage(table, transaction, partition={"day": day, "hour": hour})
    transaction.commit()
    replacing = table.begin("replace_partitions")
    replacing.replace_partition({"day": "1"})
    replacing.commit()
    for directory in ("day=3/hour=1", "on purpose", "_temporary/0"):
        Path(table.url, directory).mkdir(parents=True)
    age(table, 10 * DAY)
    return table


def age(table: Table, by: timedelta) -> None:
    for path in Path(table.url).rglob("*"):
        then = path.stat().st_mtime - by.total_seconds()
        os.utime(path, (then, then), follow_symlinks=False)


def directories(table: Table) -> set[str]:
    return {str(path.relative_to(table.url)) for path in Path(table.url).rglob("*") if path.is_dir()}


def described(report: VacuumReport) -> list[tuple[str, int, Reason]]:
    return [(it.path, it.size, it.reason) for it in report.deleted]


def test_emptied_directories_are_removed_from_a_disk(local: Table) -> None:
    before = directories(local)
    dry = vacuum(local.url, dry_run=True)
    assert directories(local) == before
    real = vacuum(local.url)
    assert described(dry) == described(real)
    emptied = {"day=1", "day=1/hour=1", "day=1/hour=2", "day=3", "day=3/hour=1"}
    assert paths(real, Reason.DIRECTORY) == emptied
    assert directories(local) == before - emptied
    assert not vacuum(local.url).deleted


def test_no_directory_is_removed_from_a_disk_while_somebody_may_be_about_to_write_there(local: Table) -> None:
    before = directories(local)
    transaction = local.begin()
    transaction.inspector = None  # no Parquet
    path = Path(transaction.new_file(partition={"day": "4", "hour": "1"}))
    dry, real = vacuum(local.url, dry_run=True), vacuum(local.url)
    assert described(dry) == described(real)
    assert paths(real, Reason.REMOVED)
    assert directories(local) == before | {"day=4", "day=4/hour=1"}
    path.write_bytes(b"rows")  # as any tool does, which makes no directory
    transaction.commit()
    assert vacuum(local.url).ok
    assert local.check().ok
    assert directories(local) == before - {"day=1", "day=1/hour=1", "day=1/hour=2", "day=3", "day=3/hour=1"} | {
        "day=4",
        "day=4/hour=1",
    }


def test_a_directory_with_a_file_that_readers_skip_stays_on_a_disk(local: Table) -> None:
    for hidden in ("day=1/hour=1/_note", "day=1/hour=2/.hidden", "day=3/hour=1/_temporary/x"):
        Path(local.url, hidden).parent.mkdir(exist_ok=True)
        Path(local.url, hidden).touch()
    dry, real = vacuum(local.url, dry_run=True), vacuum(local.url)
    assert described(dry) == described(real)
    assert not paths(real, Reason.DIRECTORY)
    assert Path(local.url, "day=3/hour=1/_temporary/x").exists()


def test_nothing_behind_a_symbolic_link_is_deleted_from_a_disk(local: Table, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / file_of(STRANGER)).write_bytes(b"mine")
    os.utime(outside / file_of(STRANGER), (0, 0))
    Path(local.url, "day=2/hour=9").symlink_to(outside)
    Path(local.url, "day=2/hour=1", file_of(STRANGER)).symlink_to(outside / file_of(STRANGER))
    for untracked in (False, True):
        report = vacuum(local.url, untracked=untracked)
        assert report.ok
    assert (outside / file_of(STRANGER)).exists()
    assert Path(local.url, "day=2/hour=9").is_symlink()
    assert local.check().ok
