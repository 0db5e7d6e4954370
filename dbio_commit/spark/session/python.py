"""Chooses the Python of Spark's workers, by default that of this process, and checks that it has the needed packages.

Spark starts its workers as `PYSPARK_PYTHON`, or else as the first `python3` on the path. For a job that was started as
`.venv/bin/python job.py`, that is another Python.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from pyspark import SparkContext, SparkFiles

from dbio_commit.base.errors import UnsupportedStoreError

_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_SETTINGS = ("spark.pyspark.python", "spark.pyspark.driver.python", "spark.executorEnv.PYSPARK_PYTHON")

_NEEDED = ("dbio_commit", "cachetools", "msgspec", "numpy", "pyarrow")
"""The packages that every task imports. If a store needs another one, it raises an error of its own."""

_fine: set[tuple[str, ...]] = set()
"""The Pythons that were checked and lack nothing, each with its search path."""


def settle_python(context: SparkContext, *, plans_here: bool = False) -> None:
    """Before workers start: with a local master, makes them this process's Python unless another one is configured.

    Else it checks their Python, as far as they run on this machine: all workers with a local master; with `plans_here`,
    those in which Spark plans a data source. Raises UnsupportedStoreError, which names both Pythons.
    """
    if context.pythonExec == sys.executable or not sys.executable:
        return
    is_local = (context.master or "").startswith("local")
    if is_local and not any(map(os.environ.get, _VARIABLES)) and not any(context.getConf().get(it) for it in _SETTINGS):
        context.pythonExec = sys.executable  # PySpark sends this along with each function for workers
    elif is_local or plans_here:
        _refuse_other(context)


def explain(error: Exception) -> UnsupportedStoreError | None:
    """An error that says what to do, if a worker failed because its Python has another version or lacks a package."""
    text = str(error)
    lacks = _MISSING.search(text)
    if not lacks and "PYTHON_VERSION_MISMATCH" not in text:
        return None
    what = f"it lacks {lacks[1] or lacks[2]}" if lacks else f"it is another version than {python_text()}"
    context = SparkContext._active_spark_context
    who = f"{context.pythonExec!r}, on their machines" if context else "what PYSPARK_PYTHON says where the server runs"
    return UnsupportedStoreError(_advice(f"{who}; {what}", "on each machine, or ship an environment (spark.archives)"))


_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '(dbio_commit|cachetools|msgspec|numpy|pandas|pyarrow)\b[\w.]*'"
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
