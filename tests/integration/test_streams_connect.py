"""Streams and changes over Spark Connect. It and a classic session share no process, so that one job does it all."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.streams import needs_source

pytestmark = [needs_source, pytest.mark.long]  # of Connect, `make test` has test_spark_connect.py

JOB = """
    import json, sys
    from pathlib import Path

    sys.path.insert(0, sys.argv[1])

    import dbio_commit as dbio
    from tests.spark_tables import over_connect
    from tests.streams import ALL, Files, finish, run, sink

    spark = over_connect()
    assert not hasattr(spark, "_jsparkSession")
    root, found = Path(sys.argv[2]), {}
    dbio.enable(spark)

    def ids(frame):
        return sorted(row.id for row in frame.select("id").collect())

    def error_of(action):
        try:
            return f"no error, but {action()!r}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    files = Files(root / "files")
    for start in (0, 10):
        files.add(range(start, start + 10))

    # the sink, by the data source and by the function
    query = run(sink(files.stream(spark), root / "source", root / "1", partitionBy="day"))
    history = dbio.Table(root / "source").history()
    found["apps"] = [[commit.app[0] == str(query.id), commit.app[1]] for commit in reversed(history)]
    found["sink"] = ids(dbio.read(spark, root / "source"))
    wide = files.stream(spark).selectExpr("id", "decimal(id) / 4 AS amount", "repeat(day, 100000) AS text", "day")
    names = [f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Bytes", "Records")]
    before = [spark.conf.get(name, None) for name in names]
    finish(dbio.write_stream(wide, root / "wide", root / "2", partition_by="day", name="wide", trigger=ALL))
    found["settings"] = [spark.conf.get(name, None) for name in names] == before
    read = dbio.read(spark, root / "wide")
    found["wide"] = [ids(read), read.where("length(text) = 200000").count(), read.dtypes]

    # the source, in workers and natively
    stream = spark.readStream.format("dbio").load(str(root / "source"))
    finish(dbio.write_stream(stream, root / "copy", root / "3", trigger=ALL))
    found["source"] = ids(dbio.read(spark, root / "copy"))
    source, target = str(root / "source"), str(root / "each")

    def copy(batch, number):
        dbio.write(batch, target, app=("each", number))

    finish(dbio.for_each_batch(spark, source, copy, root / "4", max_files=2, trigger=ALL))
    found["each"] = [ids(dbio.read(spark, target)), len(dbio.Table(target).history())]

    # changes
    dbio.write(dbio.read(spark, source).where("id > 5"), source, mode="overwrite")
    newest = dbio.Table(source).history()[0].tid
    for name, net in (("changes", False), ("net", True)):
        changed = dbio.changes(spark, source, newest, net=net).collect()
        found[name] = sorted([row._change_type, row.id] for row in changed)
    feed = spark.read.format("dbio").option("readChangeFeed", "true").option("startingTid", newest).load(source)
    found["feed"] = sorted([row._change_type, row.id] for row in feed.collect())
    again = dbio.for_each_batch(spark, source, copy, root / "4", trigger=ALL)
    found["changed rows"] = error_of(lambda: finish(again))
    found["missing"] = error_of(lambda: dbio.for_each_batch(spark, root / "none", copy, root / "5", trigger=ALL))
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    arguments = [str(Path(__file__).parents[2]), str(tmp_path_factory.mktemp("connect"))]
    job = subprocess.run([sys.executable, "-c", dedent(JOB), *arguments], capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr[-3000:]
    result: dict[str, Any] = json.loads(job.stdout.splitlines()[-1])
    return result


@pytest.mark.slow("one job, which the whole file shares, does over Connect what classic streams do")
def test_streams_are_written_over_connect(found: dict[str, Any]) -> None:
    assert found["apps"] == [[True, 0], [True, 1]]
    assert found["sink"] == list(range(20))


def test_wide_rows_are_written_over_connect_and_the_settings_come_back(found: dict[str, Any]) -> None:
    ids, wide, columns = found["wide"]
    assert (ids, wide) == (list(range(20)), 20)
    assert dict(columns)["amount"].startswith("decimal")
    assert found["settings"] is True


def test_tables_are_followed_over_connect(found: dict[str, Any]) -> None:
    assert found["source"] == list(range(20))
    assert found["each"] == [list(range(20)), 2]


def test_changes_are_read_over_connect(found: dict[str, Any]) -> None:
    went = [["delete", id] for id in range(20)]
    assert found["changes"] == found["feed"] == [*went, *(["insert", id] for id in range(6, 20))]
    assert found["net"] == went[:6]


def test_errors_name_what_is_ours_over_connect(found: dict[str, Any]) -> None:
    assert "ChangedRowsError" in found["changed rows"]
    assert found["missing"].startswith("TableNotFoundError: ")
