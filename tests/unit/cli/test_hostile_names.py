"""Names of files, columns and applications that try to steer a terminal, or that no terminal can show."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import Bounds
from tests.command_line import (
    COMMANDS,
    ESCAPE,
    HOSTILE,
    append,
    dbio,
    dbio_json,
    in_terminal,
    new_files,
    process,
    words,
)


def test_names_steer_no_terminal_and_are_no_markup(table: Table) -> None:
    with table.begin(app=(HOSTILE.removesuffix("\udc80"), 1)) as transaction:
        pass
    safe = r"[red]x[/red]\x1b[2J\r\n\t\u202e:smile:"
    assert dbio("log", table.url).stdout.rstrip("\n").split("\t")[7] == f"{safe}:1"
    for args in (["log", table.url], ["show", table.url, transaction.tid]):
        _, lines = in_terminal(200, *args)
        assert any(safe in line for line in lines)
        assert all(line.isprintable() for line in lines)
    assert dbio_json("log", table.url)["commits"][0]["app"]["id"] == HOSTILE.removesuffix("\udc80")


def test_a_file_with_a_hostile_name_is_one_printable_line(plain: Path) -> None:
    (plain / (HOSTILE.replace("/", "|") + ".parquet")).touch()
    result = process("files", plain)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 2
    assert r"[red]x[|red]\x1b[2J\r\n\t\u202e:smile:\udc80" in result.stdout
    paths = [file["path"] for file in json.loads(process("files", plain, "--json").stdout)["files"]]
    assert HOSTILE.replace("/", "|") + ".parquet" in paths


def test_columns_of_files_steer_no_terminal(tmp_path: Path) -> None:
    name = HOSTILE.removesuffix("\udc80")
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({name: [1]}), root / "a.parquet")
    pq.write_table(pa.table({name.upper(): [1]}), root / "b.parquet")
    adopted = dbio("adopt", root)
    assert adopted.exit_code == 0
    checked = dbio("check", root, "--files")
    assert checked.exit_code == 1
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({name: pa.array([None], pa.timestamp("ns"))}), other / "c.parquet")
    refused = dbio("adopt", other)
    for shown in (adopted.output, checked.output, refused.output):
        assert all(line.isprintable() for line in shown.replace("\t", " ").splitlines())
        assert r"\x1b[2J" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_an_error_message_is_one_printable_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = dbio(*words(command, tmp_path / f"a{ESCAPE}[2J\nb"))
    assert result.exit_code == 1
    assert result.stderr.rstrip("\n").isprintable()


def test_a_name_that_the_output_cannot_encode_is_no_error(tmp_path: Path) -> None:
    table = Table(tmp_path / "été")
    with table.begin():
        pass
    result = process("check", table.url, env={"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")
    assert r"\xe9t\xe9" in result.stdout


def test_a_strangers_schema_and_statistics_are_shown_as_they_are_and_as_json_that_is_valid(table: Table) -> None:
    tid = append(table, {"1": 1}, rows=1, statistics={"a": Bounds(1, 2, 0)})
    marker = Path(table.url, names.committed(tid))
    body = json.loads(marker.read_text())
    body["dbio_commit"]["schema"] = {
        "type": "struct",
        "fields": [{"name": "n", "type": {"type": "odd", "of": [1e300]}}],
    }
    body["dbio_commit"]["files"]["statistics"]["a"] = {"min": ["x"], "max": [{}], "nulls": [0]}
    marker.write_text(json.dumps(body))

    result = dbio("show", table.url, tid)

    assert result.exit_code == 0
    assert "1e+300" in result.stdout
    document = json.loads(dbio("show", table.url, tid, "--json").stdout, parse_constant=pytest.fail)
    assert document["schema"]["fields"][0]["type"] == {"type": "odd", "of": [1e300]}


def test_an_application_and_a_column_steer_no_terminal(table: Table) -> None:
    name = f"x{ESCAPE}[2J"
    with table.begin(partition_by=["day"], app=(name, 1)) as transaction:
        new_files(transaction, {"1": 1}, statistics={name: Bounds(name, name, 0)})
    for command in (["log"], ["check"], ["show", transaction.tid]):
        piped = dbio(command[0], table.url, *command[1:])
        shown = "".join(in_terminal(160, command[0], table.url, *command[1:])[1])
        for text in (piped.stdout, shown):
            assert r"x\x1b[2J" in text
            assert ESCAPE not in text
