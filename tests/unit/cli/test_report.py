"""`dbio report` on local tables: what it writes and says, and how it exits."""

import os
from pathlib import Path
from typing import Any

import pytest

from dbio_commit import Table
from dbio_commit.maintenance.report import charts
from dbio_commit.maintenance.report.health import look
from dbio_commit.protocol import names
from tests.builders import QUERY, stream_checkpoint
from tests.command_line import ESCAPE, HOSTILE, append, dbio, dbio_json, process
from tests.reports import Page


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_report_writes_a_page_about_a_table_and_leaves_the_table_alone(table: Table, file: Path) -> None:
    append(table, {"1": 10, "2": 20})
    before = sorted(Path(table.url).rglob("*"))
    result = dbio("report", table.url, "-o", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"wrote {file}: the health of 1 table\n"
    assert "day=2" in Page(file.read_text()).text
    assert sorted(Path(table.url).rglob("*")) == before


def test_report_has_a_section_for_each_path_in_the_order_given(table: Table, plain: Path, file: Path) -> None:
    append(table, {"1": 10})
    assert dbio("report", plain, table.url, "--output", file).exit_code == 0
    page = Page(file.read_text())
    assert [href["href"] for href in page.all("a")] == ["#table-1", "#table-2"]
    assert page.text.index(str(plain)) < page.text.index(table.url)


def test_report_shows_how_far_streams_are_behind_the_table_that_they_read(
    table: Table, tmp_path: Path, file: Path
) -> None:
    append(table, {"1": 10})
    checkpoint = stream_checkpoint(tmp_path / "checkpoint", table)
    other = Table(tmp_path / "other")
    append(other, {"1": 10})
    result = dbio("report", table.url, other.url, "-o", file, "--stream", checkpoint)
    assert result.exit_code == 0
    assert file.read_text().count(QUERY) == 1
    result = dbio("report", other.url, "-o", tmp_path / "none.html", "--stream", checkpoint)
    assert result.exit_code == 2
    assert "is no checkpoint of a stream" in result.stderr


@pytest.mark.parametrize("fails", ["look", "render"])
def test_a_table_on_which_dbio_itself_fails_ends_no_page(
    fails: str, table: Table, plain: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(table, {"1": 10})
    columns = charts.columns

    def failing_look(snapshot: Any, **facts: Any) -> Any:
        if snapshot.url == table.url and fails == "look":
            raise OverflowError("date value out of range")
        return look(snapshot, **facts)

    def failing_chart(*args: Any, **facts: Any) -> Any:
        if fails == "render":
            raise OverflowError("date value out of range")
        return columns(*args, **facts)

    monkeypatch.setattr("dbio_commit.cli.report.look", failing_look)
    monkeypatch.setattr(charts, "columns", failing_chart)
    result = dbio("report", table.url, plain, "-o", file)
    assert result.exit_code == 1
    text = Page(file.read_text()).text
    assert ("dbio-commit fails with OverflowError" if fails == "look" else "It cannot be shown") in text
    assert str(plain) in text


def test_a_path_that_is_no_table_is_a_section_and_an_exit_code(table: Table, tmp_path: Path, file: Path) -> None:
    append(table, {"1": 10})
    missing = tmp_path / "missing"
    result = dbio("report", missing, table.url, "-o", file)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"dbio: {missing}: there is no table at {missing}")
    text = Page(file.read_text()).text
    assert f"there is no table at {missing}" in text
    assert "day=1" in text


def test_a_table_that_check_would_complain_of_is_an_exit_code(table: Table, file: Path) -> None:
    append(table, {"1": 10})
    Path(table.url, table.snapshot().files[0].path).unlink()
    result = dbio("report", table.url, "-o", file)
    assert result.exit_code == 1
    assert "bring 1 file back from a backup" in result.stderr
    assert "missing live files: 1" in Page(file.read_text()).text


def test_report_for_programs_is_one_document(table: Table, tmp_path: Path, file: Path) -> None:
    append(table, {"1": 10})
    Path(table.url, names.committed(append(table, {"1": 1}))).write_text("{")
    document = dbio_json("report", table.url, tmp_path / "missing", "-o", file)
    assert document["report"] == str(file)
    assert [(it["url"], it["ok"], bool(it["message"])) for it in document["tables"]] == [
        (table.url, False, True),
        (str(tmp_path / "missing"), False, True),
    ]


@pytest.mark.parametrize("path", ["oss://bucket/table", "s3://key:secret@bucket/table", ""])
def test_what_is_no_path_is_wrong_usage_and_writes_nothing(table: Table, file: Path, path: str) -> None:
    append(table, {"1": 10})
    result = dbio("report", table.url, path, "-o", file)
    assert result.exit_code == 2
    assert "secret@" not in result.output
    assert not file.exists()


def test_a_page_that_cannot_be_written_is_one_message(table: Table, tmp_path: Path) -> None:
    append(table, {"1": 10})
    result = dbio("report", table.url, "-o", tmp_path / "no" / "report.html")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"dbio: cannot write {tmp_path}/no/report.html: No such file")


@pytest.mark.parametrize(
    "arguments", [[], ["-o", "x.html"], ["table"], ["table", "-o", "x.html", "--retention-hours", "0"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert dbio("report", *arguments).exit_code == 2
    assert not Path("x.html").exists()


def test_the_retention_is_that_of_the_vacuum_to_come(table: Table, file: Path) -> None:
    append(table, {"1": 10})
    assert dbio("report", table.url, "-o", file, "--retention-hours", "5").exit_code == 0
    table.begin("overwrite").commit()
    assert dbio("report", table.url, "-o", file, "--retention-hours", "5").exit_code == 0
    assert "With a retention of 5 h" in Page(file.read_text()).text


def test_hostile_names_of_files_steer_neither_the_page_nor_the_terminal(plain: Path, file: Path) -> None:
    directory = plain / HOSTILE.replace("/", "|")
    directory.mkdir()
    (directory / "a.parquet").write_bytes(b"x" * 20)
    result = process("report", plain, "-o", file)
    assert (result.returncode, result.stderr) == (0, "")
    text = file.read_text(encoding="utf-8")
    assert ESCAPE not in text
    assert r"[red]x[|red]\x1b[2J\r\n\t\u202e:smile:\udc80" in Page(text).text


def test_no_secret_of_the_environment_is_in_a_page(table: Table, file: Path) -> None:
    append(table, {"1": 10})
    secret = "wJalrXUtnFEMI/K7MDENG"
    env = {"AWS_SECRET_ACCESS_KEY": secret, "AWS_ACCESS_KEY_ID": "AKIA0000", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    env["AWS_MAX_ATTEMPTS"] = "1"
    result = process("report", table.url, "s3://bucket/table", "-o", file, env=os.environ | env)
    assert result.returncode == 1
    assert "s3://bucket/table" in Page(file.read_text()).text
    assert secret not in result.stderr + file.read_text()
    assert "AKIA0000" not in file.read_text()
