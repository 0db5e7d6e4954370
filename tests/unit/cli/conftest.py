"""What the tests of the command line begin with."""

from pathlib import Path

import pytest

from dbio_commit import Table
from dbio_commit.base.clock import Clock


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A directory that no transaction ever wrote to."""
    root = tmp_path / "plain"
    root.mkdir()
    (root / "old.parquet").write_bytes(b"x" * 7)
    return root


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "sleep", lambda self, duration_s: None)
