"""All interleavings of two or three actors, with one fault anywhere; and such cases find what is wrong, too."""

import pytest

from .exhaustive import CASES, CRASH, FAULTS, Past, explore, explore_case
from .mutations import MUTATIONS
from .world import Violation

QUICK = ("append, overwrite", "append, operator")
"""Of the cases, those that take seconds with kills alone."""

SMALL = (
    *QUICK,
    "append, append",
    "overwrite, overwrite",
    "overwrite, rewrite",
    "partitions, partitions",
    "idempotent, idempotent",
    "overwrite, operator",
    "overwrite, reader by pages",
)
"""Of the cases, those that take a few minutes with every fault."""

MUTATED = {
    "skip_the_start_marker": "append, vacuum",
    "commit_with_a_plain_put": "append, operator",
    "leave_out_the_turn": "overwrite, overwrite",
    "take_the_turn_without_waiting": "overwrite, overwrite",
    "look_at_the_table_before_the_turn": "append, overwrite",
    "read_the_log_once": "append, append, reader by pages",
    "pass_over_a_purged_marker": "reader, vacuum twice",
    "delete_before_the_abort": "append, vacuum",
    "delete_without_an_abort": "append, vacuum",
    "purge_start_markers_last": "vacuum, vacuum",
}
"""The case in which a mutation is found. That the simulation finds it too is seen in `make test-long`."""

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("case", "faults"),
    [
        *(pytest.param(case, (CRASH,), id=f"{case}, a kill") for case in QUICK),
        *(pytest.param(case, FAULTS, id=f"{case}, any fault", marks=pytest.mark.long) for case in SMALL),
    ],
)
def test_no_interleaving_violates_an_invariant(case: str, faults: tuple[str, ...]) -> None:
    found = explore_case(case, faults)
    assert found.states > 250
    assert found.ends > 5


@pytest.mark.parametrize(
    ("mutation", "case"),
    [*MUTATED.items(), pytest.param("leave_out_the_turn", "idempotent, idempotent", marks=pytest.mark.long)],
)
def test_a_mutation_of_the_protocol_is_found(mutation: str, case: str) -> None:
    past = Past(CASES[case])
    with BY_NAME[mutation].switch(), pytest.raises(Violation) as caught:
        explore(past)
    assert str(caught.value).startswith(("R1", "R2", "R3", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "DBIO"))
    assert "writer0" in caught.value.__notes__[0] or "vacuum" in caught.value.__notes__[0]
