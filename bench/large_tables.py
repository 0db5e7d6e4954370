"""Tables of very many files, of which only the logs exist: of dbio_commit, of Delta and of Iceberg.

All record the same files, with statistics of two columns, in DAYS partitions. Each commit adds to one of them.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, cast

import dbio_commit as dbio
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.markers.schema import pack_schema

DAYS = 336
COLUMNS: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("kind", "string"), ("day", "date"))
    ],
}
_ROWS = 10
_KINDS = ("click", "view")
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Commit:
    tid: str
    at: datetime
    day: str
    files: list[FileInfo]


def _commits(files: int, commits: int) -> Iterator[_Commit]:
    each = files // commits
    for number in range(commits):
        at = _BEGAN + timedelta(minutes=number)
        tid = f"{(int(at.timestamp() * 1000) << 21) + random.getrandbits(20):019d}"
        day = f"2026-{1 + number % 12:02}-{1 + number // 12 % 28:02}"
        yield _Commit(tid, at, day, [_file(tid, day, number * each + i, i) for i in range(each)])


def _file(tid: str, day: str, number: int, task: int) -> FileInfo:
    name = f"part-{task:05d}-tid-{tid}-6def5b7b-0608-4299-b0fd-163011e8c988-{task}-0-c000.snappy.parquet"
    first = number * _ROWS
    statistics = {"id": Bounds(first, first + _ROWS - 1, 0), "kind": Bounds(*_KINDS, 0)}
    return FileInfo(
        path=f"day={day}/{name}", size=1000 + number % 977, rows=_ROWS, partition={"day": day}, statistics=statistics
    )


def few(files: int) -> str:
    """A condition that holds in a hundredth of so many files."""
    last = files * _ROWS
    return f"id BETWEEN {last // 2} AND {last // 2 + last // 100}"


def make_ours(root: Path, files: int, commits: int) -> None:
    shutil.rmtree(root, ignore_errors=True)
    with dbio.Table(root).begin(partition_by=["day"]) as transaction:
        transaction.commit(COLUMNS)
    for it in _commits(files, commits):
        info = CommitInfo(recorded="append", commit_id=it.tid, timestamp=it.at, schema_turn=1,
                          schema=pack_schema(COLUMNS), files=pack_files(it.files))  # fmt: skip
        marker = root / names.committed(it.tid)
        body = CommitMarker(added=[file.path for file in it.files], removed=[], dbio_commit=info)
        marker.write_bytes(encode(body))
        os.utime(marker, (it.at.timestamp(), it.at.timestamp()))
    if files >= LARGE:
        dbio.Table(root).checkpoint()


LARGE = 2_000_000
"""From so many files on, a table of dbio_commit has a checkpoint."""


def make_delta(root: Path, files: int, commits: int) -> None:
    """And a checkpoint of all, as Delta's own writers leave them."""
    shutil.rmtree(root, ignore_errors=True)
    from deltalake import DeltaTable, Schema

    DeltaTable.create(str(root), Schema.from_json(json.dumps(COLUMNS)), partition_by=["day"])
    for version, it in enumerate(_commits(files, commits), 1):
        lines = [json.dumps({"add": _delta_add(file, it)}) for file in it.files]
        (root / "_delta_log" / f"{version:020d}.json").write_text("\n".join(lines))
    DeltaTable(str(root)).create_checkpoint()


def _delta_add(file: FileInfo, commit: _Commit) -> dict[str, Any]:
    told = file.statistics or {}
    return {
        "path": file.path,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": int(commit.at.timestamp() * 1000),
        "dataChange": True,
        "stats": json.dumps(
            {
                "numRecords": file.rows,
                "minValues": {name: it.min for name, it in told.items()},
                "maxValues": {name: it.max for name, it in told.items()},
                "nullCount": {name: it.nulls for name, it in told.items()},
            }
        ),
    }


def make_iceberg(root: Path, files: int, commits: int) -> None:
    """By PyIceberg, into a directory in which Iceberg's catalog of directories finds it.

    It makes a tenth of the commits, of ten days each. With each commit, PyIceberg writes the list of all manifests
    again, which takes ten minutes for a thousand commits. Fewer manifests are not slower to read.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import DateType, LongType, NestedField, StringType

    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri())
    catalog.create_namespace("bench")
    fields = (("id", LongType()), ("kind", StringType()), ("day", DateType()))
    schema = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(fields, 1)))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))
    table = catalog.create_table("bench.large", schema, location=root.as_uri(), partition_spec=spec)
    with table.transaction() as transaction:
        left = _commits(files, commits)
        while together := list(islice(left, 10)):
            with transaction.update_snapshot().fast_append() as append:
                for it in together:
                    for file in it.files:
                        append.append_data_file(_iceberg_file(file, it, root))
    last = Path(catalog.load_table("bench.large").metadata_location.removeprefix("file://"))
    shutil.copy(last, last.with_name("v1.metadata.json"))
    last.with_name("version-hint.text").write_text("1")


def _iceberg_file(file: FileInfo, commit: _Commit, root: Path) -> Any:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, StringType

    told = file.statistics or {}
    columns: Any = ((1, told["id"], LongType()), (2, told["kind"], StringType()))
    day = (datetime.fromisoformat(commit.day) - datetime(1970, 1, 1)).days
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{root.as_uri()}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        value_counts={number: file.rows for number, _, _ in columns},
        null_value_counts={number: 0 for number, _, _ in columns},
        lower_bounds={number: to_bytes(kind, cast(Any, bounds.min)) for number, bounds, kind in columns},
        upper_bounds={number: to_bytes(kind, cast(Any, bounds.max)) for number, bounds, kind in columns},
    )
