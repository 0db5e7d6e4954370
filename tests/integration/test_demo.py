"""`make demo`, on a local disk and on two months of the data; what it shows, it has checked itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from dbio_commit import Table

DEMO = Path(__file__).parents[2] / "bench/demo.py"
ROWS = 27_004 + 24_951  # of January and February


@pytest.mark.slow("make demo is the first that a newcomer runs: six sessions and two killed jobs")
def test_the_demo_runs_to_its_end_and_can_be_run_again(tmp_path: Path) -> None:
    left = tmp_path / "build/demo/flights"
    left.mkdir(parents=True)
    (left / "left-by-the-last-run.parquet").write_text("rows")

    demo = subprocess.run(
        [sys.executable, str(DEMO), "--months", "2"], cwd=tmp_path, capture_output=True, text=True, timeout=400
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    assert "✗" not in demo.stdout
    for line in (
        f"✓ dbio.read finds {ROWS:,} rows",
        "✓ value for value, they are those of the data set",
        "✓ the job died of signal 9",
        f"✓ pyarrow on dbio.Table(path).snapshot().urls() finds {ROWS:,} rows",
        "flights twice",
        "its transaction is pending",
        "✓ no transaction is pending any more",
        "✓ the files of exactly 1 of them are live",
        "✓ it has 2 commits, one for each month",
        "✓ all four agree with the data set",
        "✓ the stream died of signal 9",
        f"✓ the copy has {ROWS:,} rows: none is missing, and none is there twice",
        "✓ and the directory has all of them twice",
        "✓ plain spark.read.parquet(path) finds",
        "✓ INSERT INTO adds a row, and SELECT sees it",
    ):
        assert line in demo.stdout, demo.stdout
    assert len(Table(left).history()) == 2
