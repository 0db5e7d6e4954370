"""How names from outside are written: one line, valid UTF-8, told apart, and nothing that a shell would do."""

import json
import shlex
import subprocess
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.texts import command, label, plain, visible

HOSTILE = [
    "bad\udcff\udcfe",
    "\ud800",
    "new\nline",
    "\r",
    "\x1b]0;owned\x07\x1b[2J",
    "\x9b2J",
    "\u2028\u2029",
    "\u202ertl",
    "{{7*7}}",
    "quote\"'><script>",
    "; touch pwned #",
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '\n",
    "\\'; touch pwned\n",
    "x" * 255,
    "",
]

names = st.text(st.characters(), max_size=20) | st.binary(max_size=20).map(
    lambda it: it.decode(errors="surrogateescape")
)
each_hostile = pytest.mark.parametrize("name", HOSTILE)


def is_shown(text: str) -> bool:
    return text.encode().decode() == text and not any(category(it)[0] in "CZ" and it != " " for it in text)


@given(names)
def test_what_is_shown_is_one_line_of_utf_8_that_steers_nothing(name: str) -> None:
    assert is_shown(visible(name))
    assert is_shown(label(name))


@each_hostile
def test_a_hostile_name_is_shown_escaped(name: str) -> None:
    assert is_shown(visible(name))
    assert visible(visible(name)) == visible(name)


def test_names_that_can_be_shown_stay_as_they_are() -> None:
    assert visible("s3://lake/Größe=1/日本 語") == "s3://lake/Größe=1/日本 語" == label("s3://lake/Größe=1/日本 語")


@given(names)
def test_the_name_comes_back_from_its_label_so_that_no_two_have_one(name: str) -> None:
    written = label(name)
    found, rest = "", written
    while rest:
        if rest[0] != "\\":
            found, rest = found + rest[0], rest[1:]
            continue
        length = {"x": 4, "u": 6, "U": 10}.get(rest[1], 2)
        found, rest = found + rest[:length].encode().decode("unicode_escape"), rest[length:]
    assert found == name


def test_a_name_and_what_it_looks_like_escaped_have_two_labels() -> None:
    assert label("a\nb") != label(r"a\nb")


@given(st.recursive(names | st.integers() | st.none(), lambda it: st.lists(it) | st.dictionaries(names, it)))
def test_what_is_plain_is_json_that_any_program_reads(value: object) -> None:
    text = json.dumps(plain(value), ensure_ascii=False)
    assert text.encode().decode() == text


# --- commands to paste --------------------------------------------------------------------------------------------


@given(st.lists(names.filter(str.isprintable), min_size=1))
def test_each_word_of_a_command_is_a_word_for_a_shell(words: list[str]) -> None:
    if not any("`" in word for word in words):
        assert shlex.split(command(*words)) == words


@given(st.lists(names, min_size=1))
def test_a_command_is_one_line_without_a_backquote(words: list[str]) -> None:
    line = command(*words)
    assert is_shown(line)
    assert "`" not in line


def said(shell: str, line: str) -> bytes:
    """What a shell does with a line that somebody pastes; where nothing may be left behind."""
    return subprocess.run([shell, "-c", line], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout


def test_bash_gets_each_word_as_it_is() -> None:
    words = [it for it in HOSTILE if it != "\ud800"]  # no argument can hold it
    wanted = b"".join(it.encode(errors="surrogateescape") + b"\0" for it in words)
    assert said("bash", command("printf", r"%s\0", *words)) == wanted


def test_a_shell_that_does_not_know_the_form_gets_as_many_words_and_runs_nothing() -> None:
    assert said("sh", command("printf", "%.0s+", *HOSTILE)) == b"+" * len(HOSTILE)
