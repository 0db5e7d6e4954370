"""What case `state` measures, in a process that has nothing else in memory.

Takes an act, a URL, storage options and the act's own argument as JSON, and prints what it found as JSON. Without a URL
it only imports what the acts need: an empty process.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet  # noqa: F401, which small tables do without

import dbio_commit as dbio
from bench.states import directories, new_commits
from dbio_commit.commit import checkpoints, transaction
from dbio_commit.protocol import names
from dbio_commit.protocol.state import FilesInParts

Answer = dict[str, Any]


def opening(table: dbio.Table, argument: Any) -> Answer:
    """A snapshot that nobody asks anything."""
    return {"is_dbio": table.snapshot().scope == "table"}


def counting(table: dbio.Table, argument: Any) -> Answer:
    return {"files": len(table.snapshot().files)}


def condition(table: dbio.Table, argument: str) -> Answer:
    """The files that may hold rows which fulfil a condition."""
    return {"files": len(list(table.snapshot().where(argument).files))}


def iterating(table: dbio.Table, argument: Any) -> Answer:
    """All files, of which none is kept."""
    files = size = 0
    for file in table.snapshot().files:
        files += 1
        size += file.size
    return {"files": files, "bytes": size}


def whole(table: dbio.Table, argument: Any) -> Answer:
    """Path, size and partition of each live file, as columns if the table has parts."""
    files = table.snapshot().files
    if not isinstance(files, FilesInParts):
        return {"files": len(files)}
    counts = [(some.num_rows, pc.sum(some["size"]).as_py()) for some in files.arrow()]
    return {"files": sum(count for count, _ in counts), "bytes": sum(size for _, size in counts)}


def history(table: dbio.Table, argument: Any) -> Answer:
    """All transactions with all of their paths, slice by slice."""
    added = 0
    for some in table.snapshot().slices():
        added += sum(len(commit.marker.added) for commit in some.decided)
    return {"files": added}


def checkpoint(table: dbio.Table, argument: Any) -> Answer:
    """As `dbio checkpoint`. With `version 1`, in one object without parts."""
    if argument == "version 1":
        checkpoints.LARGE_FILES, checkpoints.LARGE_BYTES = sys.maxsize, sys.maxsize
    return {"name": table.checkpoint()}


def append(table: dbio.Table, argument: int) -> Answer:
    """So many commits of a file, of which none makes a checkpoint by chance."""
    vars(transaction)["checkpoint_by_chance"] = lambda *_, **__: None
    for number in range(argument):
        begun = table.begin()
        directory = directories()[0]
        name = names.format_data_file(
            tid=begun.tid, job=begun.terms.job, task=0, attempt=0, number=number, suffix=".parquet"
        )
        path, partition = f"{directory}/{name}", names.parse_partition(directory)
        table.store.put_if_absent(path, b"rows")
        begun.add([dbio.FileInfo(path=path, size=4, rows=1, partition=partition)], looked_at=True)
        begun.commit()
    return {}


def garbage(table: dbio.Table, argument: int) -> Answer:
    """Removes each tenth file in commits of so many files, which no checkpoint covers, and makes these files. Not
    measured."""
    vars(transaction)["checkpoint_by_chance"] = lambda *_, **__: None
    assert table.location is not None
    root = Path(table.location.key_prefix)
    removed = [file.path for file in islice(table.snapshot().files, 0, None, 10)]
    for directory in {names.split(path)[0] for path in removed}:
        (root / directory).mkdir(parents=True, exist_ok=True)
    for path in removed:
        (root / path).touch()
    for start in range(0, len(removed), argument):
        with table.begin("rewrite") as rewrite:
            rewrite.remove(removed[start : start + argument])
    return {"garbage": len(removed)}


def vacuum(table: dbio.Table, argument: float) -> Answer:
    """So many days from now."""
    from datetime import timedelta

    from tests.later import vacuum_later
    from vacuum import VacuumOptions

    report = vacuum_later(table, VacuumOptions(), by=timedelta(days=argument))
    assert report.ok, report.failed
    return {"deleted": len(report.deleted)}


def commits(table: dbio.Table, argument: Sequence[int]) -> Answer:
    """New commits, for a checkpoint: how many, columns with statistics, seed. Not measured."""
    count, statistics, seed = argument
    return {"tids": new_commits(table.store, count, statistics, seed=seed)}


ACTS: Mapping[str, Callable[[dbio.Table, Any], Answer]] = {
    act.__name__: act
    for act in (opening, counting, condition, iterating, whole, history, checkpoint, append, garbage, vacuum, commits)
}


def main(act: str, url: str, options: Mapping[str, str], argument: Any) -> Answer:
    began_s = perf_counter()
    answer = ACTS[act](dbio.Table(url, options), argument) if url else {}
    seconds = perf_counter() - began_s
    peak = re.search(r"^VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(), re.M)
    assert peak is not None
    return {"seconds": seconds, "peak_mb": int(peak[1]) / 1024, **answer}


if __name__ == "__main__":
    print(json.dumps(main(*json.loads(sys.argv[1]))))
