"""Azure copies blobs within a storage account by itself. A copy may be pending after its request, and is not whole yet.

Azurite has no pending copies: the front before it makes them so (`front._PendingCopies`). Rules: NOTES.md, Copies.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import StoreError
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.incremental_copy import update_copy
from dbio_commit.store import open_store, parse_location
from dbio_commit.store.azure import AzureStore
from dbio_commit.store.copying import copy_object
from dbio_commit.table import Table
from tests.contract.places import Place
from tests.faults import Killed
from tests.servers import AzureServer, Fault, Request
from tests.writers import contents, write

pytestmark = pytest.mark.server

BODY = b"rows" * 1000


@pytest.fixture
def source(azure: Place) -> AzureStore:
    """With one blob, a.parquet."""
    store = azure.open("/table")
    store.put_if_absent("a.parquet", BODY)
    assert isinstance(store, AzureStore)
    return store


@pytest.fixture
def target(azure: Place) -> AzureStore:
    store = azure.open("/copy")
    assert isinstance(store, AzureStore)
    return store


def pending(path: str = "/copy/") -> Fault:
    return Fault(method="PUT", path=path, kind="pending", times=100)


def uploads(server: AzureServer) -> list[Request]:
    """The requests that brought bytes of data files to the copy."""
    return [
        it
        for it in server.requests()
        if it.method == "PUT"
        and it.path.endswith(".parquet")
        and "/copy/" in it.path
        and int(it.headers.get("content-length", 0))
    ]


def looks(server: AzureServer) -> int:
    return len([it for it in server.requests() if it.method == "HEAD" and it.path.endswith("/copy/b.parquet")])


def test_a_copy_from_another_container_of_the_account_is_made_by_the_service(
    azure: Place, azure_server: AzureServer, target: AzureStore
) -> None:
    azure_server.create_container("another")
    source = open_store(parse_location("az://another/table"), azure.storage_options)
    source.put_if_absent("a.parquet", BODY)
    assert target.copy_from(source, "a.parquet", "b.parquet")
    assert target.get("b.parquet") == BODY
    assert not uploads(azure_server)


def test_a_pending_copy_is_waited_for(azure_server: AzureServer, source: AzureStore, target: AzureStore) -> None:
    azure_server.inject(pending())
    azure_server.end_copies(after_looks=3)
    assert target.copy_from(source, "a.parquet", "b.parquet")
    assert looks(azure_server) >= 3
    assert target.get("b.parquet") == BODY
    assert not target.unfinished_copies()
    assert not uploads(azure_server)


def test_a_copy_that_stands_still_is_aborted_and_the_bytes_are_copied(
    azure_server: AzureServer,
    source: AzureStore,
    target: AzureStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("dbio_commit.store.azure.STALLED_S", 0.2)
    azure_server.inject(pending())
    for copy in ("b.parquet", "c.parquet"):
        copy_object(source, "a.parquet", target, copy)
        assert target.get(copy) == BODY
    asked = [it.path for it in azure_server.requests() if "x-ms-copy-source" in it.headers]
    assert len(asked) == 1, "the service is not asked again"
    assert [it.query["comp"] for it in azure_server.requests() if "copyid" in it.query] == ["copy"]
    (warning,) = [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]
    assert "stood still" in warning
    assert azure_server.account_key not in caplog.text
    assert not target.unfinished_copies()


def test_nothing_is_left_of_a_copy_that_was_aborted(
    azure_server: AzureServer, source: AzureStore, target: AzureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbio_commit.store.azure.STALLED_S", 0.2)
    azure_server.inject(pending())
    assert not target.copy_from(source, "a.parquet", "b.parquet")
    assert target.list_files() == []


def test_a_copy_that_ends_while_it_is_aborted_stays(
    azure_server: AzureServer, source: AzureStore, target: AzureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have found it whole."""
    monkeypatch.setattr("dbio_commit.store.azure.STALLED_S", 0.2)
    azure_server.inject(pending())

    async def too_late(blob: Any, copy_id: str) -> None:
        azure_server.end_copies()
        raise OSError("it stood still")

    with patch("dbio_commit.store.azure._wait", side_effect=too_late):
        assert target.copy_from(source, "a.parquet", "b.parquet")
    assert target.get("b.parquet") == BODY


def test_a_copy_whose_answer_was_lost_is_found(
    azure_server: AzureServer, source: AzureStore, target: AzureStore
) -> None:
    azure_server.inject(Fault(method="PUT", path="/copy/b.parquet", kind="lost-answer"))
    retries = target.fs.service_client._config.retry_policy
    retries.initial_backoff = retries.increment_base = retries.random_jitter_range = 0
    assert target.copy_from(source, "a.parquet", "b.parquet")
    assert [it.status for it in azure_server.requests() if "x-ms-copy-source" in it.headers] == [500, 409]
    assert target.get("b.parquet") == BODY


def test_the_service_replaces_no_blob(azure_server: AzureServer, source: AzureStore, target: AzureStore) -> None:
    """A whole file does not become a pending one because a process that was taken for dead goes on."""
    target.put_if_absent("b.parquet", b"whole")
    azure_server.inject(pending())
    assert not target.copy_from(source, "a.parquet", "b.parquet")
    assert target.get("b.parquet") == b"whole"
    source.put_if_absent("other.parquet", b"other")
    leave_pending(source, target, "other.parquet", "c.parquet")
    copy_object(source, "a.parquet", target, "c.parquet")
    assert target.get("c.parquet") == BODY


def test_without_the_right_to_read_the_source_the_bytes_are_copied(
    azure_server: AzureServer, source: AzureStore, target: AzureStore, caplog: pytest.LogCaptureFixture
) -> None:
    azure_server.inject(Fault(method="PUT", path="/copy/b.parquet", kind="403"))
    copy_object(source, "a.parquet", target, "b.parquet")
    assert target.get("b.parquet") == BODY
    assert "all bytes pass through this process" in caplog.text


def leave_pending(source: AzureStore, target: AzureStore, path: str, copy: str) -> None:
    """Begins a copy as a process does that is killed then."""
    target._on_loop(lambda: target._blob(copy).start_copy_from_url(source._blob(path).url))


def test_a_blob_with_a_pending_copy_is_deleted(
    azure_server: AzureServer, source: AzureStore, target: AzureStore
) -> None:
    azure_server.inject(pending())
    leave_pending(source, target, "a.parquet", "b.parquet")
    assert target.unfinished_copies() == {"b.parquet"}
    assert not target.delete_many(["b.parquet"])
    assert target.list_files() == []


Copy = Callable[[Table, AzureStore], Any]

COPIES: dict[str, Copy] = {
    "with its history": lambda table, target: copy_table(table.store, target, table.clock),
    "incremental": lambda table, target: update_copy(table.store, target, table.clock),
}


@pytest.mark.long_for("aborted", "incremental-success")
@pytest.mark.parametrize("then", ["pending", "aborted", "success"])
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_that_is_killed_while_the_service_copies_is_resumed_whole(
    azure: Place, azure_server: AzureServer, target: AzureStore, how: str, then: str
) -> None:
    """The pending blob has the size of a whole one."""
    table = Table.over(azure.open("/table"))
    write(table, bodies=[b"body %d" % number for number in range(3)])
    azure_server.inject(pending())
    lock, whole = threading.Lock(), list[str]()

    def copy_within(self: AzureStore, source: AzureStore, path: str, copy: str) -> bool:
        with lock:
            leave_pending(source, self, path, copy)
            if len(whole) == 2:
                raise Killed
            whole.append(copy)
            azure_server.end_copies()
            azure_server.end_copies(after_looks=1000)
            return True

    with patch.object(AzureStore, "copy_within", copy_within), pytest.raises(Killed):
        COPIES[how](table, target)
    (left,) = target.unfinished_copies()
    assert target.stat(left).size == len(b"body 0")
    if then == "success":
        azure_server.end_copies()
    elif then == "aborted":
        properties = target._on_loop(lambda: target._blob(left).get_blob_properties())
        target._on_loop(lambda: target._blob(left).abort_copy(properties.copy.id))
    azure_server.inject()
    report = COPIES[how](table, target)
    resumed = 3 if then == "success" else 2
    assert (report.resumed_files, report.copied_files) == (resumed, 3 - resumed)
    copy = Table.over(target)
    assert not {file.path for file in copy.snapshot().files} & {*target.unfinished_copies()}
    assert contents(copy) == contents(table) == [b"body 0", b"body 1", b"body 2"]
    assert copy.check().ok


def test_a_signature_is_not_given_to_the_service(caplog: pytest.LogCaptureFixture) -> None:
    options = {"account_name": "lake", "sas_token": "sv=2024-01-01&sig=c2VjcmV0LXNpZ25hdHVyZQ%3D%3D"}
    source, target = (AzureStore(parse_location(f"az://tables/{name}"), options) for name in ("table", "copy"))
    with pytest.raises(StoreError, match="give an account key"):
        target.copy_within(source, "a.parquet", "b.parquet")
    assert not target.copy_from(source, "a.parquet", "b.parquet")
    assert "all bytes pass through this process" in caplog.text
    assert "c2VjcmV0" not in caplog.text
