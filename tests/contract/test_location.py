"""How users spell places, and what each spelling means."""

import os
import sys
from pathlib import Path

import pytest

from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, MissingPackageError
from dbio_commit.store import Location, open_store, parse_location
from dbio_commit.store.fsspec_store import FsspecStore
from dbio_commit.store.location import path_below

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
        (
            "abfss://c@lake.z01.dfs.storage.azure.net/p",
            Location("az", "c", "p", "lake.z01", "storage.azure.net"),
            "abfss://c@lake.z01.dfs.storage.azure.net/p",
        ),
        (
            "abfss://c@lake.z45.blob.storage.azure.net/p",
            Location("az", "c", "p", "lake.z45", "storage.azure.net"),
            "abfss://c@lake.z45.dfs.storage.azure.net/p",
        ),
        (
            "abfss://work space@onelake.dfs.fabric.microsoft.com/l.Lakehouse/Files/t",
            Location("az", "work space", "l.Lakehouse/Files/t", "onelake", "fabric.microsoft.com"),
            "abfss://work space@onelake.dfs.fabric.microsoft.com/l.Lakehouse/Files/t",
        ),
        (
            "abfss://ws@westus-onelake.dfs.fabric.microsoft.com/l.Lakehouse/Files/t",
            Location("az", "ws", "l.Lakehouse/Files/t", "westus-onelake", "fabric.microsoft.com"),
            "abfss://ws@westus-onelake.dfs.fabric.microsoft.com/l.Lakehouse/Files/t",
        ),
        ("s3://lake-1a2b3c-s3alias/t", Location("s3", "lake-1a2b3c-s3alias", "t"), "s3://lake-1a2b3c-s3alias/t"),
        ("gs://bucket/a/table/", Location("gs", "bucket", "a/table"), "gs://bucket/a/table"),
        ("gcs://bucket", Location("gs", "bucket", ""), "gs://bucket"),
        ("GS://my_bucket.example.com/t", Location("gs", "my_bucket.example.com", "t"), "gs://my_bucket.example.com/t"),
        ("/data/table", Location("file", "", "/data/table"), "/data/table"),
        ("/data//table/", Location("file", "", "/data/table"), "/data/table"),
        ("/data/../table", Location("file", "", "/table"), "/table"),
        ("file:/data/table", Location("file", "", "/data/table"), "/data/table"),
        ("file:///data/table/", Location("file", "", "/data/table"), "/data/table"),
        ("file://localhost/data/table", Location("file", "", "/data/table"), "/data/table"),
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
    ("spelling", "instead"),
    [
        (
            "wasbs://c@acc.blob.core.windows.net/a/t",
            r"use abfss://c@acc\.dfs\.core\.windows\.net/a/t, .* same container",
        ),
        ("WASB://c@acc.blob.core.windows.net/a/t", r"use abfss://c@acc\.dfs\.core\.windows\.net/a/t"),
        ("wasbs:///a/t", "use abfss://CONTAINER@ACCOUNT"),
        ("wasbs://c:sEcReT@acc.blob.core.windows.net/t", "use abfss://CONTAINER@ACCOUNT"),
        ("wasbs://c@acc.blob.core.windows.net/t?sig=sEcReT", "use abfss://CONTAINER@ACCOUNT"),
        ("adl://acc.azuredatalakestore.net/t", "use abfss://CONTAINER@ACCOUNT"),
        ("dbfs:/mnt/lake/t", "use the URL of what is mounted there"),
        ("hdfs://nn/t", "no table can lie on HDFS"),
        ("viewfs://nn/t", "no table can lie on HDFS"),
        ("maprfs:///t", "no table can lie on HDFS"),
        ("oss://b/t", "S3 gateway as endpoint_url"),
        ("cosn://b/t", "S3 gateway as endpoint_url"),
        ("obs://b/t", "S3 gateway as endpoint_url"),
        ("ofs://b/t", "S3 gateway as endpoint_url"),
        ("https://b.s3.amazonaws.com/t", "use s3://BUCKET"),
        ("s3://arn:aws:s3:us-east-1:123456789012:accesspoint/ap/t", "accesspoint/ap is an ARN: .*-s3alias"),
        ("s3://arn:aws:s3::123456789012:accesspoint/m1a2b3.mrap/t", "Multi-Region Access Point"),
        ("s3://lake--use1-az4--x-s3/t", "directory bucket .*general purpose bucket"),
        ("s3://lake-ap--use1-az4--xa-s3/t", "access point of a directory bucket"),
        ("s3://lake--table-s3/t", "table bucket"),
        ("s3://lake-1a2b--ol-s3/t", "Object Lambda"),
        ("s3://m1a2b3.mrap/t", "Multi-Region Access Point"),
        ("az://c/a\\b", "backslash"),
        ("file://lake/orders", "names another machine.* write 'file:///lake/orders' if"),
        ("file://nas01", "write 'file:///nas01'"),
        ("file://user:sEcReT@nas01/a", "'file://nas01/a' names another machine"),
    ],
)
def test_what_no_table_can_lie_on_is_refused_with_what_to_give_instead(spelling: str, instead: str) -> None:
    with pytest.raises(InvalidInputError, match=instead) as refusal:
        parse_location(spelling)
    assert "sEcReT" not in str(refusal.value)


@pytest.mark.parametrize(
    ("host", "name"), [("lake.z01", "lake"), ("lake", "lake"), ("westus-onelake", "westus-onelake")]
)
@pytest.mark.parametrize("cloud", ["storage.azure.net", "core.windows.net", "core.chinacloudapi.cn"])
def test_a_key_signs_for_the_account_in_whichever_cloud_and_zone_it_is(host: str, name: str, cloud: str) -> None:
    key = "c2VjcmV0" * 8
    store = open_store(parse_location(f"abfss://c@{host}.dfs.{cloud}/t"), {"account_key": key})
    assert isinstance(store, FsspecStore)
    client = store.fs.service_client
    assert (client.account_name, client.credential.account_name) == (name, name)
    assert client.primary_hostname == f"{host}.blob.{cloud}"
    assert store.identity == f"az:{host}.blob.{cloud}:c"


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
        "s3://bucket/\udcff",
        "/lake/\ud800",
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
        "wasbs://account:sEcReT@container/table",
        "s3://AKIA:sEcReT@lake--use1-az4--x-s3/table",
        "s3://arn:sEcReT@lake/table",
        "hdfs://user:sEcReT@host/table",
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
    for module in ["s3", "azure", "gcs"]:
        monkeypatch.delitem(sys.modules, f"dbio_commit.store.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(MissingPackageError, match=rf'{url} needs the package {package}, .*`pip install "{extra}"`'):
        open_store(parse_location(url))


def test_a_local_path_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="secret_key") as refusal:
        open_store(parse_location(tmp_path), {"secret_key": "sEcReT"})
    assert "sEcReT" not in str(refusal.value)


AZURE = "abfss://c@lake.dfs.core.windows.net/t"


@pytest.mark.parametrize(
    ("root", "text", "path"),
    [
        ("s3://b/t", "s3a://b/t/day=a/x", "day=a/x"),
        ("s3://b/t", "S3://b//t/x", "x"),
        ("s3://b", "s3n://b/x", "x"),
        ("gs://b/t", "gcs://b/t/x", "x"),
        ("az://c/t", f"{AZURE}/x", "x"),
        (AZURE, "az://c/t/x", "x"),
        (AZURE, "abfs://c@lake.blob.core.windows.net/t/x", "x"),
        ("/t", "file:/t/x", "x"),
        ("/t", "file:///t/x", "x"),
        ("/", "/x", "x"),
        ("/t", "./day=a/x", "day=a/x"),
        ("s3://b/t", "day=a/x", "day=a/x"),
        ("s3://b/t", "s3a://b/t2/x", None),
        ("s3://b/t", "s3a://b/t", None),
        ("s3://b/t", "s3a://other/t/x", None),
        ("s3://b/t", "gs://b/t/x", None),
        ("s3://b/t", "/t/x", None),
        ("s3://b/t", "https://b/t/x", None),
        (AZURE, "abfss://c@other.dfs.core.windows.net/t/x", None),
    ],
)
def test_a_path_of_a_table_is_found_in_each_spelling_of_its_url(root: str, text: str, path: str | None) -> None:
    assert path_below(root, text) == path


@pytest.mark.parametrize(
    ("here", "there", "path"),
    [
        ("s3://b/lake/orders", "s3://b/lake/customers", "../customers"),
        ("s3://b/orders", "s3://b/lake/x/customers", "../lake/x/customers"),
        ("s3://b/lake/orders", "s3://b/customers", "../../customers"),
        ("az://c/a/b", "az://c/a/b c", "../b c"),
        ("/data/lake/orders", "/data/other/customers", "../../other/customers"),
    ],
)
def test_the_way_from_one_table_to_another_leads_there(here: str, there: str, path: str) -> None:
    one, other = parse_location(here), parse_location(there)
    assert one.path_to(other) == path
    assert one.beside(path) == other
    assert one.beside(".") == one


def test_no_way_leads_to_another_container_or_out_of_one() -> None:
    one = parse_location("s3://bucket/lake/orders")
    assert one.path_to(parse_location("s3://other/lake/customers")) is None
    with pytest.raises(CorruptMarkerError, match="leads out of the container or disk"):
        one.beside("../../../x")
