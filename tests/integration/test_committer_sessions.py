"""`dbio.enable(spark, parquet=True)` in other sessions, threads and kinds of Spark, each in a process of its own."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from dbio_commit.spark.session import jvm
from dbio_commit.spark.session.jvm import make_jar
from tests import spark35
from tests.spark_tables import ids

JOB = """
import os
import sys
from concurrent.futures import ThreadPoolExecutor
import dbio_commit as dbio
from dbio_commit.spark.transfer.batches import pack
from pyspark.sql import SparkSession

master, lake = sys.argv[1:]
builder = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.warehouse.dir", lake + "/warehouse")
    .config("spark.executor.memory", "512m")
    .config("spark.speculation", "true")
)
spark = builder.getOrCreate()
dbio.enable(spark, parquet=True, roots=lake)

def write(start):
    spark.range(start, start + 10, 1, 3).write.mode("append").parquet(lake + "/table")

def fail_at_first(batches):
    yield from batches
    try:
        open(lake + ".failed", "x")
    except FileExistsError:
        return
    raise RuntimeError("the first attempt fails after its rows are written")

spark.range(0, 10, 1, 1).mapInPandas(fail_at_first, "id bigint").write.parquet(lake + "/table")
with ThreadPoolExecutor(3) as pool:
    list(pool.map(write, (10, 20, 30)))
try:
    spark.sql("SELECT 'x' AS id").write.mode("append").parquet(lake + "/table")
except dbio.SchemaMismatchError:
    print("refused as ours")
print("rows", dbio.read(spark, lake + "/table").distinct().count(), len(dbio.Table(lake + "/table").history()))
if os.environ.get("CONTEXTS", "2") == "2":  # of the same JVM
    spark.stop()
    spark = builder.getOrCreate()
    dbio.enable(spark, parquet=True, roots=lake)
write(40)
print("rows with ten more", dbio.read(spark, lake + "/table").distinct().count())
more = spark.range(50, 60, 1, 3)
assert pack(more)[1].in_values
dbio.write(more, lake + "/table")
print("rows by Python", dbio.read(spark, lake + "/table").distinct().count())
spark.stop()
"""


def run_job(command: list[str], tmp_path: Path, *, before: str = "", **environment: str) -> str:
    script = tmp_path / "job.py"
    script.write_text(before + JOB)
    where = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command[:1], *command[1:-1], str(script), command[-1], str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        env=where,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


SCALA = "2.12" if spark35.IS_USED else "2.13"
PYTHON = [sys.executable]
SAID = ["refused as ours", "rows 40 4", "rows with ten more 50", "rows by Python 60"]


# `make test` has the same job on executors of its own.
@pytest.mark.long
@pytest.mark.parametrize(
    "environment", [{}, {"PYSPARK_PIN_THREAD": "false"}], ids=["pinned threads", "threads that are not pinned"]
)
def test_threads_of_a_local_session_write_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    out = run_job([*PYTHON, "local[2,3]"], tmp_path, **environment)
    assert out.splitlines() == SAID


@pytest.mark.slow("the only cluster of several JVMs in make test")
@pytest.mark.parametrize("contexts", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_executors_that_are_processes_of_their_own_have_the_class(tmp_path: Path, contexts: str) -> None:
    """And nothing is left of the jars from which they have it, when the JVM has ended."""
    (tmp_path / "tmp").mkdir()
    out = run_job([*PYTHON, "local-cluster[2,1,1024]"], tmp_path, CONTEXTS=contexts, TMPDIR=str(tmp_path / "tmp"))
    assert out.splitlines() == SAID
    assert not list((tmp_path / "tmp").glob("dbio-*"))


@pytest.mark.long
def test_spark_submit_runs_it(tmp_path: Path) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    out = run_job([str(submit), "local[2,3]"], tmp_path)
    assert [line for line in out.splitlines() if "refused" in line or "rows" in line] == SAID


@pytest.mark.long
def test_a_jar_that_was_made_beforehand_is_taken_as_it_is(tmp_path: Path) -> None:
    jar = tmp_path / "dbio-commit.jar"
    made = subprocess.run([sys.executable, "-m", "dbio_commit.cli", "jar", str(jar)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-4000:]
    assert made.stdout == f"wrote {jar}, for a Spark with Scala {SCALA}\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"spark.jars {jar}\n")
    no_compiler = "from dbio_commit.spark.session import jvm\njvm._compiled = None\n"
    out = run_job([*PYTHON, "local[2,3]"], tmp_path, before=no_compiler, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert out.splitlines() == SAID


@pytest.mark.long
def test_a_server_of_sql_that_has_the_jar_writes_to_no_table_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    """`spark-sql` has no Python whom to ask; Thrift servers run the same driver."""
    import pyspark

    jar, ours, elsewhere = tmp_path / "dbio-commit.jar", tmp_path / "ours", tmp_path / "elsewhere"
    make_jar(jar)
    dbio.write(spark.range(3), ours)
    before = sorted(os.listdir(ours))
    script = tmp_path / "script.sql"
    script.write_text(
        f"INSERT OVERWRITE DIRECTORY '{elsewhere}' USING parquet SELECT 7 AS id;\n"
        f"CREATE TABLE ours USING parquet LOCATION '{ours}';\n"
        "INSERT INTO ours SELECT 7;\n"
    )
    sql = subprocess.run(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-sql"), "--jars", str(jar), "-f", str(script)]
        + [
            part
            for setting in (
                "spark.sql.sources.commitProtocolClass=dbio_commit.CommitProtocol",
                "spark.sql.catalogImplementation=in-memory",
                f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}",
                "spark.ui.enabled=false",
            )
            for part in ("--conf", setting)
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert sql.returncode != 0
    assert f"{ours} is a dbio table, and no Python of this driver has called dbio.enable" in sql.stderr
    assert ids(spark.read.parquet(str(elsewhere))) == [7]
    assert sorted(os.listdir(ours)) == before


def test_a_jar_for_another_scala_is_refused(enabled: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "scala_version", lambda _: "2.10")
    said = rf"version 2 for Scala {SCALA} of dbio_commit\.CommitProtocol, .* version 2 for Scala 2\.10; .*`dbio jar"
    with pytest.raises(dbio.UnsupportedStoreError, match=said):
        jvm.install(enabled, jvm.COMMIT_PROTOCOL)


def test_a_jar_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(dbio.InvalidInputError, match=r"missing/it\.jar"):
        make_jar(tmp_path / "missing" / "it.jar")


def test_later_sessions_of_the_application_have_it_too(enabled: SparkSession, tmp_path: Path) -> None:
    dbio.enable(enabled, parquet=True, roots=tmp_path)
    enabled.newSession().range(3).write.parquet(str(tmp_path / "table"))
    assert ids(dbio.read(enabled, tmp_path / "table")) == [0, 1, 2]


def test_batches_of_a_stream_are_transactions(enabled: SparkSession, tmp_path: Path) -> None:
    dbio.enable(enabled, parquet=True, roots=tmp_path / "lake")
    source, target = str(tmp_path / "source"), str(tmp_path / "lake" / "table")
    enabled.range(0, 4, 1, 2).write.parquet(source)

    def write(batch: DataFrame, number: int) -> None:
        options = {"txnAppId": "stream", "txnVersion": str(number)}
        batch.write.mode("append").options(**options).parquet(target)

    stream = enabled.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(source)
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert ids(dbio.read(enabled, target)) == [0, 1, 2, 3]
    assert [commit.app for commit in dbio.Table(target).history()] == [("stream", 1), ("stream", 0)]


def test_writes_of_many_threads_to_tables_and_elsewhere_do_not_mix(enabled: SparkSession, tmp_path: Path) -> None:
    dbio.enable(enabled, parquet=True, roots=tmp_path / "lake")

    def write(number: int) -> None:
        place = tmp_path / "lake" / "table" if number % 2 else tmp_path / "elsewhere" / str(number)
        enabled.range(number, number + 1, 1, 1).write.mode("append").parquet(str(place))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    assert ids(dbio.read(enabled, tmp_path / "lake" / "table")) == [1, 3, 5, 7, 9, 11]
    assert ids(enabled.read.parquet(str(tmp_path / "elsewhere" / "*"))) == [0, 2, 4, 6, 8, 10]
