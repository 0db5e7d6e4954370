"""Checks the kinds of arguments that a type checker would find, and Python itself would take, or fail on far from the
call. Pure.

What a value of the right kind means is checked by the room that uses it.
"""

from collections.abc import Mapping
from numbers import Real

from dbio_commit.base.errors import InvalidInputError


def check_flags(**flags: object) -> None:
    """Raises InvalidInputError for a flag that is neither True nor False: the text "false" would count as true."""
    for name, value in flags.items():
        if type(value) is not bool:
            raise InvalidInputError(f"{name} is {value!r:.100}, not True or False")


def check_numbers(**numbers: object) -> None:
    """Raises InvalidInputError for what is no number."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidInputError(f"{name} is {value!r:.100}, not a number, such as 48")


def check_partition(partition: object) -> None:
    """Raises InvalidInputError for values of partition columns that are not given by column."""
    if not isinstance(partition, Mapping):
        raise InvalidInputError(
            f"partition is {partition!r:.200}, and must have values by column, such as {{'day': '2026-11-20'}}"
        )


def check_storage_options(options: object) -> None:
    """Raises InvalidInputError for options that are not given by name. Does not show them: they may be secrets."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(
            f"storage_options is a {type(options).__name__}, and must have options by name, such as {{'anon': True}}"
        )
