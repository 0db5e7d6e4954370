"""How users spell places, and what each spelling means."""

import os
import sys
from pathlib import Path

import pytest

from dbio_commit.errors import InvalidInputError, UnsupportedStoreError
from dbio_commit.store import Location, open_store, parse_location

HERE = os.getcwd()


@pytest.mark.parametrize(
    ("spelling", "location", "url"),
    [
        ("s3://bucket/a/table", Location("s3", "bucket", "a/table"), "s3://bucket/a/table"),
        ("s3a://bucket/table", Location("s3", "bucket", "table"), "s3://bucket/table"),
        ("S3A://bucket/table", Location("s3", "bucket", "table"), "s3://bucket/table"),
        ("s3://bucket/table/", Location("s3", "bucket", "table"), "s3://bucket/table"),
        ("s3://bucket//a///table//", Location("s3", "bucket", "a/table"), "s3://bucket/a/table"),
        ("s3://bucket", Location("s3", "bucket", ""), "s3://bucket"),
        ("s3://bucket/", Location("s3", "bucket", ""), "s3://bucket"),
        (
            "abfss://c@acc.dfs.core.chinacloudapi.cn/p",
            Location("az", "c", "p", "acc", "core.chinacloudapi.cn"),
            "abfss://c@acc.dfs.core.chinacloudapi.cn/p",
        ),
        ("s3://my.bucket-1/a b/%3A#+é", Location("s3", "my.bucket-1", "a b/%3A#+é"), "s3://my.bucket-1/a b/%3A#+é"),
        ("s3://bucket/a:b@c", Location("s3", "bucket", "a:b@c"), "s3://bucket/a:b@c"),
        ("s3://bucket/..a/b..", Location("s3", "bucket", "..a/b.."), "s3://bucket/..a/b.."),
        ("az://container/a/table", Location("az", "container", "a/table"), "az://container/a/table"),
        ("abfs://container/table/", Location("az", "container", "table"), "az://container/table"),
        ("abfss://container/table", Location("az", "container", "table"), "az://container/table"),
        (
            "abfss://container@account.dfs.core.windows.net/a/table",
            Location("az", "container", "a/table", "account"),
            "abfss://container@account.dfs.core.windows.net/a/table",
        ),
        (
            "abfs://container@account.dfs.core.windows.net/table/",
            Location("az", "container", "table", "account"),
            "abfss://container@account.dfs.core.windows.net/table",
        ),
        (
            "az://container@account.blob.core.windows.net",
            Location("az", "container", "", "account"),
            "abfss://container@account.dfs.core.windows.net",
        ),
        ("gs://bucket/a/table/", Location("gs", "bucket", "a/table"), "gs://bucket/a/table"),
        ("gcs://bucket", Location("gs", "bucket", ""), "gs://bucket"),
        ("GS://my_bucket.example.com/t", Location("gs", "my_bucket.example.com", "t"), "gs://my_bucket.example.com/t"),
        ("/data/table", Location("file", "", "/data/table"), "/data/table"),
        ("/data//table/", Location("file", "", "/data/table"), "/data/table"),
        ("/data/../table", Location("file", "", "/table"), "/table"),
        ("file:/data/table", Location("file", "", "/data/table"), "/data/table"),
        ("file:///data/table/", Location("file", "", "/data/table"), "/data/table"),
        ("FILE:///data/table", Location("file", "", "/data/table"), "/data/table"),
        ("file:///data/a b%20#?", Location("file", "", "/data/a b%20#?"), "/data/a b%20#?"),
        ("table", Location("file", "", f"{HERE}/table"), f"{HERE}/table"),
        ("./a/table/", Location("file", "", f"{HERE}/a/table"), f"{HERE}/a/table"),
        ("../table", Location("file", "", f"{os.path.dirname(HERE)}/table"), f"{os.path.dirname(HERE)}/table"),
        ("time=12:30", Location("file", "", f"{HERE}/time=12:30"), f"{HERE}/time=12:30"),
        (Path("/data/table"), Location("file", "", "/data/table"), "/data/table"),
    ],
    ids=str,
)
def test_a_spelling_means_a_place(spelling: str | Path, location: Location, url: str) -> None:
    assert parse_location(spelling) == location
    assert parse_location(spelling).url == url
    assert parse_location(url) == location
    assert parse_location(spelling).url_of("_x") == f"{url}/_x"


@pytest.mark.parametrize(
    "spelling", ["oss://bucket/table", "https://host/table", "hdfs://host:9000/table", "dbfs:/table"]
)
def test_other_stores_are_refused_and_the_known_ones_named(spelling: str) -> None:
    with pytest.raises(InvalidInputError, match="s3://"):
        parse_location(spelling)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "\0",
        "/data\0/table",
        "s3://bucket/a\0b",
        "s3://",
        "s3:///table",
        "s3:table",
        "az:///table",
        "gs:///table",
        "gs://bucket/../other",
        "abfss://@account.dfs.core.windows.net/table",
        "abfss://container@/table",
        "s3://bucket/../other",
        "s3://bucket/a/..",
        "s3://bucket/./a",
        "abfss://container@account.dfs.core.windows.net/../x",
        "s3://bucket:9000/table",
    ],
)
def test_what_is_no_place_is_refused(spelling: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_location(spelling)


@pytest.mark.parametrize(
    "spelling",
    [
        "s3://AKIA:sEcReT@bucket/table",
        "s3a://AKIA:sEcReT@bucket/table",
        "s3://sEcReT@bucket/table",
        "s3://AKIA:sEc/sEcReT@bucket/table",
        "az://account:sEcReT@container/table",
        "az://sEcReT@container/table",
        "abfss://container:sEcReT@account.dfs.core.windows.net/table",
        "az://container/table?sv=2024&sig=sEcReT",
        "gs://key:sEcReT@bucket/table",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(spelling: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        parse_location(spelling)
    assert "sEcReT" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://bucket/table", "s3fs", r"dbio-commit\[s3\]"),
        ("az://container/table", "adlfs", r"dbio-commit\[azure\]"),
        ("gs://bucket/table", "gcsfs.core", r"dbio-commit\[gcs\]"),
    ],
)
def test_a_missing_extra_is_named(url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ["dbio_commit.store.s3", "dbio_commit.store.azure", "dbio_commit.store.gcs"]:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(UnsupportedStoreError, match=f"{url} needs the package {package}; install {extra}"):
        open_store(parse_location(url))


def test_a_local_path_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="secret_key") as refusal:
        open_store(parse_location(tmp_path), {"secret_key": "sEcReT"})
    assert "sEcReT" not in str(refusal.value)
