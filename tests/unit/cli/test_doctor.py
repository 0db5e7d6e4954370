"""`dbio doctor`."""

from pathlib import Path

import pytest

from dbio_commit import AccessDeniedError, Table
from dbio_commit.store.local import LocalStore
from tests.command_line import append, dbio, dbio_json, lines


def test_a_disk_is_fine_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    root = tmp_path / "new" / "table"
    found = dbio_json("doctor", root)
    assert found["ok"]
    verdicts = {it["what"]: it["verdict"] for it in found["findings"]}
    assert {verdicts[it] for it in ("software", "access", "put-if-absent", "clock", "deletion")} == {"ok"}
    assert not (tmp_path / "new").exists()


def test_a_table_stays_as_it_is(table: Table) -> None:
    append(table, {"1": 10})
    before = {path.name for path in Path(table.url).rglob("*")}
    said = dbio("doctor", table.url)
    assert said.exit_code == 0
    assert any(line[1] == "access" and "has a dbio table here" in line[2] for line in lines(said.stdout))
    assert {path.name for path in Path(table.url).rglob("*")} == before


def test_who_may_not_write_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> bool:
        raise AccessDeniedError("Permission denied")

    monkeypatch.setattr(LocalStore, "put_if_absent", refuses)
    said = dbio("doctor", tmp_path)
    assert said.exit_code == 1
    (line,) = [line for line in lines(said.stdout) if line[0] == "problem"]
    assert line[1] == "put-if-absent"
    assert "run as a user who may use it" in line[3]


def test_a_python_of_workers_that_is_not_there_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    said = {line[1]: line for line in lines(dbio("doctor", tmp_path).stdout)}
    for what in ("java", "spark's python"):
        assert said[what][0] == "problem"
        assert said[what][3]
