"""Case `state`: what readers and writers pay for the state of a table with very many files.

The states are made directly, by states.py: only the log exists. Each act is a process of its own: see state_job.py.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from bench import report, states
from bench.cases_requests import kinds
from bench.cases_vacuum import Moto, moto_here
from bench.measure import Bench, Timing, rotated
from bench.states import PARTITIONS, PER_COMMIT, make_state, make_version_1
from dbio_commit.log.parts import parquet, rows
from dbio_commit.protocol import checkpoint, names, parts
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint
from dbio_commit.protocol.names import Kind
from tests.servers import Request

PARTITION = "region = 'a' AND shop = 8"
COLUMN = f"{PARTITION} AND c01 < 20"
COMMITS = 100
"""How many commits a checkpoint of the case has as its news."""

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class State:
    files: int
    statistics: int
    """How many columns have statistics."""

    def __str__(self) -> str:
        size = f"{self.files / MILLION:g} M files" if self.files >= MILLION else f"{self.files:,} files"
        return f"{size}, {self.statistics} columns" if self.statistics else size


STATES = (State(MILLION, 2), State(10 * MILLION, 32), State(100 * MILLION, 0))


@dataclass(frozen=True, slots=True)
class Act:
    """What one process does."""

    what: str
    name: str
    """Of the function in state_job.py."""
    argument: Any = None
    needs_statistics: bool = False


OPENING = Act("open a snapshot", "opening")
COUNTING = Act("count the files", "counting")
OF_PARTITION = Act("files of one partition", "condition", PARTITION)
OF_COLUMN = Act("and a condition on a column", "condition", COLUMN, needs_statistics=True)
ITERATING = Act("iterate over all files", "iterating")
WHOLE = Act("a snapshot as a whole", "whole")
HISTORY = Act("all transactions with their paths", "history")
READS = (OPENING, COUNTING, OF_PARTITION, OF_COLUMN, ITERATING, WHOLE, HISTORY)
OVER_ALL = (ITERATING, WHOLE, HISTORY)
ONCE_ABOVE = MILLION
"""Acts over all files of a larger state take minutes, and run once."""

HISTORY_UP_TO = 10 * MILLION
"""A larger history takes a quarter of an hour."""

VACUUM_UP_TO = 10 * MILLION
"""For a vacuum, the files that it deletes must exist. A larger state has too many of them."""

REMOVED_AT_ONCE = 50_000

IN_PARTS, VERSION_1 = "parts", "version 1"


@dataclass(frozen=True, slots=True)
class Found:
    """What the rounds of an act found."""

    answers: Sequence[Mapping[str, Any]]
    empty_mb: float
    """The peak of a process that does nothing."""

    @property
    def timing(self) -> Timing:
        return Timing(tuple(it["seconds"] for it in self.answers))

    @property
    def peak_mb(self) -> float:
        """The most memory, over that of a process that does nothing."""
        return max(float(it["peak_mb"]) for it in self.answers) - self.empty_mb


def state(bench: Bench) -> report.Section:
    states = [it for it in STATES if it.files <= bench.largest * MILLION] or [STATES[0]]
    if bench.scale < 1:
        states = [State(max(round(MILLION * bench.scale), PER_COMMIT), 2)]
    reads: list[list[object]] = []
    requests: list[list[object]] = []
    rounds: list[list[object]] = []
    vacuums: list[list[object]] = []
    targets: list[report.Target] = []
    costs: list[tuple[Act, State, float, float]] = []
    for it in states:
        tables = _made(bench, it)
        size = sum(path.stat().st_size for path in tables[IN_PARTS].iterdir())
        found = _reads(bench, it, tables)
        for (act, form), one in found.items():
            reads.append([f"{it}: {act.what}", form, *one.timing.cells(), f"{one.peak_mb:.0f}"])
            if form == IN_PARTS:
                costs += [(act, it, one.timing.median, max(one.peak_mb, 0.0))]
        targets += _read_targets(it, {act: one for (act, form), one in found.items() if form == IN_PARTS})
        for act, asked in _on_s3(bench, tables[IN_PARTS], it):
            requests.append([f"{it}: {act.what}", kinds(asked), len(asked)])
            if act in _MOST_REQUESTS:
                what, most = f"{act.what}, of {it}", _MOST_REQUESTS[act]
                targets.append(report.Target(what=what, found=len(asked), at_most=most, unit="requests"))
        if it.files <= VACUUM_UP_TO:
            row, target = _vacuum(bench, it, tables[IN_PARTS])
            vacuums.append(row)
            targets.append(target)
        for form, path in tables.items():
            made = list(_checkpoints(bench, it, path, form))
            rounds.append([f"{it}: {size / it.files:.1f} bytes a file in parts", form, *_sum_up(made)])
            if form == IN_PARTS:
                ratio = sum(one.written for one in made) / sum(one.new for one in made)
                what = f"bytes that {len(made)} checkpoints of {COMMITS} commits wrote, of {it}"
                targets.append(report.Target(what=what, found=ratio, at_most=8.0, unit="× the new ones"))
        if not bench.keep:
            shutil.rmtree(tables[IN_PARTS].parent)
    return report.Section(
        title="the state of a table with very many files",
        how=_HOW,
        tables=[
            report.table(["state: what", "form", "median", "min", "max", "peak MB"], reads),
            *_growth(costs),
            report.table(["state on S3 (moto): what", "requests", "in all"], requests),
            report.table(
                ["state: checkpoints", "form", "rounds", "new MB", "written MB", "worst MB", "median s", "worst s"],
                rounds,
            ),
            report.table(["state: vacuum", "deleted files", "seconds", "peak MB"], vacuums),
        ],
        targets=targets,
    )


_HOW = f"""\
Commits of {PER_COMMIT:,} files, which lie in 100 of {PARTITIONS:,} partitions. Columns are those with statistics.
Each act is a new process; times count from opening the table. Peak memory is over that of a process that has only
imported dbio_commit and pyarrow. Acts over all files of more than {ONCE_ABOVE:,} run once. "As a whole" reads path,
size and partition of each file as columns; "all transactions" goes over the paths of each commit, slice by slice, as
vacuum does, of up to {HISTORY_UP_TO:,} files. A partition has a {PARTITIONS:,}th of the files; the condition on a
column leaves about a 250th of these.
Version 1 is the same state in a checkpoint without parts. A checkpoint has {COMMITS} new commits, and each round
follows the one before it: "new" is the size of the parts with what is new, "written" is the size of all objects that
the checkpoint wrote, with merges. Requests are those besides data files. A vacuum deletes a tenth of the files of a
state of up to {VACUUM_UP_TO:,} files, which commits of {REMOVED_AT_ONCE:,} files each have removed, and which no
checkpoint covers as removed."""


def _made(bench: Bench, it: State) -> dict[str, Path]:
    """The table in each form. One that is kept was made by the same code."""
    making = bench.progress.add_task(f"state of {it}: made", total=1)
    code = b"".join(Path(str(module.__file__)).read_bytes() for module in (states, parquet, rows, parts, checkpoint))
    root = bench.directory / f"state-{it.files}-{it.statistics}-{sha256(code).hexdigest()[:8]}"
    tables = {IN_PARTS: root / "parts"} | ({VERSION_1: root / "version-1"} if it.files <= MILLION else {})
    if not (root / "whole").exists():
        for old in bench.directory.glob(f"state-{it.files}-{it.statistics}-*"):
            shutil.rmtree(old)
        make_state(tables[IN_PARTS], it.files, it.statistics)
        if VERSION_1 in tables:
            make_version_1(tables[VERSION_1], tables[IN_PARTS])
        (root / "whole").touch()
    bench.progress.advance(making)
    return tables


# --- reads --------------------------------------------------------------------------------------------------------


def _reads(bench: Bench, it: State, tables: Mapping[str, Path]) -> dict[tuple[Act, str], Found]:
    """The acts take turns, round by round, after one round that is not counted, unless it is the only one of an act."""
    acts = [act for act in READS if not (act.needs_statistics and not it.statistics)]
    if it.files > HISTORY_UP_TO:
        acts.remove(HISTORY)
    ways = [(act, form) for act in acts for form in tables]
    answers: dict[tuple[Act, str], list[Mapping[str, Any]]] = {way: [] for way in ways}
    once = {way for way in ways if way[0] in OVER_ALL and it.files > ONCE_ABOVE}
    total = len(ways) * (bench.rounds + 1) - len(once) * bench.rounds
    turns = bench.progress.add_task(f"state of {it}", total=total)
    empty: list[float] = []
    for round_ in range(bench.rounds + 1):
        empty.append(_in_a_process("opening", "", {})["peak_mb"])
        for act, form in rotated(ways, round_):
            if round_ and (act, form) in once:
                continue
            bench.progress.update(turns, description=f"state of {it}, {form}: {act.what}")
            answers[act, form].append(_in_a_process(act.name, str(tables[form]), {}, act.argument))
            bench.progress.advance(turns)
    counted = {way: found[1:] or found for way, found in answers.items()}
    for (act, _), found in counted.items():
        if act in (COUNTING, ITERATING, WHOLE, HISTORY):
            assert {one["files"] for one in found} == {it.files}, (act, found)
    return {way: Found(found, median(empty)) for way, found in counted.items()}


def _in_a_process(act: str, url: str, options: Mapping[str, str], argument: Any = None) -> Mapping[str, Any]:
    command = [sys.executable, "-m", "bench.state_job", json.dumps([act, url, options, argument])]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{act} of {url} failed: {done.stderr[-3000:]}")
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def _read_targets(it: State, found: Mapping[Act, Found]) -> Iterator[report.Target]:
    """The goals of issue 39."""
    most: dict[Act, tuple[float, int]] = {OPENING: (0.3, 100), OF_PARTITION: (1.0, 200)}
    if it.files <= MILLION:
        most[WHOLE] = (1.0, 150)
    for act, (seconds, megabytes) in most.items():
        if act in found:
            what, one = f"{act.what}, of {it}", found[act]
            yield report.Target(what=what, found=one.timing.median, at_most=seconds, unit="s")
            yield report.Target(what=what, found=round(one.peak_mb), at_most=megabytes, unit="MB")
    if OF_COLUMN in found:
        more = found[OF_COLUMN].timing.median - found[OF_PARTITION].timing.median
        what = f"a condition on a column, of {it}, over the partition alone"
        yield report.Target(what=what, found=more, at_most=0.3, unit="s")
    what, one = f"{ITERATING.what}, of {it}", found[ITERATING]
    yield report.Target(what=what, found=one.timing.median / it.files * 1e6, at_most=3.0, unit="µs a file")
    yield report.Target(what=what, found=round(one.peak_mb), at_most=250, unit="MB")


def _growth(costs: Sequence[tuple[Act, State, float, float]]) -> list[str]:
    """Pictures of times and of memory, act by act."""
    in_order = sorted(costs, key=lambda it: READS.index(it[0]))
    times = ((act.what, str(it), seconds) for act, it, seconds, _ in in_order)
    memory = ((act.what, str(it), peak_mb) for act, it, _, peak_mb in in_order)
    return [report.growth("Seconds", times, least=0.05), report.growth("Peak MB", memory, least=10)]


# --- requests -----------------------------------------------------------------------------------------------------

FIRST_APPEND = Act("the first append of a process", "append", 1)
NEXT_APPEND = Act("the next append of the process", "append", 2)
CHECKPOINT = Act("a checkpoint of a new commit", "checkpoint")

_MOST_REQUESTS = {OF_PARTITION: 20, NEXT_APPEND: 5}
"""The goal of issue 39, and what an append asks of a small table, besides the data."""


def _on_s3(bench: Bench, path: Path, it: State) -> Iterator[tuple[Act, Sequence[Request]]]:
    """What each act asks. It changes the table, but not that on the disk."""
    acts = [OPENING, COUNTING, OF_PARTITION, OF_COLUMN, FIRST_APPEND, NEXT_APPEND, CHECKPOINT]
    acts = [act for act in acts if not (act.needs_statistics and not it.statistics)]
    counting = bench.progress.add_task(f"state of {it}, on S3", total=len(acts) + 1)
    with moto_here() as server:
        place = Moto(server, rounds=1)
        for file in sorted(path.iterdir()):
            place.put("state", {file.name: file.read_bytes()})
        bench.progress.advance(counting)
        first = 0
        for act in acts:
            _in_a_process(act.name, "s3://state", place.options, act.argument)
            asked = [it for it in place.requests() if not it.path.endswith(".parquet")]
            if act is FIRST_APPEND:
                first = len(asked)
            yield act, asked[first:] if act is NEXT_APPEND else asked
            bench.progress.advance(counting)


# --- vacuum -------------------------------------------------------------------------------------------------------


def _vacuum(bench: Bench, it: State, path: Path) -> tuple[list[object], report.Target]:
    """Of a tenth of the files."""
    running = bench.progress.add_task(f"state of {it}: vacuum", total=2)
    with _copy(path) as copy:
        garbage = _in_a_process("garbage", str(copy), {}, REMOVED_AT_ONCE)["garbage"]
        bench.progress.advance(running)
        answer = _in_a_process("vacuum", str(copy), {}, 40)
        assert answer["deleted"] >= garbage, answer
    bench.progress.advance(running)
    peak_mb = round(answer["peak_mb"] - _in_a_process("opening", "", {})["peak_mb"])
    row = [f"{it}", f"{garbage:,}", f"{answer['seconds']:.3g}", peak_mb]
    return row, report.Target(what=f"a vacuum of {garbage:,} files, of {it}", found=peak_mb, at_most=500, unit="MB")


# --- checkpoints --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Made:
    """A checkpoint: the bytes of what is new, the bytes of all that was written, and its seconds."""

    new: int
    written: int
    seconds: float


def _checkpoints(bench: Bench, it: State, path: Path, form: str) -> Iterator[_Made]:
    """Checkpoints of new commits, one after the other, in a copy of the table."""
    turns = bench.progress.add_task(f"state of {it}, {form}: checkpoints", total=bench.rounds)
    with _copy(path) as copy:
        for seed in range(bench.rounds):
            tids = _in_a_process("commits", str(copy), {}, [COMMITS, it.statistics, seed])["tids"]
            before = {file.name for file in copy.iterdir()}
            answer = _in_a_process("checkpoint", str(copy), {}, form)
            made = [file for file in copy.iterdir() if file.name not in before]
            written = sum(file.stat().st_size for file in made)
            roots = [file for file in made if file.name.startswith(Kind.CHECKPOINT)]  # several, of large markers
            new = written if form == VERSION_1 else sum(new_bytes(_read(root)) for root in roots)
            yield _Made(new, written, answer["seconds"])
            for tid in tids:  # as vacuum purges them
                (copy / names.committed(tid)).unlink()
            bench.progress.advance(turns)


@contextmanager
def _copy(path: Path) -> Iterator[Path]:
    """The objects never change, so links are enough."""
    copy = path.with_name(f"{path.name}-copy")
    shutil.rmtree(copy, ignore_errors=True)  # of a run that was interrupted
    shutil.copytree(path, copy, copy_function=os.link)
    yield copy
    shutil.rmtree(copy)


def _read(path: Path) -> Checkpoint:
    parsed = names.parse_log_name(path.name)
    assert parsed is not None
    return decode_checkpoint(path.read_bytes(), number=int(parsed.id), where=path.name)


def new_bytes(root: Checkpoint) -> int:
    """The size of the parts with what this root brought, also if they were merged at once."""
    parts = [*root.parts, *(it.part for it in root.dropped if it.by == root.number)]
    new = [it for it in parts if it.since == it.until == root.number]
    return sum(it.bytes + (it.statistics.bytes if it.statistics else 0) for it in new)


def _sum_up(made: Sequence[_Made]) -> list[str]:
    new, written = sum(it.new for it in made), sum(it.written for it in made)
    seconds = [it.seconds for it in made]
    worst = max(it.written for it in made)
    sizes = [f"{size / 1e6:.1f}" for size in (new, written, worst)]
    return [str(len(made)), *sizes, f"{median(seconds):.2f}", f"{max(seconds):.2f}"]
