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
from dbio_commit.spark.transfer.batches import BATCH_BYTES, arrow_batches, weighted

path, columns, rows, partition_by = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate())
df = spark.range(0, rows, 1, 1).selectExpr("id", "id % 40 AS day", columns)


def measure(batches):
    sizes = [(batch.nbytes, batch.num_rows) for batch in batches]
    yield pa.record_batch({"size": [size for size, _ in sizes], "rows": [rows for _, rows in sizes]})


with arrow_batches(spark, df.schema):
    batches = weighted(df).limit(200).mapInArrow(measure, "size bigint, rows bigint").collect()
before = dict(spark.sql("SET").collect())
written = dbio.write(df, path, partition_by=partition_by)
print(json.dumps({
    "largest": max(batch.size for batch in batches) - BATCH_BYTES,
    "written": written.metrics["numOutputRows"],
    "read": dbio.read(spark, path).selectExpr("count(DISTINCT id) AS n", "sum(id) AS s").first()[:],
    "settings kept": dict(spark.sql("SET").collect()) == before,
}))
"""


@pytest.mark.slow("the rows must be more than the heap: 1.8 GB")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("columns", "row_bytes", "rows", "partition_by"),
    [
        pytest.param("repeat(sha1(string(id)), 7500) AS text", 300_000, 6_000, [], marks=pytest.mark.long),
        pytest.param("repeat(sha1(string(id)), 7500) AS text", 300_000, 6_000, ["day"], marks=pytest.mark.long),
        pytest.param(
            "array(binary(repeat(sha1(string(id)), 25000)), NULL) AS nested",
            1_000_000,
            2_000,
            ["day"],
            marks=pytest.mark.long,
        ),
    ],
    ids=["300 KB of text", "300 KB of text, by day", "1 MB in an array"],
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


GROUPS = """
import json

import pyarrow as pa
from pyspark.sql import SparkSession

from dbio_commit.data.arrow import is_completing
from dbio_commit.spark.transfer.batches import arrow_batches, pack

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "4").config("spark.sql.adaptive.enabled", "false")
spark = builder.config("spark.memory.fraction", "0.05").getOrCreate()  # 60 MB for all tasks


def groups(rows):
    # Of each value, how many groups it has, and whether it completes them; how many rows there are; whether they are in
    # their order in each group.
    frame, packing = pack(rows, together=[1])

    def see(batches):
        last, in_order, count, seen = {}, True, 0, []
        for batch in packing.unpack(batches):
            for p, id in zip(batch.column(1).to_pylist(), batch.column(0).to_pylist()):
                in_order &= last.get(p, -1) < id
                last[p] = id
            count += batch.num_rows
            seen.append([len(batch.column(1).unique()), is_completing(batch)])
        yield pa.record_batch({"seen": [json.dumps([seen, count, in_order])]})

    with arrow_batches(spark, rows.schema):
        return json.loads(frame.mapInArrow(see, "seen string").first().seen)


def rows(p, text_bytes, all_bytes=120_000_000, tasks=1):
    columns = ["id", f"cast({p} AS bigint) AS p", f"repeat(sha1(string(id)), {text_bytes // 40}) AS t"]
    return spark.range(0, all_bytes // text_bytes, 1, tasks).selectExpr(*columns)


seen = {
    "even": groups(rows("id % 20", 5_000)),
    "skewed": groups(rows("IF(id % 10 = 0, id % 500 div 10, 99)", 4_000)),
    "many": groups(rows("id % 2000", 1_000)),
    "huge rows": groups(rows("id % 3", 6_000_000)),
}
rows("id % 20", 5_000).createOrReplaceTempView("t")
window = "SELECT id, p, t, lead(id) OVER (PARTITION BY p % 2 ORDER BY id) AS next FROM t"
seen["below a window"] = groups(spark.sql(window))
# A join builds its table of hashes when rows of those before it are in groups already, and cannot do with less.
spark.range(24_000).selectExpr("id AS k", "repeat(sha1(string(id)), 15) AS y").createOrReplaceTempView("u")
join = "SELECT /*+ SHUFFLE_HASH(u) */ id, p, t, y FROM t JOIN u ON id = k"
seen["four joins in a task"] = groups(spark.sql(join).coalesce(1))[:2] + [True]  # each has an order of its own
print(json.dumps(seen))
"""


@pytest.mark.slow("the rows must be more than the memory, in six plans")
def test_groups_that_memory_is_too_little_for_leave_early_and_lose_nothing(tmp_path: Path) -> None:
    """By rows of 120 MB with 60 MB for them; operators below get memory, too, when they ask for it later."""
    ran = subprocess.run(
        [sys.executable, "-c", GROUPS],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 1500m pyspark-shell"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "leak" not in ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    counts = {what: count for what, (_, count, _) in found.items()}
    assert counts == {"even": 24_000, "skewed": 30_000, "many": 120_000, "huge rows": 20, "below a window": 24_000,
                      "four joins in a task": 24_000}  # fmt: skip
    assert all(in_order for _, _, in_order in found.values())
    for what, groups in (("even", 20), ("skewed", 51)):
        values = found[what][0]
        assert all(own == 1 or completes for own, completes in values)
        assert sum(own for own, completes in values if completes) == groups
    assert not any(completes for _, completes in found["many"][0])  # groups would be too small, and are given up
    assert all(own == 1 for own, _ in found["huge rows"][0])


OF_DICTIONARIES = """
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.packing import takes_columns

source, table = sys.argv[1:3]
texts = pa.DictionaryArray.from_arrays(pa.array([i % 3 for i in range(4000)], pa.int32()), [c * 300_000 for c in "abc"])
pq.write_table(pa.table({"id": range(4000), "text": texts.cast(pa.string())}), source)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
df = spark.read.parquet(source).selectExpr("id", "text", "id % 2 AS p")
assert takes_columns(df)
for partition_by in ([], ["p"]):
    path = f"{table}{len(partition_by)}"
    dbio.write(df, path, partition_by=partition_by)
    print(partition_by, dbio.read(spark, path).selectExpr("sum(octet_length(text))").first()[0])
"""


@pytest.mark.long
def test_texts_that_a_file_tells_once_are_written_with_a_heap_below_their_size(tmp_path: Path) -> None:
    """A batch of Spark's is of 4096 rows: 1.2 GB of texts, of 900 kB in the file. Flat, and by partition."""
    ran = subprocess.run(
        [sys.executable, "-c", OF_DICTIONARIES, str(tmp_path / "source.parquet"), str(tmp_path / "table")],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 700m pyspark-shell"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines()[-2:] == [f"[] {4000 * 300_000}", f"['p'] {4000 * 300_000}"]
