"""The columns of a table that has none recorded: each part of the code finds the same."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.data.columns import arrow_schema
from dbio_commit.log.found_columns import find_columns, table_columns
from dbio_commit.maintenance.adopt import adopt
from dbio_commit.maintenance.compact.run import _columns
from dbio_commit.maintenance.publish.live import columns_of, read_live
from dbio_commit.spark.read.infer import infer_schema
from dbio_commit.table import Table

INT96 = pa.table({"id": pa.array([1], pa.uint32()), "at": pa.array([datetime(2026, 11, 26, tzinfo=UTC)])})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table whose adoption has looked at no file."""
    for part in ("1", "2026"):
        (tmp_path / f"n={part}").mkdir()
        pq.write_table(INT96, tmp_path / f"n={part}/a.parquet", use_deprecated_int96_timestamps=True)
    table = Table(tmp_path)
    adopt(table.store, table.clock, looks=False)
    return table


def test_all_find_the_same_columns(table: Table) -> None:
    snapshot = table.snapshot()
    assert snapshot.schema is None
    found = table_columns(table.store, snapshot)
    kinds = {field["name"]: field["type"] for field in found["fields"]}
    assert kinds == {"id": "long", "at": "timestamp", "n": "integer"}
    assert table.schema() == found
    assert snapshot.to_arrow().schema == arrow_schema(found, where="here")
    spark = infer_schema(table.store, snapshot)
    assert spark is not None
    assert spark.jsonValue() == found
    assert columns_of(table.store, read_live(table.store, table.clock, table.clock.moment())) == found
    inside = [field for field in found["fields"] if field["name"] != "n"]
    assert _columns(snapshot, table.store) == {"type": "struct", "fields": inside}


@pytest.mark.parametrize("kind", [pa.time32("ms"), pa.duration("us")], ids=str)
def test_all_refuse_a_type_that_spark_has_not(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"c": pa.array([1], kind)}), tmp_path / "a.parquet")
    table = Table(tmp_path)
    adopt(table.store, table.clock, looks=False)
    snapshot = table.snapshot()
    asks: list[Callable[[], Mapping[str, Any] | object]] = [
        lambda: table_columns(table.store, snapshot),
        table.schema,
        snapshot.to_arrow,
        lambda: infer_schema(table.store, snapshot),
        lambda: _columns(snapshot, table.store),
        table.compact,
    ]
    for ask in asks:
        with pytest.raises(InvalidInputError, match=r"column 'c' of .*a\.parquet is"):
            ask()


def test_an_empty_table_has_none(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.begin().commit()
    assert find_columns(table.store, table.snapshot()) is None
    with pytest.raises(InvalidInputError, match="no files and no recorded columns"):
        table_columns(table.store, table.snapshot())
