"""What is said of an optional package that is not installed, or that is broken."""

import pickle
import sys

import pytest

from dbio_commit import DbioError, MissingPackageError
from dbio_commit.base.packages import missing, needs, require


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    return "duckdb"


def test_a_package_that_is_installed_is_imported() -> None:
    assert require("json", what="this").dumps(1) == "1"


def test_one_that_is_not_is_an_error_of_this_package_and_an_import_error(absent: str) -> None:
    with pytest.raises(MissingPackageError) as raised:
        require(absent, what="to_duckdb")
    assert isinstance(raised.value, DbioError)
    assert isinstance(raised.value, ImportError)
    assert raised.value.name == absent
    said = "to_duckdb needs the package duckdb, which is not installed; run `pip install duckdb`"
    assert str(raised.value) == said


def test_an_extra_is_named_as_pip_takes_it(absent: str) -> None:
    with (
        pytest.raises(MissingPackageError, match=r'run `pip install "dbio-commit\[spark\]"`'),
        needs("x", extra="spark"),
    ):
        import duckdb  # noqa: F401


@pytest.mark.parametrize("package", ["pyspark", "pyspark.sql", "py4j.protocol"])
def test_of_pyspark_a_message_names_the_one_extra_that_brings_it(package: str) -> None:
    said = (
        f"x needs the package {package}, which is not installed; use the Python of your Spark, or for a Spark on this "
        'machine alone run `pip install "dbio-commit[local]"`'
    )
    assert str(missing(package, what="x", extra="spark")) == said


def test_a_package_that_is_broken_is_named_with_its_own_words() -> None:
    said = "x needs the package lame, which cannot be imported: liblame.so; run `pip install lame`"
    with pytest.raises(MissingPackageError) as raised, needs("x"):
        raise ImportError("liblame.so", name="lame")
    assert str(raised.value) == said


@pytest.mark.parametrize("name", ["dbio_commit.nowhere", "difflib", "importlib.metadata", None])
def test_an_import_that_is_wrong_here_or_in_python_is_no_missing_package(name: str | None) -> None:
    with pytest.raises(ImportError) as raised, needs("x"):
        raise ModuleNotFoundError("wrong", name=name)
    assert not isinstance(raised.value, MissingPackageError)


def test_the_innermost_need_is_the_one_that_is_named(absent: str) -> None:
    with pytest.raises(MissingPackageError, match="the inner one needs"), needs("the outer one"):
        require(absent, what="the inner one")


def test_the_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(missing("duckdb", what="x")))
    assert (type(error), error.name, str(error)) == (MissingPackageError, "duckdb", str(missing("duckdb", what="x")))
