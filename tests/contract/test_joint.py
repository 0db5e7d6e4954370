"""Joint transactions on each store (PROTOCOL.md 15)."""

from unittest.mock import patch

import pyarrow as pa
import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import StoreError
from dbio_commit.commit.joint import JointCommit
from dbio_commit.commit.table_root import TableRoot
from dbio_commit.table import Table
from tests.contract.places import Place
from vacuum import VacuumOptions, vacuum_table

ROW = pa.table({"id": [1]})


def _tables(place: Place) -> tuple[Table, Table]:
    one, other = (Table(f"{place.url}/{name}", place.storage_options) for name in ("orders", "more/customers"))
    for table in (one, other):
        table.write(ROW)
    return one, other


def _write_both(*tables: Table) -> None:
    with dbio.transaction(message="together") as tx:
        for table in tables:
            tx.write(ROW, table)


def _counts(*tables: Table) -> list[int]:
    return [len(it.tids) for it in dbio.snapshots(tables)]


def test_both_tables_have_the_commit(shared: Place) -> None:
    one, other = _tables(shared)
    _write_both(one, other)
    assert _counts(one, other) == [2, 2]
    assert one.history()[0].tid == other.history()[0].tid
    assert one.history()[0].joint == ["../more/customers"]
    assert other.history()[0].joint == ["../../orders"]


def test_what_a_dead_writer_has_decided_is_committed_by_others(shared: Place) -> None:
    one, other = _tables(shared)

    def die(*args: object) -> None:
        raise StoreError("dead")

    with patch.object(JointCommit, "_carry_out", die), pytest.raises(StoreError):
        _write_both(one, other)
    assert _counts(one, other) == [2, 2]  # a cut asks the home
    assert [len(it.snapshot().tids) for it in (one, other)] == [2, 1]
    (pending,) = other.check().pending
    assert pending.home == one.url
    vacuum_table(other, VacuumOptions())
    assert [len(it.snapshot().tids) for it in (one, other)] == [2, 2]


def test_what_a_dead_writer_has_not_decided_is_aborted_everywhere(shared: Place) -> None:
    one, other = _tables(shared)

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with (
        patch.object(TableRoot, "decide", die),
        patch.object(JointCommit, "abort", lambda self: None),
        pytest.raises(KeyboardInterrupt),
    ):
        _write_both(one, other)
    (tid,) = other.snapshot().log.pending
    other.abort(tid)
    assert not one.snapshot().log.pending
    assert _counts(one, other) == [1, 1]
