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

_LISTS_NO_UPLOADS = "MinIO lists the uploads in parts of one whole key alone, and ends those of a day ago by itself"
LEFT_OUT = {
    "test_pages_make_no_difference[s3-1]": "in pages of one key, a key that is the prefix is the last one for MinIO",
    "test_directories_without_a_name_are_passed_over": "MinIO refuses keys with //",
    "test_what_could_not_be_deleted_is_returned_and_the_rest_is_gone": "MinIO's policies are others than S3's",
    "test_uploads_below_the_root_are_listed_and_no_others": _LISTS_NO_UPLOADS,
    "test_an_upload_of_ours_is_listed_until_it_is_closed": _LISTS_NO_UPLOADS,
    "test_aborted_uploads_are_gone_and_their_neighbours_are_not": _LISTS_NO_UPLOADS,
    "test_two_uploads_of_one_object_are_two": _LISTS_NO_UPLOADS,
    "test_an_upload_that_could_not_be_aborted_is_returned_and_the_others_are_gone": _LISTS_NO_UPLOADS,
}
"""The tests that it cannot pass, or cases of them, and why; conftest.py skips them."""


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
