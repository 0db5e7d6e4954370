"""The options of a commit and its files: what takes them shows and explains them; options of Spark."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbio_commit as dbio
from dbio_commit.commit.options import CommitOptions, note_options, note_texts
from dbio_commit.commit.provenance import Note
from dbio_commit.commit.write.options import WriteKeywords, WriteOptions, checked

OPTIONS = {it.name: it for record in (WriteOptions, CommitOptions) for it in fields(record)}

TAKES_OPTIONS: dict[str, Callable[..., Any]] = {
    member.__qualname__: member
    for home, names in ((dbio, dbio.__all__), (dbio.Table, dir(dbio.Table)), (dbio.Transaction, dir(dbio.Transaction)))
    for name in names
    if inspect.isfunction(member := getattr(home, name)) and "labels" in inspect.signature(member).parameters
}


def test_each_option_has_the_same_type_for_the_caller_and_in_the_record() -> None:
    assert {name: get_args(it)[0] for name, it in WriteKeywords.__annotations__.items()} == {
        name: it.type for name, it in OPTIONS.items()
    }


def test_all_that_commits_takes_a_message_and_labels() -> None:
    assert sorted(TAKES_OPTIONS) == [
        "Table.adopt", "Table.begin", "Table.compact", "Table.delete", "Table.merge", "Table.restore", "Table.set",
        "Table.update", "Table.write", "Transaction.commit", "compact", "constrain", "delete", "merge",
        "transact", "transaction", "update", "write", "write_stream",
    ]  # fmt: skip


@pytest.mark.parametrize("name", TAKES_OPTIONS)
def test_what_takes_options_explains_each_and_no_other(name: str) -> None:
    function = TAKES_OPTIONS[name]
    doc = (inspect.getdoc(function) or "").replace("\n  ", " ")
    shown = inspect.signature(function).parameters
    for option, field in OPTIONS.items():
        _, text = get_args(WriteKeywords.__annotations__[option])
        assert (f"- `{option}`: {text}" in doc) == (option in shown), option
        if option in shown:
            assert (shown[option].default, shown[option].annotation) == (field.default, field.type)


@pytest.mark.parametrize("name", TAKES_OPTIONS)
def test_an_unknown_option_is_refused_by_the_name_of_the_function(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'mesage'"):
        TAKES_OPTIONS[name](*[object()] * 3, mesage="a")


def test_what_writes_a_frame_or_a_stream_takes_the_options_of_files() -> None:
    files = {it.name for it in fields(WriteOptions)}
    taken = {name: files & {*inspect.signature(it).parameters} for name, it in TAKES_OPTIONS.items()}
    stream = files - {"target_file_size"}
    assert {name: it for name, it in taken.items() if it} == {
        "Table.write": files, "write": files, "write_stream": stream,
    }  # fmt: skip


def test_options_of_files_and_of_the_commit_are_told_apart() -> None:
    given = WriteKeywords(compression="zstd", retries=2)
    assert checked(given) == (WriteOptions(compression="zstd"), CommitOptions(retries=2))
    assert checked({}) == (WriteOptions(), CommitOptions())


# --- as texts -----------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(message=st.none() | TEXTS, labels=st.none() | st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3))
def test_options_of_spark_say_what_keywords_say(message: str | None, labels: dict[str, str] | None) -> None:
    told = {"message": message, "labels": labels}
    texts = note_texts(Note(message=message, labels=labels))
    assert note_options(texts) == {name: it for name, it in told.items() if it is not None}
