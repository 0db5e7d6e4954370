"""Tables whose state is in parts from the first checkpoint on, a few rows in each.

Tests take the fixture `tiny_parts` of `tests/conftest.py`, or `in_both_forms` to run with one body and with parts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from dbio_commit.commit import checkpoints
from dbio_commit.commit import parts as writers
from dbio_commit.log.parts import parquet
from dbio_commit.protocol.parts import Limits

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
