"""`to_pandas` gives exactly the values of the table, and what it gives can be written again."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dbio_commit import InvalidInputError, SchemaMismatchError, Table
from dbio_commit.testing import MemoryStore
from tests.histories import History

LARGE = 2**53 + 1
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
WHOLE: Any = {
    "id": pa.array([1, 2, 3], pa.int64()),
    "large": pa.array([LARGE, None, -(2**63)], pa.int64()),
    "small": pa.array([1, None, -128], pa.int8()),
    "list": pa.array([[LARGE, None], None, []], pa.list_(pa.int64())),
    "struct": pa.array([{"a": LARGE}, {"a": None}, None], pa.struct([("a", pa.int64())])),
    "map": pa.array([[("k", LARGE), ("j", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "deep": pa.array([[{"a": [LARGE, None]}], None, []], pa.list_(pa.struct([("a", pa.list_(pa.int64()))]))),
    "times": pa.array([[LAST, None], None, []], pa.list_(pa.timestamp("us", "UTC"))),
}


def of(rows: pa.Table) -> Table:
    table = Table.over(MemoryStore())
    table.write(rows)
    return table


def plain(value: Any) -> Any:
    """The value as `to_pylist` has it."""
    match value:
        case np.ndarray() | list():
            return [plain(it) for it in value]
        case dict():
            return {name: plain(it) for name, it in value.items()}
        case tuple():
            return tuple(map(plain, value))
    return None if value is None or value is pd.NA else value.item() if isinstance(value, np.generic) else value


def test_whole_numbers_beside_nulls_stay_what_they_are_at_each_level() -> None:
    table = of(pa.table(WHOLE))
    frame = table.to_pandas()
    assert list(frame.columns) == list(WHOLE)
    assert [str(frame[name].dtype) for name in ("id", "large", "small", "list")] == ["int64", "Int64", "Int8", "object"]
    for name, values in WHOLE.items():
        assert [plain(it) for it in frame[name]] == values.to_pylist(), name
    assert str(table.to_pandas(where=[("id", "=", 1)])["large"].dtype) == "int64"
    assert table.to_pandas(where=[("id", ">", 9)]).shape == (0, len(WHOLE))


def test_a_mapper_of_types_is_as_in_pyarrow() -> None:
    table = of(pa.table(WHOLE))
    for frame in (table.to_pandas(types_mapper=pd.ArrowDtype), table.scan().to_pandas(types_mapper=pd.ArrowDtype)):
        assert {type(kind) for kind in frame.dtypes} == {pd.ArrowDtype}
        assert pa.Table.from_pandas(frame, table.scan().schema) == table.scan().to_arrow()
    some = table.to_pandas(["id", "small"], types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    assert list(map(str, some.dtypes)) == ["Int64", "Int8"]


@pytest.mark.parametrize("mapper", [None, pd.ArrowDtype])
def test_what_was_read_can_be_appended_again(tmp_path: Path, mapper: Any) -> None:
    """pandas has no type for maps, except in Arrow's form."""
    for seed in range(4):
        table = Table(tmp_path / f"t{seed}")
        History(table, seed, partition_by=["kind", "number", "yes"] if seed % 2 else []).commit("append")
        names = [name for name in table.scan().schema.names if name != "more" or mapper]
        rows = table.scan(names).to_arrow().to_pylist()
        table.write(table.to_pandas(names, types_mapper=mapper))
        assert sorted(map(repr, table.scan(names).to_arrow().to_pylist())) == sorted([*map(repr, rows)] * 2)


# --- whole numbers in columns of other numbers --------------------------------------------------------------------

NUMBERS = pa.table(
    {
        "f": [0.5],
        "single": pa.array([0.5], pa.float32()),
        "d": pa.array([Decimal("0.50")], pa.decimal128(5, 2)),
        "small": pa.array([0], pa.int8()),
        "inside": pa.array([[{"x": 0.5}]], pa.list_(pa.struct([("x", pa.float64())]))),
    }
)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"f": [3], "single": [2**24], "d": [-999], "small": [-128], "inside": [[{"x": 3}]]}),
        pl.DataFrame({"f": [2**60], "single": [3], "d": [999], "small": [127], "inside": [[{"x": 3}]]}),
        pa.table({"f": pa.array([-(2**63)]), "single": [2**40], "d": [0], "small": [1], "inside": [[{"x": None}]]}),
        pa.table({"f": pa.array([7], pa.uint32()), "small": pa.array([9], pa.uint16())}),
    ],
    ids=["pandas", "polars", "arrow", "unsigned"],
)
def test_whole_numbers_of_a_frame_fit_each_column_of_numbers_if_they_are_exact(frame: Any) -> None:
    table = of(NUMBERS)
    table.write(frame)
    found, rows = table.scan().to_arrow(), pa.table(frame) if not isinstance(frame, pd.DataFrame) else None
    assert found.schema == NUMBERS.schema.set(4, found.schema.field(4))
    rows = pa.Table.from_pandas(frame, preserve_index=False) if rows is None else rows
    for name in rows.column_names:
        assert found[name].to_pylist()[1] == rows[name].to_pylist()[0], name


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("f", LARGE, "9007199254740993"),
        ("single", 2**24 + 1, "16777217"),
        ("d", 1000, "precision"),
        ("small", 128, "128"),
        ("inside", [{"x": LARGE}], "9007199254740993"),
    ],
)
def test_a_whole_number_that_would_change_is_refused_with_its_column(name: str, value: Any, said: str) -> None:
    table = of(NUMBERS)
    for frame in (pa.table({name: [value]}), pd.DataFrame({name: [value]})):
        with pytest.raises(InvalidInputError, match=rf"column '{name}' is .* does not fit the table's .*{said}"):
            table.write(frame)
    assert table.scan().to_arrow().num_rows == 1


def test_numbers_with_fractions_do_not_fit_columns_of_whole_numbers() -> None:
    table = of(NUMBERS)
    for wrong in (
        pa.table({"small": [1.0]}),
        pa.table({"d": [1.0]}),
        pa.table({"f": pa.array([1], pa.decimal128(5, 2))}),
    ):
        with pytest.raises(SchemaMismatchError, match="does not fit the table"):
            table.write(wrong)


def test_with_merge_schema_wider_whole_numbers_widen_the_column() -> None:
    table = of(NUMBERS)
    table.write(pa.table({"small": [300], "f": [3]}), merge_schema=True)
    assert [table.scan().schema.field(name).type for name in ("small", "f")] == [pa.int64(), pa.float64()]
    assert table.scan(["small", "f"]).to_arrow().to_pylist()[1] == {"small": 300, "f": 3.0}
