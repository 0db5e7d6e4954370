"""The coverage-guided fuzzer: libFuzzer (atheris) runs one of `harnesses` in a process of its own.

Imports nothing of the package: the process instruments what it imports. `python -m tests.fuzz` is the command.
"""

import logging
import os
import re
import resource
import subprocess
import sys
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


def fuzz(name: str, place: Path, *, seconds: int = 0, runs: int = -1, root: Path = ROOT) -> Outcome:
    """Runs until the time is over, or so many inputs were tried, or one fails; goes on from what is in the place.

    So many inputs are the same ones each time, as far as clock and hashes decide on them.

    The package is that in `root`.
    """
    from tests.fuzz.harnesses import HARNESSES, tokens

    corpus, failing, dictionary = place / name, place / "failing" / name, place / f"{name}.dict"
    corpus.mkdir(parents=True, exist_ok=True)
    failing.mkdir(parents=True, exist_ok=True)
    known = set(failing.iterdir())
    seeds = [*HARNESSES[name].seeds()]
    for seed in seeds:
        (corpus / sha1(seed).hexdigest()).write_bytes(seed)
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in token) + '"' for token in sorted(tokens(seeds)))
    dictionary.write_text("\n".join(lines))
    options = {
        "max_total_time": seconds, "runs": runs, "seed": int(runs > 0), "reload": int(runs < 0), "max_len": HARNESSES[name].max_bytes,
        "timeout": INPUT_S, "report_slow_units": INPUT_S, "rss_limit_mb": 0, "dict": dictionary,
        "artifact_prefix": f"{failing}/", "print_final_stats": 1,
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-u", "-m", __name__, name, *(f"-{key}={value}" for key, value in options.items()), corpus],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    new = set(failing.iterdir()) - known
    if ran.returncode and not new:
        raise RuntimeError(f"the fuzzer did not run:\n{ran.stdout[-4000:]}")

    def last(pattern: str) -> int:
        return int([0, *re.findall(pattern, ran.stdout)][-1])

    return Outcome(
        executions=last(r"stat::number_of_executed_units: (\d+)"),
        edges=last(r" cov: (\d+)"),
        features=last(r" ft: (\d+)"),
        peak_mb=last(r"stat::peak_rss_mb: +(\d+)"),
        corpus=corpus,
        failing=new.pop() if new else None,
        log=ran.stdout,
    )


def limit_memory(more_bytes: int) -> None:
    """This process gets so much more address space than it has now: no native code can overlook that."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))


def _main(name: str, *options: str) -> None:
    """In the process of its own."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.harnesses import HARNESSES, mutate
    logging.disable(logging.WARNING)
    check = HARNESSES[name].check

    def change(data: bytes, max_bytes: int, seed: int) -> bytes:
        return mutate(data, max_bytes, seed, atheris.Mutate)

    def run(data: bytes) -> None:
        check(data)

    limit_memory(MEMORY_BYTES)
    atheris.Setup([name, *options], run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    _main(*sys.argv[1:])
