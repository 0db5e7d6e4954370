"""`dbio schema`: the columns that were recorded, or those of the newest file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit import Table
from tests.command_line import ESCAPE, dbio, dbio_json, in_terminal, lines


def test_schema_lists_columns_types_and_partition_columns(table: Table) -> None:
    fields = {"id": "long", "tags": {"type": "array", "elementType": "string"}, f"x{ESCAPE}": "date", "day": "string"}
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    table.begin(partition_by=["day"]).commit(schema={"type": "struct", "fields": described})
    assert lines(dbio("schema", table.url).stdout) == [
        ["id", "long", ""], ["tags", "array<string>", ""], [r"x\x1b", "date", ""], ["day", "string", "partition"],
    ]  # fmt: skip
    document = dbio_json("schema", table.url)
    assert document["schema"]["fields"] == described
    assert (document["recorded"], document["partition_columns"]) == (True, ["day"])
    shown = " ".join(in_terminal(80, "schema", table.url)[1])
    assert "day" in shown
    assert "partition" in shown


def test_schema_of_a_plain_directory_is_that_of_its_newest_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    assert lines(dbio("schema", tmp_path).stdout) == [["id", "long", ""]]
    assert dbio_json("schema", tmp_path)["recorded"] is False
