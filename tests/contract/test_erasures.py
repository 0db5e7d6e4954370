"""An erasure leaves no byte of the rows on any store.

Rules: NOTES.md, Erasures.
"""

import pytest

from dbio_commit.base.clock import SYSTEM_CLOCK
from dbio_commit.maintenance.erase import run
from tests.contract.places import Place
from tests.erasing import NUMBER, PERSON, WHERE, create, deleting, open_table, people, rewrite, traces, write


@pytest.mark.long_for("azure", "gcs")
def test_no_object_has_anything_of_the_rows(shared: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WAIT_S", 0.0)
    table = open_table(shared.open("/table"), SYSTEM_CLOCK)
    create(table, by_day=True)
    table.set({"publish": "delta,spark,symlink"})
    write(table, {1: "ann", NUMBER: PERSON})
    table.checkpoint()
    rewrite(table)
    assert traces(table.store)
    report = run.erase(table.store, table.clock, WHERE, delete=deleting(table))
    assert report.ok, report
    assert traces(table.store) == []
    assert people(table) == {1: "ann"}
    assert table.check().ok
