"""The lowest versions that pyproject.toml allows are those that `make test-lowest` installs."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_USERS = {"azure", "cli", "gcs", "iceberg", "local", "s3", "spark", "vacuum"}
"""The extras of those who use the package; the others are for its tests and measurements."""
ELSEWHERE = {"pyspark": ("3.5", "4.0.0")}
"""The lowest version that is allowed, and that of .ci/lowest.txt: Spark 3.5 has its own `make test-spark SPARK=3.5.9`,
as it needs an older Java, and does not run on all these Pythons."""


def requirements() -> Iterator[str]:
    yield from PROJECT["dependencies"]
    for extra in FOR_USERS:
        yield from (it for it in PROJECT["optional-dependencies"][extra] if not it.startswith("dbio-commit"))


def pins() -> dict[str, set[str]]:
    """By package: some have another version on another Python."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / ".ci/lowest.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, version = line.partition(";")[0].strip().split("==")
            found.setdefault(name, set()).add(version)
    return found


def numbers(version: str) -> list[int]:
    """Without zeros at its end, which say nothing."""
    return [int(part) for part in re.sub(r"(\.0)+$", "", version).split(".")]


@pytest.mark.parametrize("requirement", sorted(requirements()))
def test_a_package_is_tested_at_the_lowest_version_that_is_allowed(requirement: str) -> None:
    found = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(?:>=([\d.]+))?,?(?:<\d+)?", requirement)
    assert found, f"cannot tell the lowest version of {requirement}"
    name, lowest = found.groups()
    (pin,) = pins()[name]
    if name in ELSEWHERE:
        assert (lowest, pin) == ELSEWHERE[name]
    elif lowest:
        assert numbers(pin) == numbers(lowest), f"run `make lowest-pins`: .ci/lowest.txt has {name} {pin}"


def test_the_extras_of_users_are_all_that_are_tested_so() -> None:
    assert set(PROJECT["optional-dependencies"]) - {"bench", "demo", "dev"} == FOR_USERS
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^LOWEST_EXTRAS := \$\(addprefix --extra ,(.*)\)$", makefile, re.MULTILINE)
    assert set(extras.split()) == FOR_USERS


def test_the_lowest_python_is_among_those_that_it_looks_for() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (pythons,) = re.findall(r"^LOWEST_PYTHONS := (.*)$", makefile, re.MULTILINE)
    assert f">={pythons.split()[0]}" == PROJECT["requires-python"]
