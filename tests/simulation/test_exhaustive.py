"""All interleavings of two or three actors, with one crash anywhere; and such cases find what is wrong, too."""

import os
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from .exhaustive import CASES, CRASH, Explored, Past, explore, explore_case
from .mutations import MUTATIONS
from .run import workers
from .world import Violation

SMALL = (
    "append, append",
    "append, overwrite",
    "overwrite, overwrite",
    "overwrite, rewrite",
    "partitions, partitions",
    "idempotent, idempotent",
    "append, operator",
    "overwrite, operator",
    "overwrite, reader by pages",
)
"""Of the cases, those that take seconds."""

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}


@pytest.fixture(scope="module")
def explorations() -> Iterator[dict[str, Future[Explored]]]:
    with workers(os.cpu_count() or 1) as pool:
        yield {name: pool.submit(explore_case, name, (CRASH,)) for name in SMALL}


@pytest.mark.timeout(900)  # on a busy machine; all of them take one minute of a quiet one with two cores
@pytest.mark.parametrize("case", SMALL)
def test_no_interleaving_violates_an_invariant(case: str, explorations: dict[str, Future[Explored]]) -> None:
    found = explorations[case].result()
    assert found.states > 300
    assert found.ends > 5


@pytest.mark.parametrize(
    ("mutation", "case"),
    [
        ("skip_the_start_marker", "append, vacuum"),
        ("commit_with_a_plain_put", "append, operator"),
        ("leave_out_the_turn", "overwrite, overwrite"),
        ("leave_out_the_turn", "idempotent, idempotent"),
        ("take_the_turn_without_waiting", "overwrite, overwrite"),
        ("look_at_the_table_before_the_turn", "append, overwrite"),
        ("read_the_log_once", "append, append, reader by pages"),
        ("pass_over_a_purged_marker", "reader, vacuum twice"),
        ("delete_before_the_abort", "append, vacuum"),
        ("delete_without_an_abort", "append, vacuum"),
        ("purge_start_markers_last", "vacuum, vacuum"),
    ],
)
def test_a_mutation_of_the_protocol_is_found(mutation: str, case: str) -> None:
    past = Past(CASES[case])
    with BY_NAME[mutation].switch(), pytest.raises(Violation) as caught:
        explore(past)
    assert str(caught.value).startswith(("I3", "I4", "I5", "I6", "I7", "I8", "I9", "DBIO"))
    assert "writer0" in caught.value.__notes__[0] or "vacuum" in caught.value.__notes__[0]
