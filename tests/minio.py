"""MinIO, an S3 server that is not ours: `python -m tests.minio COMMAND…` runs a command beside one.

`make test-minio` builds it from source into `.venv/minio`. It runs on free loopback ports, with all that it writes
below a temporary directory.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.beside import KEY, SECRET, NotStartedError, free_ports, run_beside, start_daemon, wait_for_answer

PROGRAM = Path(sys.prefix) / "minio/minio"

LEFT_OUT: dict[str, str] = {}
"""The tests that it cannot pass, and why; conftest.py skips them."""


@contextmanager
def minio() -> Iterator[int]:
    """Its port."""
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM} is not there: run `make test-minio`, which builds it")
    with TemporaryDirectory(prefix="minio-", ignore_cleanup_errors=True) as name, ExitStack() as daemons:
        directory, (port, console) = Path(name), free_ports(2)
        (directory / "data").mkdir()
        own = {"HOME": name, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MINIO_")}
        addresses = ["--address", f"127.0.0.1:{port}", "--console-address", f"127.0.0.1:{console}"]
        daemon = start_daemon(daemons, directory, kept | own, str(PROGRAM), "server", *addresses, "data")
        try:
            wait_for_answer(f"http://127.0.0.1:{port}/minio/health/live", daemon)
        except NotStartedError as error:
            raise SystemExit(f"MinIO did not start: {error}") from error
        yield port


if __name__ == "__main__":
    sys.exit(run_beside(minio(), "minio", sys.argv[1:]))
