"""What a process remembers of logs and publications, for tests that count what is read."""

import pytest

from dbio_commit.log import object_cache
from dbio_commit.log.object_cache import ObjectCache
from dbio_commit.maintenance.publish import remembered as remembered_module


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> ObjectCache:
    """It begins with each test of a module that imports this."""
    found = ObjectCache()
    monkeypatch.setattr(object_cache, "CACHE", found)
    monkeypatch.setattr(remembered_module, "CACHE", found)
    return found


def forget() -> None:
    object_cache.CACHE.forget()
