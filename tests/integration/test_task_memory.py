"""A Python worker's memory stays bounded, whatever the rows are like."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, random, sys
from pathlib import Path
import pyarrow as pa
from dbio_commit.commit.write.files import write_files
from tests.task_sink import DirectorySink, spec

columns, text_bytes, batch_rows, batches, partitions = json.loads(sys.argv[2])
rng = random.Random(7)
text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=1 << 20))

def batch():
    data = {"p": [rng.randrange(partitions) for _ in range(batch_rows)]}
    for i in range(columns):
        starts = [rng.randrange((1 << 20) - text_bytes) for _ in range(batch_rows)]
        data[f"c{i}"] = [text[s : s + text_bytes] for s in starts]
    return pa.RecordBatch.from_pydict(data)

sink = DirectorySink(Path(sys.argv[1]))
names = ["p", *(f"c{i}" for i in range(columns))]
of_task = spec(sink.root, columns=tuple(enumerate(names)), partition_columns=("p",) if partitions > 1 else ())
infos = write_files(of_task, (batch() for _ in range(batches)), task=0, attempt=0, files=sink)
assert sum(info.rows for info in infos) == batch_rows * batches
# Not ru_maxrss: over an exec that keeps the peak of the process which forked, here of all of pytest.
peak_kb = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps({"peak_mb": peak_kb >> 10, "files": len(infos)}))
"""


@pytest.mark.parametrize(
    ("columns", "text_bytes", "batch_rows", "batches", "partitions"),
    [
        pytest.param(100, 1000, 100, 60, 1, marks=pytest.mark.long),
        pytest.param(100, 1000, 100, 60, 300, marks=pytest.mark.long),
        pytest.param(4, 20, 10_000, 250, 2000, marks=pytest.mark.long),
        (1, 300_000, 100, 25, 1),
        pytest.param(1, 1_000_000, 32, 25, 3, marks=pytest.mark.long),
    ],
)
def test_a_worker_stays_below_one_gigabyte(
    tmp_path: Path, columns: int, text_bytes: int, batch_rows: int, batches: int, partitions: int
) -> None:
    """More data than fits, of 600 and 250 MB, in its own process: the bound is on all of it."""
    shape = json.dumps([columns, text_bytes, batch_rows, batches, partitions])
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), shape],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(ran.stdout)
    assert measured["files"] == partitions
    assert measured["peak_mb"] < 1024 - 200  # Spark's own part of a worker takes up to 200 MB
