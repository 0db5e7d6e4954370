"""Many seeds of the simulation: no invariant is violated, and everything that is rare happens often."""

import os
from collections.abc import Sequence

import pytest

from . import joint, life_of_parts, moments
from .mutations import MUTATIONS
from .run import ALONE, Outcome, in_processes, simulate, simulate_all
from .seeds import find
from .world import Violation

SEEDS = [range(0, 300), pytest.param(range(300, 2300), marks=pytest.mark.long)]

FAULTS = ("stall", "kill", "503", "403", "409", "time-out, applied", "time-out, not applied", "time-out, applied later",
          "applied, then 403", "own conflict", "listing overtaken", "clock set")  # fmt: skip

EVENTS = (
    "a batch that was committed already was skipped",
    "a batch was committed",
    "a commit came during a read",
    "a commit came during a read of its directory",
    "a commit was to be the first, and was",
    "a copy of a transaction had committed other files",
    "a copy of a transaction was told of its commit",
    "a day was committed after later ones",
    "a directory was adopted",
    "a directory was adopted during a read",
    "a file came after its transaction was decided",
    "a file of a pending transaction was deleted past its horizon",
    "a file that no transaction wrote was deleted",
    "a marker was left empty",
    "a query that reads was started again",
    "a query that writes was started again",
    "a row was merged",
    "a row was merged that was not there",
    "a setting was changed",
    "a state of the past was read",
    "a state was restored by overwrite",
    "a state was restored by rewrite",
    "a state was past telling",
    "a stream has had every commit",
    "a stream was told that it has lost something",
    "a transaction was committed by leaving its block",
    "a transaction was resumed",
    "a transaction was too old to commit",
    "a turn was taken again",
    "a vacuum was stopped",
    "a version that came too late was refused",
    "a version that was committed already was skipped",
    "a writer gave up its turn",
    "a writer got AccessDeniedError",
    "a writer got CommitConflictError",
    "a writer got CommitStateUnknownError",
    "a writer got StoreError",
    "a writer got TableExistsError",
    "a writer got TransactionAbortedError",
    "a writer that waited aborted the holder of the turn",
    "an abort came too late",
    "an append was aborted that began before other columns",
    "an attempt that came to nothing was aborted",
    "an operator aborted a transaction",
    "checkpoint",
    "_checkpoint_ was gone when it was read",
    "_committed_ was gone when it was read",
    "_serial_ was gone when it was read",
    "files came back as copies",
    "files were removed by the names of their transactions",
    "markers were queued",
    "purge of _checkpoint_",
    "purge of _committed_",
    "purge of _committed_, in a directory",
    "purge of _committed_vacuum, in a directory",
    "purge of _serial_",
    "purge of _started_",
    "purge of _started_, in a directory",
    "something was committed while a state was restored",
    "the schema was changed",
    "vacuum aborted a transaction",
)


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seeds: f"{len(seeds)} seeds")
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return in_processes(request.param, processes=os.cpu_count() or 1)


@pytest.mark.slow("300 seeds: the protocol's main test")
@pytest.mark.timeout(900)  # on a busy machine; on two quiet cores 2,000 seeds take less than two minutes
def test_no_seed_violates_an_invariant(outcome: Outcome) -> None:
    assert outcome.runs in (300, 2000)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_kind_of_fault_was_injected_often(outcome: Outcome, fault: str) -> None:
    assert outcome.faults[fault] >= outcome.runs // 40


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_rare_has_happened_often(outcome: Outcome, event: str) -> None:
    assert outcome.events[event] >= outcome.runs // 200


PARTS = (
    "a checkpoint came too late",
    "a checkpoint was written",
    "a snapshot was read late",
    "a writer withdrew a part",
    "vacuum deleted a dropped part",
    "vacuum deleted a part that no checkpoint had named",
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 320), marks=pytest.mark.long)], ids=len)
def test_no_part_is_deleted_that_a_checkpoint_names_or_a_slow_reader_needs(seeds: range) -> None:  # I4
    outcome = simulate_all(seeds, life_of_parts.SCENARIO)
    assert outcome.runs == len(seeds)
    assert {event: count for event in PARTS if (count := outcome.events[event]) < outcome.runs} == {}


def require_often(events: Sequence[str], seeds: range, scenario: str) -> None:
    """Runs the seeds. Each of the events happens once in ten of them at least."""
    outcome = simulate_all(seeds, scenario)
    assert outcome.runs == len(seeds)
    assert {event: count for event in events if (count := outcome.events[event]) < outcome.runs // 10} == {}


TOGETHER = (
    "_committed_ was gone when it was read",
    "a commit came during a read of several tables",
    "purge of _checkpoint_",
    "purge of _committed_",
    "several tables were read as of a time",
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 1020), marks=pytest.mark.long)], ids=len)
def test_several_tables_are_read_at_one_moment_beside_loaders_and_vacuums(seeds: range) -> None:
    """PROTOCOL.md 8.5."""
    require_often(TOGETHER, seeds, moments.SCENARIO)


JOINT = (
    "a cut has a joint transaction",
    "a cut has a joint transaction that is pending in a table",
    "a joint transaction was reported as committed",
    "a joint writer got CommitConflictError",
    "a joint writer got TransactionAbortedError",
    "a part was committed by vacuum",
    "a table was dropped",
    "several tables were read as of a joint transaction",
    "several tables were read as of a time",
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 320), marks=pytest.mark.long)], ids=len)
def test_a_joint_transaction_is_in_all_of_its_tables_or_in_none(seeds: range) -> None:
    """PROTOCOL.md 15."""
    require_often(JOINT, seeds, joint.SCENARIO)


def test_an_erasure_beside_others_leaves_nothing_that_it_does_not_report() -> None:
    """`make test-long` has 200 seeds. NOTES.md, Erasures."""
    outcome = simulate_all((33, 38, 42, 46), "erasures")  # in which much is erased, and some is not
    assert outcome.events["rows were erased"] >= outcome.runs
    assert outcome.events["an erasure was not complete"]


@pytest.mark.parametrize(("seed", "scenario"), [*((seed, None) for seed in range(6)), *((0, it) for it in ALONE)])
def test_a_seed_replays_step_by_step(seed: int, scenario: str | None) -> None:
    first, second = (simulate(seed, scenario=scenario, trace=True).trace for _ in range(2))
    assert first == second


def test_a_failure_says_how_to_replay_it() -> None:
    mutation = next(it for it in MUTATIONS if it.name == "delete_the_files_before_the_abort")
    seed, found = find(mutation)
    with mutation.switch(), pytest.raises(Violation) as caught:
        simulate(seed, scenario=mutation.scenario, trace=True)
    note, trace = caught.value.__notes__
    assert str(caught.value) == str(found)
    assert f"make simulate SEED={seed} SCENARIO={mutation.scenario}" in note
    assert "put_if_absent _started_" in trace
