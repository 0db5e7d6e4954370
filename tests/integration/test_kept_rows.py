"""What a statement reads in two jobs is the same rows in both, or it begins again: executors die, and blocks are lost.

The session's one executor is this process, so most tests drop the blocks that a dying executor would take along. The
source answers otherwise each time that it is asked, as a JDBC source, `limit` or an API may.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.spark.rewrite import find, keys
from dbio_commit.spark.transfer import kept
from tests.streams import ALL, Files


@pytest.fixture
def path(tmp_path: Path, spark: SparkSession) -> str:
    """A table of two files, with ids 0 to 9 and 1000 to 1009."""
    path = str(tmp_path / "table")
    for low in (0, 1000):
        dbio.write(spark.range(low, low + 10, 1, 1).selectExpr("id", "'old' AS v"), path)
    return path


@pytest.fixture(params=[True, False], ids=["kept", "checkpoint"])
def classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the classes of this package, and in a session that accepts none."""
    if not request.param:
        monkeypatch.setattr(kept, "is_ready", lambda *given, **named: False)


def lose_blocks(spark: SparkSession, *, waits: bool = True) -> None:
    context: Any = spark.sparkContext._jsc
    for number in [*context.getPersistentRDDs().keySet()]:
        context.sc().unpersistRDD(number, waits)


def held(spark: SparkSession) -> int:
    """How many RDDs have blocks on executors."""
    context: Any = spark.sparkContext._jsc
    until = time.monotonic() + 10
    while (found := len(context.sc().getRDDStorageInfo())) and time.monotonic() < until:
        time.sleep(0.05)  # Spark drops blocks in the background
    return found


def fickle(spark: SparkSession, directory: Path, *, waits: bool = False) -> DataFrame:
    """A row in each of two tasks. The first has id 5, and 1005 if it is asked again. `waits`: the other for `go`."""

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        context = TaskContext.get()
        assert context is not None
        id = 7
        if context.partitionId() == 0:
            asked = directory / "asked"
            id = 1005 if asked.exists() else 5
            asked.write_text(f"{id}")
        while waits and context.partitionId() == 1 and not (directory / "go").exists():
            time.sleep(0.02)
        yield pa.record_batch([pa.array([id], pa.int64()), pa.array(["new"])], ["id", "v"])

    return spark.range(0, 2, 1, 2).mapInArrow(answer, "id long, v string")


def rows(path: str) -> dict[int, str]:
    found: list[Any] = dbio.Table(path).snapshot().to_arrow().to_pylist()
    assert len(found) == len({it["id"] for it in found}), "a key is twice in the table"
    assert dbio.Table(path).check().ok
    return {it["id"]: it["v"] for it in found}


OLD = {id: "old" for low in (0, 1000) for id in range(low, low + 10)}


def losing(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, where: Any, name: str, *, every: int = 100
) -> list[int]:
    """Blocks are lost after the first call of the function, and after each so many more. The result has all calls."""
    calls: list[int] = []
    real: Callable[..., Any] = getattr(where, name)

    def then_lost(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        calls.append(len(calls))
        if len(calls) % every == 1 or every == 1:
            lose_blocks(spark)
        return result

    monkeypatch.setattr(where, name, then_lost)
    return calls


def test_a_merge_whose_source_is_lost_while_its_keys_are_gathered_begins_again(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    def lose() -> None:  # when one of the two tasks has answered
        tracker = spark.sparkContext.statusTracker()
        answered = False
        while not answered:
            stages = [tracker.getStageInfo(it) for it in tracker.getActiveStageIds()]
            answered = any(it and it.numTasks == 2 and it.numCompletedTasks == 1 for it in stages)
            time.sleep(0.02)
        lose_blocks(spark, waits=False)
        time.sleep(1)  # the other task holds its block, so nothing says when this one is gone
        (tmp_path / "go").touch()

    thread = threading.Thread(target=lose)
    thread.start()
    dbio.merge(spark, path, fickle(spark, tmp_path, waits=True), ["id"])
    thread.join()
    assert (tmp_path / "asked").read_text() == "1005"
    assert rows(path) == OLD | {1005: "new", 7: "new"}
    assert held(spark) == 0


@pytest.mark.usefixtures("classes")
def test_a_merge_whose_source_is_lost_before_the_write_begins_again(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = losing(monkeypatch, spark, keys, "in_tasks")
    dbio.merge(spark, path, fickle(spark, tmp_path), ["id"])
    assert len(calls) == 2
    assert rows(path) == OLD | {1005: "new", 7: "new"}
    assert held(spark) == 0


def test_a_merge_takes_no_rows_of_an_attempt_whose_keys_it_did_not_gather(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two attempts of a task, or an executor that was thought dead, can leave two versions of a block."""
    calls: list[int] = []
    real: Callable[..., Any] = getattr(keys, "in_tasks")  # noqa: B009

    def then_filled_again(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        calls.append(len(calls))
        if len(calls) == 1:
            (filled,) = spark.sparkContext._jsc.getPersistentRDDs().values()
            lose_blocks(spark)
            whole = filled.rdd().getClass().getDeclaredField("isWhole")
            whole.setAccessible(True)
            whole.setBoolean(filled.rdd(), False)
            assert filled.count() == 4  # with a first row in each partition
        return result

    monkeypatch.setattr(keys, "in_tasks", then_filled_again)
    dbio.merge(spark, path, fickle(spark, tmp_path), ["id"])
    assert len(calls) == 2
    assert rows(path) == OLD | {1005: "new", 7: "new"}


def test_a_merge_that_always_loses_its_source_says_so_and_commits_nothing(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = losing(monkeypatch, spark, keys, "in_tasks", every=1)
    with pytest.raises(dbio.RowsLostError, match=r"executors died in each of 4 attempts.*nothing was committed"):
        dbio.merge(spark, path, fickle(spark, tmp_path), ["id"])
    assert len(calls) == 4
    assert rows(path) == OLD
    assert held(spark) == 0


def test_a_delete_whose_found_rows_are_lost_begins_again(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.enable(spark)
    spark.range(3).createOrReplaceTempView("chosen")
    calls = losing(monkeypatch, spark, find, "_count_stored")
    spark.sql(f"DELETE FROM dbio.`{path}` WHERE id IN (SELECT id FROM chosen)")
    assert len(calls) == 2
    assert rows(path) == {id: v for id, v in OLD.items() if id > 2}
    assert held(spark) == 0


@pytest.mark.usefixtures("classes")
def test_statements_let_go_of_rows_when_they_end(spark: SparkSession, path: str) -> None:
    dbio.enable(spark)
    source = spark.range(5, 15).selectExpr("id", "'new' AS v")
    dbio.merge(spark, path, source, ["id"])
    assert held(spark) == 0
    with pytest.raises(dbio.InvalidInputError, match="more than one row"):
        dbio.merge(spark, path, source.union(source), ["id"])
    assert held(spark) == 0
    source.createOrReplaceTempView("chosen")
    spark.sql(f"UPDATE dbio.`{path}` SET v = 'newer' WHERE id IN (SELECT id FROM chosen)")
    spark.sql(f"DELETE FROM dbio.`{path}` WHERE id NOT IN (SELECT id FROM chosen)")
    assert rows(path) == dict.fromkeys(range(5, 15), "newer")
    assert held(spark) == 0


def test_a_merge_reads_its_source_in_one_job_that_also_keeps_it(spark: SparkSession, path: str) -> None:
    def jobs() -> int:
        return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())

    source = spark.range(5, 15).selectExpr("id", "'new' AS v")
    dbio.merge(spark, path, source, ["id"])  # the first one asks for keys of tasks
    before = jobs()
    dbio.merge(spark, path, source, ["id"])
    assert jobs() - before == 4  # the keys of the source; its rows, sorted by file; both, to write


def test_each_batch_of_a_stream_is_merged_though_its_source_is_lost(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path / "in")
    for batch in range(2):
        files.add(range(5 + batch, 15 + batch))
    calls = losing(monkeypatch, spark, keys, "in_tasks", every=2)

    def merge(batch: DataFrame, number: int) -> None:
        dbio.merge(spark, path, batch.selectExpr("id", f"'{number}' AS v"), ["id"], app=("stream", number))

    writer = files.stream(spark).writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(**ALL).start().awaitTermination()
    assert len(calls) == 4
    assert rows(path) == OLD | {5: "0"} | dict.fromkeys(range(6, 16), "1")


# --- executors that die -------------------------------------------------------------------------------------------

STREAM = """
    import json, os, signal, sys, threading, time
    from pathlib import Path

    sys.path.insert(0, sys.argv[1])
    from pyspark.sql import SparkSession

    import dbio_commit as dbio
    from tests.streams import ALL, Files

    work = Path(sys.argv[2])
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    for name, value in {
        "ui.enabled": "false", "ui.showConsoleProgress": "false", "executor.memory": "512m", "driver.host": "127.0.0.1",
        "executor.cores": "1", "sql.shuffle.partitions": "2", "deploy.maxExecutorRetries": "-1",
        "executor.maxNumFailures": "100", "storage.replication.proactive": "true",
    }.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    url = str(work / "table")
    dbio.write(spark.range(0, 20, 1, 2).selectExpr("id", "'old' AS v"), url)
    files = Files(work / "in")
    for batch in range(int(sys.argv[3])):
        files.add(range(5 + batch, 15 + batch))

    def executors():
        with_name = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and spark.sparkContext.applicationId.encode() in command:
                with_name.append(int(entry.name))
        return with_name

    killed = []

    def kill():  # an executor that has rows of the source, once for each batch
        infos = lambda: spark.sparkContext._jsc.sc().getRDDStorageInfo()
        while not any(it.numCachedPartitions() for it in infos()):
            time.sleep(0.02)
        for pid in executors()[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    def merge(batch, number):
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        rows = batch.selectExpr("id", f"'{number}' AS v").repartition(2)
        dbio.merge(spark, url, rows, ["id"], app=("stream", number))
        killer.join(60)

    writer = files.stream(spark).writeStream.foreachBatch(merge).option("checkpointLocation", str(work / "c"))
    writer.trigger(**ALL).start().awaitTermination()
    print(json.dumps({"killed": len(killed)}))
    spark.stop()
"""


def _stream_with_dying_executors(tmp_path: Path, batches: int) -> None:
    script = tmp_path / "job.py"
    script.write_text(dedent(STREAM))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, script, root, tmp_path, str(batches)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["killed"] == batches
    news = {id: str(batch) for batch in range(batches) for id in range(5 + batch, 15 + batch)}
    assert rows(str(tmp_path / "table")) == dict.fromkeys(range(20), "old") | news


@pytest.mark.long
def test_a_stream_of_merges_goes_on_though_an_executor_dies_in_each_batch(tmp_path: Path) -> None:
    _stream_with_dying_executors(tmp_path, 5)
