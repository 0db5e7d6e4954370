"""What the cases measure with: the Spark session, timings that take turns, sizes of directories, memory of workers."""

import os
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TypeVar

from pyspark.sql import SparkSession
from rich.progress import Progress

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a case is given."""

    directory: Path
    scale: float
    rounds: int
    largest: int
    """The largest table of case `state`, in millions of files."""
    keep: bool = False
    """Whether large tables that were made stay in the directory, for other runs."""
    progress: Progress


# --- Spark --------------------------------------------------------------------------------------------------------


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A fresh session, with Python workers of its own."""
    spark = start_spark(directory)
    try:
        yield spark
    finally:
        spark.stop()


HEAP = "BENCH_HEAP"
"""The variable with the heap of Spark's JVM; 4 GB without it."""


def start_spark(directory: Path, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """The session of this process; what its JVM logs goes to a file in the directory."""
    heap = os.environ.get(HEAP, "4g")
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", heap).config(map=dict(settings))
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    with _stderr_to(directory / "spark.log"):  # which the JVM and its Python workers inherit
        return builder.getOrCreate()


def java_version() -> str:
    """Of the Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = subprocess.run(
        [f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True, check=True
    )
    found = re.search(r'version "(.*?)"', java.stderr)
    return found[1] if found else "of unknown version"


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    terminal = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


# --- time ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def cells(self) -> list[str]:
        """Median, min and max, for a table."""
        return [f"{value:.3g}" for value in (self.median, min(self.seconds), max(self.seconds))]


def rotated(ways: Iterable[_T], round_: int) -> list[_T]:
    """The ways in the order of a round: each round begins with another one."""
    each = [*ways]
    first = round_ % len(each)
    return each[first:] + each[:first]


def take_turns(
    bench: Bench,
    what: str,
    ways: Mapping[str, Callable[[], object]],
    *,
    before: Callable[[str], object] | None = None,
    short: bool = False,
) -> dict[str, Timing]:
    """Times the ways, round by round, each round beginning with another; the first round is not counted.

    `before` is called with the name of a way before each of its turns, and not timed. What is `short` varies more, and
    is done 4 times as often.
    """
    rounds = bench.rounds * (4 if short else 1)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    turns = bench.progress.add_task(what, total=len(ways) * (rounds + 1))
    names = list(ways)
    for round_ in range(rounds + 1):
        for name in rotated(names, round_):
            bench.progress.update(turns, description=f"{what}: {name}")
            if before:
                before(name)
            began_s = perf_counter()
            ways[name]()
            seconds[name].append(perf_counter() - began_s)
            bench.progress.advance(turns)
    bench.progress.update(turns, description=what)
    return {name: Timing(tuple(counted)) for name, (_, *counted) in seconds.items()}


# --- size ---------------------------------------------------------------------------------------------------------


def parquet_size(directory: Path) -> tuple[int, float]:
    """How many Parquet files lie in the directory, and their size in MB."""
    sizes = [path.stat().st_size for path in directory.rglob("*.parquet")]
    return len(sizes), sum(sizes) / 1e6


def worker_peaks_mb() -> list[int]:
    """The peak resident memory of each Python worker that this process's Spark has, in MB (2^20 bytes)."""
    parents: dict[int, int] = {}
    status: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            pid, text = int(process.name), (process / "status").read_text()
            parents[pid] = int(_number("PPid", text))
            if "pyspark.daemon" in (process / "cmdline").read_text():
                status[pid] = text

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    # The daemon is a child of the JVM, and forks the workers.
    workers = [text for pid, text in status.items() if parents[pid] in status and is_ours(pid)]
    return [int(_number("VmHWM", text)) >> 10 for text in workers if "VmHWM" in text]


def _number(name: str, status: str) -> str:
    found = re.search(rf"^{name}:\s*(\d+)", status, re.M)
    assert found is not None, f"/proc/<pid>/status has no {name}"
    return found[1]
