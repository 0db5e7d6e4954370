"""Which Python Spark's workers are: this process's where nobody has said which, else one that lacks nothing."""

import os
import pickle
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkException

from dbio_commit import __version__
from dbio_commit.base.errors import UnsupportedStoreError
from dbio_commit.spark.session import python, worker
from dbio_commit.spark.session.python import explain, settle_python

OWN = sys.executable


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    monkeypatch.setattr(python, "_fine", set())


def context(master: str = "local[2]", exec: str = "python3", conf: Mapping[str, str] | None = None) -> Any:
    """What is asked of a SparkContext."""
    return SimpleNamespace(
        pythonExec=exec, master=master, getConf=lambda: conf or {}, environment={}, _python_includes=[]
    )


def interpreter(folder: Path, answer: str) -> str:
    """A Python that answers so."""
    path = folder / "python-of-others"
    path.write_text(f"#!/bin/sh\necho asked >>{folder}/asked\necho '{answer}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


VERSION = list(sys.version_info[:2])


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_on_this_machine_workers_are_the_python_of_this_process_where_nobody_said_which(master: str) -> None:
    given = context(master)
    settle_python(given)
    assert given.pythonExec == OWN


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_what_the_environment_says_stays(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = interpreter(tmp_path, f"[{VERSION}, []]")
    monkeypatch.setenv(name, other)
    given = context(exec=other)
    settle_python(given)
    assert given.pythonExec == other


@pytest.mark.parametrize("name", ["spark.pyspark.python", "spark.pyspark.driver.python"])
def test_and_what_the_session_says(name: str, tmp_path: Path) -> None:
    other = interpreter(tmp_path, f"[{VERSION}, []]")
    given = context(exec=other, conf={name: other})
    settle_python(given)
    assert given.pythonExec == other


def test_a_cluster_has_pythons_of_its_own() -> None:
    given = context("yarn", exec="./environment/bin/python")
    settle_python(given)
    assert given.pythonExec == "./environment/bin/python"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (f'[{VERSION}, ["dbio_commit", "pyarrow"]]', "which has no dbio_commit, pyarrow"),
        ("[[3, 8], []]", "which is Python 3.8"),
    ],
)
def test_one_that_lacks_something_is_refused_with_both_names(
    answer: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = interpreter(tmp_path, answer)
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    with pytest.raises(UnsupportedStoreError) as raised:
        settle_python(context(exec=other))
    assert f"{other!r}, {what}" in str(raised.value)
    assert f"PYSPARK_PYTHON={OWN}" in str(raised.value)


def test_on_a_cluster_it_is_refused_where_this_machine_plans_by_it(tmp_path: Path) -> None:
    other = interpreter(tmp_path, f'[{VERSION}, ["pyarrow"]]')
    settle_python(context("yarn", exec=other))
    with pytest.raises(UnsupportedStoreError, match="pyarrow"):
        settle_python(context("yarn", exec=other), plans_here=True)


def test_one_that_lacks_nothing_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = interpreter(tmp_path, f"[{VERSION}, []]")
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    for _ in range(3):
        settle_python(context(exec=other))
    assert (tmp_path / "asked").read_text().split() == ["asked"]


def test_one_that_lacked_something_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may have been installed since, in a notebook that goes on."""
    other = interpreter(tmp_path, f'[{VERSION}, ["pyarrow"]]')
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    with pytest.raises(UnsupportedStoreError):
        settle_python(context(exec=other))
    interpreter(tmp_path, f"[{VERSION}, []]")
    settle_python(context(exec=other))


@pytest.mark.parametrize("answer", ["no JSON", ""])
def test_one_that_says_nothing_is_left_to_spark(answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = interpreter(tmp_path, answer)
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    settle_python(context(exec=other))
    settle_python(context(exec=str(tmp_path / "nothing")))


def test_this_very_python_answers_that_it_lacks_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By another name, so that it is asked at all; what was shipped by Spark counts."""
    other = tmp_path / "same"
    other.write_text(f'#!/bin/sh\nexec {OWN} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    settle_python(context(exec=str(other)))
    assert python._fine
    (tmp_path / "shipped.zip").mkdir()
    (tmp_path / "shipped.zip/surely_absent.py").touch()
    monkeypatch.setattr(python, "_NEEDED", ("surely_absent",))
    monkeypatch.setattr(python, "_fine", set())
    with pytest.raises(UnsupportedStoreError, match="surely_absent"):
        settle_python(context(exec=str(other)))
    shipped = context(exec=str(other))
    shipped._python_includes = ["shipped.zip"]
    settle_python(shipped)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("File worker.py\nModuleNotFoundError: No module named 'dbio_commit'\n", "it lacks dbio_commit"),
        ("ModuleNotFoundError: No module named 'pyarrow.parquet'", "it lacks pyarrow"),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 11.0.0 must be installed; however, it was not found.", "it lacks PyArrow"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "it is another version than"),
    ],
)
def test_what_a_worker_far_away_failed_of_is_said_with_both_names(
    text: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", context("yarn", exec="/opt/python"))
    found = explain(PySparkException(text))
    assert found is not None
    assert what in str(found)
    assert "'/opt/python'" in str(found)
    assert OWN in str(found)


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("No module named 'dbio_commit.spark.session.held'", "dbio_commit.spark.session.held"),
        (
            "Can't get attribute 'arrive' on <module 'dbio_commit.spark.session.worker' from '/lib/worker.py'>",
            "dbio_commit.spark.session.worker.arrive",
        ),
        ("cannot import name 'Table' from 'dbio_commit.table' (/lib/table.py)", "dbio_commit.table.Table"),
    ],
)
def test_an_older_package_in_the_workers_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, text: str, lacks: str
) -> None:
    monkeypatch.setattr(python, "_ask_workers", lambda: None)  # a session of another test would answer
    found = explain(PySparkException(f"ModuleNotFoundError: {text}\n"))
    assert found is not None
    assert f"another version of dbio_commit, which lacks {lacks}, and the driver has version {__version__}" in str(
        found
    )


@pytest.mark.parametrize(
    "text",
    ["No module named 'dbio_commit.nothing'", "Can't get attribute 'nothing' on <module 'dbio_commit.table' from"],
)
def test_what_the_driver_lacks_too_is_no_other_version(text: str) -> None:
    assert explain(PySparkException(f"ModuleNotFoundError: {text}")) is None


def test_what_travels_to_a_worker_of_another_version_is_refused_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    sent = pickle.dumps(worker.ForWorkers(seen.append))
    pickle.loads(sent)(1)
    monkeypatch.setattr(worker, "__version__", "0.0.9")
    with pytest.raises(UnsupportedStoreError) as raised:
        pickle.loads(sent)
    assert "version 0.0.9 of dbio_commit" in str(raised.value)
    assert f"the driver has version {__version__}: install one version on all machines" in str(raised.value)


def test_over_connect_the_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    found = explain(PySparkException("ModuleNotFoundError: No module named 'dbio_commit'"))
    assert found is not None
    assert "where the server runs" in str(found)


@pytest.mark.parametrize("text", ["ModuleNotFoundError: No module named 'mine'", "No module named 'dbio_commit'", "x"])
def test_what_else_failed_is_spark_s_to_say(text: str) -> None:
    assert explain(PySparkException(text)) is None


def test_nothing_is_asked_where_workers_are_this_python_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "ask", lambda *arguments: pytest.fail("asked"))
    monkeypatch.setenv("PYSPARK_PYTHON", OWN)
    settle_python(context(exec=OWN))
    assert os.environ["PYSPARK_PYTHON"] == OWN
