"""Real writers that are killed with SIGKILL at each step: readers see all or nothing, and life goes on.

The plain engine is killed at every call that reaches the disk or the service; a Spark driver, with its JVM and workers,
at steps of the protocol and at random times; and each of these three alone. The same in memory:
tests/unit/commit/test_crash_points.py. Invariants: PROTOCOL.md 5.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BytesIO
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow.parquet as pq
import pytest

import dbio_commit
from dbio_commit import Commit, Table
from dbio_commit.commit import turns
from dbio_commit.commit.isolation import Read
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.protocol import names
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store, fsspec_store
from tests.conftest import Root
from tests.later import vacuum_later
from tests.writers import contents, live, stage, write_days
from vacuum import VacuumOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]


@pytest.fixture(params=["local", "s3", "gcs"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes next waits no minute for a turn whose holder is dead."""
    monkeypatch.setattr(turns, "LEASE_S", 0.0)


def check_vacuum(table: Table, rows: list[bytes]) -> None:
    """It restores the directory to exactly the live files, which hold these, and the log."""
    assert contents(table) == rows
    options = VacuumOptions(retention_hours=1, checkpoint_after=0)
    report = vacuum_later(table, options, by=timedelta(hours=2))
    assert report.ok, report.failed
    files, paths = live(table), {entry.path for entry in table.store.list_files()}
    paths -= {path for path in paths if path.endswith(".crc")}  # Hadoop's, of files that it had no time to end
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
NEW = [b"new 4", b"new 1"]
LARGE = b"1" * (6 << 20)
"""More than one part of an upload."""


class Work(NamedTuple):
    operation: Operation | Literal["restore"]
    new: list[bytes]
    after: list[bytes]
    app: tuple[str, int] | None = None
    before: list[bytes] = BEFORE


WORKS = {
    "append": Work("append", [NEW[0], LARGE], [*BEFORE, NEW[0], LARGE]),
    "overwrite": Work("overwrite", NEW, NEW),
    "replace": Work("overwrite_partitions", NEW, [b"day 2", b"day 3", *NEW], ("job", 1)),
    "rewrite": Work("rewrite", NEW, [b"day 2", b"day 3", *NEW]),
    "restore": Work("restore", [], [*BEFORE, LARGE], before=[b"day 2", b"day 3", *NEW]),
}


def make_template(work: Work, table: Table) -> None:
    write_days(table, day0=b"removed")
    if work.operation == "restore":  # two files stay, two go, and two come back as copies
        write_days(table, "overwrite", day1=BEFORE[0], day2=BEFORE[1], day3=BEFORE[2], day4=LARGE)
        write_days(table, "overwrite_partitions", day1=NEW[0], day4=NEW[1])
    else:
        write_days(table, "overwrite", day1=BEFORE[0], day2=BEFORE[1], day3=BEFORE[2])


def touched(snapshot: Snapshot) -> list[DataFile]:
    """By the rewrite: as by a merge of a row of each of these days."""
    return [file for file in snapshot.files if file.partition["day"] in ("day1", "day4")]


def do(work: Work, table: Table) -> Commit:
    if work.operation == "restore":
        return table.restore(table.history()[-2].tid)
    transaction = table.begin(work.operation, partition_by=["day"], app=work.app)
    if work.operation == "rewrite":
        seen = table.snapshot()
        transaction.remove(file.path for file in touched(seen))
        transaction.depends_on(Read(tids=frozenset(seen.tids), may_match=touched, isolation="serializable"))
    for day, body in zip(["day4", "day1"], work.new, strict=True):
        stage(table, transaction, body, {"day": day})
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
    """That open, list, link, delete or make something below the root. The hook lasts as long as the process.

    What has a name without a directory, or none, lies in a directory that is open: the store's alone does.
    """
    events = {"open", "os.scandir", "os.mkdir", "os.link", "os.remove"}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in events:
            place = arguments[0]
            if event == "open" and (isinstance(place, int) or arguments[2] & os.O_DIRECTORY):
                return
            if isinstance(place, int) or not os.path.isabs(place) or str(place).startswith(root):
                fuse.burn()

    sys.addaudithook(hook)


def burn_after_requests(fuse: Fuse) -> None:
    from aiobotocore.client import AioBaseClient

    from dbio_commit.store.gcs import FileSystem

    def burn_after(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        async def burning(*args: Any, **options: Any) -> Any:
            answer = await call(*args, **options)
            fuse.burn()
            return answer

        setattr(owner, name, burning)

    burn_after(AioBaseClient, "_make_api_call")
    burn_after(FileSystem, "_request")


def copy(source: Table, target: Table, operation: str) -> None:
    """With the times of its commits for a restore, which goes by them; else object by object."""
    if operation == "restore":
        copy_table(source.store, target.store, source.clock)
        return
    for entry in source.store.list_files():
        assert target.store.put_if_absent(entry.path, source.store.get(entry.path))


def kill_one_after_another(name: str, url: str, storage_options: str) -> None:
    """Works on copies of `url`/template, each in a fork that is killed one step later than the one before.

    Prints how many were killed before one came to its end. Runs in a process of its own, where nothing else goes on.
    """
    options, number = json.loads(storage_options), 0
    fsspec_store.UPLOAD_BYTES = 5 << 20  # or it would take a larger file to see an upload of several parts
    template = Table(f"{url}/template", options)
    while True:
        number += 1
        table = Table(f"{url}/{number}", options)
        copy(template, table, WORKS[name].operation)
        pid = os.fork()
        if not pid:
            try:
                fuse = Fuse(number)
                if options:
                    burn_after_requests(fuse)
                else:
                    burn_before_system_calls(fuse, table.url)
                do(WORKS[name], table)
                os._exit(0)
            finally:
                os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != -signal.SIGKILL:
            assert status == 0, f"writer {number} ended with {status}"
            print(json.dumps(number - 1))
            return


@pytest.mark.long_for("gcs", "s3")
@pytest.mark.slow("I1 of real processes killed at each call of five operations")
@pytest.mark.parametrize("name", WORKS)
def test_of_a_writer_killed_at_any_call_all_or_nothing_is_seen_and_the_next_one_works(
    root: Root, name: str, short_lease: None
) -> None:  # I1, I2, I8, I9
    work = WORKS[name]
    make_template(work, Table(f"{root.url}/template", root.storage_options))
    code = f"from {__name__} import kill_one_after_another as run; import sys; run(*sys.argv[1:])"
    killing = subprocess.run(
        [sys.executable, "-c", code, name, root.url, json.dumps(root.storage_options)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    assert killing.returncode == 0, killing.stderr[-3000:]
    visible: list[bool] = []
    left: Counter[str] = Counter()
    for number in range(1, json.loads(killing.stdout) + 1):
        table = Table(f"{root.url}/{number}", root.storage_options)
        rows, checked = contents(table), table.check()
        assert rows in (sorted(work.before), sorted(work.after))
        assert checked.ok
        visible.append(rows == sorted(work.after))
        left["pending"] += len(checked.pending)
        left["pending in turn"] += bool(checked.pending) and len(table.snapshot().log.turns) > 1
        left["unfinished"] += len(table.store.list_unfinished())
        again = do(work, table)
        assert again.skipped is (visible[-1] and work.app is not None)
        twice = work.new if visible[-1] and name == "append" else []  # which promises no more
        check_vacuum(table, sorted([*work.after, *twice]))
    assert visible == sorted(visible)  # once it is committed, it stays so
    assert set(visible) == {False, True}
    assert left["pending"] > 3
    assert (left["pending in turn"] > 0) is (name != "append")
    lists_uploads = os.environ.get("DBIO_TEST_S3_SERVER") != "minio" and "gs:" not in root.url  # see tests/minio.py
    assert left["unfinished"] > 0 or name not in ("append", "restore") or not lists_uploads
    print(f"{name}: killed {len(visible)} times, {sum(visible)} of them committed; left: {dict(left)}")


# --- Spark --------------------------------------------------------------------------------------------------------

ROWS = 1000
"""In each batch."""
SEED = int(os.environ.get("DBIO_TEST_SEED", time.time_ns() % 1_000_000))
DEADLINE_S = 400.0

Mode = Literal["append", "overwrite", "overwrite_partitions"]
Step = Literal["begun", "writing", "written", "committed"]

STEPS: dict[Step, Mode] = {
    "begun": "append",
    "writing": "overwrite_partitions",
    "written": "overwrite",
    "committed": "append",
}
"""Where the driver is killed: its start marker is there; one task has ended and the other not; both have, and it holds
the turn; its commit marker is there, and nobody was told."""

VICTIMS = {"driver": "import drive", "JVM": "bin/java", "workers": "pyspark.daemon"}
"""What their command lines have in them."""


class Target(NamedTuple):
    """A table to which a driver writes, and the name under which it tells how far it has come."""

    name: str
    table: Table
    native: bool = False
    """By Spark's own writer, in a session with `enable(parquet=True)`."""

    def write(self, spark: "SparkSession", number: int, mode: Mode = "append", wait: Path | None = None) -> bool:
        """The batch of that number, once: False where it was there. Its second task waits, at its first attempt, where
        it is to leave `wait`."""
        from pyspark.sql.functions import udf

        import dbio_commit as dbio

        @udf("bigint")
        def waiting(id):  # type: ignore[no-untyped-def]  # Spark takes hints for orders
            if wait and id == (number + 1) * ROWS - 1 and not wait.exists():
                wait.touch()
                time.sleep(2 * DEADLINE_S)
            return id

        frame = spark.range(number * ROWS, (number + 1) * ROWS, 1, 2).selectExpr("id", "concat('d', id % 2) AS day")
        if wait:
            frame = frame.withColumn("id", waiting("id"))
        if self.native:
            before = len(self.table.history()) if number else 0
            options = {"txnAppId": "job", "txnVersion": str(number), "partitionOverwriteMode": "static"}
            if mode == "overwrite_partitions":
                mode, options["partitionOverwriteMode"] = "overwrite", "dynamic"
            frame.write.options(**options).partitionBy("day").mode(mode).parquet(self.table.url)
            return len(self.table.history()) > before
        return not dbio.write(
            frame,
            self.table.url,
            mode=mode,
            partition_by="day",
            app=("job", number),
            storage_options=self.table.storage_options,
        ).skipped


def batches(table: Table) -> list[int]:
    """The numbers of the batches that a reader sees, each of them whole and once."""
    files = [pq.read_table(BytesIO(table.store.get(path)), columns=["id"]) for path in live(table)]
    ids: list[Any] = [id for file in files for id in file["id"].to_pylist()]
    numbers = sorted({id // ROWS for id in ids})
    assert sorted(ids) == [id for number in numbers for id in range(number * ROWS, (number + 1) * ROWS)]
    return numbers


def mortal_session(*, threads: int) -> "SparkSession":
    """Of a driver that is to be killed."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(f"local[{threads},100]")  # it does a task again whose worker is killed
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def drive(targets: str, flags: str, step: Step | Literal["any"]) -> None:
    """A driver: writes two batches to all targets at once, and stops at that step of the second; or writes for ever.

    The file `name number` among the flags says that a batch is committed, `name stopped` that the step is reached.
    """
    spark = mortal_session(threads=4)

    def write(target: Target) -> None:
        session = spark.newSession()
        for number in count() if step == "any" else range(2):
            stopped = Path(flags, f"{target.name} stopped")
            if number and step != "any":
                stop_at(step, target.table, stopped)
                target.write(session, number, STEPS[step], wait=stopped if step == "writing" else None)
            else:
                target.write(session, number)
            Path(flags, f"{target.name} {number}").touch()

    tables = [Target(name, Table(url, options), native) for name, url, options, native in json.loads(targets)]
    dbio_commit.enable(spark, parquet=True, roots=[target.table.url for target in tables if target.native])
    with ThreadPoolExecutor(len(tables)) as pool:
        list(pool.map(write, tables))


def stop_at(step: Step, table: Table, stopped: Path) -> None:
    """Of what creates an object there, only that which ends the step waits for ever."""
    kind = type(table.store)
    put = kind.put_if_absent

    def stopping(store: Store, path: str, body: bytes) -> bool:
        def stop_where(at: Step, kind: names.Kind) -> None:
            if at == step and store.url == table.url and path.startswith(kind):
                stopped.touch()
                time.sleep(2 * DEADLINE_S)

        stop_where("written", names.Kind.COMMITTED)
        created = put(store, path, body)
        stop_where("begun", names.Kind.STARTED)
        stop_where("committed", names.Kind.COMMITTED)
        return created

    kind.put_if_absent = stopping  # type: ignore[assignment, method-assign]


@pytest.fixture
def targets(enabled: "SparkSession", local_root: Root, s3_root: Root) -> list[Target]:
    """Both stores and both ways, for one driver to write to: it takes seconds to start one."""
    native = f"{local_root.url}-native"
    dbio_commit.enable(enabled, parquet=True, roots=native)
    return [
        Target("disk", Table(local_root.url)),
        Target("bucket", Table(s3_root.url, s3_root.storage_options)),
        Target("native", Table(native), native=True),
    ]


@contextmanager
def driver(
    targets: list[Target], flags: Path, step: Step | Literal["any"], *, module: str = __name__
) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs the module's `drive`. Killed at the end of the block: it, its JVM and its workers, at once."""
    places = [(it.name, it.table.url, dict(it.table.storage_options), it.native) for it in targets]
    code = f"from {module} import drive; import sys; drive(*sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(places), str(flags), step], cwd=PROJECT, start_new_session=True
    )
    try:
        yield process
    finally:
        while kill(process, ""):
            pass
        process.wait()


def kill(driver: "subprocess.Popen[bytes]", command: str) -> int:
    """Kills those of its processes that have this in their command line; returns how many were alive."""
    pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_alive(pid, driver.pid, command)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def is_alive(pid: int, session: int, command: str) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        process = Path(f"/proc/{pid}")
        runs = os.getsid(pid) == session and ") Z " not in (process / "stat").read_text()
        return runs and command in (process / "cmdline").read_text(errors="replace")
    return False


def kill_at_any_time(
    targets: list[Target], flags: Path, chance: random.Random, *, last_s: float, module: str = __name__
) -> int:
    """Kills the workers alone three times, then all that `driver` runs; returns how many workers that were."""
    with driver(targets, flags, "any", module=module) as process:
        wait_for(flags, [f"{target.name} 0" for target in targets], process)
        killed = 0
        for _ in range(3):
            time.sleep(chance.uniform(0, 1))
            killed += kill(process, VICTIMS["workers"])  # whose tasks are done again
        wait_for(flags, [f"{target.name} 1" for target in targets], process)
        time.sleep(chance.uniform(0, last_s))
    return killed


def wait_for(flags: Path, found: list[str], process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + DEADLINE_S
    while not all((flags / name).exists() for name in found):
        assert time.monotonic() < until, f"of {found} there are only {os.listdir(flags)}"
        assert process.poll() is None, "the driver ended before it got that far"
        time.sleep(0.02)


def is_half_written(table: Table) -> bool:
    """Whether a data file of a transaction that is pending is there."""
    pending = {it.tid for it in table.check().pending}
    return any(names.parse_data_file(names.split(entry.path)[1]) in pending for entry in table.store.list_files())


def wait_for_step(step: Step, targets: list[Target], flags: Path, process: "subprocess.Popen[bytes]") -> None:
    wait_for(flags, [f"{target.name} stopped" for target in targets], process)
    until = time.monotonic() + DEADLINE_S
    while step == "writing" and not all(is_half_written(target.table) for target in targets):
        assert time.monotonic() < until, "no task ended"
        time.sleep(0.05)


@pytest.mark.long_for("begun", "writing", "written")
@pytest.mark.slow("I1 of a Spark job killed with its JVM and workers")
@pytest.mark.parametrize("step", STEPS)
def test_of_a_spark_job_killed_at_a_step_all_or_nothing_is_seen_and_a_repetition_works(
    spark: "SparkSession", targets: list[Target], tmp_path: Path, step: Step, short_lease: None
) -> None:  # I1, I2, I8, I9
    with driver(targets, tmp_path, step) as process:
        wait_for_step(step, targets, tmp_path, process)
    for target in targets:
        committed = step == "committed"
        assert batches(target.table) == ([0, 1] if committed else [0])
        assert is_half_written(target.table) is (step in ("writing", "written"))
        assert target.write(spark, 1, STEPS[step]) is not committed
        assert batches(target.table) == ([0, 1] if STEPS[step] == "append" else [1])
        check_vacuum(target.table, contents(target.table))


@pytest.mark.long
@pytest.mark.parametrize("victim", VICTIMS)
def test_of_a_spark_job_killed_in_part_all_or_nothing_is_seen_and_a_repetition_works(
    spark: "SparkSession", targets: list[Target], tmp_path: Path, victim: str, short_lease: None
) -> None:  # I1, I8, I9
    with driver(targets, tmp_path, "writing") as process:
        wait_for_step("writing", targets, tmp_path, process)
        assert kill(process, VICTIMS[victim])
        ended = process.wait(DEADLINE_S)
    committed = victim == "workers"  # whose tasks were done again
    assert (ended == 0) is committed
    for target in targets:
        assert batches(target.table) == ([1] if committed else [0])
        left = victim == "driver" or (victim == "JVM" and target.native)  # whose abort comes from the JVM
        assert len(target.table.check().pending) == left
        assert target.write(spark, 1, STEPS["writing"]) is not committed
        assert batches(target.table) == [1]
        check_vacuum(target.table, contents(target.table))


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_of_a_spark_job_killed_at_any_time_every_batch_is_seen_whole_or_not_at_all(
    spark: "SparkSession", targets: list[Target], tmp_path: Path, number: int, short_lease: None
) -> None:  # I1, I2, I8, I9
    killed = kill_at_any_time(targets, tmp_path, random.Random(SEED + number), last_s=3)
    for target in targets:
        reported = sum(flag.name.startswith(target.name) for flag in tmp_path.iterdir())
        seen = batches(target.table)
        print(f"DBIO_TEST_SEED={SEED}: {target.name}: {killed} workers, {reported} batches reported, {len(seen)} seen")
        assert seen in (list(range(reported)), list(range(reported + 1)))  # the last one's answer was lost
        assert target.write(spark, reported) is (reported not in seen)
        assert batches(target.table) == list(range(reported + 1))
        check_vacuum(target.table, contents(target.table))
