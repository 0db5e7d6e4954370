"""The simulation can fail: each way to get the protocol wrong is found, by a seed that the right code passes."""

from dataclasses import replace
from functools import cache

import pytest

from .mutations import MUTATIONS, Mutation
from .run import ALONE, simulate
from .scenarios import SCENARIOS
from .seeds import find
from .test_exhaustive import MUTATED


def _param(mutation: Mutation) -> object:
    """`make test` finds none twice."""
    marks = [pytest.mark.long] if mutation.name in MUTATED else []
    return pytest.param(mutation, id=mutation.name, marks=marks)


@pytest.mark.slow("the simulation can fail: each way to get the protocol wrong, by seeds and in small cases")
@pytest.mark.parametrize("mutation", [_param(mutation) for mutation in MUTATIONS])
def test_a_mutation_of_the_protocol_is_found(mutation: Mutation) -> None:
    seed, _ = find(mutation)
    _passes(mutation.scenario, seed)


@cache
def _passes(scenario: str, seed: int) -> None:
    simulate(seed, scenario=scenario)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", [*SCENARIOS, *ALONE])
def test_the_right_code_passes_each_seed_that_mutations_are_tried_with(scenario: str) -> None:
    for seed in range(20 if scenario == "parts" else 200):  # of which one takes seconds
        simulate(seed, scenario=scenario)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["take_each_merge_for_the_whole", "lose_a_transaction_in_a_merge"])
def test_a_merge_that_loses_rows_is_also_found_by_the_scenario_parts(name: str) -> None:
    mutation = next(it for it in MUTATIONS if it.name == name)
    breaks = ("I6", "I9", "R1", "an error", "vacuum left")
    find(replace(mutation, name="", scenario="parts", breaks=breaks), within=5)
