"""The test servers themselves: what the other tests take for granted of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.conftest import Root
from tests.servers import AzureServer, Fault, S3Server, Server, azurite_server, fake_gcs_server, moto_server

pytestmark = pytest.mark.server


@pytest.fixture(params=["s3", "azure", "gcs"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


@pytest.fixture
def server(root: Root, request: pytest.FixtureRequest) -> Server:
    servers = {"s3": "s3_server", "az": "azure_server", "gs": "gcs_server"}
    found: Server = request.getfixturevalue(servers[root.url.partition(":")[0]])
    return found


@pytest.fixture
def fs(root: Root) -> Any:
    return fsspec.filesystem(
        root.url.partition(":")[0], use_listings_cache=False, skip_instance_cache=True, **root.storage_options
    )


@pytest.fixture
def client(s3_root: Root, s3_server: S3Server) -> Any:
    """Without retries, so that a fault is seen."""
    return s3_server.client(config=Config(retries={"total_max_attempts": 1}))


def test_requests_are_logged_with_their_decoded_path_and_query(root: Root, server: Server, fs: Any) -> None:
    key = f"{root.url.partition('://')[2]}/day=a b%2F?/x"
    fs.pipe_file(key, b"body")
    server.reset()
    assert fs.cat_file(key) == b"body"
    assert [(r.method, r.status) for r in server.requests() if r.method == "GET"] in ([("GET", 200)], [("GET", 206)])
    assert all(r.path.endswith("/day=a b%2F?/x") for r in server.requests())


def test_create_of_an_existing_object_is_refused(root: Root, fs: Any) -> None:
    fs.pipe_file(f"{root.url}/marker", b"first", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{root.url}/marker", b"second", mode="create")
    assert fs.cat_file(f"{root.url}/marker") == b"first"


def test_moto_lets_exactly_one_of_many_conditional_writers_win(client: Any) -> None:
    def put(contender: int, key: str) -> bool:
        try:
            client.put_object(Bucket="tables", Key=key, Body=bytes([contender]) * 16_000_000, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] == "PreconditionFailed":
                return False
            raise
        return True

    with ThreadPoolExecutor(20) as pool:
        for race in range(2):
            assert sum(pool.map(put, range(20), [f"race-{race}"] * 20)) == 1


def test_a_lost_answer_leaves_the_object_written(s3_server: S3Server, client: Any) -> None:
    s3_server.inject(Fault(method="PUT", path="lost", kind="lost-answer"))
    with pytest.raises(ClientError, match="InternalError"):
        client.put_object(Bucket="tables", Key="lost", Body=b"landed")
    assert client.get_object(Bucket="tables", Key="lost")["Body"].read() == b"landed"
    assert s3_server.requests()[0].fault == "lost-answer"


def test_a_dropped_answer_leaves_the_object_written(s3_server: S3Server, client: Any) -> None:
    s3_server.inject(Fault(method="PUT", path="dropped", kind="dropped-answer"))
    with pytest.raises(ConnectionClosedError):
        client.put_object(Bucket="tables", Key="dropped", Body=b"landed")
    assert client.get_object(Bucket="tables", Key="dropped")["Body"].read() == b"landed"


@pytest.mark.parametrize(("kind", "code"), [("403", "AccessDenied"), ("409", "ConditionalRequestConflict")])
def test_a_refused_request_writes_nothing(s3_server: S3Server, client: Any, kind: Any, code: str) -> None:
    s3_server.inject(Fault(method="PUT", path="refused", kind=kind, times=2))
    for _ in range(2):
        with pytest.raises(ClientError, match=code):
            client.put_object(Bucket="tables", Key=f"refused-{code}", Body=b"")
    assert "Contents" not in client.list_objects_v2(Bucket="tables", Prefix=f"refused-{code}")


def test_a_refused_request_writes_no_blob(azure_root: Root, azure_server: AzureServer) -> None:
    azure_server.inject(Fault(method="PUT", path="refused", kind="403"))
    with BlobServiceClient.from_connection_string(azure_server.connection_string) as client:
        blob = client.get_blob_client("tables", f"{azure_root.url.rpartition('/')[2]}/refused")
        with pytest.raises(HttpResponseError, match="AuthorizationFailure"):
            blob.upload_blob(b"x")
        assert not blob.exists()


@pytest.mark.parametrize(
    ("protocol", "server_fixture"), [("s3", "s3_server"), ("az", "azure_server"), ("gs", "gcs_server")]
)
def test_a_child_process_reaches_the_server_by_its_environment(
    protocol: str, server_fixture: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(server_fixture)
    program = f"import fsspec; fsspec.filesystem({protocol!r}).pipe_file('tables/by-environment', b'x')"
    subprocess.run([sys.executable, "-c", program], env=os.environ | server.env, check=True)
    assert fsspec.filesystem(protocol, **server.storage_options).cat_file("tables/by-environment") == b"x"


@pytest.mark.parametrize("start", [moto_server, azurite_server, fake_gcs_server])
def test_a_server_ends_with_its_context(start: Any) -> None:
    context: AbstractContextManager[Server] = start()
    with context as server:
        assert _listens(server.endpoint_url)
    assert not _listens(server.endpoint_url)


@pytest.mark.parametrize("start", ["moto_server", "azurite_server", "fake_gcs_server"])
def test_a_server_ends_when_the_tests_are_killed(start: str) -> None:
    program = f"from tests.servers import {start}\nwith {start}() as s: print(s.endpoint_url, flush=True); input()"
    root = Path(__file__).parents[2]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as tests:
        assert tests.stdout is not None
        endpoint = tests.stdout.readline().strip()
        assert _listens(endpoint)
        tests.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _listens(endpoint):
        assert time.monotonic() < deadline, f"{endpoint} still listens"
        time.sleep(0.05)


def _listens(endpoint: str) -> bool:
    host, port = endpoint.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
