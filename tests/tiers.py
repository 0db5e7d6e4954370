"""What is left to `make test-long`: marks beside the cases of a test.

`long` marks some values of a parameter. If the cases come from a fixture, or from several parameters, the marker
`long_for` names them by parts of their ids between hyphens, such as `azure` or `gcs-incremental`.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

_T = TypeVar("_T")


def long(*values: object) -> list[Any]:
    """These values of a parameter, for `make test-long` only."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def has_part(case: str, part: str) -> bool:
    return f"-{part}-" in f"-{case}-"


def spare_cases(cases: Sequence[_T]) -> list[_T]:
    """Of a test with a Spark session, the cases that are left to `make test-long`: all but the first and the last."""
    return [*cases[1:-1]]
