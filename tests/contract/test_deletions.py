"""Deleting by batches: what it costs, what a busy service makes of it, and what could not be deleted."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from azure.storage.blob import BlobServiceClient

from dbio_commit.base.errors import AccessDeniedError, StoreError
from dbio_commit.store import Store
from dbio_commit.store.contract import BATCHES
from tests.contract.amazon import Amazon, amazon
from tests.contract.places import CREATE, Fill, Place
from tests.contract.test_failures import FEW_RETRIES, impatient
from tests.servers import AzureServer, Fault, S3Server, Server


def create(store: Store, *paths: str) -> None:
    assert all(store.in_parallel(lambda path: store.put_if_absent(path, b""), paths))


def left(store: Store) -> list[str]:
    return sorted(entry.path for entry in store.list_files())


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the store waited before it asked again, without the waiting."""
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    return pauses


# --- batches ------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("azure", "gcs")
def test_2500_objects_in_nested_directories_are_deleted_by_batches(
    place: Place, fill: Fill, request: pytest.FixtureRequest
) -> None:
    server: Server | None = request.getfixturevalue(f"{place.kind}_server") if place.kind in CREATE else None
    store = place.open()
    paths = [f"a={number % 5}/b={number % 25}/part {number}+%2F é" for number in range(2500)]
    fill(store, ["a=0/kept", *paths])
    if server:
        server.reset()
    assert store.delete_many(paths) == {}
    if server:
        methods = [request.method for request in server.requests()]
        batches = -(-2500 // store.delete_batch)
        assert set(methods) == {"POST"}
        assert batches <= len(methods) <= 5 * batches  # on a busy machine the client asks again after a time-out
    assert left(store) == ["a=0/kept"]


def test_a_batch_is_as_large_as_the_service_allows(place: Place) -> None:
    assert place.open().delete_batch == {"azure": 256, "gcs": 100}.get(place.kind, 1000)


def test_a_batch_in_which_nothing_is_there_counts_as_deleted(remote: Place, server: Server) -> None:
    assert remote.open().delete_many(["missing", "missing/too", "a b%2F"]) == {}
    assert [request.method for request in server.requests()] == ["POST"]


def test_the_failures_of_all_batches_are_returned(store: Store) -> None:
    batches: list[int] = []

    def delete(paths: Any) -> dict[str, StoreError]:
        batches.append(len(paths))
        return {path: StoreError(path) for path in paths if path.endswith("7")}

    paths = [str(number) for number in range(3 * BATCHES * store.delete_batch + 8)]
    assert list(store.in_batches(delete, paths)) == [path for path in paths if path.endswith("7")]
    assert sorted(batches) == [8] + [store.delete_batch] * 3 * BATCHES


def test_a_deletion_whose_answer_was_lost_is_repeated(remote: Place, server: Server) -> None:
    store = remote.open()
    create(store, "a", "b", "kept")
    server.inject(Fault(method="POST", path="delete|batch", kind="lost-answer"))
    assert store.delete_many(["a", "b"]) == {}
    deletions = [it for it in server.requests() if it.method == "POST" and re.search("delete|batch", str(it))]
    assert [request.fault for request in deletions] == ["lost-answer", None]
    assert left(store) == ["kept"]


@pytest.mark.parametrize("kind", ["501", "403"])
def test_where_a_request_for_many_is_refused_they_are_deleted_one_by_one(
    remote: Place, server: Server, kind: Literal["403", "501"]
) -> None:
    store = remote.open()
    create(store, "a", "b", "c", "kept")
    server.inject(Fault(method="POST", path="delete|batch", kind=kind, times=10_000))
    assert store.delete_many(["a", "b", "c", "missing"]) == {}
    assert left(store) == ["kept"]


def test_where_one_is_refused_as_well_the_others_are_not_asked_for(remote: Place, server: Server) -> None:
    store = remote.open()
    create(store, *map(str, range(20)))
    server.reset()
    server.inject(
        Fault(method="POST", path="delete|batch", kind="403", times=10_000),
        Fault(method="DELETE", path="", kind="403", times=10_000),
    )
    failures = store.delete_many([*map(str, range(20))])
    assert {type(error) for error in failures.values()} == {AccessDeniedError}
    assert len(failures) == 20
    assert sum(request.method == "DELETE" for request in server.requests()) == 2


# --- a busy service -----------------------------------------------------------------------------------------------


def test_a_busy_service_is_asked_again_until_it_deletes(s3: Place, s3_server: S3Server, pauses: list[float]) -> None:
    store = impatient(s3)
    create(store, "a", "b", "kept")
    s3_server.inject(Fault(method="POST", path="delete", kind="503", times=5))  # s3fs tries twice by itself
    assert store.delete_many(["a", "b"]) == {}
    assert len(pauses) == 2
    assert left(store) == ["kept"]


def test_a_busy_service_is_given_up_after_growing_pauses(s3: Place, s3_server: S3Server, pauses: list[float]) -> None:
    store = impatient(s3)
    create(store, "a", "b")
    s3_server.inject(Fault(method="POST", path="delete", kind="503", times=10_000))
    failures = store.delete_many(["a", "b"])
    assert {path: type(error) for path, error in failures.items()} == {"a": StoreError, "b": StoreError}
    assert "SlowDown" in str(failures["a"]) or "try again" in str(failures["a"])
    assert 0 < len(pauses) < 10
    assert all(pause <= 0.5 * 2**number for number, pause in enumerate(pauses))
    assert left(store) == ["a", "b"]


@pytest.fixture
def moody(s3: Place, s3_server: S3Server) -> Iterator[tuple[Amazon, Store]]:
    """A service that refuses single keys, and a store on it."""
    with amazon(s3_server) as (app, endpoint):
        yield app, s3.open(endpoint_url=endpoint, **FEW_RETRIES)


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout"])
def test_only_the_keys_that_a_busy_service_refused_are_asked_for_again(
    moody: tuple[Amazon, Store], pauses: list[float], code: str
) -> None:
    app, store = moody
    paths = [f"day=1/part {number:04d}" for number in range(1200)]
    create(store, *paths[::100], paths[3], "kept")
    app.refused = {"part 0003": [code], "part 0900": [code] * 2, "part 1100": [code]}
    assert store.delete_many(paths) == {}
    assert sorted(map(len, app.deletions)) == [1, 1, 2, 200, 1000]
    assert sorted(keys for keys in app.deletions if len(keys) < 10) == [
        ["part 0003", "part 0900"],
        ["part 0900"],
        ["part 1100"],
    ]
    assert len(pauses) == 3
    assert left(store) == ["kept"]


def test_keys_that_a_service_keeps_refusing_are_returned(moody: tuple[Amazon, Store], pauses: list[float]) -> None:
    app, store = moody
    create(store, "a", "busy", "denied", "slow")
    app.refused = {"busy": ["SlowDown"] * 100, "denied": ["AccessDenied"] * 100, "slow": ["SlowDown"] * 2}
    failures = store.delete_many(["a", "busy", "denied", "slow"])
    assert {path: type(error) for path, error in failures.items()} == {"busy": StoreError, "denied": AccessDeniedError}
    assert f"{store.url}/busy" in str(failures["busy"])
    assert "SlowDown" in str(failures["busy"])
    assert app.deletions[:3] == [["a", "busy", "denied", "slow"], ["busy", "slow"], ["busy", "slow"]]
    assert app.deletions[3:] == [["busy"]] * (len(pauses) - 2)
    assert left(store) == ["busy", "denied"]


def test_a_key_that_is_refused_for_another_reason_later_is_returned_with_that(
    moody: tuple[Amazon, Store], pauses: list[float]
) -> None:
    app, store = moody
    create(store, "a")
    app.refused = {"a": ["SlowDown", "AccessDenied"]}
    assert isinstance(store.delete_many(["a"])["a"], AccessDeniedError)
    assert app.deletions == [["a"], ["a"]]


AWKWARD = ["day=1/a\x01b", "\x1f", "tab\there", "return\rhere", "delete\x7f", "last\uffff"]


def test_a_key_that_no_xml_can_hold_is_deleted_and_fails_no_batch(moody: tuple[Amazon, Store]) -> None:
    app, store = moody
    plain = [f"part-{number}" for number in range(5)]
    create(store, *plain, *AWKWARD, "kept")
    assert store.delete_many([*plain, *AWKWARD, "missing\x01"]) == {}
    assert app.deletions == [plain]
    assert left(store) == ["kept"]


def test_any_key_is_deleted(place: Place) -> None:
    store = place.open()
    keys = [key for key in AWKWARD if place.kind != "azure" or key.isprintable()]  # which takes no other names
    create(store, "part-0", *keys)
    assert store.delete_many(["part-0", *keys]) == {}
    assert left(store) == []


def test_a_busy_service_is_asked_again_for_a_batch_of_blobs(azure: Place, azure_server: AzureServer) -> None:
    store = azure.open()
    create(store, "a", "b", "kept")
    azure_server.inject(Fault(method="POST", path="batch", kind="503"))
    assert store.delete_many(["a", "b"]) == {}
    assert [request.method for request in azure_server.requests()][-2:] == ["POST", "POST"]
    assert left(store) == ["kept"]


# --- what could not be deleted ------------------------------------------------------------------------------------


def test_what_could_not_be_deleted_is_returned_and_the_rest_is_gone(s3: Place, s3_server: S3Server) -> None:
    store = s3.open()
    create(store, "a", "kept/b", "c", "kept/d")
    kept = f"arn:aws:s3:::{s3.url.removeprefix('s3://')}/kept/*"
    policy = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": kept}
    with bucket_policy(s3_server, policy):
        failures = store.delete_many(["a", "kept/b", "c", "kept/d", "missing"])
    assert sorted(failures) == ["kept/b", "kept/d"]
    for path, error in failures.items():
        assert isinstance(error, AccessDeniedError)
        assert f"{s3.url}/{path}" in str(error)
    assert left(store) == ["kept/b", "kept/d"]


@contextmanager
def bucket_policy(server: S3Server, policy: dict[str, Any]) -> Iterator[None]:
    """The bucket `tables` under this policy."""
    client = server.client()
    client.put_bucket_policy(Bucket="tables", Policy=json.dumps({"Statement": [policy]}))
    try:
        yield
    finally:
        client.delete_bucket_policy(Bucket="tables")


def test_a_batch_that_could_not_be_deleted_is_returned_and_the_others_are_gone(s3: Place, s3_server: S3Server) -> None:
    store = impatient(s3)
    names = [f"{number:04d}" for number in range(2100)]
    create(store, names[0], names[1500], names[2050])
    s3_server.inject(
        Fault(method="POST", path="delete", kind="403"), Fault(method="DELETE", path="", kind="403", times=10_000)
    )
    failures = store.delete_many(names)
    assert list(failures) in [names[:1000], names[1000:2000], names[2000:]]  # whichever came first
    assert left(store) == [name for name in (names[0], names[1500], names[2050]) if name in failures]


@contextmanager
def leased(server: AzureServer, store: Store, path: str) -> Iterator[None]:
    """Nobody but the holder of the lease may delete the blob."""
    container, _, prefix = store.url.removeprefix("az://").partition("/")
    with BlobServiceClient.from_connection_string(server.connection_string) as client:
        lease = client.get_blob_client(container, f"{prefix}/{path}").acquire_lease()
        yield
        lease.release()


def test_blobs_that_could_not_be_deleted_are_returned(azure: Place, azure_server: AzureServer) -> None:
    store = azure.open()
    create(store, "a", "kept", "c", "d/kept é")
    with leased(azure_server, store, "kept"), leased(azure_server, store, "d/kept é"):
        azure_server.reset()
        azure_server.inject(Fault(method="DELETE", path="/kept", kind="503"))  # which the SDK repeats
        failures = store.delete_many(["a", "kept", "c", "missing", "d/kept é"])
        methods = sorted(request.method for request in azure_server.requests())
    assert {path: type(error) for path, error in failures.items()} == {"kept": StoreError, "d/kept é": StoreError}
    assert "lease" in str(failures["kept"])
    assert methods == ["DELETE"] * 6 + ["POST"]
    assert left(store) == ["d/kept é", "kept"]
    assert store.delete_many(["kept", "d/kept é"]) == {}


def test_blobs_are_deleted_one_by_one_where_a_batch_is_refused(azure: Place, azure_server: AzureServer) -> None:
    store = azure.open()
    create(store, "a", "b", "kept")
    azure_server.inject(
        Fault(method="POST", path="batch", kind="403", times=10),
        Fault(method="DELETE", path="/b", kind="403", times=10),
    )
    failures = store.delete_many(["a", "b"])
    assert {path: type(error) for path, error in failures.items()} == {"b": AccessDeniedError}
    assert left(store) == ["b", "kept"]


# --- only if it is the same ---------------------------------------------------------------------------------------


def test_an_object_is_deleted_if_it_has_the_body_that_is_named(place: Place) -> None:
    store = place.open()
    for path, body in (("_a", b"one"), ("_b", b"two"), ("_empty", b"")):
        store.put_if_absent(path, body)
    assert not store.delete_same("_a", b"two")
    assert not store.delete_same("_a", b"")
    assert store.delete_same("_none", b"one"), "what is not there counts as deleted"
    assert left(store) == ["_a", "_b", "_empty"]
    assert store.delete_same("_a", b"one")
    assert store.delete_same("_empty", b"")
    assert left(store) == ["_b"]


def test_what_takes_its_place_in_between_is_not_deleted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if place.kind not in ("s3", "azure"):
        return  # a disk has no deletion that compares, nor has the tests' server for Google; memory has nothing between
    store, get = place.open(), type(place.open()).get

    def get_and_replace(self: Store, path: str, **options: Any) -> bytes:
        body = get(self, path, **options)
        self.replace(path, b"another")
        return body

    store.put_if_absent("_a", b"one")
    monkeypatch.setattr(type(store), "get", get_and_replace)
    assert not store.delete_same("_a", b"one")
    monkeypatch.undo()
    assert store.get("_a") == b"another"
