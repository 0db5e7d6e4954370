"""bench/slow.py: every request waits once, on connections that are kept, and also one that asks before it sends."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import perf_counter
from urllib.parse import urlsplit

from bench.slow import slowed

DELAY_S = 0.3


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def slow_echo() -> Iterator[str]:
    """The address of the proxy, without the scheme."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with slowed(f"http://127.0.0.1:{server.server_port}", DELAY_S) as url:
            yield urlsplit(url).netloc
        server.shutdown()


def test_each_request_on_a_connection_waits() -> None:
    body = bytes(range(256)) * 4096
    with slow_echo() as address:
        connection = http.client.HTTPConnection(address)
        for _ in range(2):
            began_s = perf_counter()
            connection.request("PUT", "/", body)
            assert connection.getresponse().read() == body
            assert perf_counter() - began_s >= DELAY_S
        connection.close()


def test_a_request_that_asks_whether_to_go_on_waits_once() -> None:
    with slow_echo() as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
            assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
            began_s = perf_counter()
            connection.sendall(b"rows")
            assert b"200 OK" in connection.recv(1000)
            assert perf_counter() - began_s < DELAY_S
