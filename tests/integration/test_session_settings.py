"""Settings of a session, as the store's server sees them arrive. What each becomes is in tests/unit/test_hadoop.py."""

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

import dbio_commit as dbio
from dbio_commit.spark.session import StoreSettings
from dbio_commit.store.base import UPLOAD_BYTES
from dbio_commit.transaction import Transaction
from tests.conftest import Root
from tests.servers import Request, S3Server


@pytest.fixture
def settings(s3_server: S3Server) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": s3_server.endpoint_url,
        "fs.s3a.access.key": s3_server.storage_options["key"],
        "fs.s3a.secret.key": s3_server.storage_options["secret"],
    }


def write_all_kinds(root: Root, settings: dict[str, str]) -> dbio.Table:
    """A table with a descriptor, markers, a data file of one request, and one of several."""
    table, ignored = StoreSettings(settings).open_table(root.url)
    assert not ignored
    with table.begin() as transaction:
        for size in (10, UPLOAD_BYTES + 1):
            _write(table, transaction, bytes(size))
    return table


def _write(table: dbio.Table, transaction: Transaction, data: bytes) -> None:
    path = transaction.new_file().removeprefix(f"{table.url}/")
    with table.store.open_write(path) as stream:
        stream.write(data)


def created(server: S3Server) -> list[Request]:
    """The requests that say how an object is to be stored: a PUT of the whole, or the begin of several."""
    requests = server.requests()
    whole = [it for it in requests if it.method == "PUT" and "partNumber" not in it.query]
    begun = [it for it in requests if it.method == "POST" and "uploads" in it.query]
    kinds = {re.sub(r"[_-].*", "", it.path.rpartition("/")[2].strip("_")) for it in whole}
    assert kinds == {"dbio", "started", "committed", "part"}
    assert len(begun) == 1
    return whole + begun


@pytest.mark.parametrize(
    ("added", "headers"),
    [
        ({"encryption.algorithm": "AES256"}, {"server-side-encryption": "AES256"}),
        (
            {"server-side-encryption-algorithm": "SSE-KMS", "server-side-encryption.key": "arn:aws:kms:k"},
            {"server-side-encryption": "aws:kms", "server-side-encryption-aws-kms-key-id": "arn:aws:kms:k"},
        ),
        (
            {"encryption.algorithm": "DSSE-KMS", "encryption.context": "a=b"},
            {"server-side-encryption": "aws:kms:dsse", "server-side-encryption-context": "eyJhIjogImIifQ=="},
        ),
        ({"acl.default": "BucketOwnerRead"}, {"acl": "bucket-owner-read"}),
        ({"create.storage.class": "intelligent_tiering"}, {"storage-class": "INTELLIGENT_TIERING"}),
    ],
)
def test_every_object_is_stored_as_the_session_says(
    s3_server: S3Server, s3_root: Root, settings: dict[str, str], added: dict[str, str], headers: dict[str, str]
) -> None:
    write_all_kinds(s3_root, settings | {f"fs.s3a.{name}": value for name, value in added.items()})
    for request in created(s3_server):
        found = {name: request.headers.get(f"x-amz-{name}") for name in headers}
        assert found == headers, request.path


def test_every_request_says_that_the_requester_pays(
    s3_server: S3Server, s3_root: Root, settings: dict[str, str]
) -> None:
    table = write_all_kinds(s3_root, settings | {"fs.s3a.requester.pays.enabled": "TRUE"})
    files = [file.path for file in table.snapshot().files]
    with table.store.open_read(files[0]) as stream:
        stream.read(1)
    table.store.stat(files[0])
    table.store.delete_many(files)
    requests = s3_server.requests()
    assert {it.method for it in requests} == {"GET", "HEAD", "POST", "PUT"}
    assert [it for it in requests if it.headers.get("x-amz-request-payer") != "requester"] == []


def test_anonymous_requests_are_not_signed(s3_server: S3Server, s3_root: Root, settings: dict[str, str]) -> None:
    anonymous = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    public = {"fs.s3a.acl.default": "PublicRead", "fs.s3a.aws.credentials.provider": anonymous}
    assert len(write_all_kinds(s3_root, settings | public).snapshot().files) == 2
    assert not any("authorization" in it.headers for it in s3_server.requests())


def test_an_assumed_role_is_assumed_in_every_process_that_needs_it(
    s3_server: S3Server, s3_root: Root, settings: dict[str, str]
) -> None:
    role = {
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
        "assumed.role.arn": "arn:aws:iam::123456789012:role/etl",
        "assumed.role.sts.endpoint": s3_server.endpoint_url,
        "assumed.role.sts.endpoint.region": "us-east-1",
    }
    table = write_all_kinds(s3_root, settings | {f"fs.s3a.{name}": value for name, value in role.items()})
    assert signed_by(s3_server) == {"the key of the session": 1, "a role's": True}
    pickled = pickle.dumps(table)
    s3_server.reset()
    assert len(pickle.loads(pickled).snapshot().files) == 2
    assert signed_by(s3_server) == {"the key of the session": 1, "a role's": True}


def signed_by(server: S3Server) -> dict[str, Any]:
    """With whose keys the requests were signed: AssumeRole by the session's, all others by a role's, which start so."""
    by = [re.search("Credential=([^/]*)/.*/(s3|sts)/", it.headers["authorization"]) for it in server.requests()]
    keys = [(it[2], it[1]) for it in by if it]
    assert len(keys) == len(server.requests())
    of_role = [key.startswith("ASIA") for service, key in keys if service == "s3"]
    return {"the key of the session": keys.count(("sts", "test-key")), "a role's": bool(of_role) and all(of_role)}


@contextmanager
def forward_proxy() -> Iterator[tuple[int, list[tuple[str, str | None]]]]:
    """A proxy for http: its port, and the URLs that it was asked for with what it was told to let the client in."""
    asked: list[tuple[str, str | None]] = []

    class Proxy(BaseHTTPRequestHandler):
        def forward(self) -> None:
            asked.append((self.path, self.headers.get("Proxy-Authorization")))
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = HTTPConnection(url.netloc, timeout=60)
            target = self.path.removeprefix(f"{url.scheme}://{url.netloc}")
            connection.request(self.command, target, body, dict(self.headers.items()))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()


def test_requests_go_through_the_sessions_proxy(s3_server: S3Server, s3_root: Root, settings: dict[str, str]) -> None:
    with forward_proxy() as (port, asked):
        proxy = {"host": "127.0.0.1", "port": str(port), "username": "me", "password": "p@ss"}
        through = settings | {f"fs.s3a.proxy.{name}": value for name, value in proxy.items()}
        assert len(write_all_kinds(s3_root, through).snapshot().files) == 2
    assert len(asked) == len(s3_server.requests()) > 5
    assert {told for _, told in asked} == {"Basic bWU6cEBzcw=="}
