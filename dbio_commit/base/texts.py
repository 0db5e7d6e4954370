"""Escapes names and texts from outside: for people, as labels, in commands to paste. Pure.

Names on a store may hold line breaks, escape sequences and characters that reverse a text. Names on a disk may also
hold bytes that are no UTF-8, which Python represents as lone surrogates.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any


def visible(text: str, *, keep: str = "") -> str:
    """The text as valid UTF-8, with characters escaped that would steer a terminal, end a line, or not show at all.

    What is escaped already stays as it is, and so do the characters in `keep`.
    """
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() or it in keep else _escaped(it) for it in text)


def label(name: str) -> str:
    """As `visible`, but two names never have the same label: a backslash becomes two."""
    return visible(name.replace("\\", "\\\\"))


def shortened(text: str, most: int) -> str:
    """The text, if it has at most `most` characters; else its beginning, how much is left out, and its end.

    A word at a cut is left out, if it is no longer than an eighth of `most`: half of a secret would not be found.
    """
    if len(text) <= most:
        return text
    kept = max(0, most - len(_left_out(len(text))))
    first, last = kept - kept // 4, len(text) - kept // 4
    first = max(text.rfind(" ", first - most // 8, first + 1), 0) or first
    last = max(text.find(" ", last, last + most // 8), 0) or last
    return f"{text[:first]}{_left_out(last - first)}{text[last:]}"


def _left_out(characters: int) -> str:
    return f"… {characters:,} characters left out …"


def plain(value: Any, write: Callable[[str], str] = visible) -> Any:
    """The value in types of JSON; each text in it, at any depth, goes through `write`."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {write(str(key)): plain(it, write) for key, it in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(it, write) for it in value]
    return write(str(value))


def command(*words: str) -> str:
    """A line to paste into a shell, in which each word is quoted as far as needed."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """The word, quoted: in the form $'...' of bash and zsh if `shlex` cannot keep it on one line.

    There is no quote inside, so a shell that does not know this form still reads one word.
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
    """The error of another library, as the cause of an error of this package: its type and its text, escaped.

    A traceback would show the library's own error, with unescaped texts from a file.
    """

    @classmethod
    def of(cls, error: BaseException) -> "Cause":
        return cls(visible(f"{type(error).__module__}.{type(error).__qualname__}: {error}")[:2000])
