"""Differences between versions of Spark and Scala are in one module, and what it makes of Java sources."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbio_commit.spark import versions

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "dbio_commit/spark/versions.py"
NEED_SOURCES = {"datasource", "feed.sink", "feed.source", "feed.for_each"}
"""Modules of `spark/` for data sources in Python, which Spark 3.5 lacks. They are imported where one is needed."""
LATER = ("pyspark.sql.classic", "pyspark.sql.datasource", "pyspark.sql.udtf", "pyspark.sql.functions.udtf")


MODULES = sorted(path for path in (ROOT / "dbio_commit").rglob("*.py") if path != ROOM)


def imported(nodes: list[ast.stmt]) -> Iterator[str]:
    """What the statements import when the module is imported; what is in functions is not."""
    for node in nodes:
        match node:
            case ast.Import():
                yield from (it.name for it in node.names)
            case ast.ImportFrom():
                yield from (f"{node.module}.{it.name}" for it in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.If() | ast.Try() | ast.With() | ast.ClassDef():
                yield from imported(node.body)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "dbio_commit/spark").with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=lambda it: str(it.relative_to(ROOT)))
def test_no_other_module_compares_versions_or_imports_what_an_older_spark_lacks(path: Path) -> None:
    text = path.read_text()
    asked = r"\b(pyspark|pa|pyarrow)\.__version__|versionNumberString"
    asked += "" if path.name == "doctor.py" else r"|importlib\.metadata"  # which only shows versions
    assert not re.search(asked, text)
    assert "pyspark.sql.classic" not in text
    if "spark" not in path.parts:
        return
    own = name_of(path)
    found = list(imported(ast.parse(text).body))
    if own not in NEED_SOURCES:
        assert not [it for it in found if it.startswith((*LATER, *(f"dbio_commit.spark.{it}." for it in NEED_SOURCES)))]
    else:
        assert not [it for it in found if it.startswith(("pyspark.sql.classic", "pyspark.sql.udtf"))]


class Jvm:
    """A JVM with this version of Scala."""

    def __init__(self, scala: str, methods: tuple[str, ...] = ("closeIfFreeable",)) -> None:
        self.scala, self.methods = scala, methods

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any) -> Any:
        return self

    def versionNumberString(self) -> str:
        return self.scala

    def getMethods(self) -> list[Any]:
        return [type("Method", (), {"getName": lambda _, it=it: it})() for it in self.methods]


SOURCES = sorted((ROOT / "dbio_commit/spark").rglob("*.java"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda it: it.stem)
def test_a_java_source_is_as_it_is_for_scala_2_13_and_spark_4(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_IS_4", True)
    text = source.read_text()
    assert versions.java_source(Jvm("2.13.16"), text) == text


@pytest.mark.parametrize("source", SOURCES, ids=lambda it: it.stem)
def test_for_scala_2_12_and_spark_3_nothing_of_later_ones_is_left(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_IS_4", False)
    text = versions.java_source(Jvm("2.12.18"), source.read_text())
    assert not re.search(r"ArraySeq|IterableOnce|immutable\.(Seq|IndexedSeq);|2\.13|spark\.sql\.classic", text)
    assert text.count("\n") == source.read_text().count("\n")  # an error of the compiler names a line


def test_each_class_that_python_calls_says_for_which_scala_it_is() -> None:
    from dbio_commit.spark.session import jvm

    for one in jvm.ALL:
        text = (ROOT / f"dbio_commit/spark/{one.room}/{one.simple_name}.java").read_text()
        assert f'String VERSION = "{one.version} for Scala 2.13";' in text


def test_before_spark_3_5_4_batches_are_not_let_go_of() -> None:
    (packing,) = (it.read_text() for it in SOURCES if it.stem == "PackColumns")
    assert "closeIfFreeable" in versions.java_source(Jvm("2.12.18"), packing)
    assert "closeIfFreeable" not in versions.java_source(Jvm("2.12.18", methods=("close",)), packing)


def test_before_spark_4_the_classes_of_procedures_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_IS_4", False)
    made = {it.stem: versions.java_source(Jvm("2.12.18"), it.read_text()) for it in SOURCES}
    assert "class Calls {}" in made["Calls"]
    assert "class Procedure {}" in made["Procedure"]
    assert not [stem for stem, text in made.items() if "connector.catalog.procedures" in text]


def test_what_is_no_frame_of_spark_is_none() -> None:
    import pandas as pd

    assert not any(map(versions.is_frame, [None, 1, "df", pd.DataFrame()]))
