"""What a store is known by: its endpoint, wherever that comes from, and as whom it asks; and no credential of either.

The clients connect to nothing. Each test gives a key of its own, since fsspec keeps clients by their options.
"""

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.handlers import add_expect_header

from dbio_commit.base.errors import AccessDeniedError, StoreError
from dbio_commit.commit import probe
from dbio_commit.log.opening import read_snapshot
from dbio_commit.protocol.names import DESCRIPTOR
from dbio_commit.spark.session.hadoop.assumed_role import RoleSession
from dbio_commit.spark.session.hadoop.row import AssumedRole
from dbio_commit.store import Store, open_store, parse_location
from dbio_commit.store.fsspec_store import FsspecStore
from dbio_commit.store.principal import principal_of
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import write

SECRET = "hunter2hunter2"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def s3(**options: Any) -> Store:
    return open_store(parse_location("s3://lake/t"), {"key": uuid4().hex, "secret": SECRET, **options})


def google(**options: Any) -> Store:
    return open_store(parse_location("gs://lake/t"), {"token": "anon", **options})


def azure(**options: Any) -> Store:
    return open_store(parse_location("az://lake/t"), options)


# --- where it is --------------------------------------------------------------------------------------------------


def test_the_endpoint_of_a_profile_is_part_of_what_a_store_is(tmp_path: Path) -> None:
    """One process may serve tenants on servers of their own: each is to be proved, and remembered, by itself."""
    names = [uuid4().hex for _ in range(2)]
    config = [f"[profile {it}]\nendpoint_url=http://127.0.0.1:{9000 + i}\n" for i, it in enumerate(names)]
    (tmp_path / "config").write_text("".join(config))
    (tmp_path / "credentials").write_text(
        "".join(f"[{it}]\naws_access_key_id=a\naws_secret_access_key=b\n" for it in names)
    )
    stores = [open_store(parse_location("s3://lake/t"), {"profile": it}) for it in names]
    assert [it.identity for it in stores] == ["s3:http://127.0.0.1:9000:lake", "s3:http://127.0.0.1:9001:lake"]
    assert stores[0].principal != stores[1].principal


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_of_the_environment_is_part_of_what_a_store_is(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for port in (9000, 9001):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{port}")
        found.append(s3().identity)
    assert found == ["s3:http://127.0.0.1:9000:lake", "s3:http://127.0.0.1:9001:lake"]


def test_every_way_to_give_one_endpoint_gives_one_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:9000"
    found = {s3(endpoint_url=url).identity, s3(client_kwargs={"endpoint_url": url}).identity}
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    assert found | {s3().identity} == {f"s3:{url}:lake"}


def test_containers_accounts_and_hosts_of_azure_are_told_apart() -> None:
    def emulated(account: str, port: int = 10000) -> str:
        return f"AccountName={account};AccountKey=QUJD;BlobEndpoint=http://127.0.0.1:{port}/{account};"

    stores = [
        azure(account_name="a", account_key="QUJD"),
        azure(account_name="b", account_key="QUJD"),
        azure(connection_string=emulated("a")),
        azure(connection_string=emulated("b")),
        azure(connection_string=emulated("a", 10001)),
        open_store(parse_location("az://other/t"), {"account_name": "a", "account_key": "QUJD"}),
    ]
    assert len({it.identity for it in stores}) == len(stores)


def test_the_endpoint_of_google_is_that_of_the_options_or_else_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "http://127.0.0.1:9000"
    found = [google().identity, google(endpoint_url=url).identity]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    found.append(google().identity)
    assert found == ["gs:https://storage.googleapis.com:lake", *[f"gs:{url}:lake"] * 2]
    assert open_store(parse_location("gs://other/t"), {"token": "anon"}).identity == f"gs:{url}:other"


@pytest.mark.parametrize(
    "store",
    [
        lambda: google(endpoint_url=f"https://user:{SECRET}@127.0.0.1:9000"),
        lambda: s3(endpoint_url=f"https://user:{SECRET}@127.0.0.1:9000"),
        lambda: azure(connection_string=f"BlobEndpoint=https://user:{SECRET}@127.0.0.1/x?sv=1&sig={SECRET}"),
        lambda: azure(account_name="a", sas_token=f"sv=1&sig={SECRET}"),
    ],
)
def test_what_a_store_is_known_by_shows_no_secret(store: Callable[[], Store]) -> None:
    opened = store()
    assert SECRET not in opened.identity + opened.principal + repr(opened)


def test_a_profile_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(StoreError, match=r"connect to s3://lake/t.*no-such-profile"):
        open_store(parse_location("s3://lake/t"), {"profile": "no-such-profile"}).identity  # noqa: B018
    with pytest.raises(AccessDeniedError, match="account_name"):
        azure().identity  # noqa: B018


def test_another_process_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = s3(endpoint_url="http://127.0.0.1:9000")
    before = store.identity, store.principal
    copy = pickle.loads(pickle.dumps(store))
    assert {"_identity", "_principal"} == {name for name in ("_identity", "_principal") if copy.__dict__[name] is None}
    assert (copy.identity, copy.principal) == before


def test_a_client_that_was_asked_for_its_endpoint_waits_for_no_100_continue() -> None:
    """Servers, and proxies, that do not answer it would hold up each PUT for ever."""
    store = s3(endpoint_url="http://127.0.0.1:9000")
    assert store.identity
    assert isinstance(store, FsspecStore)
    handlers = store.fs.s3.meta.events._emitter._handlers.prefix_search("before-call.s3")
    assert add_expect_header not in handlers
    assert handlers


# --- as whom it asks ----------------------------------------------------------------------------------------------


def role(**facts: Any) -> AssumedRole:
    given = {
        "request": {"RoleArn": "arn:a"},
        "endpoint": None,
        "region": None,
        "key": "k",
        "secret": "s",
        "proxies": {},
    }
    return AssumedRole(**{**given, **facts})


OPTIONS: list[Mapping[str, Any]] = [
    {},
    {"key": "a"},
    {"key": "b"},
    {"key": "a", "secret": "b"},
    {"key": b"a"},
    {"anon": True},
    {"anon": "True"},
    {"profile": "a"},
    {"client_kwargs": {"aws_session_token": "a"}},
    {"client_kwargs": {"aws_session_token": "b"}},
    {"client_kwargs": ["aws_session_token", "a"]},
    {"client_kwargs": ["aws_session_token,a"]},
    {"session": RoleSession(role())},
    {"session": RoleSession(role(request={"RoleArn": "arn:b"}))},
    {"session": RoleSession(role(secret="t"))},
    {"credential": object()},
]


def test_two_sets_of_options_are_two_principals() -> None:
    assert len({principal_of(it) for it in OPTIONS}) == len(OPTIONS)


def test_the_same_options_are_one_principal_in_any_order() -> None:
    assert principal_of({"key": "a", "secret": "b"}) == principal_of({"secret": "b", "key": "a"})
    assert principal_of({"session": RoleSession(role())}) == principal_of({"session": RoleSession(role())})


def test_an_object_that_says_nothing_of_itself_is_known_again_and_no_other_is_taken_for_it() -> None:
    class Credential:
        pass

    one, other = Credential(), Credential()
    assert principal_of({"credential": one}) == principal_of({"credential": one})
    assert principal_of({"credential": one}) != principal_of({"credential": other})


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AZURE_CLIENT_ID", "HOME"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"),
    ],
)
def test_credentials_of_the_environment_are_part_of_the_principal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for value in ("a", "b"):
        monkeypatch.setenv(name, value)
        found.add(principal_of({}))
    assert len(found) == 2


def test_nobody_can_try_secrets_against_a_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is of this process."""
    before = principal_of({"secret": SECRET})
    monkeypatch.setattr("dbio_commit.store.principal._KEY", os.urandom(32))
    assert principal_of({"secret": SECRET}) != before


# --- what is remembered -------------------------------------------------------------------------------------------


def refuse(operation: str, path: str) -> None:
    if operation == "get" and path != DESCRIPTOR:
        raise AccessDeniedError(f"GET of {path} is not allowed")


def test_what_one_principal_has_read_is_not_told_to_another_who_may_not() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, url=f"memory://{uuid4().hex}")
    write(Table.over(store, clock))
    clock.sleep(60)
    assert read_snapshot(store, clock).files
    store.before = refuse
    assert read_snapshot(store, clock).files  # it has read them, and they never change
    other = store.seen_by("somebody else")
    other.before = refuse
    with pytest.raises(AccessDeniedError):
        read_snapshot(other, clock)


def test_what_one_principal_knows_of_a_table_s_columns_lets_no_other_begin() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, url=f"memory://{uuid4().hex}")
    write(Table.over(store, clock))
    clock.sleep(60)
    Table.over(store, clock).begin().abort()
    store.before = lambda operation, path: refuse(operation, "")
    Table.over(store, clock).begin().abort()
    other = store.seen_by("somebody else")
    with pytest.raises(AccessDeniedError):
        Table.over(other, clock).begin()


def test_a_store_is_proved_once_for_all_principals() -> None:
    """Tokens are renewed every hour."""
    clock = ManualClock()
    store = MemoryStore(clock, url=f"memory://{uuid4().hex}")
    Table.over(store, clock).begin().abort()
    assert store.identity in probe._PROBED
    assert store.seen_by("somebody else").identity in probe._PROBED
    assert s3(endpoint_url="http://h:1").identity == s3(endpoint_url="http://h:1").identity
