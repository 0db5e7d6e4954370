"""A table on a store in memory, with a clock that stands still until it is told to move on."""

import pytest

from dbio_commit.commit import probe as probe_module
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.streams import SPARK

collect_ignore = ["spark/feed/test_sink.py"] if SPARK < (4, 1) else []
"""Where the class is not there that it is about."""


@pytest.fixture(autouse=True)
def not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each store is new to this process."""
    monkeypatch.setattr(probe_module, "_PROBED", set())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    return Table.over(store, clock)
