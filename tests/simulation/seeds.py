"""The seeds that find mutations. `seeds.json` has those that found them last, so that tests need not look for them.

A change of the code may need others: `python -m tests.simulation.seeds` looks for those that are missing, or that find
nothing any more, on all cores.
"""

import json
import os
from concurrent.futures import as_completed
from functools import cache
from pathlib import Path

from .mutations import MUTATIONS, Mutation
from .run import simulate, workers
from .world import Violation

_KNOWN = Path(__file__).with_name("seeds.json")


@cache
def known_seeds() -> dict[str, int]:
    """By the name of a mutation."""
    found: dict[str, int] = json.loads(_KNOWN.read_text())
    return found


def find(mutation: Mutation, *, within: int = 400) -> tuple[int, Violation]:
    """A seed that finds it, and what it finds: the known one, or the next one after it, or after 0."""
    first = known_seeds().get(mutation.name, 0)
    with mutation.switch():
        for seed in (*range(first, first + within), *range(min(first, within))):
            try:
                simulate(seed, scenario=mutation.scenario)
            except Violation as violation:
                if str(violation).startswith(mutation.breaks):
                    return seed, violation
    raise AssertionError(
        f"none of {within} seeds of {mutation.scenario!r} finds {mutation.name}; to look for more: "
        "python -m tests.simulation.seeds"
    )


def _find_seed(index: int) -> int:
    return find(MUTATIONS[index], within=10_000)[0]


def main() -> None:
    found = dict(known_seeds())
    with workers(os.cpu_count() or 1) as pool:
        names = {pool.submit(_find_seed, index): mutation.name for index, mutation in enumerate(MUTATIONS)}
        for done in as_completed(names):
            found[names[done]] = done.result()
            print(f"{names[done]}: {done.result()}", flush=True)
            _KNOWN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
