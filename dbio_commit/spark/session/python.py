"""Chooses the Python of Spark's workers, by default that of this process, and checks that it has the needed packages.

Spark starts its workers as `PYSPARK_PYTHON`, or else as the first `python3` on the path. For a job that was started as
`.venv/bin/python job.py`, that is another Python.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkException

from dbio_commit import __version__
from dbio_commit.base.errors import UnsupportedStoreError
from dbio_commit.spark.session.worker import other_version

_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_SETTINGS = ("spark.pyspark.python", "spark.pyspark.driver.python", "spark.executorEnv.PYSPARK_PYTHON")

_NEEDED = ("dbio_commit", "cachetools", "msgspec", "numpy", "pyarrow")
"""The packages that every task imports. If a store needs another one, it raises an error of its own."""

_fine: set[tuple[str, ...]] = set()
"""The Pythons that were checked and lack nothing, each with its search path."""


def settle_python(context: SparkContext, *, plans_here: bool = False) -> None:
    """Before workers start: with a local master, sets their Python to this process's, unless another one is configured.

    Otherwise checks the Python of workers on this machine. With a local master, these are all workers; with
    `plans_here`, those in which Spark plans a data source. Raises UnsupportedStoreError, which names both Pythons.
    """
    if context.pythonExec == sys.executable or not sys.executable:
        return
    is_local = (context.master or "").startswith("local")
    if is_local and not any(map(os.environ.get, _VARIABLES)) and not any(context.getConf().get(it) for it in _SETTINGS):
        context.pythonExec = sys.executable  # PySpark sends this along with each function for workers
    elif is_local or plans_here:
        _refuse_other(context)


def explain(error: Exception) -> UnsupportedStoreError | None:
    """An error that says what to do if a worker lacks a package, or has another version of Python or dbio_commit.

    None if the error of the worker has another reason.
    """
    text = str(error)
    if other := _other_package(text):
        return other
    lacks = _MISSING.search(text)
    if not lacks and "PYTHON_VERSION_MISMATCH" not in text:
        return None
    what = f"it lacks {lacks[1] or lacks[2]}" if lacks else f"it is another version than {python_text()}"
    context = SparkContext._active_spark_context
    who = f"{context.pythonExec!r}, on their machines" if context else "what PYSPARK_PYTHON says where the server runs"
    return UnsupportedStoreError(_advice(f"{who}; {what}", "on each machine, or ship an environment (spark.archives)"))


def _other_package(text: str) -> UnsupportedStoreError | None:
    """The error if a worker's dbio_commit lacks something that the one of this process has."""
    found = _LACKING.search(text)
    if not found:
        return None
    module, name = found[1] or found[3] or found[5], found[2] or found[4]
    try:
        if name and not hasattr(import_module(module), name):
            return None
        import_module(module)
    except ImportError:
        return None
    seen = _ask_workers()
    theirs = f"version {seen[0]} of dbio_commit ({seen[1]})" if seen else "another version of dbio_commit"
    lacking = f"{module}.{name}" if name else module
    return UnsupportedStoreError(other_version(f"{theirs}, which lacks {lacking}", __version__))


_LACKING = re.compile(
    r"No module named '(dbio_commit\.[\w.]+)'"
    r"|Can't get attribute '(\w+)' on <module '(dbio_commit[\w.]*)'"
    r"|cannot import name '(\w+)' from '(dbio_commit[\w.]*)'"
)


def _ask_workers() -> tuple[str, str] | None:
    """A worker's version of dbio_commit, and the path of its module; None if no worker answers. Runs a job."""
    context = SparkContext._active_spark_context
    if not isinstance(context, SparkContext):
        return None

    def look(_: Iterable[int]) -> list[tuple[str, str]]:  # pickled as code, so that a worker needs no module for it
        import dbio_commit

        return [(dbio_commit.__version__, str(dbio_commit.__file__))]

    with suppress(PySparkException, Py4JJavaError):
        return context.parallelize([0], 1).mapPartitions(look).first()
    return None


_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '(dbio_commit(?=')|(?:cachetools|msgspec|numpy|pandas|pyarrow)\b)[\w.]*'"
    r"|\[PACKAGE_NOT_INSTALLED\] (\w+)"
)


def _refuse_other(context: SparkContext) -> None:
    where = [SparkFiles.getRootDirectory()]
    where += [os.path.join(where[0], name) for name in context._python_includes or ()]
    where += filter(None, (context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")))
    asked = (context.pythonExec, *where)
    if asked in _fine:
        return
    found = ask(context.pythonExec, where)
    if found is None:
        return  # Spark raises an error when it cannot start it
    version, missing = found
    if missing or version != [*sys.version_info[:2]]:
        what = f"has no {', '.join(missing)}" if missing else f"is Python {python_text(version)}"
        raise UnsupportedStoreError(_advice(f"{context.pythonExec!r}, which {what}", "for it"))
    _fine.add(asked)


def _advice(workers: str, there: str) -> str:
    return (
        f"Spark starts its Python workers as {workers}. This process is {sys.executable}, Python "
        f"{python_text()}: set PYSPARK_PYTHON={sys.executable} before the session begins, or install "
        f"dbio-commit[spark] {there}"
    )


def python_text(info: Sequence[int] = sys.version_info[:2]) -> str:
    """A version of Python, by default that of this process."""
    return ".".join(map(str, info))


_QUESTION = """
import json, sys
from importlib.util import find_spec
print(json.dumps([sys.version_info[:2], [name for name in sys.argv[1:] if find_spec(name) is None]]))
"""


def ask(python: str, where: Sequence[str]) -> tuple[list[int], list[str]] | None:
    """The version of a Python, and the packages that it lacks; None if it does not answer."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(where)}
    try:
        said = subprocess.run([python, "-c", _QUESTION, *_NEEDED], env=env, capture_output=True, timeout=60, check=True)
        version, missing = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return version, missing
