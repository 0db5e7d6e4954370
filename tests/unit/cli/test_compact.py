"""`dbio compact`: what it does and says, in a pipe, in a terminal and to programs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.maintenance.figures import parse_size
from tests.command_line import dbio, dbio_json, in_terminal, lines
from tests.histories import columns


@pytest.fixture
def filled(tmp_path: Path) -> Table:
    table = Table(tmp_path / "table")
    for number in range(4):
        with table.begin(partition_by=["day"]) as transaction:
            path = transaction.new_file(partition={"day": str(number % 2)})
            pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)
            transaction.commit(columns(id="long", day="integer"))
    return table


def test_compact_says_which_files_became_which(filled: Table) -> None:
    result = dbio("compact", filled.url)
    assert result.exit_code == 0
    files = {file.path: str(file.size) for file in filled.snapshot().files}
    told = lines(result.stdout)
    assert [[it[0], it[1], it[5]] for it in told] == [["day=0", "2", "2"], ["day=1", "2", "2"]]
    assert {it[3]: it[4] for it in told} == files
    assert "compacted 4 files" in result.stderr
    assert "nothing" in dbio("compact", filled.url).stderr


def test_compact_as_json(filled: Table) -> None:
    before = sum(file.size for file in filled.snapshot().files)
    report = dbio_json("compact", filled.url, "--where", "day = 1", "--sort-by", "id, ID")
    assert report["before"]["files"] == 2
    assert report["after"]["files"] == 1
    assert report["commits"] == [filled.history()[0].tid]
    assert report["left"] == []
    assert [it["directory"] for it in report["compacted"]] == ["day=1"]
    assert before > report["before"]["size"] > report["after"]["size"]


def test_fewer_files_than_asked_for_are_left(filled: Table) -> None:
    assert dbio_json("compact", filled.url, "--min-files", "3")["after"]["files"] == 0
    assert dbio_json("compact", filled.url, "--min-files", "2")["after"]["files"] == 2
    assert dbio("compact", filled.url, "--min-files", "0").exit_code == 2


def test_files_of_other_types_are_counted_and_rewritten(filled: Table) -> None:
    with filled.begin() as transaction:
        pq.write_table(pa.table({"id": pa.array([9], pa.int32())}), transaction.new_file(partition={"day": "7"}))
    dry = dbio("compact", filled.url, "--rewrite-types", "--target-size", "1B", "--dry-run")
    assert "of other types 1 file" in dry.stderr
    assert dbio_json("compact", filled.url, "--rewrite-types", "--target-size", "1B")["other_types"] == 1
    assert "of other types 0 files" in dbio("compact", filled.url, "--rewrite-types", "--target-size", "1B").stderr
    assert dbio_json("compact", filled.url)["other_types"] is None


def test_columns_of_a_curve_are_separated_by_commas(filled: Table) -> None:
    assert dbio_json("compact", filled.url, "--z-order", " id, ID,")["after"]["files"] == 2
    assert dbio_json("compact", filled.url)["after"]["files"] == 0
    assert dbio_json("compact", filled.url, "--z-order", "id")["before"]["files"] == 2  # also what lies alone


def test_a_dry_run_in_a_terminal_shows_what_would_become_one_file(filled: Table) -> None:
    code, screen = in_terminal(120, "compact", filled.url, "--dry-run")
    assert code == 0
    assert [line.split() for line in screen[-3:]] == [
        ["directory", "files", "size"], ["day=0", "2", *screen[-2].split()[2:]], ["day=1", "2", *screen[-1].split()[2:]]
    ]  # fmt: skip
    assert len(filled.history()) == 4


def test_a_target_size_bounds_the_new_files(filled: Table) -> None:
    assert dbio("compact", filled.url, "--target-size", "600B").stdout == ""
    assert dbio("compact", filled.url, "--target-size", "1 kB").stdout != ""


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"numTargetRowsCopied": 1, "numTargetRowsDeleted": 2}, "rewrite (merge)"),
        ({"numUpdatedRows": 0, "numCopiedRows": 2}, "rewrite (update)"),
        ({"numDeletedRows": 3}, "rewrite (delete)"),
        ({"numDeletedRows": 3, "numInsertedRows": 0}, "rewrite (replace)"),
        ({}, "rewrite"),
    ],
)
def test_the_log_says_how_rows_changed(filled: Table, metrics: dict[str, int], said: str) -> None:
    tid = filled.begin("rewrite", filled.snapshot().partition_columns).commit(metrics=metrics).tid
    assert lines(dbio("log", filled.url).stdout)[0][2] == said
    assert said in dbio("show", filled.url, tid).stdout


def test_the_log_says_that_a_restore_changed_the_rows(filled: Table) -> None:
    transaction = filled.begin("rewrite", filled.snapshot().partition_columns)
    transaction.record_copies(restored=0)
    transaction.commit()
    assert lines(dbio("log", filled.url).stdout)[0][2] == "rewrite (restore)"


def test_the_log_says_that_a_compaction_changed_no_rows(filled: Table) -> None:
    dbio("compact", filled.url)
    assert [it[2] for it in lines(dbio("log", filled.url).stdout)] == ["rewrite (compact)", *["append"] * 4]
    assert [it["data_change"] for it in dbio_json("log", filled.url)["commits"]] == [False, *[True] * 4]
    tid = filled.history()[0].tid
    assert "rewrite (compact)" in dbio("show", filled.url, tid).stdout
    assert dbio_json("show", filled.url, tid)["data_change"] is False


@pytest.mark.parametrize("arguments", [["--target-size", "large"], ["--target-size", "0"], ["--sort-by", "nothing"],
                                       ["--z-order", "id,nothing"], ["--z-order", "id", "--sort-by", "id"],
                                       ["--where", "nothing = 1"]])  # fmt: skip
def test_wrong_options_exit_with_2(arguments: list[str], filled: Table) -> None:
    assert dbio("compact", filled.url, *arguments).exit_code == 2


def test_a_directory_must_be_adopted_first(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    result = dbio("compact", tmp_path)
    assert result.exit_code == 2
    assert "dbio adopt" in result.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    {"128MB": 128_000_000, "64MiB": 1 << 26, "1GB": 10**9, "2 kB": 2000, "7": 7, "7B": 7, "0": 0}.items(),
)
def test_sizes_are_in_bytes_or_in_units_of_1000_or_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "1.5GB", "-1", "1 mb", "٣MB", "9" * 16, "1e6"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_size(text)
