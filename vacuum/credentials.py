"""Credentials in vacuum.toml: never written there, but as {env = "NAME"} looked up in the environment."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dbio_commit.base.redaction import is_secret_name

_SECRET_VALUE = re.compile(r"AccountKey=|SharedAccess|[?&]sig=|\bA[KS]IA[0-9A-Z]{16}\b|://[^/\s]*:[^/\s]*@")
ELSEWHERE = 'leave it to the environment, or write {env = "NAME"} in its place'
"""What to do with a secret in the file."""


def problems(options: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Values that look like secrets, and variables of the environment that are not set."""
    for key, value in options.items():
        name = f"{within}{key}"
        if variable := _variable(value):
            if variable not in os.environ:
                yield f"{name} is to come from the environment, where {variable} is not set"
        elif isinstance(value, Mapping):
            yield from problems(value, f"{name}.")
        elif isinstance(value, str) and (is_secret_name(key) or _SECRET_VALUE.search(value)):
            yield f"{name} looks like a secret, which must not be in this file; {ELSEWHERE}"


def variables(options: Mapping[str, Any]) -> Iterator[str]:
    """The names of the variables that the options come from."""
    for value in options.values():
        if name := _variable(value):
            yield name
        elif isinstance(value, Mapping):
            yield from variables(value)


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the values of the variables: with secrets."""

    def resolve(value: Any) -> Any:
        if name := _variable(value):
            return os.environ[name]
        return resolved(value) if isinstance(value, Mapping) else value

    return {key: resolve(value) for key, value in options.items()}


def _variable(value: Any) -> str | None:
    """The variable that a value names, if it is {env = "NAME"}."""
    match value:
        case {"env": str(name), **others} if not others:
            return name
    return None
