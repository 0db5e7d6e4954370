"""Tables with the rows of a person, a deletion without Spark, and a search for that person in every byte."""

import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit import Commit, Table, Transaction
from dbio_commit.base.clock import Clock
from dbio_commit.data.footers import inspect_files
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.files import FileInfo
from dbio_commit.store import Store
from dbio_commit.testing import ManualClock, MemoryStore

PERSON = "zz-secret-person"
NUMBER = 987654321012345
WHERE = f"user_id = {NUMBER}"

COLUMNS = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [("user_id", "long"), ("who", "string"), ("day", "string")]
    ],
}


def open_table(store: Store | None = None, clock: Clock | None = None) -> Table:
    clock = clock or ManualClock()
    return Table.over(store or MemoryStore(clock), clock, inspector=inspect_files)


def write(table: Table, rows: Mapping[int, str], *, day: str = "d1", **how: object) -> Commit:
    """Appends a file with these rows: name by number."""
    by_day = table_is_by_day(table)
    transaction = table.begin(**how)  # type: ignore[arg-type]
    put_file(table, transaction.new_file(partition={"day": day} if by_day else None), rows, None if by_day else day)
    return transaction.commit(COLUMNS)


def create(table: Table, *, by_day: bool) -> None:
    with table.begin(partition_by=["day"] if by_day else []) as transaction:
        path = transaction.new_file(partition={"day": "d0"} if by_day else None)
        put_file(table, path, {1: "ann"}, None if by_day else "d0")


def table_is_by_day(table: Table) -> bool:
    return bool(table.snapshot().partition_columns)


def put_file(table: Table, url: str, rows: Mapping[int, str], day: str | None, *, changes: bool = False) -> int:
    data: dict[str, pa.Array[Any]] = {
        "user_id": pa.array(rows.keys(), pa.int64()),
        "who": pa.array(rows.values(), pa.string()),
    }
    if day is not None:
        data["day"] = pa.array([day] * len(rows), pa.string())
    if changes:
        data["_change_type"] = pa.array(["delete"] * len(rows), pa.string())
    body = io.BytesIO()
    pq.write_table(pa.table(data), body, compression="none", use_dictionary=False, write_page_index=True)
    with table.store.open_write(url.removeprefix(f"{table.url}/")) as stream:
        stream.write(body.getvalue())
    return len(body.getvalue())


def read_file(table: Table, path: str) -> dict[int, str]:
    found = pq.ParquetFile(io.BytesIO(table.store.get(path))).read().to_pydict()
    return dict(zip(found["user_id"], found["who"], strict=True))


def people(table: Table) -> dict[int, str]:
    """All rows."""
    return {number: who for it in table.snapshot().files for number, who in read_file(table, it.path).items()}


def deleting(table: Table, number: int = NUMBER, *, records: bool = False) -> Callable[[str], Commit]:
    """A deletion of all rows of this number. With `records` it writes change files."""

    def delete(where: str) -> Commit:
        by_day = table_is_by_day(table)
        transaction = table.begin("rewrite")
        for file in table.snapshot().files:
            rows = read_file(table, file.path)
            if number not in rows:
                continue
            transaction.remove([file.path])
            day = None if by_day else "d"
            if left := {it: who for it, who in rows.items() if it != number}:
                put_file(table, transaction.new_file(partition=file.partition or None), left, day)
            if records:
                transaction.record_changes([])
                _stage_changes(table, transaction, file.partition, {number: rows[number]}, day)
        return transaction.commit()

    return delete


def _stage_changes(
    table: Table,
    transaction: Transaction,
    partition: Mapping[str, str | None],
    rows: Mapping[int, str],
    day: str | None,
) -> None:
    terms = transaction.terms
    name = names.format_data_file(
        tid=terms.tid, job=terms.job, task=0, attempt=0, number=0, suffix=".parquet", changes=True
    )
    path = names.join(names.format_partition(partition), name)
    size = put_file(table, path, rows, day, changes=True)
    transaction.add([FileInfo(path=path, size=size, rows=len(rows), partition=partition)], looked_at=True)


def rewrite(table: Table, number: int = NUMBER, *, who: str | None = None) -> None:
    """Copies the files with this person to new files, as a compaction or an update does."""
    snapshot, by_day = table.snapshot(), table_is_by_day(table)
    with table.begin("rewrite", data_change=who is not None) as transaction:
        for file in snapshot.files:
            rows = read_file(table, file.path)
            if number in rows:
                transaction.remove([file.path])
                rows = rows if who is None else {**rows, number: who}
                put_file(table, transaction.new_file(partition=file.partition or None), rows, None if by_day else "d")


def later(table: Table, **by: float) -> None:
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(**by))


def traces(store: Store, values: Sequence[str | int] = (PERSON, NUMBER)) -> list[str]:
    """The objects in which one of the values is, in any form: text, packed text, Parquet, or its own path."""
    found: list[str] = []
    for entry in store.list_files():
        body = store.get(entry.path)
        for value in values:
            raw = [str(value).encode()] + ([value.to_bytes(8, "little")] if isinstance(value, int) else [])
            if any(it in text for it in raw for text in _forms(entry.path, body)):
                found.append(entry.path)
                break
    return found


def _forms(path: str, body: bytes) -> Iterator[bytes]:
    yield path.encode()
    yield body
    if body[:2] == b"\x1f\x8b":
        yield gzip.decompress(body)
    if body[:4] == b"Obj\1":
        yield str([*fastavro.reader(io.BytesIO(body))]).encode()
    if body[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(body))
        yield str(file.read().to_pydict()).encode()
        for i in range(file.num_row_groups):
            for j in range(file.metadata.num_columns):
                yield str(file.metadata.row_group(i).column(j)).encode()
