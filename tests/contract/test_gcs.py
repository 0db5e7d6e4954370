"""What Google Cloud Storage alone has: bulk deletion in parts, generations, contents that are decompressed, payers."""

import gzip
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientError
from gcsfs.retry import HttpError
from google.auth import exceptions

from dbio_commit.base.errors import AccessDeniedError, CorruptMarkerError, ObjectNotFoundError, StoreError
from dbio_commit.store import Store
from dbio_commit.store.fsspec_store import UPLOAD_BYTES, FsspecStore
from dbio_commit.store.gcs import parse_deleted
from tests.contract.places import Place
from tests.servers import Fault, GcsServer

BODY = b"x" * (UPLOAD_BYTES + 1)


@pytest.fixture
def store(gcs: Place) -> Store:
    return gcs.open()


# --- creating -----------------------------------------------------------------------------------------------------


def test_a_put_that_is_too_much_for_the_service_is_repeated(store: Store, gcs_server: GcsServer) -> None:
    """It takes one change of an object a second, also of one that many try to create."""
    gcs_server.inject(Fault(method="POST", path="_marker", kind="429", times=2))
    assert store.put_if_absent("_marker", b"x") is True
    assert [request.status for request in gcs_server.requests()] == [429, 429, 200]


def test_every_try_of_a_put_has_the_condition(store: Store, gcs_server: GcsServer) -> None:
    gcs_server.inject(Fault(method="POST", path="_marker", kind="lost-answer", times=2))
    assert store.put_if_absent("_marker", b"x") is False
    assert [request.query["ifGenerationMatch"] for request in gcs_server.requests()] == ["0"] * 3


def test_a_block_of_a_large_file_that_the_service_refused_is_sent_again(store: Store, gcs_server: GcsServer) -> None:
    gcs_server.inject(Fault(method="POST", path="upload_id", kind="503"))
    with store.open_write("part-0") as file:
        file.write(BODY)
        file.write(b"y")
    assert store.get("part-0", limit_bytes=len(BODY) + 1) == BODY + b"y"
    sent = [(request.status, "upload_id" in request.query) for request in gcs_server.requests()]
    assert sent[:4] == [(200, False), (503, True), (308, True), (200, True)]


def test_a_large_file_is_not_there_before_it_is_closed(store: Store) -> None:
    with store.open_write("part-0") as file:
        file.write(BODY)
        assert store.list_files() == []
    assert [entry.size for entry in store.list_files()] == [len(BODY)]


def test_a_session_that_is_gone_is_no_object_that_is_not_there(store: Store) -> None:
    assert isinstance(store, FsspecStore)
    file: Any = store.open_write("part-0")
    file.write(BODY)
    file._stream.location = file._stream.location.replace("upload_id=", "upload_id=none")
    with pytest.raises(StoreError, match="try again") as failure:
        file.write(BODY)
    assert type(failure.value) is StoreError
    with pytest.raises(StoreError):
        file.close()
    assert store.list_files() == []


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.fixture
def compressed(store: Store) -> bytes:
    """The content of the object "_marker", which the service would decompress for whoever takes no compressed one."""
    body = gzip.compress(bytes(10_000_000))
    assert isinstance(store, FsspecStore)
    store.fs.pipe_file(store.location("_marker"), body, fixed_key_metadata={"content_encoding": "gzip"})
    return body


def test_what_is_stored_compressed_is_read_as_it_is_stored(store: Store, compressed: bytes) -> None:
    assert store.get("_marker") == compressed
    assert store.stat("_marker").size == len(compressed)
    assert store.get_range("_marker", 3, 5) == compressed[3:8]
    with store.open_read("_marker") as file:
        assert file.read() == compressed


def test_what_is_stored_compressed_takes_no_more_memory_than_the_limit(store: Store, compressed: bytes) -> None:
    with pytest.raises(CorruptMarkerError, match="_marker has more than 1000 bytes"):
        store.get("_marker", limit_bytes=1000)


def test_a_service_that_knows_no_ranges_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would send all of an object, however large it is."""
    assert isinstance(store, FsspecStore)
    store.put_if_absent("_marker", b"0123456789")
    headers = type(store.fs)._get_headers

    def without_range(self: Any, given: Any, **options: Any) -> Any:
        return {name: value for name, value in headers(self, given, **options).items() if name != "Range"}

    monkeypatch.setattr(type(store.fs), "_get_headers", without_range)
    with pytest.raises(StoreError, match="it has no ranges"):
        store.get("_marker")


def test_a_range_behind_the_end_is_empty(store: Store) -> None:
    store.put_if_absent("_marker", b"0123456789")
    assert [store.get_some("_marker", start, 4) for start in (8, 10, 11)] == [b"89", b"", b""]
    assert store.get_range("_marker", 3, 0) == b""


def test_a_stream_asks_once_for_a_large_piece_and_once_for_small_neighbours(
    store: Store, gcs_server: GcsServer
) -> None:
    body = bytes(range(256)) * 40_000
    store.put_if_absent("part-0", body)
    with store.open_read("part-0") as file:
        gcs_server.reset()
        file.seek(-8, 2)
        assert [file.read(3), file.read(5), file.read(1), file.read()] == [body[-8:-5], body[-5:], b"", b""]
        assert len(gcs_server.requests()) == 1
        file.seek(7)
        assert file.read(5_000_001) == body[7:5_000_008]
        assert len(gcs_server.requests()) == 2
        for start in (9_000_000, 9_000_100, 9_000_050):
            file.seek(start)
            assert file.read(100) == body[start : start + 100]
        assert len(gcs_server.requests()) == 3
        file.seek(len(body) + 5)
        assert file.read(10) == b""
        file.seek(0)
        assert file.read() == body
        assert len(gcs_server.requests()) == 4


def test_a_stream_reads_one_generation_or_nothing(store: Store) -> None:
    store.replace("part-0", b"first")
    with store.open_read("part-0") as file:
        store.replace("part-0", b"second")
        with pytest.raises(ObjectNotFoundError, match="part-0"):
            file.read()


def test_a_change_of_metadata_is_none_of_the_time(store: Store) -> None:
    assert isinstance(store, FsspecStore)
    store.put_if_absent("_marker", b"x")
    before = store.stat("_marker")
    store.fs.setxattrs(store.location("_marker"), reviewed="yes")
    assert store.fs.info(store.location("_marker"))["metadata"] == {"reviewed": "yes"}
    assert store.stat("_marker") == before
    assert store.list_log() == [before]


@pytest.mark.parametrize("look", [lambda store: store.get("_1"), lambda store: store.stat("_1")], ids=["get", "stat"])
def test_what_is_not_there_is_not_found_where_the_service_refuses_to_say_so(
    store: Store, gcs_server: GcsServer, look: Any
) -> None:
    store.put_if_absent("_12", b"")
    gcs_server.inject(Fault(method="GET", path="/o/.*_1", kind="403", times=10))
    with pytest.raises(ObjectNotFoundError, match="no listing shows it"):
        look(store)
    store.put_if_absent("_1", b"")
    with pytest.raises(AccessDeniedError):
        look(store)


def test_a_page_that_comes_again_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(store, FsspecStore)
    asked = 0

    async def again(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 10, "it goes on"
        return {"items": [], "nextPageToken": "same"}

    monkeypatch.setattr(store.fs, "_call", again)
    with pytest.raises(StoreError, match="the same page"):
        store.list_files()


# --- deleting -----------------------------------------------------------------------------------------------------

PARTS = b"""\r
--batch_x\r
Content-Type: application/http\r
Content-ID: <response-dbio+2>\r
\r
HTTP/1.1 204 No Content\r
Content-Length: 0\r
\r
\r
--batch_x\r
Content-Type: application/http\r
Content-ID: <response-dbio+0>\r
\r
HTTP/1.1 404 Not Found\r
Content-Type: application/json\r
\r
{"error": {"code": 404, "message": "No such object: tables/t/204"}}\r
--batch_x\r
Content-Type: application/http\r
Content-ID: <response-dbio+1>\r
\r
HTTP/1.1 404 Not Found\r
Content-Type: application/json\r
\r
{"error": {"code": 404, "message": "The specified bucket does not exist."}}\r
--batch_x\r
Content-Type: application/http\r
Content-ID: <response-dbio+3>\r
\r
HTTP/1.1 403 Forbidden\r
\r
{"error": {"code": 403, "message": "204 is not yours"}}\r
--batch_x\r
Content-Type: application/http\r
Content-ID: <response-dbio+4>\r
\r
HTTP/1.1 503 Service Unavailable\r
\r
\r
--batch_x\r
Content-Type: application/http\r
\r
HTTP/1.1 204 No Content\r
\r
\r
--batch_x--\r
"""


def test_only_what_an_answer_says_by_number_to_be_gone_is_gone() -> None:
    assert parse_deleted("multipart/mixed; boundary=batch_x", PARTS) == {0, 2}
    assert parse_deleted("multipart/mixed; boundary=other", PARTS) == set()
    assert parse_deleted("text/html", b"<p>204</p>") == set()
    assert parse_deleted("multipart/mixed; boundary=batch_x", PARTS[:400]) <= {0, 2}
    assert parse_deleted("multipart/mixed; boundary=batch_x", b"") == set()


def test_what_a_batch_left_is_asked_for_singly(
    store: Store, gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a", "b", "c", "kept"):
        store.put_if_absent(path, b"")
    monkeypatch.setattr("dbio_commit.store.gcs.parse_deleted", lambda *_: {0})
    gcs_server.reset()
    gcs_server.inject(Fault(method="DELETE", path="/c$", kind="403", times=10))
    failures = store.delete_many(["a", "b", "c"])
    assert {path: type(error) for path, error in failures.items()} == {"c": AccessDeniedError}
    assert sorted(request.method for request in gcs_server.requests()) == ["DELETE", "DELETE", "POST"]
    assert [entry.path for entry in store.list_files()] == ["kept"]


# --- who pays -----------------------------------------------------------------------------------------------------


def test_every_request_names_the_project_that_pays(gcs: Place, gcs_server: GcsServer) -> None:
    store = gcs.open(requester_pays="our-project")
    gcs_server.reset()
    store.put_if_absent("_marker", b"x")
    with store.open_write("part-0") as file:
        file.write(BODY)
    store.list_log()
    store.list_files()
    store.get("_marker")
    store.stat("_marker")
    with store.open_read("part-0") as stream:
        stream.read(1)
    store.delete_many(["part-0"])
    store.delete_many(["_marker", "missing"])
    requests = gcs_server.requests()
    assert len(requests) == 12
    assert {request.query.get("userProject") for request in requests} == {"our-project"}


# --- as whom it asks, and where -------------------------------------------------------------------------------------


def test_a_key_file_that_is_not_there_is_access_denied_and_its_path_is_no_token(
    gcs: Place, gcs_server: GcsServer
) -> None:
    with pytest.raises(AccessDeniedError, match="no such key file"):
        gcs.open(token="/nonexistent/key.json").list_log()
    assert gcs_server.requests() == []


def test_who_may_not_is_told_so_by_every_kind_of_refusal(gcs: Place) -> None:
    store = gcs.open()
    assert isinstance(store, FsspecStore)
    google: Any = exceptions
    for error in (google.DefaultCredentialsError(), google.RefreshError(), HttpError({"code": 401}), PermissionError()):
        assert isinstance(store.translate(error, "read", "_marker"), AccessDeniedError)
    for error in (google.TransportError(), HttpError({"code": 400}), ClientError(), TimeoutError()):
        assert type(store.translate(error, "read", "_marker")) is StoreError
    assert store.translate(KeyError("ours"), "read", "_marker") is None


def test_the_endpoint_is_that_of_the_options_or_else_of_the_environment(
    gcs: Place, gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", urlsplit(gcs_server.endpoint_url).netloc)
    store = Place("gcs", gcs.url, {"token": "anon"}).open()
    assert store.put_if_absent("_marker", b"x") is True
    assert store.identity == gcs.open().identity
