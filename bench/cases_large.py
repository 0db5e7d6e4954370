"""Cases `large` and `largest`: tables of 1 and 10 million live files, as the log records them. No such file exists.

On a local disk. Time and memory are those of a separate process, which has read nothing yet. Beside Delta and Iceberg,
it is a process of their own environments: see peers_job.py.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import dbio_commit as dbio
from bench import large_tables, report
from bench.cases_requests import kinds
from bench.cases_vacuum import Moto, moto_here
from bench.duels import Results, compare_conditions, compare_plans, duel, home_of, said, started
from bench.large_tables import DAYS, few, make_ours
from bench.measure import HEAP, Bench, Timing, spark_session, take_turns
from dbio_commit.protocol import names

FILES = 1_000_000
COMMITS = (1_000, 10_000)
DAY = "day = '2026-03-03'"
_CHECKPOINT = "a checkpoint"
MOST_FILES = 10 * FILES
"""How many files the largest table has, which is only planned, beside peers."""
MOST_ROUNDS = 2
"""How often at most, since a plan takes minutes."""


def large(bench: Bench) -> report.Section:
    for name in ("delta", "iceberg"):
        home_of(name)
    files = round(FILES * min(bench.scale, 1))
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    tables = {f"{count:,} commits": bench.directory / "large" / str(count) for count in COMMITS}
    for count, path in zip(COMMITS, tables.values(), strict=True):
        make_ours(path, files, min(count, files))
    packed = bench.directory / "large" / "packed"
    shutil.copytree(list(tables.values())[-1], packed)
    dbio.Table(packed).checkpoint()
    tables |= {_CHECKPOINT: packed}
    turns = bench.progress.add_task("large", total=len(tables) * len(_ACTS))
    for told_by, path in tables.items():
        for what, act in _ACTS.items():
            found = [_in_a_process(act, path) for _ in range(bench.rounds)]
            seconds, peak = Timing(tuple(took_s for took_s, _ in found)), max(peak_mb for _, peak_mb in found)
            rows.append([told_by, what, *seconds.cells(), peak])
            if what == "snapshot":
                name = f"a snapshot of {files:,} files, from {told_by}"
                targets += [
                    report.Target(what=name, found=seconds.median, at_most=2.5, unit="s"),
                    report.Target(what=name, found=peak, at_most=400, unit="MB"),
                ]
            bench.progress.advance(turns)
    s3_rows, s3_targets = _on_s3(bench, tables, files)
    spark_rows, spark_targets = _with_spark(bench, tables[f"{COMMITS[0]:,} commits"], files)
    (peers, peer_targets), versions = _beside_peers(bench, files, min(COMMITS[0], files))
    shutil.rmtree(bench.directory / "large")
    return report.Section(
        title="a table of a million files",
        how=_HOW.format(versions=versions),
        tables=[
            report.table(["recorded by", "what", "median", "min", "max", "peak, MB"], rows),
            report.table(["on S3 (moto), recorded by", "requests", "seconds", "peak, MB"], s3_rows),
            report.table(["with Spark", "median", "min", "max"], spark_rows),
            peers,
        ],
        targets=[*targets, *s3_targets, *spark_targets, *peer_targets],
    )


_HOW = f"""\
The log records {FILES:,} files in {DAYS} partitions, with statistics of two columns. The files themselves do not exist.
A condition leaves out all but a hundredth of them by the bounds of a column. The overwrite adds no files; its marker
names transactions, because the paths would not fit into one PUT. On S3 one snapshot is taken. Its requests and its
memory are exact; its time depends on moto, which answers one request at a time. With Spark, the DataFrame is made in a
session with a heap of 4 GB, whose process remembers up to 128 MB of the log.

Beside Delta and Iceberg ({{versions}}), the log records as many files, in {COMMITS[0]:,} commits, with the same
statistics. Delta also has a checkpoint of all commits, Iceberg a manifest for every ten of them. The caches of the
processes are empty. A query is of all files; it is planned down to its tasks, and no task is run. dbio_commit lists
when the DataFrame is made, the peers when it is first queried: the target compares the former with the latter. *Some
rows* are those of the condition, by `where` of `dbio.read`; for them, dbio_commit has a checkpoint, too."""


_ACTS = {
    "snapshot": "snapshot",
    "two snapshots, one with a condition": "condition",
    "overwrite, and a snapshot": "overwrite",
}
"""What `large_job` does."""


def _in_a_process(act: str, path: Path) -> tuple[float, int]:
    """Seconds, and the most memory that it took, in MB."""
    command = [sys.executable, "-m", "bench.large_job", act, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    took_s, peak_mb = done.stdout.split()
    return float(took_s), int(peak_mb)


def _on_s3(bench: Bench, tables: Mapping[str, Path], files: int) -> tuple[list[list[object]], list[report.Target]]:
    """The same logs, read once."""
    rows: list[list[object]] = []
    targets: list[report.Target] = []
    turns = bench.progress.add_task("large, on S3", total=len(tables))
    with moto_here() as server:
        place = Moto(server, rounds=1)
        for told_by, path in tables.items():
            bucket, log = f"large-{path.name}", {marker.name: marker.read_bytes() for marker in path.iterdir()}
            place.put(bucket, log)
            found = place.run(bucket, "snapshot")
            assert found.answer["files"] == files
            seconds, peak = found.answer["seconds"], found.answer["peak_mb"]
            rows.append([told_by, kinds(found.requests), f"{seconds:.3g}", peak])
            name = f"a snapshot of {files:,} files on S3, from {told_by}"
            new = sum(map(_is_commit, log)) if told_by != _CHECKPOINT else 0
            listings = 3 * -(-len(log) // 1000) + 1  # R1: three of the markers, in pages, and one of checkpoints
            targets += [
                report.Target(what=name, found=len(found.requests), at_most=new + listings + 2, unit="requests"),
                report.Target(what=name, found=peak, at_most=400, unit="MB"),
            ]
            bench.progress.advance(turns)
    return rows, targets


def _is_commit(name: str) -> bool:
    parsed = names.parse_log_name(name)
    return parsed is not None and parsed.kind is names.Kind.COMMITTED


def _with_spark(bench: Bench, path: Path, files: int) -> tuple[list[list[object]], list[report.Target]]:
    snapshot, whole, partition = "Table.snapshot", "dbio.read", f'dbio.read, where="{DAY}"'
    with spark_session(bench.directory) as spark:
        ways: dict[str, Callable[[], object]] = {
            snapshot: dbio.Table(path).snapshot,
            whole: partial(dbio.read, spark, path),
            partition: partial(dbio.read, spark, path, where=DAY),
        }
        timings = take_turns(bench, "large, with Spark", ways)
    over = timings[partition].median - timings[snapshot].median
    return [[way, *timing.cells()] for way, timing in timings.items()], [
        report.Target(what=f"dbio.read of {files:,} files", found=timings[whole].median, at_most=10, unit="s"),
        report.Target(what=f"dbio.read of one of {DAYS} days, over a snapshot", found=over, at_most=1, unit="s"),
    ]


def _beside_peers(bench: Bench, files: int, commits: int) -> tuple[Results, str]:
    """And the versions of what was measured."""
    with started(bench.directory / "large" / "peers", "delta", "iceberg") as (delta, iceberg):
        duels = [duel(delta, "delta"), duel(iceberg, "iceberg")]
        contenders = {one.name: one for duel in duels for one in (duel.ours, duel.theirs)}
        made = bench.progress.add_task(f"large: tables of {files:,} files", total=len(contenders))
        for one in contenders.values():
            one.ask("make_large", "large", files, commits)
            bench.progress.advance(made)
        rows, target = compare_plans(bench, f"dbio.read of {files:,} files", duels, "large")
        pair = duels[1]
        pair.ours.ask("checkpoint", "large")
        chosen, less = compare_conditions(
            bench, f"dbio.read of a hundredth of {files:,} files", pair, "large", few(files)
        )
        versions = f"{said(delta.versions)}; {said(iceberg.versions)}"
    table = report.table(["beside peers", "median", "min", "max", "× the peer"], [*rows, *chosen])
    return (table, [target, less]), versions


# --- ten million files ----------------------------------------------------------------------------------------------


def largest(bench: Bench) -> report.Section:
    """Tables that are kept were made by the same code."""
    code = sha256(Path(large_tables.__file__).read_bytes()).hexdigest()[:8]
    root = bench.directory / f"large-{MOST_FILES}-{code}"
    for old in {*bench.directory.glob(f"large-{MOST_FILES}-*")} - {root}:
        shutil.rmtree(old)
    few = replace(bench, rounds=min(bench.rounds, MOST_ROUNDS))
    with started(bench.directory / "largest", "iceberg", root=str(root), env={HEAP: "16g"}) as (iceberg,):
        pair = duel(iceberg, "iceberg")
        made = bench.progress.add_task(f"largest: tables of {MOST_FILES:,} files", total=2)
        for one in (pair.ours, pair.theirs):
            whole = root / f"{one.way}-is-whole"
            if not whole.exists():
                one.ask("make_large", "most", MOST_FILES, COMMITS[0])
                whole.touch()
            bench.progress.advance(made)
        rows, target = compare_plans(few, f"dbio.read of {MOST_FILES:,} files", [pair], "most")
        versions = said(iceberg.versions)
    shutil.rmtree(bench.directory / "largest")
    if not bench.keep:
        shutil.rmtree(root)
    return report.Section(
        title="a table of ten million files beside Iceberg",
        how=_HOW_LARGEST.format(versions=versions),
        tables=[report.table(["what", "median", "min", "max", "× the peer"], rows)],
        targets=[target],
    )


_HOW_LARGEST = f"""\
As in the case before, of {MOST_FILES:,} files, beside Iceberg ({{versions}}), with a heap of 16 GB: {MOST_ROUNDS}
rounds. dbio_commit has a checkpoint in parts, and Iceberg a manifest for every ten commits. Delta 4.4.0, with a
checkpoint of version 2 in sidecars, cannot plan so many files here: it runs out of a heap of 12 GB, and did not end
within 6 minutes with one of 18 GB, on a machine with 24 GB."""
