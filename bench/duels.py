"""A peer and dbio_commit beside each other on the same Spark, in a process of the peer's own environment.

What they do there is in peers_job.py. The Makefile makes the environments (`make bench-peers`).
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench import report
from bench.measure import Bench, Timing, take_turns

ROOT = Path(__file__).parents[1]

Results = tuple[str, list[report.Target]]
"""A table, and what is to be said of it above all."""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    peer: "Peer"
    way: str
    """Of peers_job.py."""

    def ask(self, job: str, *arguments: Any) -> Any:
        return self.peer.ask(job, self.way, *arguments)


@dataclass(frozen=True, slots=True)
class Duel:
    """On one Spark."""

    ours: Contender
    theirs: Contender


def duel(peer: "Peer", way: str) -> Duel:
    spark = f"Spark {peer.versions['Spark']}"
    return Duel(Contender(f"dbio_commit, {spark}", peer, "dbio"), Contender(f"{way.capitalize()}, {spark}", peer, way))


def said(versions: Mapping[str, str]) -> str:
    spark, *others = (f"{name} {version}" for name, version in versions.items())
    return f"{', '.join(others)} on {spark}"


# --- ratios -------------------------------------------------------------------------------------------------------


def cells_of(timings: Mapping[str, Timing], against: Mapping[str, str]) -> dict[str, list[str]]:
    """Of each way's row: its times, and their ratio where it is to be compared with another."""
    return {
        name: [*timing.cells(), f"{_ratio(timings, name, against[name]):.2f}" if name in against else ""]
        for name, timing in timings.items()
    }


def target_of(
    what: str,
    timings: Mapping[str, Timing],
    against: Mapping[str, str],
    *,
    at_most: float = 1.0,
    peer: str = "the faster peer",
) -> report.Target:
    worst = max(_ratio(timings, name, other) for name, other in against.items())
    return report.Target(what=what, found=worst, at_most=at_most, unit=f"× {peer}")


def _ratio(timings: Mapping[str, Timing], name: str, other: str) -> float:
    return timings[name].median / timings[other].median


def compare_plans(
    bench: Bench, what: str, duels: Sequence[Duel], table: str, *, short: bool = False
) -> tuple[list[list[object]], report.Target]:
    """A row for our DataFrame and for each way's query, by processes that have forgotten what they read before.

    dbio_commit lists when the DataFrame is made, the peers when it is queried: the target is of the former beside the
    latter.
    """
    opened = {f"{duel.ours.name}: the DataFrame": duel for duel in duels}
    queried = {f"{one.name}: a query": one for duel in duels for one in (duel.ours, duel.theirs)}
    ways = {name: partial(duel.ours.ask, "open", table) for name, duel in opened.items()}
    ways |= {name: partial(one.ask, "plan", table) for name, one in queried.items()}
    asked = {name: duel.ours for name, duel in opened.items()} | queried
    timings = take_turns(bench, f"peers: {what}", ways, before=lambda name: asked[name].ask("forget"), short=short)
    against = {name: f"{duel.theirs.name}: a query" for name, duel in opened.items()}
    queries = {f"{duel.ours.name}: a query": f"{duel.theirs.name}: a query" for duel in duels}
    rows: list[list[object]] = [[name, *cells] for name, cells in cells_of(timings, against | queries).items()]
    return rows, target_of(what, timings, against)


def compare_conditions(
    bench: Bench, what: str, pair: Duel, table: str, where: str
) -> tuple[list[list[object]], report.Target]:
    """As `compare_plans`, for a query of the rows that fulfil a condition."""
    asked = {f"{one.name}: a query of some rows": one for one in (pair.ours, pair.theirs)}
    ways = {name: partial(one.ask, "plan", table, where) for name, one in asked.items()}
    timings = take_turns(bench, f"peers: {what}", ways, before=lambda name: asked[name].ask("forget"))
    ours, theirs = asked
    rows: list[list[object]] = [[name, *cells] for name, cells in cells_of(timings, {ours: theirs}).items()]
    return rows, target_of(what, timings, {ours: theirs}, at_most=0.8, peer=pair.theirs.way.capitalize())


# --- processes ----------------------------------------------------------------------------------------------------


class Peer:
    """A process of peers_job.py in the environment of a peer. It does one job at a time."""

    def __init__(self, name: str, directory: Path, root: str, env: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._name, self._log = name, directory / "job.log"
        python = str(home_of(name) / "bin/python")
        pythons = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", "bench.peers_job", name, str(directory), root],
                cwd=ROOT,
                env={**os.environ, **pythons, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.versions: Mapping[str, str] = self.ask("versions")

    def ask(self, job: str, *arguments: Any) -> Any:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            asked.write(json.dumps([job, *arguments]) + "\n")
            asked.flush()
        line = answered.readline()
        if not line:
            raise RuntimeError(f"The process of {self._name} has ended; it said: {self._log.read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self._name}: {job} {arguments} failed: {answer['error']}")
        return answer["answer"]

    def end(self) -> None:
        self._process.communicate()


def home_of(name: str) -> Path:
    """The environment of the peer."""
    home = ROOT / ".venv-peers" / name
    if not (home / ".installed").exists():
        raise FileNotFoundError(f"{home} is not there, or not whole; `make bench-peers` installs it")
    return home


@contextmanager
def started(
    directory: Path, *names: str, root: str | None = None, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[list[Peer]]:
    """Each has a directory of its own, with its tables unless they are below another root."""
    with ExitStack() as stack:
        found = []
        for name in names:
            found.append(Peer(name, directory / name, root or str(directory / name), env))
            stack.callback(found[-1].end)
        yield found
