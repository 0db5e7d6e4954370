"""Uploads that were begun and neither finished nor aborted. Those of a local disk are in test_local.py.

Rules: PROTOCOL.md 10.2.
"""

from datetime import timedelta

import pytest

from dbio_commit.base.errors import AccessDeniedError, StoreError
from dbio_commit.store import Store, Unfinished
from dbio_commit.testing import ManualClock, MemoryStore
from tests.contract.amazon import amazon
from tests.contract.places import Place
from tests.contract.test_failures import FEW_RETRIES
from tests.servers import Fault, S3Server


@pytest.fixture
def uploads(s3: Place, s3_server: S3Server) -> dict[str, str]:
    """Key below the prefix "table" -> id, of uploads in and beside the table."""
    client, root = s3_server.client(), s3.url.removeprefix("s3://tables/")
    keys = ["table/part-0", "table/day=a b%2F+é/part-1", "table2/part-2", "table-1/x", "table", "other/table/x"]
    return {key: client.create_multipart_upload(Bucket="tables", Key=f"{root}/{key}")["UploadId"] for key in keys}


@pytest.fixture
def table(s3: Place) -> Store:
    return s3.open("/table")


def test_uploads_below_the_root_are_listed_and_no_others(table: Store, uploads: dict[str, str]) -> None:
    found = table.list_unfinished()
    assert {(item.path, item.id) for item in found} == {
        (path, uploads[f"table/{path}"]) for path in ["part-0", "day=a b%2F+é/part-1"]
    }
    for item in found:
        assert item.size == 0
        assert item.started.utcoffset() == timedelta(0)
    assert table.list_files() == []


def test_finished_and_aborted_uploads_are_not_listed(table: Store, s3: Place, s3_server: S3Server) -> None:
    client, prefix = s3_server.client(), f"{s3.url.removeprefix('s3://tables/')}/table/"
    done, given_up = (
        {**upload, "UploadId": client.create_multipart_upload(**upload)["UploadId"]}
        for upload in ({"Bucket": "tables", "Key": prefix + name} for name in ["done", "given up"])
    )
    part = client.upload_part(**done, PartNumber=1, Body=b"x")
    client.complete_multipart_upload(**done, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    client.abort_multipart_upload(**given_up)
    assert table.list_unfinished() == []
    assert [entry.path for entry in table.list_files()] == ["done"]


def test_an_upload_of_ours_is_listed_until_it_is_closed(table: Store) -> None:
    with table.open_write("day=1/part-0") as file:
        file.write(bytes(40_000_000))
        assert [item.path for item in table.list_unfinished()] == ["day=1/part-0"]
    assert table.list_unfinished() == []
    assert table.stat("day=1/part-0").size == 40_000_000


def test_aborted_uploads_are_gone_and_their_neighbours_are_not(
    table: Store, uploads: dict[str, str], s3: Place
) -> None:
    items = table.list_unfinished()
    assert table.abort_unfinished(items) == {}
    assert table.list_unfinished() == []
    assert table.abort_unfinished(items) == {}  # gone already
    assert table.abort_unfinished([]) == {}
    assert len(s3.open().list_unfinished()) == len(uploads) - len(items)


def test_two_uploads_of_one_object_are_two(table: Store, s3: Place, s3_server: S3Server) -> None:
    key = f"{s3.url.removeprefix('s3://tables/')}/table/part-0"
    ids = {s3_server.client().create_multipart_upload(Bucket="tables", Key=key)["UploadId"] for _ in range(2)}
    first, second = table.list_unfinished()
    assert {first.id, second.id} == ids
    assert table.abort_unfinished([first]) == {}
    assert table.list_unfinished() == [second]


def test_uploads_are_listed_page_by_page(s3: Place, s3_server: S3Server, uploads: dict[str, str]) -> None:
    client, root = s3_server.client(), s3.url.removeprefix("s3://tables/")
    ids = [
        client.create_multipart_upload(Bucket="tables", Key=f"{root}/table/{name}")["UploadId"]
        for name in ["same", "same", "same", "z", "z"]
    ]
    with amazon(s3_server) as (_, endpoint):
        found = s3.open("/table", endpoint_url=endpoint).list_unfinished()
    inside = [id for key, id in uploads.items() if key.startswith("table/")]
    assert sorted(item.id for item in found) == sorted([*inside, *ids])


def test_a_service_that_repeats_a_page_is_an_error(s3: Place, s3_server: S3Server) -> None:
    client, root = s3_server.client(), s3.url.removeprefix("s3://tables/")
    for name in "abc":
        client.create_multipart_upload(Bucket="tables", Key=f"{root}/table/{name}")
    with amazon(s3_server) as (app, endpoint):
        app.stuck = True
        with pytest.raises(StoreError, match="list_multipart_uploads with the same page"):
            s3.open("/table", endpoint_url=endpoint).list_unfinished()


def test_an_upload_that_could_not_be_aborted_is_returned_and_the_others_are_gone(
    table: Store, uploads: dict[str, str], s3_server: S3Server
) -> None:
    s3_server.inject(Fault(method="DELETE", path="part-1", kind="403", times=10))
    failures = table.abort_unfinished(table.list_unfinished())
    assert list(failures) == ["day=a b%2F+é/part-1"]
    assert isinstance(failures["day=a b%2F+é/part-1"], AccessDeniedError)
    assert [item.path for item in table.list_unfinished()] == ["day=a b%2F+é/part-1"]


@pytest.mark.parametrize(("kind", "error"), [("403", AccessDeniedError), ("503", StoreError)])
def test_uploads_that_cannot_be_listed_are_an_error(
    s3: Place, s3_server: S3Server, kind: str, error: type[StoreError]
) -> None:
    s3_server.inject(Fault(method="GET", path="uploads", kind=kind, times=10_000))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=s3.url) as failure:
        s3.open(**FEW_RETRIES).list_unfinished()
    assert type(failure.value) is error


@pytest.mark.parametrize("remote", ["azure", "gcs"], indirect=True)
def test_azure_and_google_list_no_unfinished_uploads(remote: Place) -> None:
    store = remote.open()
    with store.open_write("part-0") as file:
        file.write(bytes(40_000_000))
        assert store.list_unfinished() == []
    assert store.abort_unfinished([]) == {}


# --- in memory ----------------------------------------------------------------------------------------------------


def test_unfinished_uploads_in_memory_are_those_that_a_test_puts_there() -> None:
    store, now = MemoryStore(), ManualClock().now()
    old, young = Unfinished("part-0", "1", 10, now - timedelta(days=3)), Unfinished("part-0", "2", 0, now)
    store.unfinished = [old, young]
    assert store.list_unfinished() == [old, young]
    assert store.abort_unfinished([old]) == {}
    assert store.abort_unfinished([old]) == {}
    assert store.list_unfinished() == [young]


def test_every_call_of_vacuum_can_be_stopped_in_memory() -> None:
    store, steps = MemoryStore(), []
    store.put("a/x")
    store.before = lambda operation, path: steps.append((operation, path))
    upload = Unfinished("part-0", "1", 10, ManualClock().now())
    store.list_directory("a")
    store.list_unfinished()
    store.abort_unfinished([upload])
    store.delete_many(["a/x", "a/y"])
    store.remove_directories(["a"])
    assert steps == [
        ("list_directory", "a"),
        ("list_unfinished", ""),
        ("abort_unfinished", "part-0"),
        ("delete", "a/x"),
        ("delete", "a/y"),
        ("remove_directory", "a"),
    ]


def test_an_abort_that_fails_in_memory_is_returned() -> None:
    store = MemoryStore()
    uploads = [Unfinished(name, name, 0, ManualClock().now()) for name in "abc"]
    store.unfinished = list(uploads)

    def fail(operation: str, path: str) -> None:
        if path == "b":
            raise StoreError("no")

    store.before = fail
    assert list(store.abort_unfinished(uploads)) == ["b"]
    assert [item.path for item in store.unfinished] == ["b"]
