"""`dbio set`: parses its arguments, and prints the settings of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.cli.output import Column, in_pipe, print_lines, print_pages, say


def parse_changes(words: Sequence[str]) -> dict[str, str]:
    """Parses words such as NAME=TEXT. An empty text removes the setting.

    Raises InvalidInputError for a word of another form, and for a name that occurs twice.
    """
    changes: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or name in changes:
            why = "repeats a setting" if name in changes else "is not NAME=TEXT"
            raise InvalidInputError(f"{word!r:.200} {why}; give each setting once, such as publish=delta,spark")
        changes[name] = text
    return changes


def print_settings(settings: Mapping[str, str]) -> None:
    listed = sorted(settings.items())
    if in_pipe():
        print_lines(_SETTINGS, listed)
    elif listed:
        print_pages(_SETTINGS, listed)
    else:
        say("no settings")


def settings_json(url: str, settings: Mapping[str, str]) -> dict[str, Any]:
    return {"url": url, "settings": dict(settings)}


_SETTINGS: list[Column[tuple[str, str]]] = [
    Column("setting", lambda setting: setting[0], fold=True),
    Column("value", lambda setting: setting[1], fold=True),
]
