"""What stays in memory of many statements in SQL is bounded: in the JVM, in Python, and between the two."""

import gc
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit.log import object_cache
from dbio_commit.spark.catalog import answers
from tests.spark_tables import configured

CHANGES = [
    "INSERT INTO {} VALUES ({i}, {i}, 'd1')",
    "UPDATE {} SET n = n + 1 WHERE id % 7 = {i} % 7",
    "MERGE INTO {} t USING (SELECT {i} + 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 0 "
    "WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, 'd0')",
    "DELETE FROM {} WHERE id < {i} - 20",
    "INSERT OVERWRITE {} PARTITION (day = 'd1') SELECT id, n FROM {} WHERE day = 'd1'",
]
QUERIES = [
    "SELECT count(*), max(day) FROM {}",
    "SELECT sum(n) FROM {} a JOIN {} b USING (id, n) WHERE a.day = 'd0'",
    "SELECT * FROM {} VERSION AS OF '{tid}' WHERE id IN (SELECT id FROM {} WHERE n > 3)",
    "CALL dbio.system.history('{path}')",
    "SELECT _change_type, id FROM dbio_changes('{path}', '{tid}', '{tid}')",
]
STATEMENTS = [*CHANGES, *QUERIES * 3]
PER_TABLE = 100
"""So many statements have a table, then there is a new one."""


def run(spark: SparkSession, directory: Path, numbers: range) -> None:
    for i in numbers:
        path = directory / f"table {i // PER_TABLE}"
        if not path.exists():
            shutil.rmtree(directory / f"table {i // PER_TABLE - 1}", ignore_errors=True)
            dbio.write(spark.sql("SELECT id, 'd0' AS day, id AS n FROM range(5)"), path, partition_by="day")
            first = dbio.Table(path).history()[0].tid
        else:
            first = dbio.Table(path).history()[-1].tid
        text = STATEMENTS[i % len(STATEMENTS)]
        spark.sql(text.replace("{}", f"dbio.`{path}`").format(i=i, tid=first, path=path)).collect()


def settled(jvm: Any) -> int:
    """The bytes in the JVM once collections of garbage free no more of them. Spark frees blocks, shuffles and
    broadcasts in a thread of its own, after a collection has found them."""
    runtime, found = jvm.Runtime.getRuntime(), list[int]()
    while len(found) < 5 or min(found[-4:]) < 0.99 * min(found[:-4]):
        gc.collect()  # what one side lets go of, the other can free
        jvm.System.gc()
        found.append(runtime.totalMemory() - runtime.freeMemory())
        time.sleep(1)
    return min(found)


def measured(spark: SparkSession) -> dict[str, int]:
    """What is left. What the process remembers of logs is bounded by itself, and is not counted."""
    object_cache.CACHE = object_cache.ObjectCache()
    methods: Any = spark._jsparkSession.experimental()
    return {
        "bytes in the JVM": settled(spark._jvm),
        "objects of Python": len(gc.get_objects()),
        "objects of the gateway": len(ThreadSafeFinalizer.finalizers),
        "threads": threading.active_count(),
        "snapshots": len(answers._answers.state.tables._kept),
        "sessions": len(answers._answers._sessions),
        "rules": methods.extraOptimizations().size() + methods.extraStrategies().size(),
    }


def grown(spark: SparkSession, directory: Path, *, before: int, statements: int) -> dict[str, int]:
    run(spark, directory, range(before))
    first, kinds = measured(spark), Counter(map(type, gc.get_objects()))
    run(spark, directory, range(before, before + statements))
    last = measured(spark)
    print({str(kind): count for kind, count in (Counter(map(type, gc.get_objects())) - kinds).most_common(15)})
    return {name: last[name] - first[name] for name in first}


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_10_000_statements_leave_no_more_behind_than_2_500(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps what it reports of its last 1,000 queries and jobs, so the first statements do not count."""
    dbio.enable(spark)
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        found = grown(spark, tmp_path, before=2_500, statements=7_500)
    assert found["bytes in the JVM"] < 20_000_000, found
    assert found["objects of Python"] < 20_000, found
    assert found["objects of the gateway"] < 100, found
    assert found["snapshots"] + found["sessions"] <= 100, found
    assert found["threads"] <= 2, found
    assert found["rules"] == 0, found
