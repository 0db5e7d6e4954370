"""Ceph RGW, an S3 server that is not ours: `python -m tests.rgw COMMAND…` runs a command beside one.

A monitor, an OSD in memory and a gateway, as Debian packages them, run on free loopback ports as whoever calls, with
all that they write below a temporary directory.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from tests.beside import (
    DEADLINE_S,
    KEY,
    SECRET,
    NotStartedError,
    free_ports,
    run_beside,
    start_daemon,
    wait_for_answer,
)

PACKAGES = ["radosgw", "ceph-mon", "ceph-osd"]  # each has a program of its name
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


@contextmanager
def rgw() -> Iterator[int]:
    """The gateway's port."""
    if missing := [package for package in PACKAGES if not shutil.which(package)]:
        raise SystemExit(
            f"{' '.join(missing)} missing: sudo apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        )
    with TemporaryDirectory(prefix="rgw-", ignore_cleanup_errors=True) as directory, ExitStack() as daemons:
        ceph = _Ceph(Path(directory), daemons)
        try:
            yield ceph.start()
        except NotStartedError as error:
            logs = (f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in Path(directory).glob("*.log"))
            raise SystemExit("\n".join([f"Ceph did not start: {error}", *logs])) from error


class _Ceph:
    def __init__(self, directory: Path, daemons: ExitStack) -> None:
        self._directory, self._daemons = directory, daemons
        self._environment = {**os.environ, "CEPH_CONF": str(directory / "ceph.conf")}

    def start(self) -> int:
        cluster, disk, (mon_port, port) = uuid4(), uuid4(), free_ports(2)
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
        keys = ["--access-key", KEY, "--secret", SECRET]
        self._run("radosgw-admin", "-n", "client.rgw", "user", "create", "--uid", "test", "--display-name", "x", *keys)
        wait_for_answer(f"http://127.0.0.1:{port}", self._daemon("radosgw", "-f", "-n", "client.rgw"))
        return port

    def _run(self, *command: str) -> None:
        """Waits for what it needs: the monitor, or the OSD."""
        try:
            subprocess.run(
                command,
                cwd=self._directory,
                env=self._environment,
                check=True,
                timeout=DEADLINE_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except subprocess.CalledProcessError as error:
            raise NotStartedError(f"{error}: {error.stderr.decode(errors='replace')[-2000:]}") from error
        except subprocess.TimeoutExpired as error:
            raise NotStartedError(str(error)) from error

    def _daemon(self, *command: str) -> "subprocess.Popen[bytes]":
        return start_daemon(self._daemons, self._directory, self._environment, *command)


def _allow(*daemons: str) -> list[str]:
    return [word for daemon in daemons for word in ("--cap", daemon, "allow *")]


if __name__ == "__main__":
    sys.exit(run_beside(rgw(), "rgw", sys.argv[1:]))
