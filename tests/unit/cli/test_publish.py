"""`dbio publish`: what it says, in a pipe and to programs; and what `dbio check` says of publications."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.maintenance.publish import delta_log
from tests.builders import columns
from tests.command_line import dbio, dbio_json


@pytest.fixture
def filled(tmp_path: Path) -> Table:
    table = Table(tmp_path / "lake" / "table")
    transaction = table.begin()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), transaction.new_file())
    transaction.commit(columns("id"))
    return table


def test_publish_says_for_each_format_what_it_did(filled: Table) -> None:
    (tid,) = filled.snapshot().tids
    result = dbio("publish", filled.url, "--to", "delta", "--to", "spark")
    assert result.exit_code == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["delta", "0", tid, "1", "1", "0", "published"],
        ["spark", "9", tid, "1", "1", "0", "published"],
    ]
    same = {"format": "delta", "number": 0, "tid": tid, "files": 1, "added_files": 0, "removed_files": 0, "new": False}
    assert dbio_json("publish", filled.url, "--to", "delta") == {"url": filled.url, "published": [same]}
    assert "nothing was new" in dbio("publish", filled.url, "--to", "spark").stdout


@pytest.mark.parametrize("arguments", [[], ["--to", "hudi"]])
def test_publish_wants_to_know_a_format(arguments: list[str], filled: Table) -> None:
    assert dbio("publish", filled.url, *arguments).exit_code == 2


def test_check_says_that_a_stranger_wrote_to_what_is_published(filled: Table) -> None:
    filled.publish("delta")
    info = {"commitInfo": {"engineInfo": "Somebody/1.0\x1b[31m"}}
    Path(filled.url, delta_log.version_path(1)).write_text(json.dumps(info))
    result = dbio("check", filled.url)
    assert result.exit_code == 1
    assert "Somebody/1.0" in result.stdout
    assert "\x1b" not in result.stdout
    assert "docs/PUBLISH.md" in result.stdout.splitlines()[-1]
    report = dbio_json("check", filled.url)
    assert report["ok"] is False
    assert len(report["publications"]) == 1
    assert dbio("publish", filled.url, "--to", "delta").exit_code == 1


def test_check_says_that_a_copy_names_the_files_of_the_table_it_was_copied_from(filled: Table, tmp_path: Path) -> None:
    filled.publish(["spark", "symlink", "delta"])
    shutil.copytree(filled.url, tmp_path / "copy")
    problems = dbio_json("check", str(tmp_path / "copy"))["publications"]
    assert len(problems) == 2  # paths in a Delta log are relative
    assert all(filled.url in problem for problem in problems)
