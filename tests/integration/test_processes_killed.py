"""Real writers that are killed with SIGKILL at each step: readers see all or nothing, and life goes on.

The plain engine is killed at every call that reaches the disk or the service; a Spark driver, with its JVM and workers,
at steps of the protocol and at random times. The same in memory: tests/unit/test_crash_points.py. Drivers of which
only the Python process dies: test_spark_failures.py. Invariants: PROTOCOL.md 5.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest

from dbio_commit import Commit, Table, TableNotFoundError, decision, names
from dbio_commit.clock import Clock
from dbio_commit.markers import Operation
from dbio_commit.store import base
from tests.conftest import Root
from tests.writers import contents, live, stage, write_days
from vacuum import VacuumOptions, vacuum_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]


class Ahead(Clock):
    """So that whatever was there an hour ago is old."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next waits no minute for a turn whose holder is dead."""
    monkeypatch.setattr(decision, "LEASE_S", 0.2)


def check_vacuum(table: Table, rows: list[bytes]) -> None:
    """It restores the directory to exactly the live files, which hold these, and the log."""
    assert contents(table) == rows
    report = vacuum_table(Table.over(table.store, Ahead()), VacuumOptions(retention_hours=1, checkpoint_after=0))
    assert report.ok, report.failed
    files, paths = live(table), {entry.path for entry in table.store.list_files()}
    log = {path for path in paths if names.parse_log_name(path)} | {names.DESCRIPTOR}
    assert paths - log == files
    assert contents(table) == rows
    assert not table.store.list_unfinished()
    checked = table.check()
    assert checked.ok
    assert not checked.pending
    if table.store.has_directories:
        directories = {str(found.relative_to(table.url)) for found in Path(table.url).rglob("*") if found.is_dir()}
        assert directories == {names.split(path)[0] for path in files if "/" in path}


# --- the plain engine, at each call -------------------------------------------------------------------------------

BEFORE = [b"day 1", b"day 2", b"day 3"]
NEW = [b"new 4", b"1" * (6 << 20)]
"""The second is more than one part of an upload."""


class Work(NamedTuple):
    operation: Operation
    after: list[bytes]
    app: tuple[str, int] | None = None


WORKS = {
    "append": Work("append", [*BEFORE, *NEW]),
    "overwrite": Work("overwrite", NEW),
    "replace": Work("replace_partitions", [b"day 2", b"day 3", *NEW], ("job", 1)),
}


def make_template(table: Table) -> None:
    write_days(table, day0=b"removed")
    write_days(table, "overwrite", day1=BEFORE[0], day2=BEFORE[1], day3=BEFORE[2])


def work(table: Table, name: str) -> Commit:
    transaction = table.begin(WORKS[name].operation, partition_by=["day"], app=WORKS[name].app)
    stage(table, transaction, NEW[0], {"day": "day4"})
    stage(table, transaction, NEW[1], {"day": "day1"})
    return transaction.commit()


class Fuse:
    """Kills this process after so many steps."""

    def __init__(self, steps: int) -> None:
        self._left, self._lock = steps, Lock()

    def burn(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def burn_before_system_calls(fuse: Fuse, root: str) -> None:
    """That open, list, link, delete or make something below the root. The hook lasts as long as the process."""
    events = {"open", "os.scandir", "os.mkdir", "os.link", "os.remove"}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in events and str(arguments[0]).startswith(root):
            fuse.burn()

    sys.addaudithook(hook)


def burn_after_requests(fuse: Fuse) -> None:
    from aiobotocore.client import AioBaseClient

    call = AioBaseClient._make_api_call

    async def burning(*args: Any) -> Any:
        answer = await call(*args)
        fuse.burn()
        return answer

    AioBaseClient._make_api_call = burning


def copy(source: Table, target: Table) -> None:
    for entry in source.store.list_files():
        assert target.store.put_if_absent(entry.path, source.store.get(entry.path))


def kill_one_after_another(name: str, url: str, storage_options: str) -> None:
    """Works on copies of `url`/template, each in a fork that is killed one step later than the one before.

    Prints how many were killed before one came to its end. Runs in a process of its own, where nothing else goes on.
    """
    options, number = json.loads(storage_options), 0
    base.UPLOAD_BYTES = 5 << 20  # or it would take a larger file to see an upload of several parts
    template = Table(f"{url}/template", options)
    while True:
        number += 1
        table = Table(f"{url}/{number}", options)
        copy(template, table)
        pid = os.fork()
        if not pid:
            try:
                fuse = Fuse(number)
                if options:
                    burn_after_requests(fuse)
                else:
                    burn_before_system_calls(fuse, table.url)
                work(table, name)
                os._exit(0)
            finally:
                os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != -signal.SIGKILL:
            assert status == 0, f"writer {number} ended with {status}"
            print(json.dumps(number - 1))
            return


@pytest.mark.parametrize("name", WORKS)
def test_of_a_writer_killed_at_any_call_all_or_nothing_is_seen_and_the_next_one_works(
    root: Root, name: str, short_lease: None
) -> None:  # I1, I2, I8, I9
    make_template(Table(f"{root.url}/template", root.storage_options))
    code = f"from {__name__} import kill_one_after_another as run; import sys; run(*sys.argv[1:])"
    killing = subprocess.run(
        [sys.executable, "-c", code, name, root.url, json.dumps(root.storage_options)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert killing.returncode == 0, killing.stderr[-3000:]
    visible: list[bool] = []
    leftovers: Counter[str] = Counter()
    for number in range(1, json.loads(killing.stdout) + 1):
        table = Table(f"{root.url}/{number}", root.storage_options)
        seen = contents(table)
        visible.append(seen != sorted(BEFORE))
        assert seen == sorted(WORKS[name].after if visible[-1] else BEFORE)
        checked = table.check()
        assert checked.ok
        leftovers["pending"] += len(checked.pending)
        leftovers["turns"] += visible[-1] is False and len(table.snapshot().log.turns) > 1
        leftovers["unfinished"] += len(table.store.list_unfinished())
        again = work(table, name)
        assert again.skipped is (visible[-1] and WORKS[name].app is not None)
        twice = NEW if visible[-1] and name == "append" else []  # which promises no more
        check_vacuum(table, sorted([*WORKS[name].after, *twice]))
    assert visible == sorted(visible)  # once it is committed, it stays so
    assert len(visible) > 10
    assert set(visible) == {False, True}
    assert leftovers["pending"] > 3
    assert leftovers["unfinished"] > 0
    assert (leftovers["turns"] > 0) is (name != "append")
    print(f"{name}: killed {len(visible)} times, {sum(visible)} of them committed; left: {dict(leftovers)}")
