"""The endpoint of the service, with clients that are slow, many, or gone: what they may take, and what is said."""

import json
from collections.abc import Iterator, Mapping
from socket import create_connection, socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs

from tests.unit.vacuum.test_schedule import Logs, get, said, wait_until
from vacuum import listener as listener_module
from vacuum.listener import Health, listening

WAIT_S = 60


def well() -> tuple[bool, dict[str, Any]]:
    return True, {"status": "ok"}


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as found:
        yield found


def connect(url: str) -> socket:
    client = create_connection((urlsplit(url).hostname, urlsplit(url).port or 0), timeout=WAIT_S)
    client.sendall(b"GET /health HTTP/1.1\r\nX: ")
    return client


def is_closed(client: socket) -> bool:
    """Whether the server has; waits for it no longer than a moment."""
    client.settimeout(0.02)
    try:
        return client.recv(1000) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def serve(health: Health = well) -> Any:
    return listening("127.0.0.1", 0, CollectorRegistry(), health, lambda table: "")


def test_a_client_that_sends_a_little_now_and_then_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "REQUEST_S", 0.3)
    with serve() as url, connect(url) as client:

        def drip() -> bool:
            try:
                client.sendall(b"a")
            except OSError:
                return True
            return is_closed(client)

        wait_until(drip)


def test_of_many_clients_some_are_refused_and_the_rest_are_answered(
    monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    monkeypatch.setattr(listener_module, "MOST_CONNECTIONS", 3)
    with serve() as url:
        clients = [connect(url) for _ in range(3)]
        more = [connect(url) for _ in range(5)]
        for client in more:
            wait_until(lambda client=client: is_closed(client))  # type: ignore[misc]
        assert not any(map(is_closed, clients))
        assert len(said(logs, "too many connections")) == 1
        for client in [*clients, *more]:
            client.close()
        wait_until(lambda: answers(url))


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=WAIT_S) as answer:
            return bool(json.load(answer)["status"] == "ok")
    except OSError:
        return False


def test_an_error_while_answering_is_a_line_of_the_log(logs: Logs, capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> tuple[bool, dict[str, Any]]:
        raise ZeroDivisionError("a bug")

    with serve(broken) as url:
        assert get(f"{url}/health")[0] == 500
    (line,) = said(logs, "request failed")
    assert "ZeroDivisionError: a bug" in line["exception"]
    assert capfd.readouterr().err == ""


def test_a_client_that_goes_away_is_a_line_of_the_log_at_most(
    monkeypatch: pytest.MonkeyPatch, logs: Logs, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listener_module._Handler, "timeout", 0.05)
    with serve() as url, connect(url):
        wait_until(lambda: said(logs, "request dropped") != [])
    assert said(logs, "request dropped")[0]["error"] == "TimeoutError"
    assert capfd.readouterr().err == ""


def test_the_listener_ends_while_clients_are_connected() -> None:
    with serve() as url:
        client = connect(url)
    with client, pytest.raises(OSError, match="refused"):
        connect(url)


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/report", "/report?table=none", "/other"])
def test_head_has_the_status_and_the_headers_of_get_and_no_body(path: str) -> None:
    registry = CollectorRegistry()
    Counter("runs", "Runs", registry=registry)
    pages: dict[str | None, str] = {None: "<p>all</p>"}
    with listening("127.0.0.1", 0, registry, well, lambda table: pages.get(table)) as url:
        head, get = (ask(url, path, method) for method in ("HEAD", "GET"))
    assert head[0] == get[0]
    assert head[1]["Content-Length"] == str(len(get[2])) != "0"
    assert head[1]["Content-Type"] == get[1]["Content-Type"]
    assert head[2] == b""


def ask(url: str, path: str, method: str) -> tuple[int, Mapping[str, str], bytes]:
    """The answer as it is sent, to the end of the connection: a client would not read the body of a HEAD."""
    with create_connection((urlsplit(url).hostname, urlsplit(url).port or 0), timeout=WAIT_S) as client:
        client.sendall(f"{method} {path} HTTP/1.0\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body
