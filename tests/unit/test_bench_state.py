"""bench/cases_state.py: the states that it makes are tables, with the files that they should have."""

import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

import dbio_commit as dbio
from bench import cases_state, state_job
from bench.states import PARTITIONS, PER_COMMIT, SPREAD, TASKS, directories, make_state, make_version_1, new_commits
from dbio_commit.protocol import parts

FILES = 20 * PER_COMMIT


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "parts"
    make_state(path, FILES, statistics=4)
    return path


def ask(act: str, path: Path, argument: object = None) -> state_job.Answer:
    return state_job.main(act, str(path), {}, argument)


def test_each_commit_adds_to_as_many_partitions(table: Path) -> None:
    snapshot = dbio.Table(table).snapshot()
    assert len(snapshot.files) == FILES
    assert len({file.path for file in snapshot.files}) == FILES
    for _, files in groupby(sorted(snapshot.files, key=lambda it: str(it.tid)), key=lambda it: it.tid):
        found = [file.path.rpartition("/")[0] for file in files]
        assert len(found) == PER_COMMIT
        assert {found.count(directory) for directory in found} == {TASKS}
        assert len({*found}) == SPREAD
    assert len(directories()) == PARTITIONS
    assert {file.path.rpartition("/")[0] for file in snapshot.files} <= {*directories()}


def test_a_part_lies_in_its_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.states.LIMITS", parts.Limits(split=10_000, most=5_000))
    make_state(tmp_path / "table", FILES)
    found = dbio.Table(tmp_path / "table").snapshot()
    assert len(found.checkpoint.cuts) == 3
    assert len(found.files) == FILES
    of_files = [it for it in found.checkpoint.parts if it.kind == "files"]
    assert len(of_files) > 4
    assert not parts.plan_merges(of_files, found.checkpoint.cuts)


def test_version_1_is_the_same_state(table: Path, tmp_path: Path) -> None:
    make_version_1(tmp_path / "plain", table)
    plain, found = (dbio.Table(path).snapshot() for path in (tmp_path / "plain", table))
    assert not plain.checkpoint.parts
    assert found.checkpoint.parts
    for condition in ("true", cases_state.PARTITION, cases_state.COLUMN):
        of_plain, of_found = (sorted(it.where(condition).files, key=lambda it: it.path) for it in (plain, found))
        assert of_plain == of_found
    assert 0 < len(plain.where(cases_state.PARTITION).files) < FILES


def test_acts(table: Path) -> None:
    assert ask("opening", table)["is_dbio"]
    assert ask("counting", table)["files"] == ask("iterating", table)["files"] == ask("whole", table)["files"] == FILES
    of_column, of_partition = (
        ask("condition", table, it)["files"] for it in (cases_state.COLUMN, cases_state.PARTITION)
    )
    assert of_column <= of_partition < FILES


def test_checkpoint_of_new_commits(table: Path) -> None:
    with cases_state._copy(table) as copy:
        assert len(new_commits(dbio.Table(copy).store, 2, 4, seed=1)) == 2
        before = {path.name for path in copy.iterdir()}
        name = ask("checkpoint", copy, "parts")["name"]
        written = sum(path.stat().st_size for path in copy.iterdir() if path.name not in before)
        root = cases_state._read(copy / name)
        assert 0 < cases_state.new_bytes(root) < written
        assert len(dbio.Table(copy).snapshot().files) == FILES + 2 * PER_COMMIT
    assert len(dbio.Table(table).snapshot().files) == FILES


def test_append(table: Path) -> None:
    with cases_state._copy(table) as copy:
        ask("append", copy, 2)
        assert len(dbio.Table(copy).snapshot().files) == FILES + 2


def test_reading_parts_imports_no_pandas(table: Path) -> None:
    """pyarrow imports it in many calls, which takes half a second and 60 MB."""
    code = (
        "import sys, dbio_commit as dbio; "
        f"files = dbio.Table({str(table)!r}).snapshot().where({cases_state.PARTITION!r}).files; "
        f"assert 0 < len(list(files)) < {FILES}; "
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
