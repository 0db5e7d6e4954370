"""`dbio files`: what it prints for people, pipes and programs."""

from pathlib import Path

import pytest

from dbio_commit import Table
from tests.builders import columns
from tests.command_line import TID, append, dbio, dbio_json, in_terminal, new_files


def test_files_in_a_pipe_is_a_line_for_each_live_file(table: Table) -> None:
    tid = append(table, {"1": 10, "2": 2000})
    new_files(table.begin(), {"3": 1})  # pending

    result = dbio("files", table.url)

    assert result.exit_code == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        [f"day=1/part-00000-tid-{tid}-job-0-0-c000.parquet", "10", tid, "day=1"],
        [f"day=2/part-00001-tid-{tid}-job-0-0-c000.parquet", "2000", tid, "day=2"],
    ]


def test_files_as_json_has_all_that_the_snapshot_has(table: Table) -> None:
    tid = append(table, {"1": 10})
    path = f"day=1/part-00000-tid-{tid}-job-0-0-c000.parquet"

    assert dbio_json("files", table.url) == {
        "url": table.url,
        "scope": "table",
        "partition_columns": ["day"],
        "total": {"files": 1, "size": 10},
        "left_out": 0,
        "files": [{"path": path, "url": f"{table.url}/{path}", "size": 10, "tid": tid, "partition": {"day": "1"}}],
    }


def test_files_where_a_condition_may_hold_are_listed_and_the_others_counted(table: Table) -> None:
    append(table, {"1": 10, "2": 20, "3": 30})
    with table.begin() as transaction:
        transaction.commit(schema=columns("id", "day"))

    shown = dbio_json("files", table.url, "--where", "day BETWEEN 2 AND 9")
    assert [file["partition"]["day"] for file in shown["files"]] == ["2", "3"]
    assert shown["left_out"] == 1
    assert dbio("files", table.url, "--where", "day = 2").stdout.count("\n") == 1
    _, lines = in_terminal(100, "files", table.url, "--where", "day = 2")
    assert "1 file, 20 bytes in 1 partition; 2 files left out" in "\n".join(lines)


def test_files_where_no_condition_can_be_read_is_a_usage_error(table: Table) -> None:
    append(table, {"1": 10})
    with table.begin() as transaction:
        transaction.commit(schema=columns("id", "day"))
    for where in ("nonsense = 1", "id ="):
        result = dbio("files", table.url, "--where", where)
        assert result.exit_code == 2
        assert f"'{where}'" in result.stderr


def test_files_as_of_a_tid_or_the_time_in_the_log_includes_that_commit_and_none_after(table: Table) -> None:
    tids = [append(table, {str(day): day}) for day in (1, 2, 3)]
    second = dbio_json("log", table.url)["commits"][1]
    assert second["tid"] == tids[1]

    for as_of in (second["tid"], second["time"]):
        shown = dbio_json("files", table.url, "--as-of", as_of)
        assert [file["tid"] for file in shown["files"]] == tids[:2]


@pytest.mark.parametrize("as_of", ["2026-11-20T10:00:00", "yesterday", TID])
def test_files_as_of_no_moment_of_the_table_is_a_usage_error(table: Table, as_of: str) -> None:
    append(table, {"1": 1})
    result = dbio("files", table.url, "--as-of", as_of)
    assert result.exit_code == 2
    assert "as_of" in result.stderr


def test_a_directory_without_markers_is_listed_as_it_is(plain: Path) -> None:
    assert dbio("files", plain).stdout == "old.parquet\t7\t\t\n"
    assert dbio("log", plain).stdout == ""
    assert dbio_json("files", plain)["files"][0]["tid"] is None


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_files_in_a_terminal_fits_it_and_cuts_no_path(table: Table, columns: int) -> None:
    append(table, {"1": 10, "2": 2000})

    code, lines = in_terminal(columns, "files", table.url)

    assert code == 0
    assert max(map(len, lines)) <= columns
    assert [line.endswith(("10 bytes", " 2.0 kB")) for line in lines].count(True) == 2
    unfolded = "".join(line.removesuffix("10 bytes").removesuffix("2.0 kB").strip() for line in lines)
    for file in table.snapshot().files:
        assert file.path in unfolded
    assert lines[-1] == "2 files, 2.0 kB in 2 partitions"


def test_a_terminal_too_narrow_for_any_table_is_left_to_wrap_the_lines(table: Table) -> None:
    append(table, {"1": 10})
    assert in_terminal(10, "files", table.url) == in_terminal(40, "files", table.url)


def test_a_wide_terminal_shows_tid_and_partition_too(table: Table) -> None:
    tid = append(table, {"1": 10})
    _, lines = in_terminal(200, "files", table.url)
    assert lines[0].split() == ["path", "size", "tid", "partition"]
    assert lines[1].split()[-2:] == [tid, "day=1"]


def test_a_terminal_is_shown_all_of_many_files(plain: Path) -> None:
    names_of_many = {f"{number:04}.parquet" for number in range(2001)}  # more than two pages
    for name in names_of_many:
        (plain / name).touch()
    _, lines = in_terminal(80, "files", plain)
    assert {line.split()[0] for line in lines} >= names_of_many
    assert lines[-1] == "2,002 files, 7 bytes"
