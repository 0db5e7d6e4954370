"""Formats example rows for messages about constraints. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dbio_commit.protocol.constraints import Constraint


def shown(constraint: Constraint, columns: Sequence[str]) -> dict[int, str]:
    """The columns to show of a row that violates the constraint, by position: those that it names, or else all."""
    own = str(constraint.column).lower()
    is_shown = [name.lower() == own or has_word(constraint.sql or "", name) for name in columns]
    return {i: name for i, name in enumerate(columns) if is_shown[i] or not any(is_shown)}


def has_word(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def as_python(value: Any) -> Any:
    """A value of Arrow as one of Python, or as text if Python has no such value."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a date after 9999, or a nested value with one
        return str(value.cast(pa.string())) if not pa.types.is_nested(value.type) else "…"


def describe(values: Mapping[str, Any]) -> str:
    """A row for a message, cut off at 300 characters."""
    return describe_texts({name: _text(value) for name, value in values.items()})


def describe_texts(texts: Mapping[str, str | None]) -> str:
    """As `describe`, for values that are texts already. They are shown without quotes."""
    parts = (f"{name}={'null' if text is None else text:.60}" for name, text in texts.items())
    return f"{', '.join(parts):.300}"


def _text(value: Any) -> str:
    return "null" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
