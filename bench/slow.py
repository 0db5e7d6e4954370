"""A proxy that makes each request wait, as the way to a store in the cloud does. It knows just enough of HTTP/1.1."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


@contextmanager
def slowed(endpoint_url: str, delay_s: float) -> Iterator[str]:
    """A URL of the same server, where every request takes so much longer."""
    address = urlsplit(endpoint_url)
    assert address.hostname is not None
    assert address.port is not None
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        server = address.hostname, address.port
        threading.Thread(target=_accept, args=(listening, server, delay_s), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # or the thread would wait for ever


def _accept(listening: socket.socket, server: tuple[str, int], delay_s: float) -> None:
    with suppress(OSError):  # it is closed
        while True:
            client, _ = listening.accept()
            _Connection(client, socket.create_connection(server), delay_s)


class _Connection:
    """A thread for each direction, until either side ends."""

    def __init__(self, client: socket.socket, server: socket.socket, delay_s: float) -> None:
        self._client, self._server, self._delay_s = client, server, delay_s
        self._between_requests = True
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = threading.Thread(target=self._forward_answers, daemon=True)
        self._answers.start()
        threading.Thread(target=self._forward_requests, daemon=True).start()

    def _forward_requests(self) -> None:
        with self._client, self._server:
            with self._ending():
                while chunk := self._client.recv(1 << 18):
                    if self._between_requests:
                        self._between_requests = False
                        time.sleep(self._delay_s)
                    self._server.sendall(chunk)
            self._answers.join()

    def _forward_answers(self) -> None:
        with self._ending():
            while chunk := self._server.recv(1 << 18):
                # What follows this is the rest of the same request.
                self._between_requests = chunk != b"HTTP/1.1 100 Continue\r\n\r\n"
                self._client.sendall(chunk)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Ends both directions after the block, so that neither thread waits any more."""
        with suppress(OSError):
            yield
        for side in (self._client, self._server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
