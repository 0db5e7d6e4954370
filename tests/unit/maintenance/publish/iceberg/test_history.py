"""PyIceberg reads the same rows as dbio after every commit of random histories: additions, removals, wider types, other
layouts, compactions, vacuums and forgotten memory, with tables in one body and in tiny parts."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.maintenance.publish.iceberg import writing
from dbio_commit.store import open_store, parse_location
from dbio_commit.testing import ManualClock
from tests.tiny_parts import in_both_forms
from tests.unit.remembering import forget, memory  # noqa: F401  (a fixture)

pytest.importorskip("pyiceberg", reason="the lowest versions do not go together with it")
from pyiceberg.table import StaticTable

pytestmark = in_both_forms

NARROW: dict[str, Any] = {"i": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 2)}
WIDE: dict[str, Any] = {"i": pa.int64(), "f": pa.float64(), "d": pa.decimal128(9, 2)}
PARTITIONS: list[dict[str, str | None]] = [{"day": "2026-11-20"}, {"day": "2026-11-21"}, {"day": None}]


def columns(kinds: dict[str, Any]) -> dict[str, Any]:
    named = {
        pa.int32(): "integer", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double",
        pa.decimal128(5, 2): "decimal(5,2)", pa.decimal128(9, 2): "decimal(9,2)",
    }  # fmt: skip
    fixed = {
        "text": "string", "raw": "binary", "yes": "boolean", "at": "timestamp", "here": "timestamp_ntz",
        "tags": {"type": "array", "elementType": "string", "containsNull": True},
        "sub": {"type": "struct", "fields": [{"name": "A", "type": "long", "nullable": True, "metadata": {}}]},
        "day": "date",
    }  # fmt: skip
    kinds_by_name = {name: named[kind] for name, kind in kinds.items()} | fixed
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds_by_name.items()]
    return {"type": "struct", "fields": fields}


class History:
    """A table on a disk that changes by chance."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance, self.clock = random.Random(seed), ManualClock(datetime.now(UTC), seed=seed)
        self.table = Table.over(open_store(parse_location(str(path))), self.clock)
        self.partition_by = self.chance.choice([[], ["day"]])
        self.kinds = NARROW
        self.append()
        if seed % 2:
            self.table.set({"publish": "iceberg"})  # from now on, new files have ids

    def rows(self) -> pa.Table:
        chance, count = self.chance, self.chance.randrange(1, 4)

        def each(make: Any) -> list[Any]:
            return [make() if chance.random() < 0.8 else None for _ in range(count)]

        data: dict[str, Any] = {
            "i": pa.array(each(lambda: chance.randrange(-9, 9)), self.kinds["i"]),
            "f": pa.array(each(lambda: chance.choice([-0.0, 0.5, float("nan"), float("inf")])), self.kinds["f"]),
            "d": pa.array(each(lambda: Decimal(chance.randrange(-999, 999)).scaleb(-2)), self.kinds["d"]),
            "text": pa.array(each(lambda: chance.choice(["a", "é", "😀"]) * chance.choice([1, 80])), pa.string()),
            "raw": pa.array(each(lambda: bytes([chance.randrange(256)])), pa.binary()),
            "yes": pa.array(each(lambda: chance.random() < 0.5), pa.bool_()),
            "at": pa.array(each(lambda: datetime(1969, 12, 31, 23, 59, 59, 7, UTC)), pa.timestamp("us", "UTC")),
            "here": pa.array(each(lambda: datetime(2026, 11, 20, 1, 2, 3, 4)), pa.timestamp("us")),
            "tags": pa.array(each(lambda: ["x", None]), pa.list_(pa.string())),
            "sub": pa.array(each(lambda: {"A": 1}), pa.struct([("A", pa.int64())])),
        }
        if not self.partition_by:
            data["day"] = pa.array(each(lambda: date(2026, 11, 20)), pa.date32())
        return pa.table(data)

    def commit(self, operation: Any, *, remove: list[str] | None = None, files: int | None = None, **more: Any) -> None:
        with self.table.begin(operation, partition_by=self.partition_by, **more) as transaction:
            for _ in range(self.chance.randrange(1, 4) if files is None else files):
                partition = self.chance.choice(PARTITIONS) if self.partition_by else None
                pq.write_table(self.rows(), transaction.new_file(partition=partition))
            if remove:
                transaction.remove(remove)
            self.clock.advance(timedelta(seconds=1))
            transaction.commit(columns(self.kinds))

    def append(self) -> None:
        self.commit("append")

    def write(self) -> None:
        rows = self.rows()
        if self.partition_by:
            rows = rows.append_column("day", pa.array([date(2026, 11, 20)] * len(rows), pa.date32()))
        self.table.write(rows, partition_by=self.partition_by, merge_schema=True)

    def overwrite(self) -> None:
        self.commit("overwrite")

    def overwrite_partitions(self) -> None:
        self.commit("overwrite_partitions", files=1)

    def overwrite_with_another_layout(self) -> None:
        self.partition_by = [] if self.partition_by else ["day"]
        self.commit("overwrite", files=2)

    def rewrite(self) -> None:
        paths = sorted(file.path for file in self.table.snapshot().files)
        if paths:
            self.commit("rewrite", remove=self.chance.sample(paths, self.chance.randint(1, len(paths))), files=1)

    def widen(self) -> None:
        self.kinds = WIDE
        self.commit("append", files=1)

    def compact(self) -> None:
        self.table.compact()

    def vacuum(self) -> None:
        self.clock.advance(timedelta(days=3))
        self.table.vacuum()

    def forget(self) -> None:
        forget()

    def publish(self) -> None:
        (done,) = self.table.publish("iceberg")
        assert done.files == len(self.table.snapshot().files)

    def step(self) -> None:
        steps = [
            self.append, self.append, self.write, self.write, self.overwrite, self.overwrite_partitions, self.rewrite,
            self.overwrite_with_another_layout, self.widen, self.compact, self.vacuum, self.forget,
        ]  # fmt: skip
        self.chance.choice(steps)()

    # --- what both read -------------------------------------------------------------------------------------------

    def others(self) -> StaticTable:
        directory = Path(self.table.url, "_iceberg", "metadata")
        number = (directory / "version-hint.text").read_text()
        return StaticTable.from_metadata(f"file://{directory}/v{number}.metadata.json")

    def check(self) -> None:
        own, others = self.table.snapshot().to_arrow(), self.others()
        found = others.scan().to_arrow()
        assert found.schema.names == own.schema.names or set(found.schema.names) == set(own.schema.names)
        assert rows_of(found) == rows_of(own.select(found.schema.names))
        for condition, holds in (("i > 3", lambda row: row["i"] is not None and row["i"] > 3),
                                 ("day is null", lambda row: row["day"] is None),
                                 ("text = 'é'", lambda row: row["text"] == "é")):  # fmt: skip
            expected = [row for row in own.to_pylist() if holds(row)]
            assert others.scan(row_filter=condition).to_arrow().num_rows == len(expected)
        assert not self.table.check().publications


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())


@pytest.mark.parametrize("seed", range(2))
def test_pyiceberg_reads_what_dbio_reads(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path, steps=10)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 40))
def test_pyiceberg_reads_what_dbio_reads_after_long_histories(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_TOGETHER", 2 + seed % 4)
    run(seed, tmp_path, steps=40)


def run(seed: int, path: Path, *, steps: int) -> None:
    history = History(path / "table", seed)
    for _ in range(steps):
        history.publish()
        history.check()
        history.step()
    history.publish()
    history.check()


def test_readers_find_the_columns_of_files_with_ids_without_the_name_mapping(tmp_path: Path) -> None:
    """Some readers have no name mapping."""
    history = History(tmp_path / "table", seed=0)
    history.table.set({"publish": "iceberg"})
    history.overwrite()
    history.table.write(history.table.snapshot().to_arrow(), mode="overwrite", partition_by=history.partition_by)
    history.write()
    history.write()
    assert history.table.compact().compacted
    history.kinds = WIDE
    history.write()
    history.publish()
    history.check()
    others = history.others()
    others.metadata.properties.pop("schema.name-mapping.default")
    own = history.table.snapshot().to_arrow()
    found = others.scan().to_arrow()
    assert rows_of(found) == rows_of(own.select(found.schema.names))
    assert sum(it.metrics.get("numFilesWithOwnIds", 0) for it in history.table.history()) == 5


def test_a_file_of_another_dbio_table_keeps_its_ids_and_is_published(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", None]})
    for name in ("one", "other"):
        Table(tmp_path / name).write(rows)
        Table(tmp_path / name).set({"publish": "iceberg"})
        Table(tmp_path / name).write(rows, mode="overwrite")
    one, other = Table(tmp_path / "one"), Table(tmp_path / "other")
    (file,) = one.snapshot().files
    with other.begin() as transaction:
        Path(transaction.new_file()).write_bytes(Path(tmp_path / "one", file.path).read_bytes())
    metrics = other.history()[0].metrics
    assert (metrics["numFilesWithIds"], metrics["numFilesWithOwnIds"]) == (1, 1)
    other.publish("iceberg")
    found = pq.read_table(tmp_path / "one" / file.path)
    other_id: Any = found.schema.field("name").metadata
    moved = found.schema.field("id").with_metadata(other_id)
    with other.begin() as transaction:
        pq.write_table(found.select(["id"]).cast(pa.schema([moved])), transaction.new_file())
    metrics = other.history()[0].metrics
    assert (metrics["numFilesWithIds"], metrics.get("numFilesWithOwnIds", 0)) == (1, 0)
    with pytest.raises(InvalidInputError, match="has field ids of another table"):
        other.publish("iceberg")
