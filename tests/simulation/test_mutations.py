"""The simulation can fail: each way to get the protocol wrong is found, by a seed that the right code passes."""

from functools import cache

import pytest

from .mutations import MUTATIONS, Mutation, find
from .run import simulate
from .scenarios import SCENARIOS

# Those of a scenario run in one process, and each of its seeds is tried once.
by_scenario = pytest.mark.parametrize(
    "mutation",
    [pytest.param(it, id=it.name, marks=pytest.mark.xdist_group(f"mutations of {it.scenario}")) for it in MUTATIONS],
)


@by_scenario
def test_a_mutation_of_the_protocol_is_found(mutation: Mutation) -> None:
    seed, violation = find(mutation)
    assert str(violation).startswith(mutation.breaks)
    _passes(mutation.scenario, seed)


@cache
def _passes(scenario: str, seed: int) -> None:
    simulate(seed, scenario=scenario)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_right_code_passes_each_seed_that_mutations_are_tried_with(scenario: str) -> None:
    for seed in range(200):
        simulate(seed, scenario=scenario)
