"""The options of a commit: each function and method that takes them shows and explains them; options of Spark."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbio_commit as dbio
from dbio_commit.commit.options import CommitKeywords, CommitOptions, NoteKeywords, note_options, note_texts

OPTIONS = {it.name: it for it in fields(CommitOptions)}

TAKES_OPTIONS: dict[str, Callable[..., Any]] = {
    member.__qualname__: member
    for home, names in ((dbio, dbio.__all__), (dbio.Table, dir(dbio.Table)), (dbio.Transaction, dir(dbio.Transaction)))
    for name in names
    if inspect.isfunction(member := getattr(home, name)) and "labels" in inspect.signature(member).parameters
}


def test_each_option_has_the_same_type_for_the_caller_and_in_the_record() -> None:
    assert {name: get_args(it)[0] for name, it in CommitKeywords.__annotations__.items()} == {
        name: it.type for name, it in OPTIONS.items()
    }


def test_all_that_commits_takes_a_message_and_labels() -> None:
    assert sorted(TAKES_OPTIONS) == [
        "Table.adopt", "Table.begin", "Table.compact", "Table.delete", "Table.merge", "Table.restore", "Table.set",
        "Table.update", "Table.write", "Transaction.commit", "compact", "constrain", "delete", "merge",
        "update", "write", "write_stream",
    ]  # fmt: skip


@pytest.mark.parametrize("name", TAKES_OPTIONS)
def test_what_takes_options_explains_each_and_no_other(name: str) -> None:
    function = TAKES_OPTIONS[name]
    doc = (inspect.getdoc(function) or "").replace("\n  ", " ")
    shown = inspect.signature(function).parameters
    for option, field in OPTIONS.items():
        _, text = get_args(CommitKeywords.__annotations__[option])
        assert (f"- `{option}`: {text}" in doc) == (option in shown), option
        if option in shown:
            assert (shown[option].default, shown[option].annotation) == (field.default, field.type)


@pytest.mark.parametrize("name", TAKES_OPTIONS)
def test_an_unknown_option_is_refused_by_the_name_of_the_function(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'mesage'"):
        TAKES_OPTIONS[name](*[object()] * 3, mesage="a")


# --- as texts -----------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(message=st.none() | TEXTS, labels=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_options_of_spark_say_what_keywords_say(message: str | None, labels: dict[str, str] | None) -> None:
    note = NoteKeywords(message=message, labels=labels)
    assert note_options(note_texts(note)) == {name: it for name, it in note.items() if it is not None}
