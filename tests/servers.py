"""Servers of S3, Azure and Google Cloud for tests and benchmarks: real clients speak to them, nothing is mocked.

Each context manager starts one server on a free loopback port, in a process of its own that ends with this one,
however this one ends. The front that counts requests, injects faults and answers in rounds is front.py.
"""

import http.client
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

Kind = Literal[
    "lost-answer",
    "dropped-answer",
    "half-answer",
    "403",
    "409",
    "429",
    "500",
    "501",
    "503",
    "looks-first",
    "archived",
    "pending",
]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server saw it, and the status it answered. `path` and `query` are decoded."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By their names in lower case."""
    status: int
    fault: Kind | None
    round: int = 0
    """The number of the round in which it was answered, from 1; 0 outside of `in_rounds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What to do to the next `times` requests of `method` whose decoded path and query `path` (a regex) is found in.

    lost-answer: carried out, then answered with 500. dropped-answer: carried out, then the connection is closed.
    403, 409 (S3 only: ConditionalRequestConflict), 429 (Google only), 500, 501, 503 (slow down): not carried out.
    half-answer: the first half of the answer's body, as if it were all.
    archived: answered as of an object that Glacier, or the archive tier, has.
    looks-first (S3 only): a conditional PUT looks for the key, and writes once another one has looked, too.
    pending (Azure only): a Copy Blob stays pending until it is aborted, or until `end_copies`. Meanwhile the blob shows
    the size of the source, and refuses changes.
    Clients retry by themselves, so a fault that they are to see needs a higher `times`.
    """

    method: str
    path: str
    kind: Kind
    times: int = 1


@dataclass(frozen=True, slots=True)
class Server:
    endpoint_url: str
    storage_options: dict[str, Any]  # for fsspec
    env: dict[str, str]  # with these set, a child process needs no options at all

    def requests(self) -> list[Request]:
        """Every request answered since `reset()`, in order."""
        return [Request(**entry) for entry in json.loads(self._control("GET", "/__requests"))]

    def reset(self) -> None:
        """Forgets the requests and the faults."""
        self._control("POST", "/__requests/reset")

    def inject(self, *faults: Fault) -> None:
        """From now on these faults and no others; the first that matches applies."""
        self._control("POST", "/__faults", json.dumps([asdict(fault) for fault in faults]))

    @contextmanager
    def in_rounds(self, client: int | None = None) -> Iterator[None]:
        """Requests wait until the client, a process (by default this one), waits for answers only. Then all of them are
        answered: a round. The number of rounds is that of requests which the client sends in sequence, as with a store
        that takes long for each. It does not depend on how fast anything is. Needs Linux.
        """
        self._control("POST", "/__rounds", json.dumps(os.getpid() if client is None else client))
        try:
            yield
        finally:
            self._control("POST", "/__rounds", "null")

    def _control(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(urlsplit(self.endpoint_url).netloc, timeout=30)
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} answered {answer.status}: {content[:500]!r}")
        return content


@dataclass(frozen=True, slots=True)
class S3Server(Server):
    def client(self, **options: Any) -> Any:
        """Of boto3."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            region_name=self.env["AWS_DEFAULT_REGION"],
            **options,
        )

    def create_bucket(self, name: str) -> None:
        self.client().create_bucket(Bucket=name)

    def create_objects(self, url: str, paths: Sequence[str]) -> None:
        """Empty objects, relative to `url`, by one call of moto: as requests, thousands of them take seconds."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._control("POST", "/__objects", json.dumps({"bucket": bucket, "keys": [f"{prefix}/{it}" for it in paths]}))


@dataclass(frozen=True, slots=True)
class AzureServer(Server):
    connection_string: str
    account_name: str
    account_key: str

    def end_copies(self, *, after_looks: int = 0) -> None:
        """Copies that are pending, now or later, succeed after so many looks at each."""
        self._control("POST", "/__copies/end", json.dumps(after_looks))

    def create_container(self, name: str) -> None:
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            client.create_container(name)


@dataclass(frozen=True, slots=True)
class GcsServer(Server):
    def create_bucket(self, name: str) -> None:
        self._control("POST", "/storage/v1/b", json.dumps({"name": name}))


@contextmanager
def moto_server() -> Iterator[S3Server]:
    key, secret = "test-key", "test-secret"
    with _front("s3", {}) as port:
        endpoint = f"http://127.0.0.1:{port}"
        env = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield S3Server(endpoint, {"endpoint_url": endpoint, "key": key, "secret": secret}, env)


@contextmanager
def azurite_server() -> Iterator[AzureServer]:
    account, key = "dbiotest", b64encode(secrets.token_bytes(64)).decode()
    with _front("azure", {"AZURITE_ACCOUNTS": f"{account}:{key}"}) as port:
        endpoint = f"http://127.0.0.1:{port}"
        connection_string = (
            f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};BlobEndpoint={endpoint}/{account};"
        )
        env = {"AZURE_STORAGE_CONNECTION_STRING": connection_string}
        yield AzureServer(endpoint, {"connection_string": connection_string}, env, connection_string, account, key)


@contextmanager
def fake_gcs_server() -> Iterator[GcsServer]:
    with _front("gcs", {}) as port:
        endpoint = f"http://127.0.0.1:{port}"
        env = {
            "STORAGE_EMULATOR_HOST": endpoint,
            # google-auth would look for the metadata of a machine of Google's, for seconds.
            "NO_GCE_CHECK": "true",
            # gcsfs itself would ask for the kind of a bucket by gRPC, which nobody answers, for a minute.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }
        yield GcsServer(endpoint, {"endpoint_url": endpoint, "token": "anon"}, env)


@contextmanager
def _front(service: str, env: dict[str, str]) -> Iterator[int]:
    """Runs front.py; its stdin is its lifeline: the kernel closes it when this process dies."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("front.py")), service],
            cwd=directory,
            env=os.environ | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for the tests, which still need their server to clean up
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], 60)
            port = process.stdout.readline() if ready else b""
            if not port:
                errors.seek(0)
                said = errors.read().decode(errors="replace")[-2000:]
                raise RuntimeError(
                    f"The {service} test server did not start; `make setup` installs it. It said: {said}"
                )
            yield int(port)
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
