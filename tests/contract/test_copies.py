"""Tables are copied from place to place on every store; what another tool copies is told by its times.

Rules: PROTOCOL.md 9.12.
"""

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.table import Table
from dbio_commit.upkeep.copy import copy_table
from tests.builders import columns
from tests.contract.places import Place
from tests.writers import contents, write


def states(table: Table, tids: list[str]) -> list[list[str]]:
    return [sorted(file.path for file in table.snapshot(tid).files) for tid in tids]


@pytest.mark.parametrize("settings", [{}, {"publish": "delta"}], ids=["", "published"])
def test_a_copy_has_the_rows_and_every_state(shared: Place, settings: dict[str, str]) -> None:
    table = Table.over(shared.open("/table"))
    tids = [
        write(table, "overwrite" if i == 2 else "append", bodies=[b"%d" % i], schema=columns("a")).tid for i in range(4)
    ]
    if settings:
        table.set(settings)
    target = shared.open("/copy")
    report = copy_table(table.store, target, table.clock)
    copy = Table.over(target)
    assert contents(copy) == contents(table) == [b"2", b"3"]
    assert states(copy, tids) == states(table, tids)
    assert (report.files, report.tid) == (4, table.snapshot().tid)
    assert copy.check().ok
    assert any(entry.path.startswith("_delta_log/") for entry in target.list_files()) == bool(settings)
    write(copy, "overwrite", bodies=[b"new"], schema=columns("a"))
    assert contents(copy) == [b"new"]
    assert contents(table) == [b"2", b"3"]


def test_a_copy_by_the_store_s_own_copy_is_noticed(remote: Place) -> None:
    table = Table.over(remote.open("/table"))
    tids = [write(table, "overwrite" if i == 2 else "append", bodies=[b"%d" % i]).tid for i in range(4)]
    table.clock.sleep(2.1)  # services keep whole seconds
    copy = Table.over(remote.open("/copy"))
    for entry in reversed(table.store.list_files()):
        copy.store.put_if_absent(entry.path, table.store.get(entry.path))
    assert contents(copy) == contents(table)
    assert table.snapshot(tids[0]).redated_until is None
    for tid in tids[:-1]:
        with pytest.raises(InvalidInputError, match="it was copied"):
            copy.snapshot(tid)


def test_the_times_that_a_writer_sees_are_those_that_a_reader_sees(shared: Place) -> None:
    """Else a table would be taken for a copy of itself."""
    table = Table.over(shared.open())
    for _ in range(3):
        write(table, schema=columns("a"))
    write(Table.over(shared.open()), "overwrite", schema=columns("b"))
    assert Table.over(shared.open()).snapshot().redated_until is None
