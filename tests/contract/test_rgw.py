"""Ceph RGW: that it is what answers under `make test-rgw`, and what it does differently from others. Else skipped."""

import os
from typing import Any

import fsspec
import pytest

from dbio_commit.base.errors import AccessDeniedError
from tests.contract.places import Place
from tests.servers import S3Server

is_rgw = os.environ.get("DBIO_TEST_S3_SERVER") == "rgw"
pytestmark = [pytest.mark.server, pytest.mark.skipif(not is_rgw, reason="make test-rgw")]


@pytest.fixture
def client(s3_server: S3Server) -> Any:
    return s3_server.client()


def test_it_is_rgw_that_answers(client: Any) -> None:
    request_id = client.head_bucket(Bucket="tables")["ResponseMetadata"]["RequestId"]
    assert request_id.startswith("tx")
    assert request_id.endswith("-default")  # its zone


def test_a_lost_race_is_found_where_s3fs_does_not_know_the_answer(s3: Place) -> None:
    filesystem = fsspec.filesystem("s3", skip_instance_cache=True, **s3.storage_options)
    filesystem.pipe_file(f"{s3.url}/_marker", b"first", mode="create")
    with pytest.raises(OSError, match="22") as refusal:
        filesystem.pipe_file(f"{s3.url}/_marker", b"second", mode="create")
    assert not isinstance(refusal.value, FileExistsError)
    assert s3.open().put_if_absent("_marker", b"third") is False
    assert s3.open().get("_marker") == b"first"


def test_an_upload_in_parts_overwrites_and_so_no_conditional_body_is_one(s3: Place, client: Any) -> None:
    store, size = s3.open(), 6 << 20
    assert store.put_if_absent("_marker", b"first")
    target = {"Bucket": "tables", "Key": f"{s3.url.removeprefix('s3://tables/')}/_marker"}
    upload = {**target, "UploadId": client.create_multipart_upload(**target)["UploadId"]}
    part = client.upload_part(**upload, PartNumber=1, Body=bytes(size))
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*")
    assert store.stat("_marker").size == size
    assert store.put_if_absent("_marker", bytes(40 << 20)) is False
    assert store.stat("_marker").size == size


@pytest.mark.parametrize("options", [{"key": "nobody"}, {"secret": "c2VjcmV0LXNlY3JldA=="}])
def test_wrong_credentials_are_access_denied(s3: Place, options: dict[str, str]) -> None:
    s3.open().put_if_absent("_marker", b"")
    store = s3.open(**options)
    with pytest.raises(AccessDeniedError, match="credentials") as refusal:
        store.list_log()
    assert not any(secret in str(refusal.value) for secret in options.values() if secret != "nobody")
    with pytest.raises(AccessDeniedError, match="credentials"):
        store.put_if_absent("_new", b"")
    assert [entry.path for entry in s3.open().list_log()] == ["_marker"]
