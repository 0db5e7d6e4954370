"""`dbio check`: what it finds, what it advises, and how it exits."""

import json
import os
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from dbio_commit import Table
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitMarker, decode_commit, lean, unpack_files
from dbio_commit.protocol.markers.files import Bounds, pack_files
from tests.command_line import ESCAPE, PARQUET, TID, append, data_file, dbio, dbio_json, in_terminal, new_files
from tests.histories import columns


def last_line(result: Result) -> str:
    return result.stdout.splitlines()[-1]


def test_check_of_a_sound_table_says_that_there_is_nothing_to_do(table: Table) -> None:
    append(table, {"1": 10})
    result = dbio("check", table.url)
    assert result.exit_code == 0
    assert last_line(result) == "Nothing is wrong, and there is nothing to do."


def test_check_finds_missing_files_and_files_of_another_size(table: Table) -> None:
    append(table, {"1": 10, "2": 20, "3": 30})
    gone, cut, _ = (file.path for file in table.snapshot().files)
    Path(table.url, gone).unlink()
    Path(table.url, cut).write_bytes(b"x")

    result = dbio("check", table.url)
    report = dbio_json("check", table.url)

    assert result.exit_code == 1
    assert "backup" in last_line(result)
    assert report["ok"] is False
    assert report["missing"] == {"files": 1, "size": 10, "paths": [gone]}
    assert report["wrong_size"] == [{"path": cut, "expected": 20, "found": 1}]
    assert dbio("check", table.url, "--json").exit_code == 1


def test_check_finds_corrupt_markers(table: Table) -> None:
    tid = append(table, {"1": 10})
    marker = Path(table.url, names.committed(tid))
    marker.write_text("{")

    result = dbio("check", table.url)

    assert result.exit_code == 1
    assert str(marker) in result.stdout
    assert "bring 1 corrupt marker back from a version of the bucket" in last_line(result)
    assert [corrupt["path"] for corrupt in dbio_json("check", table.url)["corrupt"]] == [names.committed(tid)]


def test_check_names_markers_whose_statistics_are_of_no_use_and_has_nothing_else_against_them(table: Table) -> None:
    tid = append(table, {"1": 10})
    marker = Path(table.url, names.committed(tid))
    body = json.loads(marker.read_text())
    body["dbio_commit"]["files"]["statistics"] = {"id": 5}
    marker.write_text(json.dumps(body))

    result = dbio("check", table.url)

    assert result.exit_code == 0
    assert str(marker) in result.stdout
    assert "Nothing is wrong" in last_line(result)
    assert [it["path"] for it in dbio_json("check", table.url)["useless_statistics"]] == [names.committed(tid)]


def test_check_names_commits_whose_statistics_were_left_out_and_has_nothing_against_them(table: Table) -> None:
    tid = append(table, {"1": 10, "2": 20})
    marker = Path(table.url, names.committed(tid))
    marker.write_bytes(encode(lean(with_statistics(decode_commit(marker.read_bytes(), where="the marker")))))

    for _ in range(2):  # by the marker, then by the checkpoint
        result = dbio("check", table.url)
        report = dbio_json("check", table.url)

        assert result.exit_code == 0
        assert f"{names.committed(tid)}: the statistics of 2 files were left out" in " ".join(result.stdout.split())
        assert "Nothing is wrong" in last_line(result)
        assert report["without_statistics"] == [{"path": names.committed(tid), "files": 2}]
        assert report["unkept_statistics"] is None
        table.checkpoint()


def test_check_says_that_readers_keep_no_statistics_and_what_helps(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tid = append(table, {"1": 10})
    marker = Path(table.url, names.committed(tid))
    marker.write_bytes(encode(with_statistics(decode_commit(marker.read_bytes(), where="the marker"))))
    monkeypatch.setattr("dbio_commit.log.listing.STATISTICS_BYTES", 10)

    result = dbio("check", table.url)
    report = dbio_json("check", table.url)

    assert result.exit_code == 0
    assert last_line(result) == f"Nothing is wrong; `dbio checkpoint {table.url}` lets readers skip files again."
    assert "the statistics in 1 commit markers were not kept in memory" in " ".join(result.stdout.split())
    assert "statistics are kept of at most 10" in report["unkept_statistics"]
    assert report["ok"]
    assert report["without_statistics"] == []


def with_statistics(marker: CommitMarker) -> CommitMarker:
    told = [replace(file, statistics={"n": Bounds(1, 2, 0)}) for file in unpack_files(marker)]
    assert marker.dbio_commit is not None
    return msgspec.structs.replace(
        marker, dbio_commit=msgspec.structs.replace(marker.dbio_commit, files=pack_files(told))
    )


def test_check_names_settings_that_no_writer_evaluates(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, {"1": 10})
    with monkeypatch.context() as patch:
        patch.setattr("dbio_commit.protocol.settings.problem_of", lambda sql: None)
        table.set({"check.c": "java_method('a', 'b') > 1", "check.good": "n > 0"})

    result = dbio("check", table.url)

    assert result.exit_code == 1
    assert "settings that no writer evaluates" in result.stdout
    assert "java_method()" in result.stdout
    assert "change or remove those listed" in last_line(result)
    (refused,) = dbio_json("check", table.url)["refused_settings"]
    assert refused.startswith("check.c=")
    assert dbio("set", table.url, "check.c=").exit_code == 0
    assert dbio("check", table.url).exit_code == 0


def test_check_names_files_on_whose_partitions_readers_do_not_agree(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(table, {"1.50": 10, "1.5": 20})
    with monkeypatch.context() as patch:
        patch.setattr("dbio_commit.commit.state_after.find_unread", lambda *_: ())
        table.begin().commit(columns(n="long", day="decimal(5,2)"))

    result = dbio("check", table.url)

    assert result.exit_code == 1
    assert "partition values" in result.stdout
    assert "disagree about the partition of 1 file" in " ".join(result.stdout.split())
    (unread,) = dbio_json("check", table.url)["unread_values"]
    assert unread["path"].startswith("day=1.5/")
    assert "'1.5' is no decimal(5,2)" in unread["problem"]


def test_check_counts_pending_transactions_and_garbage_by_kind(table: Table) -> None:
    append(table, {"1": 10})
    append_removed = table.begin("overwrite")
    append_removed.commit()
    pending = table.begin()
    new_files(pending, {"1": 5})
    Path(table.url, "day=1", data_file()).write_bytes(b"xy")
    Path(table.url, "stranger.parquet").write_bytes(b"xyz")

    result = dbio("check", table.url)
    report = dbio_json("check", table.url)

    assert result.exit_code == 0
    assert f"dbio abort {table.url} TID" in last_line(result)
    assert [(found["tid"], found["files"], found["size"]) for found in report["pending"]] == [(pending.tid, 1, 5)]
    assert report["garbage"] == {
        "removed": {"files": 1, "size": 10},
        "failed_attempt": {"files": 0, "size": 0},
        "aborted": {"files": 0, "size": 0},
        "pending": {"files": 1, "size": 5},
        "unknown": {"files": 1, "size": 2},
        "untracked": {"files": 1, "size": 3},
        "not_data": {"files": 0, "size": 0},
        "foreign": {"files": 0, "size": 0},
        "part": {"files": 0, "size": 0},
    }


def test_check_says_which_transactions_can_commit_no_more(table: Table) -> None:
    pending = table.begin()
    ten_days_ago = (datetime.now(UTC) - timedelta(days=10)).timestamp()
    os.utime(Path(table.url, names.started(pending.tid)), (ten_days_ago, ten_days_ago))
    assert "1 transaction can no longer commit" in last_line(dbio("check", table.url))
    assert "10 days" in dbio("check", table.url).stdout


def test_check_names_empty_files_and_looks_into_all_where_it_is_told_to(tmp_path: Path) -> None:
    table = Table(tmp_path)
    rows = pa.table({"id": [1]})
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(rows, tmp_path / "b.parquet")
    pq.write_table(pa.table({"ID": [1]}), tmp_path / "c.parquet")
    pq.write_table(pa.table({"id": [1], "at": pa.array([None], pa.timestamp("ns"))}), tmp_path / "d.parquet")
    pq.write_table(pa.table({"id": [1], "more": [1]}), tmp_path / "e.parquet")
    pq.write_table(pa.table({"id": ["text"]}), tmp_path / "f.parquet")
    for name in ("g.parquet", "h.parquet"):
        (tmp_path / name).write_bytes(b"" if name < "h" else b"rows of another format")
    table.inspector = None  # as earlier versions, which looked into no file
    table.adopt()
    with table.begin() as transaction:
        transaction.commit({"type": "struct", "fields": [{"name": "id", "type": "long"}]})
    quick = dbio_json("check", tmp_path)
    assert (quick["ok"], quick["misread"]) == (False, [{"path": "g.parquet", "problem": "it is empty"}])
    thorough = {it["path"]: it["problem"] for it in dbio_json("check", "--files", tmp_path)["misread"]}
    assert {path: problem.partition(":")[0] for path, problem in thorough.items()} == {
        "c.parquet": "ID is spelled id in the table",
        "d.parquet": "column 'at' is a timestamp in nanoseconds, which Spark does not read",
        "e.parquet": "it has the column 'more', which the table does not have",
        "f.parquet": "it holds id as string, not long",
        "g.parquet": "it is no Parquet file",
        "h.parquet": "it is no Parquet file",
    }
    shown = dbio("check", "--files", tmp_path)
    assert (shown.exit_code, "Some engines cannot read, or misread, 6 files" in shown.stdout) == (1, True)


def test_a_sound_table_is_sound_by_its_footers_too(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    with table.begin(partition_by=["day"]) as transaction:
        pq.write_table(pa.table({"id": [1], "s": [{"x": 1}]}), transaction.new_file(partition={"day": "1"}))
    assert dbio_json("check", "--files", table.url)["ok"]


def test_check_and_adopt_name_what_is_no_parquet(plain: Path) -> None:
    (plain / "old.parquet").write_bytes(PARQUET)
    (plain / f"notes{ESCAPE}.txt").write_bytes(b"read me")
    assert dbio_json("check", plain)["foreign"] == [f"notes{ESCAPE}.txt"]
    assert r"notes\x1b.txt" in dbio("check", plain).stdout
    shown = dbio("adopt", plain).stdout
    assert "ignored, as they are not Parquet" in shown
    assert r"notes\x1b.txt" in shown


def test_what_is_pending_has_the_host_the_application_and_since_when(table: Table) -> None:
    append(table, {"1": 10})
    pending = table.begin(app=("nightly", 7), message="still at work")
    with Path(table.url, names.started(TID)).open("w") as unreadable:
        unreadable.write('{"version": 2}')

    mine, other = sorted(dbio_json("check", table.url)["pending"], key=lambda it: it["tid"] != pending.tid)

    assert mine["app"] == {"id": "nightly", "version": 7}
    assert mine["provenance"]["host"] == socket.gethostname()
    assert mine["provenance"]["message"] == "still at work"
    assert datetime.fromisoformat(mine["started"])
    assert (other["tid"], other["app"], other["provenance"]) == (TID, None, None)
    _, shown = in_terminal(160, "check", table.url)
    (line,) = [line for line in shown if line.split()[:1] == [pending.tid]]
    for text in ("nightly:7", "still at work", f"@{socket.gethostname()}"):
        assert text in line
    assert dbio_json("show", table.url, pending.tid)["provenance"]["message"] == "still at work"
