"""Many callers who create the same object at once, in several processes. Rules: PROTOCOL.md 4."""

from threading import Barrier

import pytest

from dbio_commit.testing import MemoryStore
from tests.contract.places import CONTENDERS, Outcome, Place, Race, contend


def check(rounds: list[list[Outcome]]) -> None:
    for outcomes in rounds:
        assert len(outcomes) == CONTENDERS
        (winner,) = (outcome for outcome in outcomes if outcome.won)
        assert {outcome.read for outcome in outcomes} == {winner.wrote}, "somebody read a part, or another body"


def test_exactly_one_of_many_threads_creates_an_object_in_memory() -> None:
    outcomes = contend(MemoryStore(), Barrier(CONTENDERS), contenders=CONTENDERS, rounds=200, size=1024)
    check([list(contenders) for contenders in zip(*outcomes, strict=True)])


@pytest.mark.long_for("azure", "gcs")
def test_exactly_one_of_many_processes_creates_an_object(shared: Place, race: Race) -> None:
    rounds = {"local": 100, "s3": 25, "azure": 25, "gcs": 25}[shared.kind]
    check(race.run(shared.open(), rounds=rounds, size=1024))


@pytest.mark.long_for("azure", "gcs")
def test_exactly_one_of_many_processes_creates_a_large_object(shared: Place, race: Race) -> None:
    check(race.run(shared.open(), rounds=3, size=1 << 20))


@pytest.mark.long_for("azure", "gcs")
def test_exactly_one_of_many_processes_creates_an_empty_object(shared: Place, race: Race) -> None:
    rounds = race.run(shared.open(), rounds=5, size=0)
    assert [sum(outcome.won for outcome in outcomes) for outcomes in rounds] == [1] * 5
