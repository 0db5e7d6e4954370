"""Small tables of which somebody has changed what the log and the publications say: with right checksums, in the right
format, and mostly with plausible values in wrong places.

`changed` makes such a table, `check` does with it all that a user does. What changes single bodies is in `bodies`.
"""

import gzip
import io
import json
import os
import re
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit.base.errors import DbioError
from dbio_commit.log import object_cache
from dbio_commit.log.object_cache import ObjectCache
from dbio_commit.log.parts import parquet
from dbio_commit.maintenance.publish import remembered
from dbio_commit.maintenance.report.health import look
from dbio_commit.maintenance.report.page import Subject, render_page
from dbio_commit.protocol.settings import Format
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.fuzz import bodies
from tests.fuzz.properties import MAX_MESSAGE
from tests.tiny_parts import tiny_parts

MOST_S = 5.0
"""The most seconds of the processor for one operation."""
MOST_MB = 500
"""The most memory for all operations on one table, beyond what the process had before."""

Objects = dict[str, tuple[bytes, datetime]]

# --- good tables --------------------------------------------------------------------------------------------------

FORMS = ("markers", "body", "parts")
"""The log has no checkpoint, one with a body, one with parts. After each come more commits."""


def _rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [*numbers],
            "name": [None if i % 5 == 0 else f"n{i}" for i in numbers],
            "price": pa.array([i / 4 for i in numbers], pa.float64()).cast(pa.decimal128(10, 2)),
            "at": pa.array([datetime(2026, 11, 1, tzinfo=UTC) + timedelta(i) for i in numbers]),
            "tags": [[f"t{i}"] for i in numbers],
            "day": [f"d{i % 3}" for i in numbers],
        }
    )


@cache
def good(form: str) -> Objects:
    """The objects of a table with some commits, in all publications; the same ones in each process."""
    with patch.object(os, "urandom", Random(form).randbytes):  # of which names are made
        return _made(form)


def _made(form: str) -> Objects:
    clock = ManualClock(seed=FORMS.index(form))
    table = Table.over(MemoryStore(clock, url="s3://lake/table"), clock)

    def commit(first: int, mode: Any = "append") -> None:
        clock.advance(timedelta(hours=1))
        table.write(_rows(first, 4), mode=mode, partition_by=["day"], app=("nightly", first))

    def checkpoint() -> None:
        if form == "body":
            table.checkpoint()
        if form == "parts":
            with tiny_parts():
                table.checkpoint()

    commit(0)
    commit(10)
    table.delete("id = 11")
    table.set({"check.id": "id >= 0", "default.name": "'none'", "cluster_by": "id,name"})
    table.compact(2000)
    checkpoint()
    table.publish([*Format])
    commit(20)
    checkpoint()
    commit(30, "overwrite_partitions")
    table.publish([*Format])
    commit(40)
    return {**_store_of(table).objects}


def _store_of(table: Table) -> MemoryStore:
    assert isinstance(table.store, MemoryStore)
    return table.store


# --- values in wrong places ---------------------------------------------------------------------------------------

FAR_TIMES = [
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1900-01-01T00:00:00Z", "8999-12-31T00:00:00Z", "2026-11-20",
]  # fmt: skip
FAR: dict[type, list[Any]] = {
    bool: [True, False],
    int: [0, 1, -1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64, 0.5],
    float: [0.5, -1e300, 1e300, 0],
    str: ["", "x", "é" * 300, "../x", "a" * 19, "9" * 19, "day=d1", "day=d9", *FAR_TIMES],
    bytes: [b"", b"\xff" * 9],
    datetime: [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)],
}
NONE: list[Any] = [None, None, [], {}, 7, "x", True, [None], [1, "a"]]


def _leaves(value: Any, found: list[Any]) -> list[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _leaves(inner, found)
    else:
        found.append(value)
    return found


def nudged(chance: Random, value: Any, pool: list[Any]) -> Any:
    """The value with one change inside: another value in a place, one more, one less, or two exchanged."""
    if not isinstance(value, dict | list) or not value:
        if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value) and chance.random() < 0.5:
            return chance.choice(FAR_TIMES)
        alike = [it for it in pool if type(it) is type(value) and it != value]
        return chance.choice(chance.choice([alike or NONE, FAR.get(type(value), NONE), NONE]))
    keys: list[Any] = [*value] if isinstance(value, dict) else [*range(len(value))]
    key, other = chance.choice(keys), chance.choice(keys)
    new = value.copy()
    match chance.choice(["inside"] * 7 + ["drop", "double", "exchange"]):
        case "inside":
            new[key] = nudged(chance, value[key], pool)
        case "drop":
            del new[key]
        case "double" if isinstance(new, list):
            new.insert(other, value[key])
        case _:
            new[key], new[other] = value[other], value[key]
    return new


def _nudge_json(chance: Random, body: bytes) -> bytes:
    value = json.loads(body)
    if chance.random() < 0.4:
        return bodies.to_json(bodies.changed(chance, value))
    pool = _leaves(value, [])
    new = nudged(chance, value, pool)
    for _ in range(chance.choice([0, 0, 1, 2])):
        new = nudged(chance, new, pool)
    return json.dumps(new, default=str).encode()


def _nudge_lines(chance: Random, body: bytes) -> bytes:
    lines = body.rstrip(b"\n").split(b"\n")
    at = chance.choice([i for i, line in enumerate(lines) if line.startswith(b"{")])
    match chance.choice(["change"] * 6 + ["drop", "double"]):
        case "change":
            lines[at] = _nudge_json(chance, lines[at])
        case "drop":
            del lines[at]
        case _:
            lines.insert(chance.randrange(len(lines)), lines[at])
    return b"\n".join(lines) + b"\n"


def _nudge_table(chance: Random, table: pa.Table) -> pa.Table:
    """Of rows and columns. Raises what Arrow raises for values that no column can have."""
    match chance.choice(["rows"] * 6 + ["column"] * 3):
        case "rows":
            rows = table.to_pylist()
            key = chance.choice(table.column_names)
            pool = [it for row in rows for it in _leaves(row[key], [])]
            if chance.random() < 0.7 and rows:
                row = chance.choice(rows)
                row[key] = nudged(chance, row[key], pool)
            else:
                rows = nudged(chance, rows, rows)
            return pa.Table.from_pylist(rows, table.schema)
        case _:
            at = chance.randrange(table.num_columns)
            name: str = table.column_names[at]
            values: Any = table.column(at)
            match chance.choice(["drop", "name", "nulls", "type", "bytes", "other"]):
                case "drop":
                    return table.remove_column(at)
                case "name":
                    return table.rename_columns(
                        [f"{it}.{chance.choice(['x', 'int', ''])}" if it == name else it for it in table.column_names]
                    )
                case "nulls":
                    return table.set_column(at, table.schema.field(at), pa.nulls(len(values), values.type))
                case "type":
                    kind = chance.choice([pa.string(), pa.int64(), pa.float64(), pa.binary(), pa.large_string()])
                    return table.set_column(at, name, values.cast(kind))
                case "bytes":  # no UTF-8
                    noise: Any = pa.array([b"\xff\xfe"] * len(values), pa.binary()).view(pa.string())
                    is_dictionary = pa.types.is_dictionary(values.type)
                    return table.set_column(
                        at, table.schema.field(at), noise.dictionary_encode() if is_dictionary else noise
                    )
                case _:
                    return table.set_column(at, name, table.column(chance.randrange(table.num_columns)))


def _nudge_parquet(chance: Random, body: bytes) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_nudge_table(chance, pq.read_table(io.BytesIO(body))), sink)
    return sink.getvalue()


def _nudge_avro(chance: Random, body: bytes) -> bytes:
    reader: Any = fastavro.reader(io.BytesIO(body))
    records, metadata = [*reader], {name: it for name, it in reader.metadata.items() if not name.startswith("avro.")}
    if chance.random() < 0.3:
        words = [b"field-id", b"name", b"record", b"long", b"null", b"deflate", b"avro.codec", b"status", b"type"]
        one = chance.choice(words)
        return body.replace(one, bytes([*one[:-1], chance.randrange(97, 123)]), 1)
    sink = io.BytesIO()
    new = nudged(chance, records, _leaves(records, []))
    fastavro.writer(sink, reader.writer_schema, new, codec="deflate", metadata=metadata)
    return sink.getvalue()


# --- objects ------------------------------------------------------------------------------------------------------


def changed(chance: Random) -> tuple[Objects, list[str]]:
    """The objects of a table with up to three changes, and what was changed."""
    objects, said = dict(good(chance.choice(FORMS))), list[str]()
    groups: dict[str, list[str]] = {}
    for path in sorted(path for path in objects if _kind(path)):
        groups.setdefault(re.split("[0-9]", path)[0], []).append(path)
    often = [it for it in groups if it in ("_committed_", "_checkpoint_", "_part_")] * 4
    for _ in range(chance.choice([1, 1, 2, 3])):
        path = chance.choice(groups[chance.choice([*groups, *often])][-8:])
        if path not in objects:
            continue
        with suppress(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, pa.ArrowException):
            _change(chance, path, objects)
            said.append(path)
    return objects, said


def _kind(path: str) -> str:
    """How the object is encoded. "" for a data file."""
    directory, _, name = path.rpartition("/")
    match directory.partition("/")[0], name:
        case "_delta_log", _ if name.endswith(".parquet"):
            return "parquet"
        case "_iceberg", _ if name.endswith(".avro"):
            return "avro"
        case "_delta_log" | "_spark_metadata", _:
            return "lines"
        case "_iceberg", _ if name.endswith(".json"):
            return "json"
        case "_symlink_format_manifest" | "_iceberg", _:
            return "text"
        case "", _ if name.startswith("_checkpoint_"):
            return "checkpoint"
        case "", _ if name.startswith("_part_"):
            return "part"
        case "", _ if name.startswith("_"):
            return "json"
    return ""


def _change(chance: Random, path: str, objects: Objects) -> None:
    body, modified = objects[path]
    kind = _kind(path)
    match chance.choice(["inside"] * 16 + ["away", "time", "other"]):
        case "away":
            del objects[path]
            return
        case "time":
            objects[path] = body, modified + timedelta(days=chance.choice([-40000, -400, -1, 1, 400]))
            return
        case "other":
            objects[path] = objects[chance.choice(sorted(it for it in objects if _kind(it) == kind))][0], modified
            return
    match kind:
        case "json":
            body = _nudge_json(chance, body)
        case "lines":
            body = _nudge_lines(chance, body)
        case "checkpoint":
            body = gzip.compress(_nudge_lines(chance, gzip.decompress(body)), mtime=0)
        case "parquet":
            body = _nudge_parquet(chance, body)
        case "avro":
            body = _nudge_avro(chance, body)
        case "text":
            body = body.replace(
                chance.choice([b"d", b"/", b"1", b"\n"]), chance.choice([b"", b"../", b"\0", b"\xff"]), 1
            )
        case "part":
            return _change_part(chance, path, objects)
    objects[path] = body, modified


def _change_part(chance: Random, path: str, objects: Objects) -> None:
    """A part or an object with statistics, and its description in each root that names it."""
    body, modified = objects[path]
    table = pq.read_table(io.BytesIO(body))
    new = _nudge_table(chance, table)
    told: Any = None
    for root in sorted(it for it in objects if _kind(it) == "checkpoint"):
        lines = gzip.decompress(objects[root][0]).split(b"\n")
        header = json.loads(lines[0])
        for part in header.get("parts", []):
            if part["name"] == path:
                if told is None:
                    facts = {key: part[key] for key in ("kind", "since", "until")}
                    with patch.object(parquet, "GROUP_ROWS", 3):
                        body, told = parquet.encode_part(new, name=path, **facts)
                statistics = {"statistics": part["statistics"]} if "statistics" in part else {}
                part.clear()
                part.update({**json.loads(msgspec.json.encode(told)), **statistics})
            elif part.get("statistics", {}).get("name") == path:
                if told is None:
                    body, told = parquet.encode_statistics(iter([new]), name=path)
                part["statistics"] = json.loads(msgspec.json.encode(told))
        lines[0] = json.dumps(header).encode()
        objects[root] = gzip.compress(b"\n".join(lines), mtime=0), objects[root][1]
    objects[path] = body, modified


# --- what must hold -----------------------------------------------------------------------------------------------

VACUUM: Any = {"dry_run": True, "retention_hours": 1.0, "untracked": True, "checkpoint_after": 0}


def _report(table: Table) -> str:
    health = look(table.snapshot(), at=table.clock.now(), vacuumed="", check=table.check())
    return render_page([Subject(name="t", health=health)], at=table.clock.now())


def _write(table: Table) -> object:
    return table.write(_rows(50, 3), mode="append", app=("nightly", 50))


READS: dict[str, Callable[[Table], object]] = {
    "snapshot": lambda table: [*table.snapshot().files],
    "where": lambda table: table.snapshot().where("id >= 12 AND name = 'n21'").to_arrow(),
    "where price": lambda table: table.scan(where="price < 2.5").to_arrow(),
    "where day": lambda table: table.scan(where="day = 'd1' AND name IS NULL").to_arrow(),
    "schema": lambda table: table.schema(),
    "history": lambda table: table.history(),
    "as of": lambda table: [*table.snapshot(as_of="2026-11-20T02:30:00Z").files],
    "check": lambda table: table.check(),
    "report": _report,
    "diff": lambda table: table.diff("2026-11-20T02:30:00Z", None),
}
WRITES: dict[str, Callable[[Table], object]] = {
    "publish": lambda table: table.publish([*Format]),
    "write": _write,
    "delete": lambda table: table.delete("id > 30"),
    "compact": lambda table: table.compact(),
    "cluster": lambda table: table.compact(2000, full=True),
    "checkpoint": lambda table: table.checkpoint(),
    "restore": lambda table: table.restore("2026-11-20T02:30:00Z"),
}


def check(data: bytes) -> object:
    """Raises AssertionError where a property does not hold. None where the table was refused."""
    objects, said = changed(Random(data))
    try:
        return check_objects(objects)
    except AssertionError as error:
        raise AssertionError(f"{error}\nafter changes of {said}") from error.__cause__


def check_objects(objects: Mapping[str, tuple[bytes, datetime]]) -> object:
    """All that a user does with the table, each on a copy of it."""
    with patch.object(object_cache, "CACHE", memory := ObjectCache()), patch.object(remembered, "CACHE", memory):
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        results = {what: attempt(what, call, objects) for what, call in {**READS, **WRITES}.items()}
        report: Any = attempt("vacuum", lambda table: table.vacuum(**VACUUM), objects)
        live: Any = results["snapshot"]
        if report is not None and live is not None:
            gone = {it.path for it in report.deleted} & {file.path for file in live}
            assert not gone, f"vacuum would delete live files: {sorted(gone)[:3]}"
        more_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) // 1024
        assert more_mb < MOST_MB, f"{more_mb} MB"
    return live


def attempt(what: str, call: Callable[[Table], object], objects: Mapping[str, tuple[bytes, datetime]]) -> object:
    """The result of a call. None if the call raised an error that a user understands."""
    clock = ManualClock(datetime(2027, 2, 1, tzinfo=UTC))
    store = MemoryStore(clock, url="s3://lake/table")
    store.objects = dict(objects)
    start, found = time.process_time(), None
    try:
        found = call(Table.over(store, clock))
    except DbioError as error:
        assert len(str(error)) < 3 * MAX_MESSAGE, f"{what}: a message of {len(str(error))} characters"
        assert str(error).replace("\n", "").isprintable(), f"{what}: {error!r}"
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    assert time.process_time() - start < MOST_S, f"{what}: {time.process_time() - start:.1f} s"
    return found
