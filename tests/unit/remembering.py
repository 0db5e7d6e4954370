"""What a process remembers of logs and publications, for tests that count what is read."""

import pytest

from dbio_commit.log import recall as recall_module
from dbio_commit.log.recall import Memory
from dbio_commit.upkeep.publish import remembered as remembered_module


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """It begins with each test of a module that imports this."""
    found = Memory()
    monkeypatch.setattr(recall_module, "MEMORY", found)
    monkeypatch.setattr(remembered_module, "MEMORY", found)
    return found


def forget() -> None:
    recall_module.MEMORY._kept.clear()
