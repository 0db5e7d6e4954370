"""The simulation can fail: each way to get the protocol wrong is found, by seeds that the right code passes."""

from functools import cache

import pytest

from .mutations import MUTATIONS, Mutation, find
from .run import simulate


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: it.name)
def test_a_mutation_of_the_protocol_is_found(mutation: Mutation) -> None:
    seed, violation = find(mutation)
    assert str(violation).startswith(mutation.breaks)
    for right in range(seed + 1):
        _passes(mutation.scenario, right)


@cache
def _passes(scenario: str, seed: int) -> None:
    simulate(seed, scenario=scenario)
