"""The list of questions in Java and the one in Python: they are the same, and nothing else asks."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from dbio_commit.spark.catalog import questions
from dbio_commit.spark.catalog.feeds import AskedStream
from dbio_commit.spark.catalog.questions import Questions, State, answered, kinds
from dbio_commit.spark.catalog.statements import Analysed, MergeClause, NewValue
from dbio_commit.spark.sql.planned import Planned

ROOM = Path(questions.__file__).parent
LIST = (ROOM / "Questions.java").read_text()
PARTS = (Analysed, NewValue, MergeClause, AskedStream)
"""What is several values in one argument."""

JAVA = {"String": "text", "boolean": "flag", "long": "number", "Long": "number", "Map": "map", "void": "nothing"}
JAVA |= {
    "StructType": "columns",
    "Dataset": "frame",
    "Piece": "expression",
    **{it.__name__: it.__name__ for it in PARTS},
}
PYTHON: dict[Any, str] = {str: "text", bool: "flag", int: "number", Mapping[str, str]: "map", type(None): "nothing"}
PYTHON.update({StructType: "columns", DataFrame: "frame", Planned: "expression", Any: "object", JavaObject: "object"})
PYTHON.update((it, it.__name__) for it in PARTS)

Signature = tuple[list[tuple[str, str]], str]
"""The names and kinds of the parameters, and the kind of the answer."""


def in_java(kind: str) -> str:
    return f"list of {in_java(kind[:-2])}" if kind.endswith("[]") else JAVA.get(kind, "object")


def in_python(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        found = {*map(in_python, get_args(kind))} - {"nothing"}
        return found.pop() if len(found) == 1 else "object"
    if get_origin(kind) is Sequence:
        return f"list of {in_python(get_args(kind)[0])}"
    return "text" if get_origin(kind) is Literal else PYTHON[kind]


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda it: f"_{it[0].lower()}", name)


def parameters(text: str) -> list[tuple[str, str]]:
    pairs = [it.split() for it in text.split(",") if it.strip()]
    return [(snake(name), in_java(kind)) for kind, name in pairs if kind != "SparkSession"]


def asked_by_java() -> dict[str, Signature]:
    found = {}
    methods = re.findall(r"^  static (?!class)(\S+) (\w+)\(([^)]*)\) \{\s(.*?)\s\}$", LIST, re.DOTALL | re.MULTILINE)
    for answer, name, given, body in methods:
        (verb,) = re.findall(r'Asking\.ask\((?:session, )?"(\w+)"', body)
        assert verb == snake(name)
        (passed,) = re.findall(r"new Object\[(?:\] \{(.*)\}|0\])", body)
        names = [re.sub(r"\w+\.valueOf\((\w+)\)", r"\1", it) for it in passed.split(", ") if it]
        own = parameters(given)
        assert [snake(it) for it in names] == [it for it, _ in own], f"{name} passes its parameters in their order"
        found[verb] = (own, in_java(answer))
    return found


def answered_by_python() -> dict[str, Signature]:
    found = {}
    for name in vars(Questions):
        if not name.startswith("_"):
            *own, (_, answer) = kinds(name).items()
            found[name] = ([(it, in_python(kind)) for it, kind in own], in_python(answer))
    return found


def test_java_asks_what_python_answers() -> None:
    asked, answers = asked_by_java(), answered_by_python()
    assert asked.keys() == answers.keys()
    assert asked == answers
    assert len(asked) == LIST.count("Asking.ask(") > 35


@pytest.mark.parametrize("parts", PARTS)
def test_several_values_in_one_argument_are_the_same(parts: Any) -> None:
    pattern = rf"^    {parts.__name__}\(([^)]*)\) {{ super\(new Object\[\] {{(.*)}}\)"
    ((given, passed),) = re.findall(pattern, LIST, re.MULTILINE)
    assert passed.split(", ") == [name for name, _ in parameters(given)]
    assert parameters(given) == [(name, in_python(kind)) for name, kind in get_type_hints(parts).items()]


def test_no_other_source_in_java_asks() -> None:
    asking = {it.name for it in ROOM.glob("*.java") if "Asking.ask(" in it.read_text()}
    assert asking == {"Questions.java"}


# --- what Python makes of the arguments ---------------------------------------------------------------------------


OBJECTS = [None, None, *(JavaObject.__new__(JavaObject) for _ in range(4))]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Asks a question, and gives what its method gets."""
    for name in answered_by_python():
        monkeypatch.setitem(questions._QUESTIONS, name, wraps(questions._QUESTIONS[name])(lambda _, *given: given))
    spark = cast(SparkSession, SimpleNamespace())
    return lambda question, *given: answered(spark, State(), question, given, OBJECTS)


def test_arguments_get_their_types(taken: Callable[..., Any]) -> None:
    assert taken("load", "t", ["a"], "b", None, 5) == ("t", ["a"], "b", None, 5)
    columns = StructType().add("id", LongType())
    assert taken("alter", [], "/t", columns.json(), {"a": "b"}, {}) == ([], "/t", columns, {"a": "b"}, {})
    assert taken("call", "dbio", "vacuum", ["t", 48.0, True, None, ["a"]])[2] == ["t", 48.0, True, None, ["a"]]
    _, statement, where, (value, inside) = taken("update", "token", [2, 3, 4], 5, [["n", 5, None], ["s\0n", 5, 4]])
    assert statement == Analysed(*OBJECTS[2:5])
    assert isinstance(where, Planned)
    assert where.piece is OBJECTS[5]
    assert (value.key, value.value.piece, value.column) == ("n", OBJECTS[5], None)
    assert inside.column.piece is OBJECTS[4]


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("rows", []),
        ("rows", ["token", "more"]),
        ("rows", [None]),
        ("drop", [["a"], "b", 1]),
        ("files", ["token", "no list"]),
        ("stage", [[], "/t", [], {}, "no mode"]),
        ("alter", [[], "/t", StructType().json(), {"a": None}, {}]),
        ("delete", ["token", [2, 3], 4]),
    ],
)
def test_arguments_of_other_types_are_refused(taken: Callable[..., Any], question: str, given: list[Any]) -> None:
    with pytest.raises((msgspec.ValidationError, ValueError)):
        taken(question, *given)


def test_a_question_that_is_in_no_list_is_refused(taken: Callable[..., Any]) -> None:
    for question in ("the weather", "_path", "__init__"):
        with pytest.raises(KeyError):
            taken(question)
