"""What the tests of vacuum share."""

from collections.abc import Iterator

import pytest

from tests.tiny_parts import tiny_parts


@pytest.fixture
def with_tiny_parts() -> Iterator[None]:
    """Each checkpoint of the test puts its state into parts, a few rows in each."""
    with tiny_parts():
        yield
