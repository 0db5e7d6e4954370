"""`dbio show` and `dbio abort`."""

import json
from pathlib import Path

import pytest

from dbio_commit import Table, TransactionAbortedError
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import Bounds
from tests.command_line import TID, append, data_file, dbio, dbio_json, in_terminal, new_files

# --- show -------------------------------------------------------------------------------------------------------------


def test_show_tells_what_a_commit_added_and_removed(table: Table) -> None:
    append(table, {"1": 10})
    removed = table.snapshot().files[0].path
    with table.begin("overwrite", app=("nightly", 4)) as transaction:
        (added,) = new_files(transaction, {"2": 3}, rows=7, statistics={"id": Bounds(1, 9, 0)})

    shown = dbio_json("show", table.url, transaction.tid)

    assert shown["state"] == "committed"
    assert shown["operation"] == "overwrite"
    assert shown["app"] == {"id": "nightly", "version": 4}
    assert shown["metrics"]["numOutputRows"] == 7
    assert shown["total"] == {"files": 1, "size": 3}
    assert shown["removed"] == [removed]
    assert shown["files"] == [
        {
            "path": added.path,
            "size": 3,
            "rows": 7,
            "partition": {"day": "2"},
            "statistics": {"id": {"min": 1, "max": 9, "nulls": 0}},
        }
    ]
    text = dbio("show", table.url, transaction.tid).stdout
    for fact in ("committed", "overwrite", "nightly, version 4", "1 file, 3 bytes, 7 rows", added.path, removed):
        assert fact in text


def test_show_tells_what_a_pending_transaction_has_written(table: Table) -> None:
    append(table, {"1": 10})
    transaction = table.begin()
    new_files(transaction, {"1": 5})

    shown = dbio_json("show", table.url, transaction.tid)

    assert (shown["state"], shown["decided"], shown["operation"]) == ("pending", None, None)
    assert shown["total"] == {"files": 1, "size": 5}
    assert "pending" in dbio("show", table.url, transaction.tid).stdout


def test_show_tells_that_a_transaction_was_aborted(table: Table) -> None:
    transaction = table.begin()
    transaction.abort()
    assert dbio_json("show", table.url, transaction.tid)["state"] == "aborted"
    assert "aborted" in dbio("show", table.url, transaction.tid).stdout


def write_to_two_partitions(plain: Path, *, committed: str) -> None:
    """As one transaction of DBIO that has come to commit in one of them."""
    for partition in ("p=1", "p=2"):
        (plain / partition).mkdir()
        (plain / partition / names.started(TID)).touch()
        (plain / partition / data_file()).write_bytes(b"xyz")
    (plain / committed / names.committed(TID)).write_text(json.dumps({"added": [data_file()], "removed": []}))


def test_show_tells_in_which_directories_a_transaction_is_not_decided(plain: Path) -> None:
    write_to_two_partitions(plain, committed="p=1")

    shown = dbio_json("show", plain, TID)

    assert shown["state"] == "committed"
    assert shown["undecided_directories"] == ["p=2"]
    assert [(file["path"], file["size"], file["partition"]) for file in shown["files"]] == [
        (f"p=1/{data_file()}", 3, {"p": "1"})
    ]
    assert "p=2" in dbio("show", plain, TID).stdout


def test_a_transaction_committed_in_one_directory_and_aborted_in_another_is_committed(plain: Path) -> None:
    write_to_two_partitions(plain, committed="p=2")

    assert dbio("abort", plain, TID).exit_code == 0

    shown = dbio_json("show", plain, TID)
    assert (shown["state"], shown["undecided_directories"], shown["total"]["files"]) == ("committed", [], 1)
    assert dbio("files", plain).stdout.splitlines()[-1].startswith(f"p=2/{data_file()}")


def test_show_summarises_the_statistics_of_all_files_by_the_type_of_the_column(table: Table) -> None:
    kinds = {"price": "decimal(10,2)", "known": "long", "half": "long", "empty": "string"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    with table.begin(partition_by=["day"]) as transaction:
        new_files(
            transaction,
            {"1": 1},
            rows=4,
            statistics={
                "price": Bounds("9.50", "9.75", 1),
                "known": Bounds(5, 6, 0),
                "half": Bounds(1, 2, 0),
                "empty": Bounds(None, None, 4),
            },
        )
        new_files(
            transaction,
            {"2": 1},
            rows=4,
            statistics={
                "price": Bounds("10.00", "11.25", 2),
                "known": Bounds(None, None, 4),  # nothing but nulls: bounds nothing
                "half": Bounds(None, None, 1),  # has values, but says nothing about them
                "empty": Bounds(None, None, 4),
            },
        )
        transaction.commit({"type": "struct", "fields": fields})

    lines = dbio("show", table.url, transaction.tid).stdout.splitlines()
    rows = {words[0]: words[1:] for line in lines if (words := line.split()) and words[0] in kinds}

    assert rows == {
        "price": ["decimal(10,2)", "9.50", "11.25", "3"],
        "known": ["long", "5", "6", "4"],
        "half": ["long", "1"],
        "empty": ["string", "8"],
    }


def test_a_terminal_is_shown_the_first_of_many_removed_files_and_a_pipe_all(table: Table) -> None:
    append(table, {f"{day:02}": 1 for day in range(30)})
    with table.begin("overwrite") as transaction:
        pass
    _, lines = in_terminal(120, "show", table.url, transaction.tid)
    assert sum("day=" in line for line in lines) == 20
    assert lines[-1].strip() == "and 10 more: --json lists all"
    assert dbio("show", table.url, transaction.tid).stdout.count("day=") == 30


# --- abort ------------------------------------------------------------------------------------------------------------


def test_abort_decides_a_pending_transaction_against_its_writer(table: Table) -> None:
    transaction = table.begin(partition_by=["day"])
    new_files(transaction, {"1": 5})

    result = dbio("abort", table.url, transaction.tid)

    assert result.exit_code == 0
    assert result.stdout == f"aborted {transaction.tid}; its files are garbage now: 1 file, 5 bytes\n"
    with pytest.raises(TransactionAbortedError):
        transaction.commit()


def test_abort_of_an_aborted_transaction_is_fine(table: Table) -> None:
    transaction = table.begin()
    transaction.abort()
    result = dbio("abort", table.url, transaction.tid)
    assert (result.exit_code, result.stdout) == (0, f"{transaction.tid} was already aborted\n")


def test_abort_of_a_committed_transaction_is_refused_and_changes_nothing(table: Table) -> None:
    tid = append(table, {"1": 10})
    result = dbio("abort", table.url, tid)
    assert result.exit_code == 1
    assert "committed" in result.stderr
    assert table.snapshot().tids == (tid,)
