"""The HTTP listener of the service: GET and HEAD of /metrics, /health, /report, and of a page that links them.

Requests only read what the service knows. None causes a request to a store.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from socket import AF_INET6, SHUT_RDWR, socket
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from dbio_commit.base.texts import plain
from dbio_commit.maintenance.report.page import POLICY

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

Health = Callable[[], tuple[bool, dict[str, Any]]]
"""Whether all is well, and the details as a JSON document."""

Report = Callable[[str | None], str | None]
"""A page about the health of one table, or of all. None if there is no such table."""

REQUEST_S = 10.0
"""The most time for a request and its answer."""

MOST_CONNECTIONS = 16
"""The most connections at once. More are closed without an answer."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger("vacuum")

_Request = socket | tuple[bytes, socket]
"""The type in `socketserver`. Here, it is always a socket."""


@contextmanager
def listening(host: str, port: int, registry: CollectorRegistry, health: Health, report: Report) -> Iterator[str]:
    """Answers requests within the block. Gives the URL, with the chosen port if `port` is 0. Raises OSError."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        status, kind, body = "200 OK", "text/plain", b""
        if path not in ("/", "/health", "/report"):
            status, body = "404 Not Found", b"not found; see /metrics, /health, or /report\n"
        elif method != "GET":
            status, body = "405 Method Not Allowed", b"use GET or HEAD\n"
        elif path == "/health":
            well, document = health()
            status = "200 OK" if well else "503 Service Unavailable"
            kind, body = "application/json", json.dumps(plain(document), indent=2).encode() + b"\n"
        elif page := _INDEX if path == "/" else report(_table(environ["QUERY_STRING"])):
            kind, body = "text/html; charset=utf-8", page.encode()
        else:
            status, body = "404 Not Found", b"no such table; /report lists all\n"
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS])
        return [body]

    metrics = make_wsgi_app(registry)
    kind = _Server6 if ":" in host else _Server
    with make_server(host, port, _with_head(answer), server_class=kind, handler_class=_Handler) as server:
        thread = Thread(target=server.serve_forever, name="vacuum-http", daemon=True)
        thread.start()
        try:
            yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _with_head(answer: "WSGIApplication") -> "WSGIApplication":
    """Answers HEAD, which probes and `curl -I` send, with the status and headers of GET."""

    def answer_both(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return answer(environ, start_response)
        said: list[tuple[str, list[tuple[str, str]]]] = []

        def keep(status: str, headers: list[tuple[str, str]], error: object = None, /) -> Callable[[bytes], object]:
            said.append((status, headers))
            return lambda data: None

        body = b"".join(answer({**environ, "REQUEST_METHOD": "GET"}, keep))
        status, headers = said[-1]
        others = [(name, value) for name, value in headers if name != "Content-Length"]
        start_response(status, [*others, ("Content-Length", str(len(body)))])
        return []

    return answer_both


_HEADERS = [
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]

_INDEX = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>Vacuum</title>
<h1>Vacuum</h1>
<ul><li><a href="/report">The health of the tables</a></li>
<li><a href="/health">The health of the service, as JSON</a></li>
<li><a href="/metrics">Metrics, for Prometheus</a></li></ul>
</html>
"""


def _table(query: str) -> str | None:
    """The table that a request names, or None."""
    return next(iter(parse_qs(query, errors="surrogateescape").get("table", [])), None)


class _Server(ThreadingMixIn, WSGIServer):
    """Has a thread for each connection. Bounds their number and time: slow clients must not use up descriptors."""

    daemon_threads = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lock = Lock()
        self._open: dict[_Request, float] = {}
        self._refused_s = -REQUEST_S

    def process_request(self, request: _Request, client_address: Any) -> None:
        now_s = monotonic()
        with self._lock:
            if is_free := len(self._open) < MOST_CONNECTIONS:
                self._open[request] = now_s
        if is_free:
            super().process_request(request, client_address)
            return
        self.shutdown_request(request)
        if now_s - self._refused_s >= REQUEST_S:  # not a line for each, as a client could fill the log
            self._refused_s = now_s
            _log.warning("too many connections", most=MOST_CONNECTIONS, client=_host(client_address))

    def shutdown_request(self, request: _Request) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second: ends connections whose time is over."""
        now_s = monotonic()
        with self._lock:  # closed connections are not in `_open`, so that no reused descriptor is shut down
            for request, since_s in self._open.items():
                if now_s - since_s > REQUEST_S and isinstance(request, socket):
                    with suppress(OSError):  # the client has gone
                        request.shutdown(SHUT_RDWR)

    def handle_error(self, request: _Request, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, OSError):
            _log.info("request dropped", client=_host(client_address), error=type(error).__name__, message=str(error))
        else:
            _log.error("request failed", client=_host(client_address), exc_info=True)


def _host(address: Any) -> str:
    return str(address[0])


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Logs no requests: there are many."""

    def get_stderr(self) -> StringIO:
        return _Errors()


class _Errors(StringIO):
    """The stream to which the handler of a request prints an error. A flush logs the error."""

    def flush(self) -> None:
        if text := self.getvalue():
            self.seek(0)
            self.truncate()
            _log.error("request failed", exception=text)
