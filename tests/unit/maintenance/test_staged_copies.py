"""Copies of files stay as doubtful as the files: a publisher looks at their footers, too."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.base.errors import InvalidInputError


def with_ids_of_another_table(table: Table) -> None:
    field: Any = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"})
    with table.begin() as transaction:
        pq.write_table(pa.Table.from_arrays([pa.array([1])], schema=pa.schema([field])), transaction.new_file())


@pytest.mark.parametrize("how", ["as_of", "incremental"])
def test_a_publication_of_a_copy_is_refused_as_that_of_the_original(how: str, tmp_path: Path) -> None:
    original, copy = Table(tmp_path / "original"), Table(tmp_path / "copy")
    with_ids_of_another_table(original)
    with pytest.raises(InvalidInputError, match="has field ids of another table"):
        original.publish("iceberg")
    options: dict[str, Any] = {"as_of": original.history()[0].tid} if how == "as_of" else {"incremental": True}
    original.copy(copy.url, **options)
    assert copy.history()[0].metrics["numDoubtfulFiles"] == 1
    with pytest.raises(InvalidInputError, match="has field ids of another table"):
        copy.publish("iceberg")


@pytest.mark.parametrize("how", ["as_of", "incremental"])
def test_copies_of_files_that_dbio_wrote_are_not_looked_at(how: str, tmp_path: Path) -> None:
    original = Table(tmp_path / "original")
    original.write(pa.table({"id": [1]}))
    options: dict[str, Any] = {"as_of": original.history()[0].tid} if how == "as_of" else {"incremental": True}
    original.copy(f"{tmp_path}/copy", **options)
    assert "numDoubtfulFiles" not in Table(tmp_path / "copy").history()[0].metrics
