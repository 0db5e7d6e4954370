"""Random histories of a table on a disk, made without Spark: typed rows, odd partition values, ever more columns."""

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit import Commit, FileInfo, Table
from dbio_commit.data.columns import arrow_type

Partition = Mapping[str, str | None]

DATA: Mapping[str, Any] = {
    "id": "long",
    "small": "short",
    "ratio": "double",
    "flag": "boolean",
    "price": "decimal(10,2)",
    "large": "decimal(38,10)",
    "name": "string",
    "day": "date",
    "at": "timestamp",
    "raw": "binary",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
    "where": {
        "type": "struct",
        "fields": [
            {"name": "x", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "Y", "type": "string", "nullable": True, "metadata": {}},
        ],
    },
    "more": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
}
PARTITIONS: Mapping[str, tuple[str, Sequence[str | None]]] = {
    "kind": ("string", ["a", "a b", "a%b", "ä/ö", "x:y", "50% + 1&2=3", 'd\'or "x"', "null", None]),
    "hour": ("timestamp", ["2026-11-20 10:00:00", "2026-11-20 10:00:00.25", "1969-12-31 23:59:59.999999", None]),
    "number": ("integer", ["-7", "0", "2147483647", None]),
    "date": ("date", ["2026-11-20", "0001-01-01", "9999-12-31", None]),
    "amount": ("decimal(5,2)", ["1.50", "-7.00", "123.45", None]),  # of -0.05 delta-rs makes 0.-5
    "yes": ("boolean", ["true", "false", None]),
}


def columns(**kinds: Any) -> dict[str, Any]:
    """A schema in Spark's JSON."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


class History:
    """A table to which one commit after the other is made, by chance."""

    def __init__(self, table: Table, seed: int, *, partition_by: Sequence[str] = ()) -> None:
        self.table, self.chance = table, random.Random(seed)
        self.partition_by = tuple(partition_by)
        self.kinds: dict[str, Any] = dict(DATA)
        self._rows = 0

    @property
    def schema(self) -> dict[str, Any]:
        return columns(**self.kinds, **{name: PARTITIONS[name][0] for name in self.partition_by})

    def commit(self, operation: str | None = None) -> Commit:
        """Some commit, or one of that kind; `widen` adds a column."""
        operations = ["append", "append", "append", "overwrite", "overwrite_partitions", "rewrite", "widen"]
        operation = operation or self.chance.choice(operations)
        if operation == "widen":
            self.kinds[f"more_{len(self.kinds)}"] = self.chance.choice(["long", "string", "timestamp", "double"])
        snapshot = self.table.snapshot() if operation == "rewrite" else None
        name: Any = "append" if operation == "widen" else operation
        transaction = self.table.begin(name, partition_by=self.partition_by)
        if snapshot is not None:
            live = [file.path for file in snapshot.files]
            transaction.remove(self.chance.sample(live, min(len(live), 2)))
        for _ in range(self.chance.randint(0 if operation == "overwrite" else 1, 3)):
            pq.write_table(self.rows(self.chance.randint(0, 5)), transaction.new_file(partition=self.partition()))
        return transaction.commit(self.schema)

    def partition(self) -> Partition:
        return {name: self.chance.choice(PARTITIONS[name][1]) for name in self.partition_by}

    def rows(self, count: int) -> pa.Table:
        data = {name: [self._value(name, kind) for _ in range(count)] for name, kind in self.kinds.items()}
        return pa.table({name: pa.array(data[name], arrow_type(kind)) for name, kind in self.kinds.items()})

    def _value(self, name: str, kind: Any) -> Any:
        chance = self.chance
        if name == "id":
            self._rows += 1
            return self._rows
        if chance.random() < 0.2:
            return None
        match kind:
            case "long":
                return chance.choice([-(2**63), 2**63 - 1, chance.randrange(10)])
            case "short":
                return chance.randrange(-(2**15), 2**15)
            case "double":
                return chance.choice([0.1, -0.0, 1e300, float("inf"), chance.random()])
            case "boolean":
                return chance.random() < 0.5
            case "decimal(10,2)":
                return Decimal(chance.randrange(-(10**10) + 1, 10**10)) / 100
            case "decimal(38,10)":
                return Decimal(chance.randrange(10**15)).scaleb(-10)
            case "string":
                return chance.choice(["", "a b", "ä/ö", "x" * 100, "\U0010ffff" * 70, "'\"\\\n"])
            case "date":
                return date(1, 1, 1) + timedelta(chance.randrange(3_652_058))
            case "timestamp":
                return datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**16))
            case "binary":
                return chance.randbytes(3)
            case {"type": "array"}:
                return ["a", None][: chance.randrange(3)]
            case {"type": "struct"}:
                return {"x": chance.randrange(9), "Y": None}
            case {"type": "map"}:
                return [("k", chance.randrange(9))]
        raise AssertionError(kind)


def in_order(rows: pa.Table) -> list[Any]:
    """The rows of a table whose `id` tells them apart, however it is spelled."""
    (key,) = (name for name in rows.schema.names if name.lower() == "id")
    return sorted(rows.to_pylist(), key=lambda row: row[key])


def wider_types(table: Table) -> Iterator[None]:
    """Two commits, of which the second has wider types."""
    for narrow in (True, False):
        kinds = {"id": "long", "i": "integer", "f": "float", "d": "decimal(5,2)"}
        wide = {"id": "long", "i": "long", "f": "double", "d": "decimal(12,2)"}
        with table.begin() as transaction:
            schema = columns(**(kinds if narrow else wide))
            types = [arrow_type(field["type"]) for field in schema["fields"]]
            values: list[Any] = [1, -7, 0.5, Decimal("1.25")]
            each = zip(values, types, strict=True)
            rows = pa.table([pa.array([value], kind) for value, kind in each], names=[*kinds])
            pq.write_table(rows, transaction.new_file())
            transaction.commit(schema)
        yield


def spelled_otherwise(root: Path) -> Table:
    """A table of two files that spell a column, and a field inside another, each in its own way."""
    files: Mapping[str, Mapping[str, Any]] = {
        "one": {"Id": [1], "s": [{"In": 1}]},
        "two": {"ID": [2], "S": [{"IN": 2}]},
    }
    root.mkdir()
    for name, rows in files.items():
        pq.write_table(pa.table(dict(rows)), root / f"{name}.parquet")
    table = Table(root)
    table.adopt()
    return table


def _put(table: Table, rows: pa.Table, schema: Any) -> None:
    transaction = table.begin()
    path = f"part-00000-tid-{transaction.tid}-j-0-0-c000.parquet"
    with table.store.open_write(path) as stream:
        pq.write_table(rows, stream)
    transaction.add([FileInfo(path=path, size=table.store.stat(path).size)], looked_at=True)
    transaction.commit(schema=schema)


def old_files(table: Table, *, decimals: bool = True) -> None:
    """Older files of narrower types, and one that spells a column otherwise."""
    kinds = {"id": pa.int32(), "x": pa.float32()} | ({"price": pa.decimal128(10, 1)} if decimals else {})
    schema = columns(id="long", x="double", **({"price": "decimal(12,2)"} if decimals else {}))
    _put(table, pa.table({name: pa.array([1], kind) for name, kind in kinds.items()}), schema)
    _put(table, pa.table({"ID": pa.array([2], pa.int64()), "x": [2.0]}), schema)
