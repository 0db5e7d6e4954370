"""What case `large` measures, in a process that has nothing else in memory: `python -m bench.large_job ACT PATH`."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import dbio_commit as dbio
from bench.large_tables import few
from dbio_commit.base.options import CHECKPOINT_EVERY
from dbio_commit.protocol import names


def snapshot(path: Path) -> None:
    dbio.Table(path).snapshot()


def condition(path: Path) -> None:
    files = len(dbio.Table(path).snapshot().files)
    assert dbio.Table(path).snapshot().where(few(files)).files


def overwrite(path: Path) -> None:
    """And leaves the table as it was."""
    os.environ[CHECKPOINT_EVERY] = "0"
    table = dbio.Table(path)
    transaction = table.begin("overwrite")
    commit = transaction.commit(table.schema())
    assert commit.removed_files
    assert not table.snapshot().files
    (path / names.committed(commit.tid)).unlink()
    max(path.glob("_serial_*")).unlink()


ACTS: dict[str, Callable[[Path], None]] = {"snapshot": snapshot, "condition": condition, "overwrite": overwrite}


if __name__ == "__main__":
    began_s = perf_counter()
    ACTS[sys.argv[1]](Path(sys.argv[2]))
    took_s, peak = perf_counter() - began_s, re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    print(took_s, int(peak[1]) // 1024 if peak else 0)  # not ru_maxrss, which a process inherits
