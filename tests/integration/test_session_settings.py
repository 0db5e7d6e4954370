"""Settings of a session, as the store's server sees them. What they mean: tests/unit/spark/session/test_hadoop.py."""

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import dbio_commit as dbio
from dbio_commit.spark.functions import with_settings
from dbio_commit.spark.session.conf import StoreSettings
from dbio_commit.spark.write.task import map_in_arrow
from dbio_commit.store.fsspec_store import UPLOAD_BYTES, FsspecStore
from tests.conftest import Root
from tests.servers import GcsServer, Request, S3Server
from tests.spark_tables import SPARK_ERRORS, configured, ids, numbers


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
            path = transaction.new_file().removeprefix(f"{table.url}/")
            with table.store.open_write(path) as stream:
                stream.write(parquet(size))
    return table


def parquet(size: int) -> bytes:
    """A file of at least this size."""
    stream = pa.BufferOutputStream()
    table = pa.table({"data": [bytes(size)]})
    pq.write_table(table, stream, compression="none", use_dictionary=False, write_statistics=False)
    return stream.getvalue().to_pybytes()


def created(server: S3Server) -> list[Request]:
    """The requests that say how an object is to be stored: a PUT of the whole, or the begin of several."""
    requests = server.requests()
    whole = [it for it in requests if it.method == "PUT" and "partNumber" not in it.query]
    begun = [it for it in requests if it.method == "POST" and "uploads" in it.query]
    kinds = {re.sub(r"[_-].*", "", it.path.rpartition("/")[2].strip("_")) for it in whole}
    assert kinds == {"dbio", "started", "serial", "committed", "part"}
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


def test_messages_show_the_encryption_and_no_secret(settings: dict[str, str]) -> None:
    proxy = {"fs.s3a.proxy.host": "proxy", "fs.s3a.proxy.username": "me", "fs.s3a.proxy.password": "proxy-p@ss"}
    kms = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:aws:kms:key"}
    store = StoreSettings(settings | proxy | kms).open_table("s3://tables/t")[0].store
    assert isinstance(store, FsspecStore)
    said = "AccessDenied: aws:kms arn:aws:kms:key by http://me:proxy-p%40ss@proxy:443 with test-secret"
    assert store.redact(said) == "AccessDenied: aws:kms arn:aws:kms:key by http://***@proxy:443 with ***"


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


def test_requests_to_google_go_through_the_sessions_proxy(gcs_server: GcsServer, gcs_root: Root) -> None:
    with forward_proxy() as (port, asked):
        settings = {
            "fs.gs.storage.root.url": gcs_server.endpoint_url,
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.proxy.address": f"127.0.0.1:{port}",
            "fs.gs.proxy.username": "me",
            "fs.gs.proxy.password": "p@ss",
        }
        assert len(write_all_kinds(gcs_root, settings).snapshot().files) == 2
    assert len(asked) == len(gcs_server.requests()) > 5
    assert {told for _, told in asked} == {"Basic bWU6cEBzcw=="}


# --- what is pickled ----------------------------------------------------------------------------------------------

PICKLER: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # as Spark does
OTHERS = {
    "fs.s3a.bucket.other.access.key": "OtherBucketsKey",
    "fs.s3a.bucket.other.secret.key": "OtherBucketsSecret",
    "fs.s3a.bucket.tables.and.more.secret.key": "OtherBucketsSecret",
    "fs.azure.account.key.account.dfs.core.windows.net": "AzureAccountKey",
    "fs.gs.auth.refresh.token": "GooglesToken",
    "fs.s3a.proxy.password": "UnusedWithoutAProxy",
}


def test_what_is_pickled_for_a_path_holds_the_secrets_of_its_own_bucket_only(
    s3_root: Root, settings: dict[str, str]
) -> None:
    from pyspark.sql.datasource import CaseInsensitiveDict

    from dbio_commit.spark.datasource import DbioDataSource

    own = {**settings, "fs.s3a.secret.key": "replaced", "fs.s3a.bucket.tables.secret.key": "own-secret"}
    source = with_settings(DbioDataSource, StoreSettings({**own, **OTHERS}))
    schema = StructType([StructField("id", LongType())])
    planned = source(CaseInsensitiveDict({"path": s3_root.url}))
    writer = sent(planned).writer(schema, overwrite=False)
    sent(writer).commit([])
    reader = sent(sent(planned)).reader(schema)
    assert len(sent(reader).partitions()) == 1
    sent(map_in_arrow(sent(writer)._spec))
    local = source(CaseInsensitiveDict({"path": "/data/t"}))
    assert not any(secret in PICKLER.dumps(local) for secret in (b"own-secret", b"test-key"))


def sent(thing: Any) -> Any:
    """As it arrives in another process; with no secret in it but its own."""
    pickled = PICKLER.dumps(thing)
    assert b"own-secret" in pickled
    found = [secret for secret in {*OTHERS.values(), "replaced"} if secret.encode() in pickled]
    assert found == [], type(thing)
    return pickle.loads(pickled)


# --- through a session --------------------------------------------------------------------------------------------


@contextmanager
def session_with(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Which the data source is given up again, too."""
    try:
        with configured(spark, settings):
            yield
    finally:
        dbio.enable(spark)


def credential_store(spark: SparkSession, path: Path, **secrets: str) -> str:
    """As `hadoop credential create` makes one; returns its URL."""
    url = f"jceks://file{path}"
    hadoop = spark.sparkContext._jvm.org.apache.hadoop  # type: ignore[union-attr]
    for name, value in secrets.items():
        command = ["create", name, "-value", value, "-provider", url]
        arguments = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, len(command))  # type: ignore
        for i, argument in enumerate(command):
            arguments[i] = argument
        shell = hadoop.security.alias.CredentialShell()
        assert hadoop.util.ToolRunner.run(hadoop.conf.Configuration(), shell, arguments) == 0
    return url


def write_both_ways(spark: SparkSession, url: str) -> list[int]:
    dbio.enable(spark)
    dbio.write(numbers(spark, 0, 2), url)
    numbers(spark, 2, 4).write.format("dbio").mode("append").save(url)
    assert ids(spark.read.format("dbio").load(url)) == [0, 1, 2, 3]
    return ids(dbio.read(spark, url))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")
@pytest.mark.parametrize("setting", ["hadoop", "fs.s3a", "fs.s3a.bucket.tables"])
def test_keys_come_from_hadoops_credential_stores_and_what_is_written_is_encrypted(
    spark: SparkSession, s3_server: S3Server, s3_root: Root, tmp_path: Path, setting: str
) -> None:
    options = s3_server.storage_options
    secrets = {"fs.s3a.access.key": options["key"], "fs.s3a.bucket.tables.secret.key": options["secret"]}
    secrets |= {"fs.s3a.encryption.key": "arn:aws:kms:k"}
    own = {
        f"{setting}.security.credential.provider.path": credential_store(spark, tmp_path / "keys.jceks", **secrets),
        "fs.s3a.endpoint": options["endpoint_url"],
        "fs.s3a.path.style.access": "True",
        "fs.s3a.secret.key": "in clear text, and wrong",
        "fs.s3a.encryption.algorithm": "SSE-KMS",
    }
    with session_with(spark, own):
        assert write_both_ways(spark, s3_root.url) == [0, 1, 2, 3]
    puts = [it for it in s3_server.requests() if it.method == "PUT"]
    assert len(puts) > 6
    assert {it.headers.get("x-amz-server-side-encryption-aws-kms-key-id") for it in puts} == {"arn:aws:kms:k"}


def test_a_credential_store_that_cannot_be_read_is_named_where_its_keys_are_needed(
    spark: SparkSession, s3_root: Root, azure_root: Root, tmp_path: Path
) -> None:
    (tmp_path / "keys.jceks").write_text("no keystore")
    setting = "fs.s3a.security.credential.provider.path"
    with session_with(spark, {setting: f"jceks://file{tmp_path}/keys.jceks"}):
        with pytest.raises(dbio.AccessDeniedError, match=f"credential store that {setting} names: .*keystore format"):
            dbio.write(numbers(spark, 0, 2), s3_root.url)
        for url, options in (s3_root, azure_root, Root(str(tmp_path / "t"), {})):
            dbio.write(numbers(spark, 0, 2), url, storage_options=options)
        dbio.enable(spark)  # the source is for all stores
        frame = numbers(spark, 2, 4).write.format("dbio").mode("append")
        frame.save(str(tmp_path / "t"))
        with pytest.raises(SPARK_ERRORS, match=f"credential store that {setting} names"):
            frame.save(s3_root.url)
        encrypted = session_with(spark, {"fs.s3a.encryption.algorithm": "SSE-KMS"})  # whose key may lie there
        with encrypted, pytest.raises(dbio.AccessDeniedError, match=setting):
            dbio.write(numbers(spark, 0, 2), s3_root.url, storage_options=s3_root.storage_options)


def test_an_encryption_that_cannot_be_honoured_is_refused_and_nothing_is_written(
    spark: SparkSession, s3_server: S3Server, s3_root: Root, settings: dict[str, str]
) -> None:
    with session_with(spark, settings | {"fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.encryption.key": "eHh4eHh4"}):
        dbio.enable(spark)
        for action in (
            lambda: dbio.write(numbers(spark, 0, 2), s3_root.url),
            lambda: dbio.write(numbers(spark, 0, 2), s3_root.url, storage_options=s3_root.storage_options),
            lambda: numbers(spark, 0, 2).write.format("dbio").mode("append").save(s3_root.url),
        ):
            with pytest.raises((*SPARK_ERRORS, dbio.InvalidInputError), match="SSE-C") as caught:
                action()
            assert "eHh4eHh4" not in str(caught.value)
    assert s3_server.requests() == []


def test_a_setting_that_is_not_honoured_is_a_warning(
    spark: SparkSession, s3_root: Root, settings: dict[str, str]
) -> None:
    with session_with(
        spark, settings | {"fs.s3a.aws.credentials.provider": "com.acme.Vault, SimpleAWSCredentialsProvider"}
    ):
        with pytest.warns(UserWarning, match=r"fs\.s3a\.aws\.credentials\.provider: com\.acme\.Vault") as caught:
            dbio.write(numbers(spark, 0, 2), s3_root.url)
        assert [it.filename for it in caught if issubclass(it.category, UserWarning)] == [__file__]


@pytest.mark.parametrize("app", ["nightly", ("nightly", "1"), ("nightly",), ("nightly", -1)])
def test_an_application_that_is_none_is_refused_also_where_there_is_a_table(
    spark: SparkSession, tmp_path: Path, app: Any
) -> None:
    dbio.write(numbers(spark, 0, 2), tmp_path / "t")
    with pytest.raises(dbio.InvalidInputError, match="app="):
        dbio.write(numbers(spark, 0, 2), tmp_path / "t", app=app)
