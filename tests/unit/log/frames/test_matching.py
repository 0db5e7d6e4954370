"""Files are matched with the table's columns; files with the same columns as the one before, without being asked."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import FileInfo, Table
from dbio_commit.log.frames import matching
from dbio_commit.log.frames.matching import Match, match, match_files
from dbio_commit.protocol import names
from tests.histories import columns

INSIDE = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
SCHEMA = columns(id="long", a=INSIDE, at="timestamp")
AT: Any = pa.array([0], pa.timestamp("us", "UTC"))
ROWS = pa.table({"id": [1], "a": [{"x": 1}], "at": AT})
OTHERS = {
    "another struct with the same fields": (pa.table({"id": [1], "b": [{"x": 1}], "at": AT}), {}, Match.CAST),
    "another name": (ROWS.rename_columns(["id", "a", "then"]), {}, Match.CAST),
    "another type": (ROWS.set_column(0, "id", pa.array([1], pa.int32())), {}, Match.CAST),
    "times of another kind": (ROWS, {"use_deprecated_int96_timestamps": True}, Match.CAST),
    "another spelling": (ROWS.rename_columns(["ID", "a", "at"]), {}, Match.OTHER),
}


def put(table: Table, files: Sequence[tuple[pa.Table, dict[str, Any]]]) -> None:
    transaction = table.begin()
    for number, (rows, how) in enumerate(files):
        path = names.format_data_file(tid=transaction.tid, job="j", task=0, attempt=0, number=number, suffix=".parquet")
        with table.store.open_write(path) as stream:
            pq.write_table(rows, stream, **how)
        transaction.add([FileInfo(path=path, size=table.store.stat(path).size, partition={})], looked_at=True)
    transaction.commit(schema=SCHEMA)


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_is_not_taken_for_one_with_other_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rows, how, expected = OTHERS[name]
    table = Table(tmp_path)
    put(table, [(ROWS, {}), (ROWS, {}), (rows, how), (ROWS, {})])
    asked: list[str] = []

    def count(parquet: pq.ParquetFile, target: pa.Schema, *, partition: Collection[str]) -> tuple[Match, str]:
        asked.append(name)
        return match(parquet, target, partition=partition)

    monkeypatch.setattr(matching, "match", count)
    request = table.scan().request
    found = sorted(match_files(request, request.files, request.target), key=lambda it: it.file.path)
    assert [it.match for it in found] == [Match.SAME, Match.SAME, expected, Match.SAME]
    assert len(asked) == 3
