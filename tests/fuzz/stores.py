"""Whatever the options of two stores are: what the stores are known by tells them apart, and shows no secret.

The clients are not real, so that many can be made: each has the endpoint that its options name.
"""

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from dbio_commit.base.errors import DbioError
from dbio_commit.store import Location, open_store, parse_location
from dbio_commit.store.fsspec_store import FsspecStore

SECRETS = {"key", "secret", "token", "sas_token", "account_key", "password", "Authorization"}

OPTIONS: list[Mapping[str, Any]] = [
    {},
    {"endpoint_url": "http://127.0.0.1:9000"},
    {"endpoint_url": "http://127.0.0.1:9001", "key": "AKIAAAAAAAAA", "secret": "hunter2hunter2"},
    {"client_kwargs": {"endpoint_url": "https://user:hunter2hunter2@host:9000/x?y=1#z"}},
    {"client_kwargs": {"headers": [{"password": ["hunter2hunter2"]}, "a"]}},
    {"client_kwargs": {"headers": {"Authorization": "Bearer hunter2hunter2"}}},
    {"profile": "tenant-a"},
    {"profile": "tenant-b"},
    {"account_name": "account", "account_key": "hunter2hunter2"},
    {"account_name": "other", "sas_token": "?sv=1&sig=hunter2hunter2"},
    {"token": {"type": "service_account", "private_key_id": "1", "token": "hunter2hunter2"}},
    {"a": [1, 1.0, True, None, "1"]},
    {"a": {"b": "c,d"}, "e": {}},
]
URLS = ["s3://lake/t", "s3://other/t", "az://lake/t", "gs://lake/t", "abfss://c@a.dfs.core.windows.net/t"]


def to_bytes(url: str, options: object, other: object) -> bytes:
    return json.dumps([url, options, other]).encode()


def stores(data: bytes) -> object:
    """What the two are known by; None where the input is no URL of a remote store and two sets of options."""
    try:
        url, *both = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(url, str) or len(both) != 2 or not all(isinstance(it, dict) for it in both):
        return None
    try:
        location = parse_location(url)
    except DbioError:
        return None
    if location.scheme == "file":
        return None
    try:
        texts = [json.dumps(it, sort_keys=True) for it in both]
        one, other = (_opened(location, it) for it in both)
        known = [(it.identity, it.principal) for it in (one, other)]
    except RecursionError:
        return None
    assert (texts[0] == texts[1]) == (one.principal == other.principal), "principals"
    if _host(one) != _host(other):
        assert one.identity != other.identity, "endpoints"
    for store in (one, other):
        assert "@" not in store.identity.rpartition(":")[0]
        for secret in _secrets(store.storage_options):
            assert secret not in store.principal + repr(store)
            assert secret not in store.redact(f"the service says <{secret}> is none"), secret
    return known


def _opened(location: Location, options: Mapping[str, Any]) -> FsspecStore:
    store = open_store(location, options)
    assert isinstance(store, FsspecStore)
    endpoint = _endpoint(store)
    client = SimpleNamespace(
        s3=SimpleNamespace(meta=SimpleNamespace(endpoint_url=endpoint)),
        service_client=SimpleNamespace(primary_hostname=endpoint),
        _location=endpoint,
    )
    setattr(store, "connect", lambda: client)  # noqa: B010
    return store


def _endpoint(store: FsspecStore) -> str:
    options = store.storage_options
    within = options.get("client_kwargs")
    given = options.get("endpoint_url") or (within.get("endpoint_url") if isinstance(within, dict) else None)
    named = given or options.get("profile") or options.get("account_name") or "default"
    return named if isinstance(named, str) else "default"


def _host(store: FsspecStore) -> object:
    """As the library of Python takes it apart: None where it does not."""
    text = _endpoint(store)
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
    except ValueError:
        return None
    return parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/")


def _secrets(value: object, name: str = "") -> Iterator[str]:
    """What must not be shown: what has a name that says so."""
    if isinstance(value, dict):
        for key, it in value.items():
            yield from _secrets(it, key)
    elif isinstance(value, list):
        for it in value:
            yield from _secrets(it, name)
    elif isinstance(value, str) and name in SECRETS and len(value) >= 8 and "://" not in value:
        yield value
