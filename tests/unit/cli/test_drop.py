"""`dbio drop`: what it asks, removes and leaves."""

from pathlib import Path

from dbio_commit import Table
from tests.command_line import ESCAPE, append, dbio, dbio_json, in_terminal


def test_a_table_without_commits_is_removed(table: Table, no_waits: None) -> None:
    table.begin(partition_by=["day"]).abort()
    result = dbio("drop", table.url, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"removed {table.url}: 3 objects, ")
    assert list(Path(table.url).iterdir()) == []


def test_drop_without_everything_leaves_commits_and_says_how_to_remove_them(table: Table, no_waits: None) -> None:
    append(table, {"1": 1})
    result = dbio("drop", table.url, "--yes")
    assert result.exit_code == 2
    assert "dbio drop --everything" in result.stderr
    assert len(table.snapshot().files) == 1


def test_drop_tells_programs_what_it_did(table: Table, no_waits: None) -> None:
    append(table, {"1": 1})
    pending = table.begin()
    (Path(table.url) / "day=1" / f"mine{ESCAPE}").write_bytes(b"x")
    document = dbio_json("drop", table.url, "--everything", "--yes")
    assert document["aborted"] == [pending.tid]
    assert document["left"] == [f"day=1/mine{ESCAPE}"]
    assert document["deleted"]["objects"] >= 5


def test_drop_names_what_is_left_without_steering_the_terminal(table: Table, no_waits: None) -> None:
    append(table, {"1": 1})
    (Path(table.url) / "day=1" / f"mine{ESCAPE}").write_bytes(b"x")
    shown = dbio("drop", table.url, "--everything", "--yes").stdout
    assert r"day=1/mine\x1b" in shown
    assert ESCAPE not in shown


def test_drop_asks_and_takes_no_for_an_answer(table: Table) -> None:
    append(table, {"1": 1})
    result = dbio("drop", table.url, "--everything")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    code, shown = in_terminal(200, "drop", table.url, "--everything", answer="n\n")
    assert code == 1
    assert any(f"Remove the table {table.url}, with all of its rows? [y/N]" in line for line in shown)
    assert len(table.snapshot().files) == 1


def test_drop_refuses_a_plain_directory(plain: Path, no_waits: None) -> None:
    result = dbio("drop", plain, "--everything", "--yes")
    assert result.exit_code == 2
    assert "plain directory" in result.stderr
    assert (plain / "old.parquet").exists()
