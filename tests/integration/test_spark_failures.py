"""Tasks, workers, jobs and drivers that fail: exactly the rows of the winning attempts are there, or nothing (I1, I9).

What needs a session of its own, with retries, or dies, runs in a process of its own. Failures of the store:
test_spark_stores.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import dbio_commit as dbio
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.files import StoreSink, write_files
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.spark.write.plan import plan_write
from dbio_commit.spark.write.task import commit_files, encode_file_info
from tests import spark35
from tests.spark_tables import SPARK_ERRORS, data_files, ids, numbers
from tests.tiers import long

DEADLINE_S = 400.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def wait_for(file: Path, process: "subprocess.Popen[Any] | None" = None) -> None:
    until = time.monotonic() + DEADLINE_S
    while not file.exists():
        assert time.monotonic() < until, f"{file} did not appear"
        assert process is None or process.poll() is None, "the job ended before it got that far"
        time.sleep(0.05)


# --- retries and killed workers, in a session that retries --------------------------------------------------------

IN_SOURCE = pytest.mark.skipif(spark35.IS_USED, reason=spark35.NO_SOURCE)
RETRIES = """
    import json, os, signal, sys, threading, time
    from pathlib import Path

    sys.path.insert(0, sys.argv[1])
    from py4j.protocol import Py4JError
    from pyspark import TaskContext
    from pyspark.sql import SparkSession

    import dbio_commit as dbio
    from tests import spark35
    from tests.spark_tables import SPARK_ERRORS, data_files

    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")  # or all go to Python only at their end
        .getOrCreate()
    )
    dbio.enable(spark)
    LAST = 159_999  # of 80 MB in each of two tasks: a row group and a few batches more, for files to be there

    def failing(frame, action, attempts, path, last):
        # Its second task fails at its last batch, once it has written files.
        def fail(batches):
            for batch in batches:
                if batch.column(0)[-1].as_py() == last and TaskContext.get().attemptNumber() < attempts:
                    until = time.monotonic() + (60 if last == LAST else 0)
                    while not list(Path(path).glob("part-00001-*")) and time.monotonic() < until:
                        time.sleep(0.05)
                    action()
                yield batch

        return frame.mapInArrow(fail, "id bigint, text string")

    def raises():
        raise RuntimeError("the attempt fails")

    def kills_all_workers():
        for child in Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split():
            if int(child) != os.getpid():
                os.kill(int(child), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def waits(marker=sys.argv[3]):
        Path(marker).touch()
        time.sleep(120)

    def write(action, attempts, path, through):
        last = LAST if attempts < 3 else 1999  # which never succeeds: that files go is seen of the others
        rows = spark.range(0, last + 1, 1, 2).selectExpr("id", "repeat('x', 1000) AS text")
        frame = failing(rows, action, attempts, path, last)
        if through == "write":
            dbio.write(frame, path, max_records_per_file=20_000)
        else:
            frame.write.format("dbio").mode("append").option("maxRecordsPerFile", "20000").save(path)

    def outcome(action, attempts, path, through):
        try:
            write(action, attempts, path, through)
            error = None
        except (*SPARK_ERRORS, dbio.DbioError, KeyboardInterrupt, Py4JError) as caught:  # as Spark 4.0 says Ctrl+C
            error = f"{type(caught).__name__}: {caught}"
        snapshot = dbio.Table(path).snapshot()
        report = dbio.Table(path).check()
        rows = []
        if snapshot.files:
            rows = dbio.read(spark, path).selectExpr("count(*)", "count(DISTINCT id)", "sum(id)").first()
        return {
            "error": error,
            "rows": list(rows),
            "recorded": [dict(commit.metrics).get("numOutputRows") for commit in snapshot.history()],
            "attempts": len({file.split("-")[-3] for file in data_files(path)}),
            "pending": len(report.pending),
            "garbage": sorted(str(kind.name) for kind in report.garbage),
        }

    found = {}
    for through in ("write",) if spark35.IS_USED else ("write", "data source"):
        for action, attempts in ((raises, 1), (kills_all_workers, 1), (raises, 3)):
            name = f"{action.__name__} {attempts} {through}"
            found[name] = outcome(action, attempts, f"{sys.argv[2]}/{name}", through)

    def interrupt():
        while not os.path.exists(sys.argv[3]):
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    found["interrupted"] = outcome(waits, 1, f"{sys.argv[2]}/interrupted", "write")

    bad = spark.range(0, 4, 1, 2).selectExpr("id", "IF(id = 3, '', 'x') AS day")
    try:
        dbio.write(bad, f"{sys.argv[2]}/bad", partition_by="day")
    except Exception as error:
        found["bad value"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcomes of a job whose tasks are retried; by what went wrong, and through what it wrote."""
    directory = tmp_path_factory.mktemp("retries")
    job = subprocess.run(
        [
            sys.executable,
            "-c",
            dedent(RETRIES),
            str(Path(__file__).parents[2]),
            str(directory),
            str(directory / "waits"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert job.returncode == 0, job.stderr[-3000:]
    found: dict[str, Any] = json.loads(job.stdout.splitlines()[-1])
    return found


@pytest.mark.slow("I9 of retried tasks: each must have written files, of 64 MB, before it fails")
@pytest.mark.parametrize(
    ("what", "through"),
    [
        ("raises", "write"),
        pytest.param("raises", "data source", marks=[IN_SOURCE, pytest.mark.long]),
        pytest.param("kills_all_workers", "write", marks=pytest.mark.long),
        pytest.param("kills_all_workers", "data source", marks=IN_SOURCE),
    ],
)
def test_a_task_that_is_retried_leaves_exactly_the_rows_of_the_attempt_that_won(
    retried: dict[str, Any], what: str, through: str
) -> None:
    found = retried[f"{what} 1 {through}"]
    assert found["error"] is None
    assert found["rows"] == [160_000, 160_000, sum(range(160_000))]
    assert found["recorded"] == [160_000]
    assert found["pending"] == 0


def test_files_of_attempts_that_lost_lie_there_unseen(retried: dict[str, Any]) -> None:
    """Else the tests above would show nothing: a worker that is killed cannot delete what it wrote."""
    for through in ("write",) if spark35.IS_USED else ("write", "data source"):
        assert retried[f"kills_all_workers 1 {through}"]["garbage"] == ["FAILED_ATTEMPT"]
        assert retried[f"kills_all_workers 1 {through}"]["attempts"] > 2


@pytest.mark.parametrize("through", ["write", pytest.param("data source", marks=IN_SOURCE)])
def test_a_task_that_fails_for_good_commits_nothing(retried: dict[str, Any], through: str) -> None:
    found = retried[f"raises 3 {through}"]
    assert "the attempt fails" in found["error"]
    assert (found["rows"], found["recorded"], found["pending"]) == ([], [], 0)


def test_ctrl_c_aborts_the_transaction(retried: dict[str, Any]) -> None:
    found = retried["interrupted"]
    assert found["error"] is not None
    assert (found["rows"], found["recorded"], found["pending"]) == ([], [], 0)


def test_an_error_of_ours_comes_out_of_retried_tasks_as_itself(retried: dict[str, Any]) -> None:
    assert retried["bad value"].startswith("InvalidInputError: partition column 'day' holds ''")
    assert "\n" not in retried["bad value"]


# --- two attempts of one task -------------------------------------------------------------------------------------


def test_of_a_speculative_twin_only_the_attempt_that_came_back_first_is_committed(
    spark: SparkSession, path: str
) -> None:
    frame = numbers(spark, 0, 0)
    plan = plan_write(
        dbio.Table(path),
        frame.schema,
        mode="append",
        partition_by="day",
        options=WriteOptions(),
        commit=CommitOptions(),
    )
    transaction = plan.begin()
    spec = plan.task_spec(transaction.terms)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "day": "d1"}, {"id": 2, "day": "d0"}, {"id": 3, "day": "d1"}])
    sink = StoreSink(spec.table.store, spec.table.clock, spec.terms)
    slow = write_files(spec, [batch], task=0, attempt=0, files=sink)
    fast = write_files(spec, [batch], task=0, attempt=1, files=sink)
    assert not {file.path for file in slow} & {file.path for file in fast}
    with transaction:
        commit_files(transaction, map(encode_file_info, fast), plan.schema_to_record)
    assert ids(dbio.read(spark, path)) == [1, 2, 3]
    late = write_files(spec, [batch], task=0, attempt=2, files=sink)  # a zombie, after the commit
    assert ids(dbio.read(spark, path)) == [1, 2, 3]
    garbage = dbio.Table(path).check().garbage
    assert {entry.path for entries in garbage.values() for entry in entries} == {file.path for file in (*slow, *late)}


# --- cancelled jobs -----------------------------------------------------------------------------------------------


@pytest.fixture
def never_ending(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, Path]:
    """Rows whose first task ends and whose second one waits; and the file that says that it does."""
    waits = tmp_path / "waits"
    name = str(waits)

    @udf("bigint")
    def wait(id):  # type: ignore[no-untyped-def]  # Spark takes hints for orders
        if id == 3:
            with open(name, "w"):
                pass
            time.sleep(120)
        return id

    return spark.range(0, 4, 1, 2).select(wait("id").alias("id")), waits


def write(frame: DataFrame, path: str) -> None:
    dbio.write(frame, path)


def save(frame: DataFrame, path: str) -> None:
    frame.write.format("dbio").mode("append").save(path)


@pytest.mark.parametrize("action", [*long(write), save])
def test_a_cancelled_job_commits_nothing_and_can_be_repeated(
    spark: SparkSession, path: str, never_ending: tuple[DataFrame, Path], action: Callable[[DataFrame, str], None]
) -> None:
    frame, waits = never_ending
    dbio.enable(spark)
    action(spark.range(10, 12), path)

    def cancel() -> None:
        wait_for(waits)
        spark.sparkContext.cancelAllJobs()

    canceller = Thread(target=cancel)
    canceller.start()
    with pytest.raises(SPARK_ERRORS, match=r"(?i)cancel"):
        action(frame, path)
    canceller.join()
    assert ids(dbio.read(spark, path)) == [10, 11]
    assert not dbio.Table(path).check().pending
    action(spark.range(0, 4), path)
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3, 10, 11]


# --- a driver that is killed --------------------------------------------------------------------------------------

DRIVER = """
    import sys, time
    from pathlib import Path

    sys.path.insert(0, sys.argv[1])
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    import dbio_commit as dbio

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

    path, waits = sys.argv[2:]

    @udf("bigint")
    def wait(id):
        if id == 3:
            until = time.monotonic() + 60
            while len(list(Path(path).glob("part-*"))) < 2 and time.monotonic() < until:
                time.sleep(0.05)
            Path(waits).touch()
            time.sleep(120)
        return id

    dbio.write(spark.range(0, 4, 1, 2).select(wait("id").alias("id")), path, mode="overwrite")
"""


@pytest.mark.long
def test_of_a_driver_that_was_killed_half_way_nothing_is_visible_and_a_repetition_works(  # I9
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    """I1, with a session of its own."""
    dbio.write(spark.range(10, 12, 1, 1), path)
    before = data_files(path)
    waits = tmp_path / "waits"
    arguments = [str(Path(__file__).parents[2]), path, str(waits)]
    driver = subprocess.Popen([sys.executable, "-c", dedent(DRIVER), *arguments], start_new_session=True)
    try:
        wait_for(waits, driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # and the JVM that it started, which would end by itself
    assert ids(dbio.read(spark, path)) == [10, 11]
    assert data_files(path) - before  # what a plain reader would have seen
    assert len(dbio.Table(path).check().pending) == 1
    dbio.write(spark.range(0, 4, 1, 2), path, mode="overwrite")
    assert ids(dbio.read(spark, path)) == [0, 1, 2, 3]
