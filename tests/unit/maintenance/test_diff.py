"""`Table.diff`: how two states differ."""

from collections.abc import Iterable
from typing import Any

import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.log.parts import windows
from dbio_commit.protocol.state import DataFile
from dbio_commit.testing import ManualClock
from tests.tiny_parts import in_both_forms
from tests.unit.large_tables import ByChance
from tests.unit.remembering import memory  # noqa: F401  (a fixture)
from tests.writers import stage

pytestmark = in_both_forms


def said(files: Iterable[DataFile]) -> set[tuple[str, int, str | None]]:
    return {(file.path, file.size, file.tid) for file in files}


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_it_is_the_difference_of_both_states_in_either_direction(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 2)
    history, compared = ByChance(seed), 0
    history.run(12)
    table = history.table
    tids = table.snapshot().tids
    for first, second in ((first, second) for first in tids[::3] for second in (tids[-2], None)):
        try:
            before, after = table.snapshot(as_of=first), table.snapshot(as_of=second)
            there, back = table.diff(first, second), table.diff(second, first) if second else None
        except InvalidInputError:  # vacuumed
            continue
        had, has = said(before.files), said(after.files)
        assert (said(there.removed), said(there.added)) == (had - has, has - had)
        assert (there.total_before.files, there.total_after.files) == (len(had), len(has))
        assert there.total_after.size == sum(file.size for file in after.files)
        assert sum(gone.files for gone, _ in there.partitions.values()) == len(had - has)
        if back:
            assert (said(back.removed), said(back.added)) == (said(there.added), said(there.removed))
            assert (back.total_before, back.total_after) == (there.total_after, there.total_before)
            assert [*back.commits] == [*there.commits]
        compared += 1
    assert compared


def test_columns_settings_and_rows_differ_by_name(table: Table, clock: ManualClock) -> None:
    def schema(**kinds: Any) -> dict[str, Any]:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
        return {"type": "struct", "fields": fields}

    many = {"type": "array", "elementType": "long", "containsNull": True}
    with table.begin("overwrite") as transaction:
        stage(table, transaction)
        transaction.commit(schema(id="integer", gone="string"))
    clock.sleep(10)
    table.set({"change_data": "true"})
    with table.begin("overwrite") as other:
        stage(table, other)
        other.commit(schema(id="long", new=many))
    found = table.diff(transaction.tid)
    assert {tuple(it) for it in found.columns} == {
        ("id", "integer", "long"),
        ("gone", "string", None),
        ("new", None, "array<long>"),
    }
    assert [tuple(it) for it in found.settings] == [("change_data", None, "true")]
    assert found.total_before.rows is None  # no writer recorded it
    assert not found.is_empty
    assert table.diff(other.tid).is_empty
