"""The list of files that a session's JVM keeps: what `SnapshotFileIndex.java` reads."""

import io
from itertools import islice
from pathlib import Path

import pytest

import dbio_commit as dbio
from dbio_commit import FileInfo
from dbio_commit.log.parts import windows
from dbio_commit.protocol.names import Partition
from dbio_commit.protocol.state import DataFile, FilesInParts
from dbio_commit.spark.read.file_index import encode_files, write_files


def test_files_are_told_by_their_directories() -> None:
    files = [
        DataFile("a=1/b=x%2Fy/1.parquet", 10, "1", {"a": "1", "b": "x/y"}),
        DataFile("a=1/b=__HIVE_DEFAULT_PARTITION__/ü 2.parquet", 20, None, {"a": "1", "b": None}),
        DataFile("a=1/b=x%2Fy/3.parquet", 30, "2", {"a": "1", "b": "x/y"}),
    ]
    assert encode_files(files).decode().split("\0") == [
        *("a=1/b=x%252Fy", "1", "x%2Fy", "2", "1.parquet", "10", "3.parquet", "30"),
        *("a=1/b=__HIVE_DEFAULT_PARTITION__", "1", "__HIVE_DEFAULT_PARTITION__", "1", "%C3%BC%202.parquet", "20"),
        "",
    ]


def test_without_partitions_there_is_one_directory_without_a_name() -> None:
    assert encode_files([DataFile("1.parquet", 10, "1", {}), DataFile("2.parquet", 5, "1", {})]) == (
        b"\0002\0001.parquet\00010\0002.parquet\0005\0"
    )


def test_files_without_bytes_and_their_directories_are_left_out() -> None:
    assert encode_files([DataFile("a=1/1.parquet", 0, "1", {"a": "1"})]) == b""


def test_the_files_of_a_large_table_are_the_same_as_those_of_a_small_one(
    tmp_path: Path, tiny_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from Arrow tables, window by window, so that a directory may come several times."""
    monkeypatch.setattr(windows, "WINDOW_ROWS", 2)
    table = dbio.Table(tmp_path)
    partitions: list[Partition] = [{"a": "1", "b": "x/y"}, {"a": "ü", "b": None}, {"a": "1", "b": "2"}]
    for number in range(4):
        with table.begin(partition_by=["a", "b"]) as transaction:
            for i, partition in enumerate(partitions):
                suffix = ".ü ä.parquet" if number == 3 else ".parquet"
                path = transaction.new_file(suffix, partition).removeprefix(f"{table.url}/")
                table.store.put_if_absent(path, b"row" * i)
                transaction.add([FileInfo(path=path, size=3 * i, partition=partition)], looked_at=True)
        if number != 3:
            table.checkpoint()
    files = table.snapshot().files
    assert isinstance(files, FilesInParts)
    written = io.BytesIO()
    write_files(written, files)
    assert read_files(written.getvalue(), columns=2) == read_files(encode_files([*files]), columns=2)


def read_files(body: bytes, *, columns: int) -> list[tuple[str, ...]]:
    """As the Java class reads them: a row for each file."""
    texts = iter(body.decode().split("\0")[:-1])
    found = list[tuple[str, ...]]()
    for directory in texts:
        head = (directory, *islice(texts, columns))
        found += ((*head, *islice(texts, 2)) for _ in range(int(next(texts))))
    return sorted(found)
