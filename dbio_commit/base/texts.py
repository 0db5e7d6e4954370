"""How names and texts that come from outside are written: for people, as a label, in a command to paste. Pure.

Names on a store may hold line breaks, escape sequences, marks of direction; on a disk also bytes that are no UTF-8,
which Python has as lone surrogates.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any


def visible(text: str, *, keep: str = "") -> str:
    """The text, with whatever would steer a terminal, end a line, or not show at all, escaped; always valid UTF-8.

    What is escaped already stays as it is. `keep` are characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() or it in keep else _escaped(it) for it in text)


def label(name: str) -> str:
    """The same for what must be told apart: two names never have one label. A backslash becomes two."""
    return visible(name.replace("\\", "\\\\"))


def plain(value: Any, write: Callable[[str], str] = visible) -> Any:
    """The value in terms of JSON that every program can read: each text in it, however deep, goes through `write`."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {write(str(key)): plain(it, write) for key, it in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(it, write) for it in value]
    return write(str(value))


def command(*words: str) -> str:
    """A line for a shell, in which each word is what it is, whatever it holds: for people who paste it."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word that no quoting of `shlex` could keep on one line is in the form $'...' of bash and zsh.

    That has no quote within. So a shell that does not know the form takes it for one word, too.
    """
    if word.isprintable() and "`" not in word:
        return shlex.quote(word)
    return f"$'{re.sub(_NOT_IN_QUOTES, lambda it: _in_shell(it[0]), word)}'"


_NOT_IN_QUOTES = re.compile(r"[^ -~]|['\\`]")


def _in_shell(character: str) -> str:
    if character.isprintable() and character not in "'\\`":
        return character
    is_byte = "\udc80" <= character <= "\udcff"
    encoded = character.encode(errors="surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Cause(Exception):
    """What a library said of a file, as the cause of an error of this package: its type and its text, escaped.

    A traceback would show the library's own error with whatever the file made it say.
    """

    @classmethod
    def of(cls, error: BaseException) -> "Cause":
        return cls(visible(f"{type(error).__module__}.{type(error).__qualname__}: {error}")[:2000])
