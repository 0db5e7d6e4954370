"""The coverage-guided fuzzer: libFuzzer (atheris) runs each of some `harnesses` in a process of its own.

Imports nothing of the package: their first process instruments what it imports. `python -m tests.fuzz` is the command.
"""

import json
import logging
import os
import re
import resource
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTRUMENTED = ["dbio_commit", "vacuum", "tomllib", "apscheduler"]
MEMORY_BYTES = 512 << 20
"""What any input may take, beyond what the process takes before the first."""
INPUT_S = 60
"""How long any input may take, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run of the fuzzer did."""

    executions: int
    edges: int
    features: int
    peak_mb: int
    corpus: Path
    failing: Path | None
    """The input on which it stopped."""
    log: str

    @property
    def error(self) -> str:
        """The traceback, or what else libFuzzer says."""
        found = re.search(r"=== Uncaught Python exception: ===\n(.*?)\n==\d+==", self.log, re.DOTALL)
        return found[1].strip() if found else "\n".join(self.log.splitlines()[-20:])


def fuzz(
    names: Sequence[str], place: Path, *, seconds: int = 0, runs: int = -1, processes: int = 1, root: Path = ROOT
) -> Iterator[tuple[str, Outcome]]:
    """Runs each until the time is over, or so many inputs were tried, or one fails; goes on from what is in the place.

    So many inputs are the same ones each time, as far as clock and hashes decide on them. Each has a process of its
    own, so many at once, which a first one forks: to instrument the package takes seconds.

    The package is that in `root`. Comes to each as it ends.
    """
    jobs = {name: _prepare(name, place, seconds=seconds, runs=runs) for name in names}
    known = {name: {*_failing(place, name).iterdir()} for name in names}
    with subprocess.Popen(
        [sys.executable, "-u", "-m", __name__, str(place), str(processes), json.dumps(jobs)],
        cwd=root,
        # glibc reserves 64 MB of addresses for the heap of each thread, which the limit of memory counts.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2"},
        stdout=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdout is not None
        for line in ran.stdout:
            name, code = line.split()
            yield name, _outcome(name, int(code), place, known.pop(name))
    if known:
        raise RuntimeError(f"the fuzzer ended with code {ran.returncode} before it had run {', '.join(known)}")


def _prepare(name: str, place: Path, *, seconds: int, runs: int) -> Sequence[str]:
    """Writes the seeds; what libFuzzer is told."""
    from tests.fuzz.harnesses import HARNESSES, tokens

    corpus, dictionary = place / name, place / f"{name}.dict"
    corpus.mkdir(parents=True, exist_ok=True)
    _failing(place, name).mkdir(parents=True, exist_ok=True)
    seeds = [*HARNESSES[name].seeds()]
    for seed in seeds:
        (corpus / sha1(seed).hexdigest()).write_bytes(seed)
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in token) + '"' for token in sorted(tokens(seeds)))
    dictionary.write_text("\n".join(lines))
    options = {
        "max_total_time": seconds, "runs": runs, "seed": int(runs > 0), "reload": int(runs < 0), "max_len": HARNESSES[name].max_bytes,
        "timeout": INPUT_S, "report_slow_units": INPUT_S, "rss_limit_mb": 0, "dict": dictionary,
        "artifact_prefix": f"{_failing(place, name)}/", "print_final_stats": 1,
    }  # fmt: skip
    return [*(f"-{key}={value}" for key, value in options.items()), str(corpus)]


def _failing(place: Path, name: str) -> Path:
    return place / "failing" / name


def _log(place: Path, name: str) -> Path:
    return place / f"{name}.log"


def _outcome(name: str, code: int, place: Path, known: Set[Path]) -> Outcome:
    log = _log(place, name).read_text(errors="replace")
    new = {*_failing(place, name).iterdir()} - known
    if code and not new:
        raise RuntimeError(f"the fuzzer did not run:\n{log[-4000:]}")

    def last(pattern: str) -> int:
        return int([0, *re.findall(pattern, log)][-1])

    return Outcome(
        executions=last(r"stat::number_of_executed_units: (\d+)"),
        edges=last(r" cov: (\d+)"),
        features=last(r" ft: (\d+)"),
        peak_mb=last(r"stat::peak_rss_mb: +(\d+)"),
        corpus=place / name,
        failing=new.pop() if new else None,
        log=log,
    )


def limit_memory(more_bytes: int) -> None:
    """This process gets so much more address space than it has now: no native code can overlook that."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))


def _main(place: Path, processes: int, jobs: Mapping[str, Sequence[str]]) -> None:
    """In the process that has the others: says of each how it ended."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        import tests.fuzz.harnesses  # noqa: F401
    logging.disable(logging.WARNING)
    waiting, running = deque(jobs.items()), dict[int, str]()
    while waiting or running:
        while waiting and len(running) < processes:
            name, options = waiting.popleft()
            child = os.fork()
            if not child:
                return _run(name, options, _log(place, name))  # libFuzzer writes what failed as the process ends
            running[child] = name
        child, status = os.wait()
        print(running.pop(child), os.waitstatus_to_exitcode(status))


def _run(name: str, options: Sequence[str], log: Path) -> None:
    """In a process of its own."""
    import atheris

    from tests.fuzz.harnesses import HARNESSES, mutate

    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    check = HARNESSES[name].check

    def change(data: bytes, max_bytes: int, seed: int) -> bytes:
        return mutate(data, max_bytes, seed, atheris.Mutate)

    def run(data: bytes) -> None:
        check(data)

    limit_memory(MEMORY_BYTES)
    atheris.Setup([name, *options], run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
