"""What the JVM asks Python: by whom it can be asked, in whose name it is answered, and what happens where it is not."""

import base64
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.spark import versions
from dbio_commit.spark.catalog import answers, questions
from dbio_commit.spark.committer import writes
from dbio_commit.spark.session.bridge import Bridge, bridge_of
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import BRIDGE
from tests.spark_tables import ids
from tests.streams import needs_source

JOB = """
import json
import os
import re
import sys
import time
import dbio_commit as dbio
from pyspark.sql import SparkSession

def listening():
    paths = [f"/proc/self/fd/{it}" for it in os.listdir("/proc/self/fd")]
    own = {os.readlink(path) for path in paths if os.path.lexists(path)}
    lines = [it.split() for name in ("tcp", "tcp6") for it in open(f"/proc/self/net/{name}").readlines()[1:]]
    return [it[1] for it in lines if it[3] == "0A" and f"socket:[{it[9]}]" in own]

lake = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = listening()  # accumulators, which ask for a token
dbio.enable(spark, parquet=True, roots=lake)
spark.range(3).write.parquet(f"{lake}/table")
rows = []
trigger = {"availableNow": True}
if hasattr(dbio, "for_each_batch") and sys.argv[2] == "streams":
    each = lambda batch, number: rows.extend(row.id for row in batch.collect())
    dbio.for_each_batch(spark, f"{lake}/table", each, f"{lake}-checkpoint", trigger=trigger).awaitTermination()
print(json.dumps([listening() == before, sorted(rows), dbio.read(spark, f"{lake}/table").count()]))
"""


def run(tmp_path: Path, what: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "job.py").write_text(JOB)
    return subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "lake"), what],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.slow("security: open ports are seen only of a driver of its own")
def test_no_port_of_this_process_is_open_to_other_users_and_none_of_its_threads_holds_it_up(tmp_path: Path) -> None:
    import pyspark

    streams = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
    done = run(tmp_path, "streams" if streams else "none")
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == [True, [0, 1, 2] if streams else [], 3]
    assert "Traceback" not in done.stderr
    assert "py4j" not in done.stderr


@pytest.fixture
def path(enabled: SparkSession, tmp_path: Path) -> str:
    dbio.enable(enabled, parquet=True, roots=[tmp_path / "lake"])
    return f"{tmp_path}/lake/table"


@pytest.mark.slow("cancelling a write must stop no other: six writes of two threads, each with jobs of its own")
def test_jobs_of_a_commit_run_in_the_job_group_of_the_write(spark: SparkSession, path: str) -> None:
    """So that cancelling one stops the right one, whichever thread answers."""
    context, jobs = spark.sparkContext, {}
    for name in ("one", "two"):
        dbio.write(spark.range(1), f"{path}-{name}")
        dbio.constrain(spark, f"{path}-{name}", {"check.odd": "id % 2 >= 0"})  # for which the commit reads new rows

    def append(name: str) -> None:
        context.setJobGroup(f"bridge {name}", name)
        for start in range(3):
            spark.range(start, start + 1, 1, 1).write.mode("append").parquet(f"{path}-{name}")

    for name in ("one", "two"):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(append, name).result()
        jobs[name] = len(context.statusTracker().getJobIdsForGroup(f"bridge {name}"))
    assert jobs["one"] == jobs["two"] >= 6, "for each of three writes its own job, and one of its commit at least"


def test_a_question_is_answered_with_the_local_properties_of_who_asks(spark: SparkSession, path: str) -> None:
    context, names = spark.sparkContext, ("spark.scheduler.pool", "spark.job.description", "of.the.user")
    bridge_of(spark).answer("test", lambda text, _: json.dumps([context.getLocalProperty(name) for name in names]))

    def asked(*values: str) -> list[str]:
        for name, value in zip(names, values, strict=True):
            context.setLocalProperty(name, value)
        found: list[str] = json.loads(ask(spark, "test"))
        return found

    try:
        for values in (("night", "the first", "1"), ("day", "the second", "2"), ("night", "the third", "3")):
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(asked, *values).result() == [*values]
    finally:
        bridge_of(spark).forget("test")


def test_a_commit_that_names_files_of_somebody_else_commits_and_deletes_nothing(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(2).write.parquet(path)
    victim = next(iter(dbio.Table(path).snapshot().files))
    empty = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), empty)
    footer, commit = base64.b64encode(empty.getvalue()).decode(), writes.commit
    for named in (victim.path, "../other.parquet", "notes.txt"):
        (Path(path).parent / "other.parquet").write_text("of another table")

        def told(write: writes.Write, lines: Iterable[str], named: str = named) -> None:
            commit(write, [*lines, f"{len(empty.getvalue())}\t{footer}\t{named}"])

        monkeypatch.setattr(writes, "commit", told)
        with pytest.raises(dbio.InvalidInputError, match="is no file of this write"):
            spark.range(2, 3).write.mode("append").parquet(path)
        monkeypatch.undo()
    assert ids(dbio.read(spark, path)) == [0, 1]
    assert (Path(path).parent / "other.parquet").exists()


def test_what_nobody_answers_is_an_error(spark: SparkSession, path: str) -> None:
    with pytest.raises(Exception, match="nothing here answers 'the weather'"):
        ask(spark, "the weather")


@pytest.mark.long
def test_a_question_that_somebody_took_and_did_not_begin_with_is_asked_again(spark: SparkSession, path: str) -> None:
    """Of a notebook that was restarted, the JVM may still hand a question to the process that is gone."""
    jvm: Any = spark._jvm
    channel = java_class(jvm, BRIDGE.name)()
    question = spark.sparkContext._gateway.new_array(java_class(jvm, "java.lang.Object"), 3)  # type: ignore[union-attr]
    question[0], question[1], lost = "a topic", "a text", Event()

    def take() -> None:
        while not channel.take():
            pass
        lost.set()
        while not (again := channel.take()):
            pass
        assert again.begin(True)
        assert not again.begin(True), "two threads would answer it"
        again.answer(again.text() + " answered")

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(take)
        assert channel.apply(question) == "a text answered"
        taken.result()
    assert lost.is_set()


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class _EndsThreads(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no report-\udcff.csv"), r"ValueError: no report-\\udcff"),
        (ValueError("two\nlines\0and more" + "x" * 5_000_000), r"ValueError: two\\nlines\\x00and"),
        (_Unprintable(), "_Unprintable: an error whose message cannot be read"),
        (_EndsThreads("by its kind"), "_EndsThreads: by its kind"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=["no UTF-8", "long", "no text", "no Exception", "exit"],
)
def test_whatever_goes_wrong_who_asks_gets_an_answer(
    spark: SparkSession, path: str, error: BaseException, message: str
) -> None:
    def fails(text: str, subject: Any) -> str:
        raise error

    bridge = bridge_of(spark)
    bridge.answer("a failure", fails)
    for _ in range(3):  # and the threads live on
        with pytest.raises(Exception, match=message):
            ask(spark, "a failure")
    bridge.forget("a failure")


def ask(spark: SparkSession, topic: str) -> Any:
    assert spark._jvm is not None
    question = spark.sparkContext._gateway.new_array(java_class(spark._jvm, "java.lang.Object"), 3)  # type: ignore[union-attr]
    question[0], question[1] = topic, ""
    return bridge_of(spark).channel.apply(question)


def test_an_answer_that_is_no_text_for_the_jvm_is_an_error_there(spark: SparkSession, path: str) -> None:
    bridge_of(spark).answer("odd", lambda text, subject: "\udcff")
    with pytest.raises(Exception, match="did not reach the JVM"):
        ask(spark, "odd")


def test_where_all_threads_have_ended_the_next_call_has_one_wait_again(spark: SparkSession, path: str) -> None:
    bridge = Bridge(java_class(spark._jvm, BRIDGE.name)(), pinned=True)
    taken = Event()

    class Broken:
        def take(self) -> None:
            taken.set()
            raise Py4JNetworkError("the connection is gone")

    whole, bridge.channel = bridge.channel, Broken()
    bridge.serve()
    assert taken.wait(60)
    while bridge._threads:
        time.sleep(0.01)
    assert bridge._waiting == 0
    bridge.channel = whole
    bridge.answer("a topic", lambda text, subject: "an answer")
    bridge.serve()
    question = spark.sparkContext._gateway.new_array(java_class(spark._jvm, "java.lang.Object"), 3)  # type: ignore[union-attr]
    question[0], question[1] = "a topic", ""
    assert whole.apply(question) == "an answer"
    assert 1 <= bridge._threads <= 2


@pytest.mark.long
@needs_source
def test_the_function_of_a_query_that_has_ended_is_forgotten(spark: SparkSession, path: str, tmp_path: Path) -> None:
    spark.range(2).write.parquet(path)
    topics = bridge_of(spark)._topics
    for start in range(3):
        before = len(topics)
        dbio.for_each_batch(
            spark, path, lambda batch, number: None, tmp_path / f"checkpoint {start}", trigger={"availableNow": True}
        ).awaitTermination()
    assert len(topics) == before


# --- what SQL asks ------------------------------------------------------------------------------------------------

STATEMENTS = """
SHOW NAMESPACES IN dbio
DESCRIBE NAMESPACE dbio.asked
CREATE TABLE dbio.asked.t (id BIGINT, day STRING) PARTITIONED BY (day)
INSERT INTO dbio.asked.t VALUES (1, 'a'), (2, 'b'), (3, 'b'), (4, 'c')
CREATE TABLE dbio.asked.s AS SELECT id FROM range(3)
ALTER TABLE dbio.asked.s ADD COLUMN n BIGINT
CREATE TABLE default.asked_name USING dbio LOCATION '{lake}/s'
DROP TABLE default.asked_name
SHOW TABLES IN dbio.asked
SELECT count(*) FROM dbio.asked.t
SELECT min(id), max(id) FROM dbio.asked.t
SELECT * FROM dbio.asked.t WHERE id > 3
SHOW PARTITIONS dbio.asked.t
ALTER TABLE dbio.asked.t DROP PARTITION (day = 'c')
DESCRIBE TABLE EXTENDED dbio.asked.t
UPDATE dbio.asked.t SET id = 5 WHERE id = 1
MERGE INTO dbio.asked.t USING dbio.asked.s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 9
DELETE FROM dbio.asked.t WHERE id = 3
TRUNCATE TABLE dbio.asked.s
DROP TABLE dbio.asked.s PURGE
"""
IN_SPARK_4 = "CALL dbio.system.vacuum(table => 'dbio.asked.t', retention_hours => 60.5D, checkpoint_after => 7)"
IN_SPARK_4_1 = "SHOW PROCEDURES IN dbio.system; ALTER TABLE dbio.asked.t ADD CONSTRAINT few CHECK (id < 100)"
BY_SERVERS = {"advice"}
"""Questions that `dbio serve` alone asks."""


@pytest.mark.long
def test_each_question_gets_an_answer(enabled: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has tests of its own; this one shows that what Java passes fits the types in Python."""
    spark, lake, inner, asked = enabled, f"{tmp_path}/asked", questions.answered, set()

    def answered(session: SparkSession, state: questions.State, question: str, *given: Any) -> Any:
        asked.add(question)
        return inner(session, state, question, *given)

    monkeypatch.setattr(answers, "answered", answered)
    dbio.enable(spark, parquet=True, roots={"asked": lake})
    later = [IN_SPARK_4] * versions.SERVES_CONNECT + IN_SPARK_4_1.split("; ") * versions.HAS_CONSTRAINTS
    for statement in [*STATEMENTS.format(lake=lake).strip().splitlines(), *later]:
        spark.sql(statement).collect()
    assert spark.catalog.tableExists("dbio.asked.t")
    assert rows_of(spark.read.parquet(f"{lake}/t")) == rows_of(spark.table("dbio.asked.t")) == [(5, "a"), (9, "b")]
    assert rows_of(spark.read.schema("id BIGINT").parquet(f"{lake}/t")) == [(5, "a"), (9, "b")]
    assert rows_of(spark.read.parquet(f"{lake}/t/day=a")) == [(5,)]
    write_dbio(f"{lake}/directory")
    assert rows_of(spark.read.parquet(f"{lake}/directory")) == [(0,)]
    stream = spark.readStream.table("dbio.asked.t").writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
    stream.trigger(availableNow=True).toTable("dbio.asked.streamed").awaitTermination()
    assert rows_of(spark.table("dbio.asked.streamed")) == [(5, "a"), (9, "b")]
    wanted = {name for name in vars(questions.Questions) if not name.startswith("_")} - BY_SERVERS
    if not versions.HAS_CONSTRAINTS:
        wanted -= {"constrain", "procedures"} | ({"procedure", "call"} if not versions.SERVES_CONNECT else set())
    assert asked == wanted


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def write_dbio(directory: str) -> None:
    """A directory of DBIO with one file of one row."""
    tid, name = "1234567890123456789", "part-00000-tid-1234567890123456789-0-1-c000.parquet"
    Path(directory).mkdir()
    pq.write_table(pa.table({"id": [0]}), f"{directory}/{name}")
    Path(directory, f"_started_{tid}").touch()
    Path(directory, f"_committed_{tid}").write_text(json.dumps({"added": [name], "removed": []}))
