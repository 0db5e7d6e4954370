"""`dbio erase`: what it asks, erases and names."""

from pathlib import Path

import pytest

from dbio_commit import Table
from tests.command_line import dbio, dbio_json, in_terminal
from tests.erasing import NUMBER, PERSON, WHERE, create, deleting, people, traces, write


@pytest.fixture
def erasable(table: Table, no_waits: None, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Its rows are deleted without Spark, a moment after they were written."""
    create(table, by_day=True)
    write(table, {1: "ann", NUMBER: PERSON})
    table.checkpoint()
    monkeypatch.setattr(Table, "delete", lambda self, where, **how: deleting(self)(where))
    return table


def test_a_disk_has_no_byte_of_the_rows_any_more(erasable: Table) -> None:
    assert traces(erasable.store)
    result = dbio("erase", erasable.url, "--where", WHERE, "--yes")
    assert result.exit_code == 0, result.stderr
    assert traces(erasable.store) == []
    assert people(erasable) == {1: "ann"}
    assert "removed by a commit" in result.stdout
    assert "not erased here" in result.stderr


def test_a_partition_that_held_only_such_rows_has_no_directory_left(erasable: Table) -> None:
    write(erasable, {NUMBER: PERSON}, day="d9")
    assert dbio("erase", erasable.url, "--where", WHERE, "--yes").exit_code == 0
    assert not (Path(erasable.url) / "day=d9").exists()
    assert traces(erasable.store) == []


def test_programs_learn_what_was_erased_and_what_is_pending(erasable: Table) -> None:
    pending = erasable.begin()
    result = dbio("erase", erasable.url, "--where", WHERE, "--yes", "--json")
    assert result.exit_code == 1
    document = dbio_json("erase", erasable.url, "--where", WHERE, "--dry-run")
    assert document["dry_run"]
    assert document["files"] == 0
    (it,) = document["pending"]
    assert (it["tid"], it["since"][-1], it["until"][-1]) == (pending.tid, "Z", "Z")


def test_a_dry_run_needs_no_consent_and_changes_nothing(erasable: Table) -> None:
    result = dbio("erase", erasable.url, "--where", WHERE, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "1 live file may hold such rows" in result.stderr
    assert traces(erasable.store)


def test_erase_asks_and_takes_no_for_an_answer(erasable: Table) -> None:
    result = dbio("erase", erasable.url, "--where", WHERE)
    assert result.exit_code == 2
    assert "nothing was erased" in result.stderr
    code, _ = in_terminal(200, "erase", erasable.url, "--where", WHERE, answer="n\n")
    assert code == 1
    assert traces(erasable.store)
