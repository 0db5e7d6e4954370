"""What a store says when its service fails, refuses or cannot be reached: the right error, and no secret."""

import pickle
import socket
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from google.oauth2.credentials import Credentials
from tenacity import stop_after_attempt

from dbio_commit import Table
from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import AccessDeniedError, ObjectNotFoundError, StoreError
from dbio_commit.store import Store, open_store, parse_location
from dbio_commit.store.fsspec_store import FsspecStore
from tests.contract.amazon import Amazon, amazon
from tests.contract.places import CREATE, Place
from tests.servers import AzureServer, Fault, Kind, S3Server, Server
from tests.writers import contents
from tests.writers import write as write_rows
from vacuum import VacuumOptions, vacuum_table


def write(store: Store) -> None:
    with store.open_write("_marker") as file:
        file.write(b"x")


CALLS: dict[str, Callable[[Store], Any]] = {
    "list_log": lambda store: store.list_log(),
    "list_files": lambda store: store.list_files("day=1"),
    "list_directory": lambda store: store.list_directory("day=1"),
    "get": lambda store: store.get("_marker"),
    "stat": lambda store: store.stat("_marker"),
    "open_read": lambda store: store.open_read("_marker").read(),
    "put_if_absent": lambda store: store.put_if_absent("_marker", b"x"),
    "open_write": write,
    "delete_many": lambda store: store.delete_many(["_marker"]),
}
METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE"]
FEW_RETRIES: dict[str, Any] = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}


def everywhere(kind: Kind, path: str = ".") -> list[Fault]:
    return [Fault(method=method, path=path, kind=kind, times=10_000) for method in METHODS]


def impatient(place: Place) -> Store:
    """A store that gives up soon."""
    own = {"s3": FEW_RETRIES, "gcs": {"consistency": "size"}}  # or its client would be that of other tests
    store = place.open(**own.get(place.kind, {}))
    if place.kind != "s3":  # they have no option for it
        assert isinstance(store, FsspecStore)
        if place.kind == "azure":
            store.fs.service_client._config.retry_policy.total_retries = 1
        else:
            fs = store.fs
            fs._request = partial(type(fs)._request.retry_with(stop=stop_after_attempt(1)), fs)
    return store


def failures_of(store: Store) -> dict[str, StoreError]:
    """What each call fails with, all called at once because retries take their time."""
    with ThreadPoolExecutor(len(CALLS)) as pool:
        return dict(zip(CALLS, pool.map(partial(failure_of, store), CALLS), strict=True))


def failure_of(store: Store, call: str) -> StoreError:
    if call == "delete_many":
        return store.delete_many(["_marker"])["_marker"]
    with pytest.raises(StoreError) as failure:
        CALLS[call](store)
    return failure.value


# --- answers that are lost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lost-answer", "dropped-answer"])
def test_a_put_whose_answer_was_lost_is_found_by_reading_back(remote: Place, server: Server, kind: Kind) -> None:
    store = remote.open()
    server.inject(Fault(method=CREATE[remote.kind], path="_committed_1", kind=kind))
    assert store.put_if_absent("_committed_1", b"ours") is False  # the client repeats it, and meets its own object
    assert [request.fault for request in server.requests()] == [kind, None]
    assert store.get("_committed_1") == b"ours"


@pytest.mark.parametrize("kind", ["lost-answer", "dropped-answer"])
@pytest.mark.parametrize("remote", ["s3", "gcs"], indirect=True)
def test_a_put_whose_answers_are_all_lost_is_found_by_reading_back(remote: Place, server: Server, kind: Kind) -> None:
    store = impatient(remote)
    server.inject(Fault(method=CREATE[remote.kind], path="_committed_1", kind=kind, times=10_000))
    with pytest.raises(StoreError, match="try again") as failure:
        store.put_if_absent("_committed_1", b"ours")
    assert type(failure.value) is StoreError
    assert store.get("_committed_1") == b"ours"


def test_a_lost_race_is_not_mistaken_for_ours(remote: Place, server: Server) -> None:
    store = remote.open()
    store.put_if_absent("_committed_1", b"theirs")
    server.inject(Fault(method=CREATE[remote.kind], path="_committed_1", kind="lost-answer"))
    assert store.put_if_absent("_committed_1", b"ours") is False
    assert store.get("_committed_1") == b"theirs"


# --- conflicts ----------------------------------------------------------------------------------------------------


def test_a_put_that_meets_another_under_way_is_repeated(s3: Place, s3_server: S3Server) -> None:
    s3_server.inject(Fault(method="PUT", path="_marker", kind="409", times=3))
    assert s3.open().put_if_absent("_marker", b"x") is True
    assert [request.status for request in s3_server.requests()] == [409, 409, 409, 200]


def test_a_put_that_lost_against_another_under_way_reports_it(s3: Place, s3_server: S3Server) -> None:
    s3.open().put_if_absent("_marker", b"theirs")
    s3_server.inject(Fault(method="PUT", path="_marker", kind="409", times=2))
    s3_server.requests()
    assert s3.open().put_if_absent("_marker", b"ours") is False
    assert [request.status for request in s3_server.requests()] == [200, 409, 409, 412]


def test_a_put_that_only_meets_others_under_way_fails(s3: Place, s3_server: S3Server) -> None:
    s3_server.inject(Fault(method="PUT", path="_marker", kind="409", times=10_000))
    with pytest.raises(StoreError, match=rf"cannot create {s3.url}/_marker: .*try again") as failure:
        s3.open().put_if_absent("_marker", b"x")
    assert type(failure.value) is StoreError


# --- what a service keeps elsewhere, or has not -------------------------------------------------------------------


@pytest.mark.parametrize("call", ["get", "open_read"])
def test_an_archived_object_is_named_as_that_and_not_as_denied(remote: Place, server: Server, call: str) -> None:
    if remote.kind == "gcs":
        return  # whose archive answers at once
    store = remote.open()
    store.put_if_absent("_marker", b"x")
    server.inject(*everywhere("archived", "_marker"))
    with pytest.raises(StoreError, match=r"archive.*bring it back with `a.* restore-object`|set-tier") as failure:
        CALLS[call](store)
    assert type(failure.value) is StoreError
    assert f"{remote.url}/_marker" in str(failure.value)


def test_a_table_that_was_archived_is_not_taken_for_one_without_commits(remote: Place, server: Server) -> None:
    if remote.kind == "gcs":
        return  # whose archive answers at once
    table = Table(remote.url, remote.storage_options)
    write_rows(table)
    server.inject(*everywhere("archived", "_committed_"))
    with pytest.raises(StoreError, match="archive"):
        Table(f"{remote.url}/", remote.storage_options).snapshot()


def test_a_service_without_conditional_puts_is_named_as_that(s3: Place, s3_server: S3Server) -> None:
    s3_server.inject(Fault(method="PUT", path=".", kind="501", times=10_000))
    with pytest.raises(StoreError, match=r"does not support If-None-Match \(501\).*request_checksum_calculation"):
        Table(s3.url, s3.storage_options).begin()
    assert s3.open().list_files() == []


@pytest.mark.parametrize("call", ["list_unfinished", "list_files"])
def test_a_request_that_a_service_has_not_is_named_as_that(s3: Place, s3_server: S3Server, call: str) -> None:
    store = s3.open()
    s3_server.inject(*everywhere("501"))
    with pytest.raises(StoreError, match="this service does not support this request"):
        getattr(store, call)()


# --- a service that fails -----------------------------------------------------------------------------------------


@pytest.mark.long_for("s3")
def test_a_busy_service_is_a_store_error_with_the_url_and_the_next_step(remote: Place, server: Server) -> None:
    store = impatient(remote)
    store.put_if_absent("_marker", b"")
    server.inject(*everywhere("503"))
    for name, error in failures_of(store).items():
        assert type(error) is StoreError, name
        assert remote.url in str(error), name
        assert "try again" in str(error), name


@pytest.mark.long_for("azure")
def test_one_failure_of_the_service_is_not_seen(remote: Place, server: Server) -> None:
    store = remote.open()
    store.put_if_absent("_marker", b"x")
    server.inject(Fault(method="GET", path="_marker", kind="500"))
    assert store.get("_marker") == b"x"
    server.inject(Fault(method=CREATE[remote.kind], path="_new", kind="503"))
    assert store.put_if_absent("_new", b"x") is True


@pytest.fixture
def silent_endpoint() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.timeout(60, method="thread")  # a signal would wait for the thread that hangs
def test_a_silent_service_is_a_store_error(s3: Place, silent_endpoint: str) -> None:
    config = {"retries": {"total_max_attempts": 1}, "read_timeout": 1}
    store = s3.open(endpoint_url=silent_endpoint, config_kwargs=config)
    for name, error in failures_of(store).items():
        assert type(error) is StoreError, name
        assert s3.url in str(error), name
        assert "try again" in str(error), name


def at(place: Place, server: Server, endpoint: str) -> Store:
    """A store at the place, but at another endpoint; with the retries that users get."""
    if place.kind != "azure":
        return place.open(endpoint_url=endpoint)
    connection = place.storage_options["connection_string"]
    return place.open(connection_string=connection.replace(server.endpoint_url, endpoint))


@pytest.mark.long_for("azure", "gcs")
@pytest.mark.slow("no job may hang at a service that is gone: real waits")
@pytest.mark.timeout(45)
def test_an_unreachable_service_is_a_store_error_within_seconds(remote: Place, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}"
    for name, error in failures_of(at(remote, server, closed)).items():
        assert type(error) is StoreError, name
        assert remote.url in str(error), name
        assert "check the service and the network" in str(error), name


# --- a service that refuses ---------------------------------------------------------------------------------------


def test_a_refusal_is_access_denied(remote: Place, server: Server) -> None:
    store = remote.open()
    store.put_if_absent("_marker", b"")
    server.inject(*everywhere("403"))
    for name, error in failures_of(store).items():
        assert isinstance(error, AccessDeniedError), name
        assert remote.url in str(error), name
        assert "credentials" in str(error), name


@pytest.fixture
def secretive(s3: Place, s3_server: S3Server) -> Iterator[tuple[Amazon, Store]]:
    """A service that refuses what is not there, and a store on it."""
    with amazon(s3_server) as (app, endpoint):
        app.hides_absence = True
        yield app, s3.open(endpoint_url=endpoint, **FEW_RETRIES)


LOOKS: list[Callable[[Store, str], object]] = [
    lambda store, path: store.get(path),
    lambda store, path: store.stat(path),
    lambda store, path: store.open_read(path).read(),
]


@pytest.mark.parametrize("look", LOOKS, ids=["get", "stat", "open_read"])
def test_what_is_not_there_is_not_found_where_the_service_refuses_to_say_so(
    secretive: tuple[Amazon, Store], look: Callable[[Store, str], object]
) -> None:
    app, store = secretive
    for name in ("_committed_1", "_committed_12", "_committed_1/below"):
        store.put_if_absent(name, b"x")
    look(store, "_committed_1")
    store.delete_many(["_committed_1"])
    app.requests.clear()
    with pytest.raises(ObjectNotFoundError, match=f"{store.url}/_committed_1: no listing shows it"):
        look(store, "_committed_1")
    assert app.requests[-1] == "LIST _committed_1"


@pytest.mark.parametrize("look", LOOKS, ids=["get", "stat", "open_read"])
def test_what_is_there_and_refused_is_access_denied(
    s3: Place, s3_server: S3Server, look: Callable[[Store, str], object]
) -> None:
    store = s3.open()
    store.put_if_absent("_committed_1", b"x")
    refusals = [Fault(method=method, path=r"/_committed_1$", kind="403", times=10) for method in ("GET", "HEAD")]
    s3_server.inject(*refusals)
    with pytest.raises(AccessDeniedError, match="_committed_1"):
        look(store, "_committed_1")


def test_a_refusal_is_access_denied_where_listings_are_refused_too(secretive: tuple[Amazon, Store]) -> None:
    app, store = secretive
    app.refuses_lists = True
    with pytest.raises(AccessDeniedError, match="_committed_1"):
        store.get("_committed_1")


def test_a_table_is_written_vacuumed_and_read_where_the_service_refuses_what_is_not_there(
    secretive: tuple[Amazon, Store],
) -> None:
    _, store = secretive
    clock = AheadClock()
    table = Table.over(store, clock)
    for _ in range(2):
        write_rows(table)
        write_rows(table, "overwrite")
        vacuum_table(table, VacuumOptions(checkpoint_after=1))
        clock.ahead += timedelta(days=3)
    vacuum_table(table, VacuumOptions(checkpoint_after=1))
    write_rows(table)
    write_rows(table, "overwrite")
    assert len(contents(table)) == 1


class AheadClock(Clock):
    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


def google_credentials(token: str) -> Any:
    return Credentials(token)  # type: ignore[no-untyped-call]


SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="


def with_wrong_key(place: Place) -> Store:
    if place.kind == "s3":
        return place.open(key="AKIAWRONGWRONG", secret=SECRET)
    if place.kind == "gcs":
        return place.open(token=google_credentials(SECRET))
    parts = place.storage_options["connection_string"].split(";")
    return place.open(connection_string=";".join(f"AccountKey={SECRET}" if "Key=" in part else part for part in parts))


def test_a_wrong_key_is_access_denied_and_shown_nowhere(remote: Place, server: Server) -> None:
    store = with_wrong_key(remote)
    if remote.kind != "azure":  # the servers of the others believe everybody
        server.inject(*everywhere("403"))
    for name, error in failures_of(store).items():
        assert isinstance(error, AccessDeniedError), name
        assert SECRET not in "".join(traceback.format_exception(error)), name
    for shown in [store, pickle.loads(pickle.dumps(store))]:
        assert SECRET not in repr(shown)
        assert SECRET not in str(shown.url)


def test_a_key_that_is_none_is_access_denied_and_shown_nowhere(azure_server: AzureServer) -> None:
    garbled = "not-base64-not-base64"
    options = {"connection_string": azure_server.connection_string.replace(azure_server.account_key, garbled)}
    store = open_store(parse_location("az://tables/x"), options)
    for name, error in failures_of(store).items():
        assert isinstance(error, AccessDeniedError), name
        assert garbled not in str(error), name


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://tables/x", {"key": "AKIA", "secret": SECRET}),
        ("s3://tables/x", {"client_kwargs": {"aws_session_token": SECRET}}),
        ("az://tables/x", {"account_name": "account", "account_key": SECRET}),
        ("az://tables/x", {"connection_string": f"AccountName=account;AccountKey={SECRET};"}),
        ("az://tables/x", {"account_name": "account", "sas_token": SECRET}),
        ("gs://tables/x", {"token": SECRET}),
        ("gs://tables/x", {"token": google_credentials(SECRET)}),
        ("gs://tables/x", {"token": {"type": "authorized_user", "refresh_token": SECRET}}),
        ("gs://tables/x", {"session_kwargs": {"headers": {"Authorization": f"Bearer {SECRET}"}}}),
    ],
)
def test_a_secret_that_a_client_repeats_is_not_shown(url: str, options: dict[str, Any]) -> None:
    store = open_store(parse_location(url), options)
    assert isinstance(store, FsspecStore)
    error = store.translate(OSError(f"<AWSAccessKey>{SECRET}</AWSAccessKey> is none"), "read", "_marker")
    assert "is none" in str(error)
    assert SECRET not in str(error)


PASSWORD = "hunter22/+=é"
ENCODED = quote(PASSWORD, safe="")
SIGNATURE = "ab+cd/ef==gh12"
TOKEN = f"sv=2024-11-04&se=2026-12-01T00%3A00%3A00Z&sr=c&sig={quote(SIGNATURE, safe='')}"


def spellings(secret: str) -> list[str]:
    once = quote(secret, safe="")
    return [secret, once, once.lower(), quote(secret, safe="/"), quote(once, safe=""), quote_plus(secret)]


@pytest.mark.parametrize(
    ("url", "options", "secret"),
    [
        ("s3://t/x", {"endpoint_url": f"https://user:{ENCODED}@host:9000"}, PASSWORD),
        ("s3://t/x", {"client_kwargs": {"endpoint_url": f"https://user:{ENCODED}@host"}}, PASSWORD),
        (
            "s3://t/x",
            {"config_kwargs": {"proxies": {"https": f"http://u:{ENCODED}@proxy:1"}}},
            PASSWORD,
        ),
        ("s3://t/x", {"key": "AKIAAAAAAAAA", "secret": PASSWORD}, PASSWORD),
        ("az://t/x", {"account_name": "account", "sas_token": TOKEN}, SIGNATURE),
        ("az://t/x", {"account_name": "account", "sas_token": f"?{TOKEN}"}, SIGNATURE),
        ("az://t/x", {"connection_string": f"BlobEndpoint=https://a/;SharedAccessSignature={TOKEN}"}, SIGNATURE),
        ("az://t/x", {"connection_string": f"BlobEndpoint=https://a/?{TOKEN};AccountName=a"}, SIGNATURE),
        ("gs://t/x", {"endpoint_url": f"https://user:{ENCODED}@host:9000"}, PASSWORD),
        ("gs://t/x", {"session_kwargs": {"proxy": f"http://u:{ENCODED}@proxy:1"}}, PASSWORD),
        ("gs://t/x", {"token": {"type": "authorized_user", "client_secret": PASSWORD}}, PASSWORD),
    ],
)
def test_a_secret_is_shown_in_none_of_its_spellings(url: str, options: dict[str, Any], secret: str) -> None:
    store = open_store(parse_location(url), options)
    assert isinstance(store, FsspecStore)
    for spelling in spellings(secret):
        text = store.redact(f"the service says {spelling} is none; see the log")
        assert text == "the service says *** is none; see the log"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach http://a:b@host/x", "cannot reach http://***@host/x"),
        ("cannot reach https://token@host", "cannot reach https://***@host"),
        ("GET https://a/b?sv=1&sig=abc%2B&se=2 failed", "GET https://a/b?sv=1&sig=***&se=2 failed"),
        ("GET https://a/b?X-Amz-Signature=abc&x=1", "GET https://a/b?X-Amz-Signature=***&x=1"),
        ("s3://bucket/day=1/a@b is gone", "s3://bucket/day=1/a@b is gone"),
        ("abfss://c@a.dfs.x/t is gone", "abfss://c@a.dfs.x/t is gone"),
    ],
)
def test_what_is_secret_in_any_url_is_not_shown(text: str, shown: str) -> None:
    """Also of those that came from the environment."""
    store = open_store(parse_location("s3://t/x"), {})
    assert isinstance(store, FsspecStore)
    assert store.redact(text) == shown


@pytest.mark.parametrize(
    ("url", "option"), [("s3://tables/x", "secret"), ("az://tables/x", "sas_token"), ("gs://tables/x", "token")]
)
def test_no_error_in_the_chain_shows_a_secret_and_each_keeps_its_type(url: str, option: str) -> None:
    store = open_store(parse_location(url), {option: SECRET})
    assert isinstance(store, FsspecStore)

    def fail() -> None:
        try:
            raise ValueError(f"key {SECRET}")
        except ValueError as error:
            try:
                raise KeyError(SECRET)
            except KeyError:
                raise PermissionError(f"{SECRET} refused") from error

    with pytest.raises(AccessDeniedError) as failure:
        store.call("read", "_marker", fail)
    shown = "".join(traceback.format_exception(failure.value))
    assert SECRET not in shown
    assert "builtins.PermissionError: *** refused" in shown
    assert "builtins.ValueError: key ***" in shown
    error: BaseException | None = failure.value
    while error is not None:  # also what no traceback shows
        assert SECRET not in str(error)
        assert error.__context__ in (None, error.__cause__)
        error = error.__cause__


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("url", ["s3://tables/x", "az://tables/x", "gs://tables/x"])
def test_no_credentials_at_all_are_access_denied(url: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AZURE_STORAGE_CONNECTION_STRING"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    options = {
        "s3": {"endpoint_url": "http://127.0.0.1:9"},
        "az": {},
        "gs": {"endpoint_url": "http://127.0.0.1:9", "token": "google_default"},  # else gcsfs asks as nobody
    }[url[:2]]
    store = open_store(parse_location(url), options)
    error = failure_of(store, call)
    assert isinstance(error, AccessDeniedError)
    assert "give" in str(error)


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_is_not_there_is_a_store_error_that_says_so(remote: Place, call: str) -> None:
    store = open_store(parse_location(remote.url.replace("tables", "nowhere")), remote.storage_options)
    error = failure_of(store, call)
    if (remote.kind, call) in [("s3", "stat"), ("azure", "open_read")]:  # a HEAD, whose answer cannot tell
        assert type(error) is ObjectNotFoundError
        return
    assert type(error) is StoreError
    assert "nowhere" in str(error)
    assert "name" in str(error)


# --- answers that end early ---------------------------------------------------------------------------------------


def test_an_answer_that_ends_early_is_an_error_that_names_the_object(remote: Place, server: Server) -> None:
    store = impatient(remote)
    with store.open_write("part-0") as file:
        file.write(bytes(range(200)))

    def read_all() -> bytes:
        with store.open_read("part-0") as file:
            return file.read()

    reads: dict[str, Callable[[], object]] = {
        "get_range": lambda: store.get_range("part-0", 50, 100),
        "get_tail": lambda: store.get_tail("part-0", 100),
        "open_read": read_all,
    }
    whole = {name: read() for name, read in reads.items()}
    server.inject(Fault(method="GET", path="part-0", kind="half-answer", times=10_000))
    for name, read in reads.items():
        with pytest.raises(StoreError, match="part-0"):
            print(name, read())
    server.reset()
    assert {name: read() for name, read in reads.items()} == whole
