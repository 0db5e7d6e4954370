"""`dbio restore`: what it says."""

import time
from typing import Any

import pytest
import typer

from dbio_commit import Table
from tests.command_line import append, dbio, dbio_json, new_files


def test_restore_brings_back_an_earlier_state_and_says_what_it_took(table: Table) -> None:
    append(table, {"1": 10})
    (first,) = table.snapshot().tids
    time.sleep(0.2)  # no two commits of one moment
    append(table, {"2": 10})
    said = dbio("restore", table.url, first)
    assert said.exit_code == 0
    assert "0 files came back as copies, 1 removed" in said.stdout
    assert len(table.snapshot().files) == 1
    again = dbio_json("restore", table.url, first)
    assert (again["added"], again["removed"], again["as_of"]) == (0, 0, first)


def test_a_dry_run_says_what_would_come_and_go_and_changes_nothing(table: Table) -> None:
    append(table, {"1": 10})
    (first,) = table.snapshot().tids
    time.sleep(0.2)
    append(table, {"2": 10})
    said = dbio("restore", table.url, first, "--dry-run")
    assert (said.exit_code, said.stdout) == (
        0,
        "0 files would come back as copies, 1 file, 10 bytes would be removed\n",
    )
    asked = dbio_json("restore", table.url, first, "--dry-run")
    assert (asked["added"], asked["removed"], asked["dry_run"]) == (0, 1, True)
    assert len(table.snapshot().files) == 2


def test_in_a_terminal_it_asks_before_files_go(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, {"1": 10})
    (first,) = table.snapshot().tids
    time.sleep(0.2)
    append(table, {"2": 10})
    asked: list[str] = []

    def no(question: str) -> None:
        asked.append(question)
        raise typer.Abort

    monkeypatch.setattr("dbio_commit.cli.commands._is_interactive", lambda: True)
    monkeypatch.setattr("dbio_commit.cli.commands._confirm", no)
    assert dbio("restore", table.url, first).exit_code == 1
    assert len(asked) == 1
    assert len(table.snapshot().files) == 2
    assert dbio("restore", table.url, first, "--yes").exit_code == 0
    assert len(table.snapshot().files) == 1


def test_what_is_no_state_is_wrong_usage(table: Table) -> None:
    append(table, {"1": 10})
    assert dbio("restore", table.url, "yesterday").exit_code == 2
    assert dbio_json("restore", table.url, "yesterday")["error"] == "InvalidInputError"


def test_one_partition_is_restored_by_its_value_or_by_a_condition(table: Table) -> None:
    fields: Any = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "day")]
    with table.begin(partition_by=["day"]) as transaction:
        new_files(transaction, {"1": 10, "2": 10})
        first = transaction.commit({"type": "struct", "fields": fields}).tid
    for number, option in enumerate((("--partition", "day=2"), ("--where", "day = '2'"))):
        with table.begin("overwrite_partitions") as transaction:
            new_files(transaction, {"1": 20, "2": 30})
        planned = dbio_json("restore", table.url, first, *option, "--dry-run")
        assert (planned["added"], planned["removed"]) == (1, 1)
        said = dbio("restore", table.url, first, *option, "--message", "undo")
        assert said.exit_code == 0
        assert "of some partitions" in said.stdout
        assert sorted(file.size for file in table.snapshot().files) == [10, 20], number
        assert table.history()[0].message == "undo"
    assert dbio("restore", table.url, first, "--partition", "2").exit_code == 2
    assert dbio("restore", table.url, first, "--partition", "day=2", "--where", "day = '2'").exit_code == 2
