"""MinIO: that it is what answers under `make test-minio`, and what it does differently from others. Else skipped."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dbio_commit.base.errors import AccessDeniedError
from tests.contract.places import Place
from tests.servers import S3Server

is_minio = os.environ.get("DBIO_TEST_S3_SERVER") == "minio"
pytestmark = [pytest.mark.server, pytest.mark.skipif(not is_minio, reason="make test-minio")]


@pytest.fixture
def client(s3_server: S3Server) -> Any:
    return s3_server.client()


def key(place: Place, name: str) -> dict[str, str]:
    return {"Bucket": "tables", "Key": f"{place.url.removeprefix('s3://tables/')}/{name}"}


def test_it_is_minio_that_answers(client: Any) -> None:
    assert client.head_bucket(Bucket="tables")["ResponseMetadata"]["HTTPHeaders"]["server"].endswith("MinIO")


def test_a_bucket_that_is_there_is_not_created_again(s3_server: S3Server) -> None:
    with pytest.raises(ClientError, match="BucketAlreadyOwnedByYou"):
        s3_server.create_bucket("tables")


def test_of_many_uploads_in_parts_one_creates_the_object(s3: Place, client: Any) -> None:
    target = key(s3, "part-0")

    def upload(number: int) -> bool:
        mine = {**target, "UploadId": client.create_multipart_upload(**target)["UploadId"]}
        part = client.upload_part(**mine, PartNumber=1, Body=b"%d" % number)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        try:
            client.complete_multipart_upload(**mine, MultipartUpload=parts, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(upload, range(6))) == 1


def test_uploads_in_parts_are_listed_by_their_whole_key_alone(s3: Place, client: Any) -> None:
    target = key(s3, "part-0")
    client.create_multipart_upload(**target)

    def listed(prefix: str) -> int:
        return len(client.list_multipart_uploads(Bucket="tables", Prefix=prefix).get("Uploads", []))

    assert listed(target["Key"]) == 1
    assert listed(target["Key"].removesuffix("part-0")) == 0


def test_a_key_with_two_slashes_is_refused(s3: Place, client: Any) -> None:
    with pytest.raises(ClientError, match="XMinioInvalidObjectName"):
        client.put_object(**key(s3, "a//b"), Body=b"")


@pytest.mark.parametrize("options", [{"key": "nobody"}, {"secret": "c2VjcmV0LXNlY3JldA=="}])
def test_wrong_credentials_are_access_denied(s3: Place, options: dict[str, str]) -> None:
    s3.open().put_if_absent("_marker", b"")
    with pytest.raises(AccessDeniedError, match="credentials"):
        s3.open(**options).list_log()
