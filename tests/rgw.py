"""Ceph RGW, an S3 server that is not ours: `python -m tests.rgw COMMAND…` runs a command beside one.

A monitor, an OSD in memory and a gateway, as Debian packages them, run on free loopback ports as whoever calls, with
all that they write below a temporary directory. They end with the command, and with this process, however it ends.
To the command, `DBIO_TEST_S3_PORT` says where the gateway is; front.py puts it in moto's place.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen
from uuid import uuid4

PACKAGES = ["radosgw", "ceph-mon", "ceph-osd"]  # each has a program of its name
DEADLINE_S = 180.0
CONFIGURATION = """
[global]
fsid = {cluster}
mon host = v2:127.0.0.1:{mon_port}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {directory}/keyring
run dir = {directory}
crash dir = {directory}
log file = {directory}/$name.log
admin socket =
pid file =
mon data = {directory}/mon
mon allow pool size one = true
mon data avail crit = 1
osd data = {directory}/osd
osd objectstore = memstore
memstore device bytes = 4G
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
rgw data = {directory}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port}
"""


def main(command: list[str]) -> int:
    """The command's exit code. SIGINT comes to both, and is the command's, which hears so of SIGTERM and our death."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with rgw() as port:
        environment = {**os.environ, "DBIO_TEST_S3_PORT": str(port)}
        process = subprocess.Popen(["setpriv", "--pdeathsig", "INT", *command], env=environment)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        return process.wait()


@contextmanager
def rgw() -> Iterator[int]:
    """The gateway's port. Knows the user whom moto_server names, and has no bucket."""
    if missing := [package for package in PACKAGES if not shutil.which(package)]:
        raise SystemExit(
            f"{' '.join(missing)} missing: sudo apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        )
    with TemporaryDirectory(prefix="rgw-", ignore_cleanup_errors=True) as directory, ExitStack() as daemons:
        ceph = _Ceph(Path(directory), daemons)
        try:
            yield ceph.start()
        except _NotStarted as error:
            logs = (f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in Path(directory).glob("*.log"))
            raise SystemExit("\n".join([f"Ceph did not start: {error}", *logs])) from error


class _NotStarted(Exception): ...


class _Ceph:
    def __init__(self, directory: Path, daemons: ExitStack) -> None:
        self._directory, self._daemons = directory, daemons
        self._environment = {**os.environ, "CEPH_CONF": str(directory / "ceph.conf")}

    def start(self) -> int:
        cluster, disk, (mon_port, port) = uuid4(), uuid4(), _free_ports(2)
        for name in ("mon", "osd", "rgw"):
            (self._directory / name).mkdir()
        text = CONFIGURATION.format(cluster=cluster, directory=self._directory, mon_port=mon_port, port=port)
        (self._directory / "ceph.conf").write_text(text)
        # With authentication: without it the gateway of version 16 does not get past the monitor.
        self._run("ceph-authtool", "-C", "keyring", "--gen-key", "-n", "mon.", *_allow("mon"))
        for name in ("client.admin", "client.rgw", "osd.0"):
            self._run("ceph-authtool", "keyring", "--gen-key", "-n", name, *_allow("mon", "osd"))
        address = f"[v2:127.0.0.1:{mon_port}]"
        self._run("monmaptool", "--create", "--fsid", str(cluster), "--addv", "a", address, "monmap")
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
        self._daemon("ceph-mon", "-f", "-i", "a")
        self._run("ceph", "osd", "new", str(disk), "0")
        self._run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", str(disk), "--no-mon-config")
        self._daemon("ceph-osd", "-f", "-i", "0")
        keys = ["--access-key", "test-key", "--secret", "test-secret"]
        self._run("radosgw-admin", "-n", "client.rgw", "user", "create", "--uid", "test", "--display-name", "x", *keys)
        self._wait_for(port, self._daemon("radosgw", "-f", "-n", "client.rgw"))
        return port

    def _run(self, *command: str) -> None:
        """Waits for what it needs: the monitor, or the OSD."""
        try:
            subprocess.run(command, check=True, timeout=DEADLINE_S, stderr=subprocess.PIPE, **self._options())
        except subprocess.CalledProcessError as error:
            raise _NotStarted(f"{error}: {error.stderr.decode(errors='replace')[-2000:]}") from error
        except subprocess.TimeoutExpired as error:
            raise _NotStarted(str(error)) from error

    def _daemon(self, *command: str) -> "subprocess.Popen[bytes]":
        # Out of reach of Ctrl-C, since the tests still need it to clean up; the kernel kills it when we die.
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **self._options(),
        )
        self._daemons.callback(process.wait)
        self._daemons.callback(process.kill)  # comes first
        return process

    def _options(self) -> dict[str, Any]:
        return {
            "cwd": self._directory,
            "env": self._environment,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
        }

    def _wait_for(self, port: int, gateway: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + DEADLINE_S
        while gateway.poll() is None and time.monotonic() < until:
            try:
                urlopen(f"http://127.0.0.1:{port}", timeout=10).close()
            except (URLError, OSError):
                time.sleep(0.2)
            else:
                return
        raise _NotStarted("the gateway does not answer")


def _allow(*daemons: str) -> list[str]:
    return [word for daemon in daemons for word in ("--cap", daemon, "allow *")]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [free.getsockname()[1] for free in sockets]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
