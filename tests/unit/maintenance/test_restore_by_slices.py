"""A plan of a restore by slices has the files that two whole states differ in."""

from collections.abc import Iterable

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.log.parts import windows
from dbio_commit.maintenance.restore import plan_restore
from dbio_commit.protocol.state import DataFile
from tests.tiny_parts import in_both_forms
from tests.unit.maintenance.publish.test_delta_by_difference import STEPS, History
from tests.unit.remembering import memory  # noqa: F401  (a fixture)

pytestmark = in_both_forms


def said(files: Iterable[DataFile]) -> set[tuple[str, int, str | None]]:
    return {(file.path, file.size, file.tid) for file in files}


@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_the_difference_of_both_states(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 2)
    history, planned = History(seed), 0
    steps = [step for step in STEPS if step not in (History.come_late, History.withdraw, History.forget_mark)]
    for _ in range(10):
        history.chance.choice(steps)(history)
    now = history.table.snapshot()
    for tid in now.tids:
        try:
            plan, then = plan_restore(history.store, history.clock, tid), history.table.snapshot(as_of=tid)
        except InvalidInputError:  # its files were vacuumed
            continue
        live, wanted = said(now.files), said(then.files)
        stay = live & wanted if plan.has_its_columns else set()
        assert (said(plan.back), said(plan.goes)) == (wanted - stay, live - stay)
        planned += 1
    assert planned
