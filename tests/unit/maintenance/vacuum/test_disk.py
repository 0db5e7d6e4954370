"""What vacuum does to a table of ours in real directories. Rules: PROTOCOL.md 10.2."""

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.protocol import names
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
    replacing = table.begin("overwrite_partitions")
    replacing.overwrite_partition({"day": "1"})
    replacing.commit()
    for directory in ("day=3/hour=1", "on purpose", "_temporary/0"):
        Path(table.url, directory).mkdir(parents=True)
    age(table, 10 * DAY)
    return table


def age(table: Table, by: timedelta) -> None:
    """But for the descriptor, by whose time a table is told from its copy."""
    for path in [path for path in Path(table.url).rglob("*") if path.name != names.DESCRIPTOR]:
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


# --- what lies behind symbolic links ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["a directory", "a directory further up", "a file", "a directory that is away"])
def test_a_removed_file_behind_a_link_is_not_forgotten_and_can_be_read_as_of_then(
    local: Table, tmp_path: Path, way: str
) -> None:
    """As where a partition was moved to another disk, which may not be mounted now."""
    first = local.history()[-1]
    directory = Path(local.url, "day=1/hour=1")
    linked = {"a directory further up": directory.parent, "a file": next(directory.iterdir())}.get(way, directory)
    elsewhere = tmp_path / "elsewhere"
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere if way != "a directory that is away" else tmp_path / "away")
    report = vacuum(local.url, checkpoint_after=1)
    assert report.checkpoint
    assert report.ok
    (warning,) = report.warnings
    assert re.match(r"\d removed files are, or lie behind, symbolic links, first day=1/", warning)
    assert elsewhere.exists()
    if way == "a directory that is away":
        elsewhere.rename(tmp_path / "away")
    removed = {path for path in local.snapshot().decided[-1].marker.removed if Path(local.url, path).exists()}
    assert removed
    if way != "a directory further up":
        with pytest.raises(InvalidInputError):  # of another file, which was no link
            local.snapshot(first.tid)
    else:
        assert len(local.snapshot(first.tid).files) == 3


def test_the_markers_of_what_is_left_behind_a_link_stay_for_who_knows_no_checkpoint(
    local: Table, tmp_path: Path
) -> None:
    Path(local.url, "day=1").rename(tmp_path / "elsewhere")
    Path(local.url, "day=1").symlink_to(tmp_path / "elsewhere")
    vacuum(local.url, checkpoint_after=1)
    age(local, DAY)
    before = {path.name for path in Path(local.url).glob("_committed_*")}
    vacuum(local.url)
    assert {path.name for path in Path(local.url).glob("_committed_*")} == before
