"""A snapshot's rows in all forms, which must be the same rows: of random tables, and of tables with odd files."""

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import FileInfo, InvalidInputError, Table
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.testing import MemoryStore
from tests.histories import PARTITIONS, History, columns

Form = Callable[..., pa.Table]


def _in_type(form: Form) -> Form:
    """Polars and DuckDB have other types of Arrow for the same texts and lists."""
    return lambda snapshot, like, **asked: form(snapshot, **asked).cast(like.schema)


FORMS: dict[str, Form] = {
    "batches": lambda snapshot, like, **asked: snapshot.to_batches(**asked).read_all(),
    "lazy": _in_type(lambda snapshot, **asked: snapshot.to_lazy(**asked).collect().to_arrow()),
    "duckdb": _in_type(lambda snapshot, **asked: snapshot.to_duckdb(**asked).to_arrow_table()),
    "dataset": lambda snapshot, like, **asked: snapshot.to_dataset(**asked).to_table().select(like.column_names),
    "polars": _in_type(lambda snapshot, **asked: snapshot.to_polars(**asked).to_arrow()),
}


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def agree(snapshot: Snapshot, *, refused: Sequence[str] = (), **asked: Any) -> int:
    """How many rows all forms have, apart from a form that refuses the table."""
    like = snapshot.to_arrow(**asked)
    for name, form in FORMS.items():
        if name in refused:
            with pytest.raises(InvalidInputError, match="Use to_arrow"):
                form(snapshot, like, **asked)
        else:
            assert rows(form(snapshot, like, **asked)) == rows(like), (name, asked)
    return like.num_rows


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_random_tables_have_the_same_rows_in_all_forms(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(3):
        table = Table(tmp_path / f"ä {number}")
        history = History(table, seed * 100 + number, partition_by=chance.sample(list(PARTITIONS), number % 3))
        history.commit("append")
        for _ in range(3):
            history.commit()
        snapshot = table.snapshot()
        agree(snapshot)
        for asked in [["id"], ["name", "id"], history.partition_by or ["day"]]:
            agree(snapshot, columns=asked)
        parts = [f"{column} IS NULL OR id > 3" for column in history.partition_by]
        for where in ["small <= 5 OR name IS NULL", "NOT flag AND at < '2026-11-20 12:00:00'", "price > 1.005", *parts]:
            agree(snapshot, where=where, time_zone="UTC")
        agree(snapshot, where="ratio > 0.5", refused=["dataset"])


# --- odd files ----------------------------------------------------------------------------------------------------

_INSIDE = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "long", "nullable": True, "metadata": {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": {}},
    ],
}
SCHEMA = columns(id="long", kind="string", price="decimal(10,2)", at="timestamp", x="double", st=_INSIDE, day="date")
FULL = pa.table(
    {
        "id": [1, 2],
        "kind": ["a", None],
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "x": [float("nan"), -0.0],
        "st": pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    }
)


def put(table: Table, rows: pa.Table, day: str | None, **how: Any) -> str:
    """A file at which nobody looks, as an earlier version, or an adoption, may have committed it."""
    transaction = table.begin(partition_by=["day"])
    name = names.format_data_file(tid=transaction.tid, job="j", task=0, attempt=0, number=0, suffix=".parquet")
    path = names.join(names.format_partition({"day": day}), name)
    with table.store.open_write(path) as stream:
        pq.write_table(rows, stream, **how)
    table.store.make_durable([path])
    info = FileInfo(path=path, size=table.store.stat(path).size, partition={"day": day})
    transaction.add([info], looked_at=True)
    transaction.commit(schema=SCHEMA)
    return path


@pytest.fixture(params=["disk", "memory"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(tmp_path / "odd %20'") if request.param == "disk" else Table.over(MemoryStore())


def test_nan_is_found_in_files_whose_bounds_leave_it_out(table: Table) -> None:
    put(table, FULL, "2026-01-01")
    for where, found in {"x > 5": 1, "x != 0": 1, "x = 0": 1, "NOT (x <= 5)": 1, "x < 5": 1}.items():
        assert agree(table.snapshot(), where=where, refused=["dataset"]) == found
    relation = table.snapshot().to_duckdb()
    assert [relation.filter(it).select("id").fetchall() for it in ("x > 5", "isnan(x)")] == [[(1,)], [(1,)]]


def test_a_file_may_have_other_columns_in_another_order(table: Table) -> None:
    put(table, FULL.append_column("more", [["q", "q"]]), "2026-01-01")
    put(table, FULL.select(["x", "st", "at", "price", "kind", "id"]), "2026-01-02")
    put(table, FULL.select(["id", "kind"]), None)
    snapshot = table.snapshot()
    assert agree(snapshot) == 6
    assert agree(snapshot, columns=["x", "day"]) == agree(snapshot, columns=["day"]) == 6
    assert agree(snapshot, where="day IS NULL AND x IS NULL", refused=["dataset"]) == 2


def test_narrower_types_and_old_times_are_converted(table: Table) -> None:
    put(table, FULL, "2026-01-01")
    narrow: dict[str, Any] = {"id": pa.array([3], pa.int32()), "price": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}
    put(table, pa.table({**narrow, "x": pa.array([1.5], pa.float32())}), "2026-01-01")
    put(table, FULL, "2026-01-02", use_deprecated_int96_timestamps=True)
    assert agree(table.snapshot()) == 5
    assert agree(table.snapshot(), where="price = 1.5 AND at IS NULL") == 1
    assert agree(table.snapshot(), where="at >= '2026-01-01T00:00:00Z'") == 2


def test_respelled_columns_fields_and_columns_of_the_directory_are_what_the_table_says(table: Table) -> None:
    put(table, FULL, "2026-01-01")
    put(table, pa.table({"ID": pa.array([4], pa.int32()), "Kind": ["c"]}), "2026-01-03")
    put(table, pa.table({"id": [5], "st": pa.array([{"A": 7}], pa.struct([("A", pa.int32())]))}), "2026-01-04")
    snapshot = table.snapshot()
    assert agree(snapshot, refused=["dataset"]) == 4
    assert agree(snapshot, columns=["x", "day"]) == 4
    assert agree(snapshot, where="id = 4", refused=["dataset"]) == 1
    put(table, pa.table({"id": [6], "day": pa.array(["wrong"])}), "2026-01-05")
    assert agree(table.snapshot(), where="day = '2026-01-05'", columns=["id", "day"], refused=["dataset"]) == 1


def test_a_name_that_tools_take_for_a_pattern_is_read(tmp_path: Path) -> None:
    table = Table(tmp_path / "a*[b]")
    put(table, FULL, "2026-01-01")
    assert agree(table.snapshot()) == 2


@pytest.mark.parametrize(
    "name", ["*", "^a.*$", *(pytest.param(it, marks=pytest.mark.long) for it in ("a.b", 'a"b', "a`b", "file"))]
)
def test_a_column_may_have_a_name_that_tools_take_for_something_else(tmp_path: Path, name: str) -> None:
    values = zip([1, 2, None], "uvw", [1, 2, 3], strict=True)
    rows = pa.Table.from_pylist([{name: one, "other": other, "ab": number} for one, other, number in values])
    for partition_by in ([], [name]):
        table = Table(tmp_path / str(partition_by))
        table.write(rows, "overwrite", partition_by)
        assert agree(table.snapshot(), columns=[name, "other"]) == agree(table.snapshot()) == 3
        assert [agree(table.snapshot(), where=[(name, *it)], columns=["ab"]) for it in (("=", 1), ("in", [2, 5]))] == [
            1,
            1,
        ]
        assert agree(table.snapshot(), where=[(name, "=", None)]) == 1


def test_a_text_that_is_not_utf8_never_reaches_polars(tmp_path: Path) -> None:
    buffers = [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    text: Any = pa.Array.from_buffers(pa.string(), 1, buffers)
    for column in (text, pa.ListArray.from_arrays([0, 1], text)):
        table = Table(tmp_path / str(column.type))
        with table.begin() as transaction:
            pq.write_table(pa.table({"id": [1], "v": column}), transaction.new_file())
        with pytest.raises(InvalidInputError, match=r"column 'v.*' holds a value that Polars does not have"):
            table.snapshot().to_polars()
        assert table.snapshot().to_lazy().select("id").collect().to_dicts() == [{"id": 1}]
        with pytest.raises(pl.exceptions.ComputeError):
            table.snapshot().to_lazy().collect()


def test_a_relation_and_a_lazy_frame_are_read_as_often_as_asked(table: Table) -> None:
    put(table, FULL, "2026-01-01")
    relation, lazy = table.snapshot().to_duckdb(), table.scan(["id"]).to_lazy()
    assert [relation.aggregate("sum(id)").fetchall() for _ in range(2)] == [[(3,)], [(3,)]]
    assert [lazy.select(pl.col("id").sum()).collect().item() for _ in range(2)] == [3, 3]
    assert lazy.select(pl.len()).collect().item() == 2
    assert lazy.head(1).collect().height == 1
    assert lazy.head(1).filter(pl.col("id") > 9).collect().height == 0


def test_an_empty_table_has_its_columns_in_all_forms(table: Table) -> None:
    table.begin(partition_by=["day"]).commit(schema=SCHEMA)
    assert agree(table.snapshot()) == 0
    assert agree(table.snapshot(), where="id = 1") == 0
