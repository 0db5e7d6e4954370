"""`dbio copy`."""

from pathlib import Path
from unittest.mock import patch

import pytest

from dbio_commit import Table
from tests.command_line import append, dbio, dbio_json
from tests.faults import Killed


def test_an_incremental_copy_says_what_it_copied_and_removed(table: Table, tmp_path: Path) -> None:
    append(table, {"1": 10, "2": 20})
    copy = tmp_path / "copy"
    assert "2 files, 30 bytes copied, 0 removed; it has 2 files, 30 bytes" in dbio(
        "copy", table.url, copy, "--incremental"
    ).output.replace("\n", " ")
    assert "nothing is new" in dbio("copy", table.url, copy, "--incremental").output
    with table.begin("overwrite_partitions") as transaction:
        transaction.overwrite_partition({"day": "1"})
    append(table, {"3": 5})
    found = dbio_json("copy", table.url, copy, "--incremental")
    assert (found["copied_files"], found["copied_size"], found["removed_files"]) == (1, 5, 1)
    assert (found["files"], found["size"], found["commits"], found["new"]) == (2, 25, 2, True)
    assert (found["tid"], found["copied_from"]) == (Table(copy).history()[0].tid, table.url)
    assert not dbio_json("copy", table.url, copy, "--incremental")["new"]


def test_a_table_that_is_no_copy_is_refused_by_name(table: Table, tmp_path: Path) -> None:
    append(table, {"1": 10})
    dbio("copy", table.url, tmp_path / "whole")
    refused = dbio("copy", table.url, tmp_path / "whole", "--incremental")
    assert refused.exit_code == 1
    assert "no incremental copy of" in refused.output.replace("\n", " ")


@pytest.mark.parametrize("option", [[], ["--incremental"]], ids=["whole", "incremental"])
def test_the_same_command_goes_on_after_a_copy_was_interrupted(table: Table, tmp_path: Path, option: list[str]) -> None:
    append(table, {"1": 10, "2": 20, "3": 30})
    copy, step = (
        tmp_path / "copy",
        "commit.transaction.Transaction.commit" if option else "maintenance.copy._write_history",
    )
    with patch(f"dbio_commit.{step}", side_effect=Killed), pytest.raises(Killed):
        table.copy(str(copy), incremental=bool(option))
    found = dbio("copy", table.url, copy, *option)
    assert "3 files had been copied by a run that was interrupted" in found.output.replace("\n", " ")
    assert found.exit_code == 0
    assert Table(copy).check().ok
