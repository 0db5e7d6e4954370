"""Runs tests beside an S3 server that is not ours: what rgw.py and minio.py share.

To the command, `DBIO_TEST_S3_PORT` says where the server is, so that front.py puts it in moto's place, and
`DBIO_TEST_S3_SERVER` which one it is. It knows the user whom `moto_server` names, and has no bucket. It ends with the
command, and with this process, however it ends.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

KEY, SECRET = "test-key", "test-secret"
DEADLINE_S = 180.0


class NotStartedError(Exception): ...


def run_beside(server: AbstractContextManager[int], name: str, command: list[str]) -> int:
    """The command's exit code. SIGINT comes to both, and is the command's, which hears so of SIGTERM and our death."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with server as port:
        environment = {**os.environ, "DBIO_TEST_S3_SERVER": name, "DBIO_TEST_S3_PORT": str(port)}
        process = subprocess.Popen(["setpriv", "--pdeathsig", "INT", *command], env=environment)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        return process.wait()


def start_daemon(
    daemons: ExitStack, directory: Path, environment: Mapping[str, str], *command: str
) -> "subprocess.Popen[bytes]":
    """Out of reach of Ctrl-C, since the tests still need it to clean up; the kernel kills it when we die."""
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    daemons.callback(process.wait)
    daemons.callback(process.kill)  # comes first
    return process


def wait_for_answer(url: str, daemon: "subprocess.Popen[bytes]") -> None:
    """Raises NotStartedError where none comes."""
    until = time.monotonic() + DEADLINE_S
    while daemon.poll() is None and time.monotonic() < until:
        try:
            urlopen(url, timeout=10).close()
        except (URLError, OSError):
            time.sleep(0.2)
        else:
            return
    raise NotStartedError(f"nothing answers at {url}")


def free_ports(count: int) -> list[int]:
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [free.getsockname()[1] for free in sockets]
