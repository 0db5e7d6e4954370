"""Rows of any width are written with a small heap, as by Spark's own writer; in a process of its own, for its heap."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit.spark.arrow import is_completing
from dbio_commit.spark.batches import BATCH_BYTES, arrow_batches, pack, weighted

path, columns, rows, partition_by = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.memory.fraction", "0.05").getOrCreate()  # 60 MB for all tasks
df = spark.range(0, rows, 1, 1).selectExpr("id", "id % 40 AS day", columns)


def measure(batches):
    sizes = [(batch.nbytes, batch.num_rows) for batch in batches]
    yield pa.record_batch({"size": [size for size, _ in sizes], "rows": [rows for _, rows in sizes]})


with arrow_batches(spark, df.schema):
    batches = weighted(df).limit(200).mapInArrow(measure, "size bigint, rows bigint").collect()


def groups(text_bytes, groups):
    # Whether rows of each group came in their order, and how many; of each value, how many groups it has and completes.
    rows = spark.range(0, 200_000_000 // text_bytes, 1, 1)
    rows = rows.selectExpr("id", f"id % {groups} AS p", f"repeat('x', {text_bytes}) AS t")
    frame, packing = pack(rows, together=[1])

    def see(batches):
        last, in_order, seen = {}, True, []
        for batch in packing.unpack(batches):
            for p, id in zip(batch.column(1).to_pylist(), batch.column(0).to_pylist()):
                in_order &= last.get(p, p - groups) + groups == id
                last[p] = id
            seen.append([len(batch.column(1).unique()), is_completing(batch)])
        count = sum((id - p) // groups + 1 for p, id in last.items())
        yield pa.record_batch({"seen": [json.dumps([in_order, count, seen])]})

    with arrow_batches(spark, rows.schema):
        return json.loads(frame.mapInArrow(see, "seen string").first().seen)


before = dict(spark.conf.getAll)
written = dbio.write(df, path, partition_by=partition_by)
print(json.dumps({
    "largest": max(batch.size for batch in batches) - BATCH_BYTES,
    "written": written.metrics["numOutputRows"],
    "read": dbio.read(spark, path).selectExpr("count(DISTINCT id) AS n", "sum(id) AS s").first()[:],
    "settings kept": dict(spark.conf.getAll) == before,
    "large groups": groups(5_000, 20),
    "small groups": groups(1_000, 2_000),
}))
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("columns", "row_bytes", "rows", "partition_by"),
    [
        ("repeat(sha1(string(id)), 7500) AS text", 300_000, 6_000, ["day"]),
        pytest.param(
            "array(binary(repeat(sha1(string(id)), 25000)), NULL) AS nested",
            1_000_000,
            2_000,
            [],
            marks=pytest.mark.long,
        ),
    ],
    ids=["300 KB of text", "1 MB in an array"],
)
def test_rows_of_large_values_are_written_with_a_heap_of_one_and_a_half_gigabytes(
    tmp_path: Path, columns: str, row_bytes: int, rows: int, partition_by: list[str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table"), columns, str(rows), *partition_by],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 1500m pyspark-shell"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["largest"] <= 2 * row_bytes
    assert found["written"] == rows
    assert found["read"] == [rows, rows * (rows - 1) // 2]
    assert found["settings kept"]
    # Groups that do not fit into the memory leave as they are, largest first; too small for that, all leave together.
    in_order, count, values = found["large groups"]
    assert in_order
    assert count == 40_000
    assert all(groups == 1 or completes for groups, completes in values)
    assert sum(groups for groups, completes in values if completes) == 20
    assert len(values) > 200
    in_order, count, values = found["small groups"]
    assert in_order
    assert count == 200_000
    assert not any(completes for _, completes in values)
