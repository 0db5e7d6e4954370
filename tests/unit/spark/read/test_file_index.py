"""The list of files that a session's JVM keeps: what `SnapshotFileIndex.java` reads."""

from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.file_index import encode_files


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
