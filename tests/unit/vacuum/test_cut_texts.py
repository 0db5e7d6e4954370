"""Texts that come back from the process of a table are cut to a length. None of them shows a part of a secret."""

from dataclasses import replace
from pathlib import Path

import pytest

from dbio_commit.maintenance.compact.options import CompactOptions
from dbio_commit.maintenance.compact.report import CompactReport, LeftFiles
from dbio_commit.maintenance.vacuum.report import RunSummary
from dbio_commit.protocol.scope import Scope
from vacuum import Failure, VacuumOptions, VacuumReport
from vacuum import worker as worker_module
from vacuum.process import Job, Task, written
from vacuum.worker import do

SECRET = "hunter2hunter2"


def job(root: Path, compact: CompactOptions | None = None) -> Job:
    return Job(
        url=str(root),
        storage_options={},
        options=VacuumOptions(),
        dry_run=False,
        memory_mb=2048,
        deadline_s=60,
        compact=compact,
        secrets=[SECRET],
    )


def never() -> bool:
    return False


def at_each_cut(shift: int) -> str:
    """A long text with secrets in which no cut at a multiple of 10 characters finds a whole secret."""
    return "x" * shift + SECRET * 20_000


@pytest.mark.parametrize("shift", [0, 3, 6, 9, 12])
def test_a_secret_at_the_end_of_a_cut_message_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    def vacuum_table(*given: object, **options: object) -> VacuumReport:
        raise ValueError(at_each_cut(shift))

    monkeypatch.setattr(worker_module, "vacuum_table", vacuum_table)
    assert b"hunt" not in written(do(Task.VACUUM, job(tmp_path), never))


@pytest.mark.parametrize("shift", [0, 3, 6, 9, 12])
def test_nor_in_what_could_not_be_deleted_or_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    failed = [Failure(path="part-0", message=at_each_cut(shift))]
    report = VacuumReport(url="/t", scope=Scope.TABLE, dry_run=False, retention_hours=48, failed=failed)
    monkeypatch.setattr(worker_module, "vacuum_table", lambda *given, **options: report)
    assert b"hunt" not in written(do(Task.VACUUM, job(tmp_path), never))
    left = CompactReport(url="/t", dry_run=False, left=[LeftFiles(paths=["part-0"], size=1, reason=at_each_cut(shift))])
    monkeypatch.setattr(worker_module, "compact_table", lambda *given, **options: left)
    assert b"hunt" not in written(do(Task.COMPACT, job(tmp_path, CompactOptions()), never))


def test_of_many_warnings_the_first_hundred_come_back() -> None:
    warnings = [f"warning {number}" for number in range(20_000)]
    report = VacuumReport(url="/t", scope=Scope.TABLE, dry_run=False, retention_hours=48, warnings=warnings)
    *first, last = RunSummary.of(report).warnings
    assert first == warnings[:100]
    assert last.startswith("there are 19,900 more warnings")
    assert len(RunSummary.of(replace(report, warnings=warnings[:100])).warnings) == 100
