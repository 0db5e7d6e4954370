"""The HTTP listener of the service: GET /metrics and GET /health, and nothing else."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socket import AF_INET6
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Health = Callable[[], tuple[bool, dict[str, Any]]]
"""Whether all is well, and a JSON document that says more."""


@contextmanager
def listening(host: str, port: int, registry: CollectorRegistry, health: Health) -> Iterator[str]:
    """Answers requests meanwhile. Gives the URL, in which port 0 has become a real one; raises OSError."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        if path != "/health":
            status, body = "404 Not Found", b"there is /metrics, and /health\n"
        elif method != "GET":
            status, body = "405 Method Not Allowed", b"use GET\n"
        else:
            well, document = health()
            status = "200 OK" if well else "503 Service Unavailable"
            body = json.dumps(document, indent=2, default=str).encode() + b"\n"
        kind = "application/json" if body.startswith(b"{") else "text/plain"
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    metrics = make_wsgi_app(registry)
    kind = _Server6 if ":" in host else _Server
    with make_server(host, port, answer, server_class=kind, handler_class=_Handler) as server:
        thread = Thread(target=server.serve_forever, name="vacuum-http", daemon=True)
        thread.start()
        try:
            yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10  # a client that is silent holds a thread

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are no news."""
