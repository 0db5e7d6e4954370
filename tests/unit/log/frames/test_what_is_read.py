"""What reads of rows open and fetch: only files, row groups and columns that can matter."""

import io
import json
import random
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import InvalidInputError, ObjectNotFoundError, Table
from dbio_commit.data.conditions.tree import UNKNOWN
from dbio_commit.log.frames import ahead, reading
from dbio_commit.log.frames.polars_predicate import outline
from dbio_commit.log.frames.reading import _ahead
from dbio_commit.testing import MemoryStore
from tests.histories import columns

ROWS, GROUP = 20_000, 2_000


class CountingStore(MemoryStore):
    """Notes which data files are opened, and how many bytes of them are read."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.bytes_read = 0

    def open_read(self, path: str) -> BinaryIO:
        self.opened.append(path)
        store = self

        class Counted(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                found = super().read(size)
                store.bytes_read += len(found)
                return found

        with super().open_read(path) as stream:
            return Counted(stream.read())

    def get(self, path: str, **how: Any) -> bytes:
        found = super().get(path, **how)
        if path.endswith(".parquet"):
            self.opened.append(path)
            self.bytes_read += len(found)
        return found

    def forget(self) -> None:
        self.opened, self.bytes_read = [], 0


def ids_of(batch: pa.RecordBatch) -> Any:
    return batch["id"].to_pylist()


def fill(table: Table, store: MemoryStore | None = None) -> None:
    """Three days of two files each. `id` is sorted; `text` cannot be compressed."""
    chance = random.Random(1)
    with table.begin(partition_by=["day"]) as transaction:
        for number in range(6):
            rows = pa.table(
                {
                    "id": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64()),
                    "text": [chance.randbytes(20).hex() for _ in range(ROWS)],
                }
            )
            target: Any = transaction.new_file(partition={"day": date(2026, 11, 20 + number // 2)})
            if store is None:
                pq.write_table(rows, target, row_group_size=GROUP)
            else:
                with store.open_write(target.removeprefix(f"{store.url}/")) as stream:
                    pq.write_table(rows, stream, row_group_size=GROUP)
        transaction.commit(schema=columns(id="long", text="string", day="date"))


@pytest.fixture(scope="module")
def filled() -> tuple[Table, CountingStore]:
    store = CountingStore()
    table = Table.over(store)
    fill(table, store)
    return table, store


@pytest.fixture
def remote(filled: tuple[Table, CountingStore], monkeypatch: pytest.MonkeyPatch) -> tuple[Table, CountingStore]:
    """A table on a store that fetches ranges: no file is so small that it is fetched whole."""
    monkeypatch.setattr(ahead, "WHOLE_IF_PART", 0)
    filled[1].forget()
    return filled


WHERE = "day = '2026-11-21' AND id BETWEEN 45000 AND 45999"


@pytest.mark.parametrize("form", ["arrow", "batches", "lazy", "filtered lazy frame", "dataset", "duckdb"])
def test_one_partition_and_a_narrow_range_read_little(remote: tuple[Table, CountingStore], form: str) -> None:
    table, store = remote
    snapshot = table.snapshot()
    size = sum(file.size for file in snapshot.files if file.partition["day"] == "2026-11-21")
    store.forget()
    match form:
        case "arrow":
            found = snapshot.to_arrow(where=WHERE).num_rows
        case "batches":
            found = sum(batch.num_rows for batch in snapshot.to_batches(where=WHERE))
        case "lazy":
            found = snapshot.to_lazy(where=WHERE).collect().height
        case "filtered lazy frame":
            day = pl.col("day") == date(2026, 11, 21)
            found = snapshot.to_lazy().filter(day, pl.col("id").is_between(45_000, 45_999)).collect().height
        case "dataset":
            found = snapshot.to_dataset(where=WHERE).to_table().num_rows
        case "duckdb":
            (found,) = snapshot.to_duckdb(where=WHERE).aggregate("count(text)").fetchall()[0]
    assert found == 1000
    assert {path.partition("/")[0] for path in store.opened} == {"day=2026-11-21"}
    assert store.bytes_read < 0.45 * size, "about one row group of ten, and footers"


def test_only_the_columns_that_a_query_needs_are_fetched(remote: tuple[Table, CountingStore]) -> None:
    table, store = remote
    snapshot = table.snapshot()
    size = sum(file.size for file in snapshot.files)
    total = sum(range(6 * ROWS))
    finds: list[Callable[[], Any]] = [
        lambda: snapshot.to_lazy().select(pl.col("id").sum()).collect().item(),
        lambda: sum(sum(ids_of(batch)) for batch in snapshot.to_batches(["id"])),
        lambda: snapshot.to_duckdb().aggregate("sum(id)").fetchall()[0][0],
    ]
    for find in finds:
        store.forget()
        assert find() == total
        assert store.bytes_read < 0.4 * size


def test_on_a_disk_tools_open_only_the_partition(tmp_path: Path) -> None:
    """DuckDB also opens the first file of all, for its columns."""
    table = Table(tmp_path / "t")
    fill(table)
    relation, lazy = table.snapshot().to_duckdb(), table.snapshot().to_lazy()
    for file in table.snapshot().files[1:]:
        if file.partition["day"] != "2026-11-21":
            (tmp_path / "t" / file.path).write_bytes(b"x" * file.size)  # reading one of them fails
    assert relation.filter("day = DATE '2026-11-21' AND id < 45000").aggregate("count(*)").fetchall() == [(5000,)]
    filtered = lazy.filter(pl.col("day") == date(2026, 11, 21), pl.col("id") < 45_000)
    assert filtered.select(pl.len()).collect().item() == 5000


def test_a_flat_table_on_a_disk_is_a_scan_of_polars_itself(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    with table.begin() as transaction:
        for number in range(2):
            pq.write_table(pa.table({"id": [number]}), transaction.new_file())
    lazy = table.snapshot().to_lazy()
    assert "Parquet SCAN" in lazy.explain()
    assert lazy.collect()["id"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("place", "days", "is_scan"),
    [
        ("t", [date(2026, 11, 20), date(2026, 11, 21)], True),
        ("t", [date(2026, 11, 20), None], False),
        ("day=2026-01-01/t", [date(2026, 11, 20), date(2026, 11, 21)], False),
    ],
    ids=["days", "null", "a directory above that looks like a partition"],
)
def test_days_in_paths_on_a_disk_are_left_to_polars_if_it_finds_the_same(
    tmp_path: Path, place: str, days: list[date | None], is_scan: bool
) -> None:
    table = Table(tmp_path / place)
    with table.begin(partition_by=["day"]) as transaction:
        for number, day in enumerate(days):
            rows = pa.table({"id": [number], "x": [number / 2]})
            pq.write_table(rows, transaction.new_file(partition={"day": day}))
        transaction.commit(schema=columns(id="long", x="double", day="date"))
    lazy = table.snapshot().to_lazy()
    assert ("Parquet SCAN" in lazy.explain()) == is_scan
    assert sorted(lazy.collect().rows()) == [(number, number / 2, day) for number, day in enumerate(days)]
    assert lazy.select("day").collect().height == lazy.select(pl.len()).collect().item() == 2
    assert lazy.filter(pl.col("day") == days[0]).collect()["id"].to_list() == [0]


def test_a_file_that_vacuum_has_deleted_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    fill(table)
    snapshot = table.snapshot()
    lazy = snapshot.to_lazy()
    (tmp_path / "t" / snapshot.files[0].path).unlink()
    reads: list[Callable[[], object]] = [
        snapshot.to_arrow,
        snapshot.to_pandas,
        snapshot.to_polars,
        snapshot.to_duckdb,
        snapshot.to_dataset,
        snapshot.to_lazy,
        lambda: snapshot.to_batches().read_all(),
        lambda: snapshot.count("id >= 0"),
    ]
    for read in reads:
        with pytest.raises(ObjectNotFoundError, match=r"vacuum may have deleted .*: take a new snapshot") as error:
            read()
        assert str(error.value).count("vacuum may") == 1
    with pytest.raises(Exception, match=r"no such object|does not exist|not found|No such file"):
        lazy.collect()


def test_rows_are_counted_by_what_writers_recorded_and_else_by_footers(
    filled: tuple[Table, CountingStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = filled
    assert table.count() == table.snapshot().scan().count() == table.to_arrow(["id"]).num_rows
    assert table.count("id < 7") == table.count([("id", "<", 7)]) == table.to_arrow(where="id < 7").num_rows
    other = Table.over(MemoryStore())
    assert other.begin().commit().added_files == other.count() == 0
    other.write(pa.table({"id": [1, 2]}))
    monkeypatch.setattr(reading, "open_footer", None)
    assert other.count() == 2


# --- arguments ----------------------------------------------------------------------------------------------------


def test_what_is_asked_for_wrongly_is_refused(filled: tuple[Table, CountingStore]) -> None:
    table, _ = filled
    snapshot = table.snapshot()
    with pytest.raises(InvalidInputError, match="another name of `where`"):
        snapshot.to_arrow(filter=[("id", "=", 1)], where="id = 1")
    with pytest.raises(InvalidInputError, match="where=…"):
        snapshot.to_arrow(["id"], "id = 1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="time_zone='UTC'"):
        table.scan(where=[("id", "=", 1)], time_zone="UTC")
    with pytest.raises(InvalidInputError, match="RLIKE"):
        table.scan(where="text RLIKE 'a.*'")


def test_a_scan_says_what_it_is(filled: tuple[Table, CountingStore]) -> None:
    table, _ = filled
    scan = table.scan(["day", "ID"], [("day", "=", "2026-11-21")])
    assert scan.schema.names == ["day", "id"]
    assert scan.schema.types == [pa.date32(), pa.int64()]
    assert repr(scan) == "Scan('memory://table': 2 columns of at most 2 files)"
    assert scan.to_pandas().shape == (2 * ROWS, 2)


# --- reading ahead ------------------------------------------------------------------------------------------------


def test_items_come_in_order_and_few_are_made_ahead() -> None:
    made: list[int] = []

    def source(number: int) -> Iterator[int]:
        for item in range(100):
            made.append(number)
            yield number * 100 + item

    found = _ahead([partial(source, number) for number in range(20)])
    assert [next(found) for _ in range(150)] == list(range(150))
    assert len(made) < 150 + reading._AT_ONCE * (reading._HELD + 2) + 100
    assert list(found) == list(range(150, 2000))


def test_an_error_of_a_source_comes_in_its_place_and_closing_stops_all() -> None:
    def source(number: int) -> Iterator[int]:
        yield number
        if number == 3:
            raise ValueError("broken")
        yield from range(100)

    sources = [partial(source, number) for number in range(10)]
    with pytest.raises(ValueError, match="broken"):
        list(_ahead(sources))
    found = _ahead(sources)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]


# --- filters of Polars --------------------------------------------------------------------------------------------

TYPES = {"id": pl.Int64(), "name": pl.String(), "day": pl.Date(), "x": pl.Float64(), "flag": pl.Boolean()}


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        (pl.col("id") == 5, "Comparison(column='id', operator='=', low=5, high=5)"),
        (pl.lit(5) < pl.col("id"), "Comparison(column='id', operator='>', low=5, high=5)"),
        (pl.col("id").is_in([5, 3]), "OneOf(column='id', values=(3, 5), is_one=True)"),
        (pl.col("day") >= date(2026, 1, 1), "Comparison(column='day', operator='>=', low=datetime.date(2026, 1, 1)"),
        (pl.col("name").is_null(), "IsNull(column='name', is_null=True)"),
        (
            pl.col("name").is_not_null() | pl.col("flag"),
            "AnyOf(parts=(IsNull(column='name', is_null=False), Comparison(column='flag', operator='=', low=True",
        ),
        (~(pl.col("id").is_between(1, 3, closed="left")), "AnyOf(parts=(Comparison(column='id', operator='<', low=1"),
        (pl.col("x") > float("nan"), "Condition()"),
        (pl.col("x").is_in([1.0, None]), "Condition()"),
        (pl.col("id") + 1 == 5, "Condition()"),
        (pl.col("name").str.starts_with("a"), "Condition()"),
        (pl.col("id").eq_missing(5), "Condition()"),
    ],
)
def test_filters_of_polars_are_read_as_far_as_they_are_certain(expression: pl.Expr, read: str) -> None:
    assert repr(outline(planned(expression), TYPES)).startswith(read)


def planned(expression: pl.Expr) -> pl.Expr:
    """As Polars passes it when a query is planned, with the types of the columns."""
    from polars.lazyframe.resolver import LazyFrameResolver

    seen: list[pl.Expr] = []

    class Rows(LazyFrameResolver):
        def schema(self) -> Any:
            return TYPES

        def resolve_lazyframe(self, *, filters: list[Any], **_: Any) -> pl.LazyFrame:
            seen.extend(it.expr for it in filters)
            return pl.LazyFrame(schema=TYPES)

    Rows().lazy().filter(expression).collect()
    (found,) = seen
    return found


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("id") == 5,
        pl.col("id").is_in([5, 3]),
        pl.col("id").is_between(1, 3),
        pl.col("name").is_null(),
        (pl.col("id") == 5) | pl.col("flag"),
        ~pl.col("flag"),
    ],
)
def test_a_node_with_a_field_that_is_not_expected_may_hold_in_any_row(expression: pl.Expr) -> None:
    """As of another version of Polars. Fields of the values of literals are read by Polars itself."""

    class Shown:
        def __init__(self, tree: Any) -> None:
            self.meta = self
            self._tree = tree

        def serialize(self, format: str) -> str:
            return json.dumps(self._tree)

    tree = json.loads(planned(expression).meta.serialize(format="json"))
    assert outline(Shown(tree), TYPES) != UNKNOWN  # type: ignore[arg-type]
    for changed in with_one_more_field(tree):
        found = outline(Shown(changed), TYPES)  # type: ignore[arg-type]
        assert any(it == UNKNOWN for it in (found, *getattr(found, "parts", ()))), changed


def with_one_more_field(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        yield {**tree, "more": None}
        for key, inside in tree.items():
            if key != "Literal":
                yield from ({**tree, key: other} for other in with_one_more_field(inside))
    elif isinstance(tree, list):
        for i, inside in enumerate(tree):
            yield from ([*tree[:i], other, *tree[i + 1 :]] for other in with_one_more_field(inside))
        yield [*tree, None]
