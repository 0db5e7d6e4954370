"""What a writer may record at its bounds, readers, checkpoints and vacuum take."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from dbio_commit.maintenance.vacuum.report import VacuumOptions
from dbio_commit.protocol.markers.schema import MOST_NESTED
from dbio_commit.table import Table, vacuum_table
from dbio_commit.testing import ManualClock
from tests.tiny_parts import in_both_forms
from tests.unit.remembering import forget
from tests.writers import stage, write

pytestmark = in_both_forms


def long_directories(table: Table) -> None:
    names = [f"c{i}" for i in range(30)]
    transaction = table.begin(partition_by=names)
    stage(table, transaction, partition=dict.fromkeys(names, "é" * 60))
    transaction.commit()


def long_texts(table: Table) -> None:
    labels = {"\x02" * 49 + str(i): "\x03" * 200 for i in range(10)}
    transaction = table.begin(message='\x01"\\' * 333, labels=labels)
    stage(table, transaction)
    transaction.commit()


def long_applications(table: Table) -> None:
    for id in ("\U0001f40d" * 1000, "\x01" * 1000):
        write(table, app=(id, 2**63 - 1))


def deep_columns(table: Table) -> None:
    kind: object = "long"
    for _ in range(MOST_NESTED // 3):
        kind = {"type": "struct", "fields": [{"name": "f", "type": kind, "nullable": True, "metadata": {}}]}
    write(table, schema=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("record", [long_directories, long_texts, long_applications, deep_columns])
def test_what_a_writer_may_record_is_read(table: Table, clock: ManualClock, record: Callable[[Table], None]) -> None:
    record(table)
    before = table.snapshot()
    for _ in range(3):
        clock.advance(timedelta(hours=3))
        assert vacuum_table(table, VacuumOptions(checkpoint_after=0)).ok
        forget()
    after = table.snapshot()
    assert after.checkpoint.number
    assert [*after.files] == [*before.files]
    assert (after.schema, after.app_versions) == (before.schema, before.app_versions)
    assert [it.message for it in after.history()] == [it.message for it in before.history()]
    assert table.check().ok
