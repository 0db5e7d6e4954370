"""Tables whose state is in parts from the first checkpoint on, a few rows in each.

Tests take the fixture `tiny_parts` of `tests/conftest.py`, or `in_both_forms` to run with one body and with parts. With
`in_parts` they have the same table in both forms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from unittest.mock import PropertyMock, patch
from uuid import uuid4

import pytest

from dbio_commit.commit import checkpoints
from dbio_commit.commit import parts as writers
from dbio_commit.log.listing import read_descriptor, read_numbered_checkpoint
from dbio_commit.log.parts import parquet, windows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol import names
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, encode_root
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.parts import Limits
from dbio_commit.protocol.scope import Scope
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore

TINY = Limits(split=12, budget=8, most=6)
"""Merges begin with the second checkpoint, and ranges with 12 files."""


@contextmanager
def tiny_parts() -> Iterator[None]:
    """Each checkpoint that is written meanwhile puts its state into parts, with row groups of three rows."""
    with (
        patch.object(checkpoints, "LARGE_FILES", 0),
        patch.object(writers, "LIMITS", TINY),
        patch.object(parquet, "GROUP_ROWS", 3),
        patch.object(parquet, "STATISTICS_ROWS", 2),
    ):
        yield


in_both_forms = [
    pytest.mark.usefixtures("state_form"),
    pytest.mark.parametrize(
        "state_form", ["one body", "tiny parts"], indirect=True, ids=lambda form: form.replace(" ", "-")
    ),
]
"""Runs the tests of a file with checkpoints of version 1, and with tiny parts: `pytestmark = in_both_forms`."""


def in_parts(table: Table) -> Table:
    """The same table at the same URL, each of whose checkpoints has tiny parts."""
    store = table.store
    assert isinstance(store, MemoryStore)
    found = copy(store)
    found.objects, found._identity = {**store.objects}, f"memory:{uuid4().hex}"
    log, before = parse_log(store.list_log()), NO_CHECKPOINT
    for number, entry in sorted(log.checkpoints.items()):
        checkpoint = read_numbered_checkpoint(store, log, number)
        assert not checkpoint.is_root
        snapshot = Snapshot(
            url=store.url,
            scope=Scope.TABLE,
            files=(),
            partition_columns=(),
            first_layout=tuple(read_descriptor(store, log).partition_columns),
            decided=[*checkpoint.commits],
            news=(*checkpoint.commits,),
            checkpoint=before,
            log=parse_log(found.list_log()),
        )
        with tiny_parts():
            before = writers.write_parts(found, snapshot, checkpoint)
        found.objects[names.checkpoint(number)] = encode_root(before, created=entry.modified), entry.modified
    assert before.is_root
    return Table.over(found, table.clock)


@contextmanager
def in_slices(rows: int = 4) -> Iterator[None]:
    """Whoever reads slices gets several of them; nobody may read all transactions that are in parts."""
    whole = PropertyMock(side_effect=AssertionError("all transactions of a large table are read"))
    with patch.object(windows, "WINDOW_ROWS", rows), patch.object(StoredCommits, "all", whole):
        yield
