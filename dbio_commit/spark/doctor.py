"""Checks the Java and the Python that Spark would use on this machine, for `dbio doctor`. Starts no session."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dbio_commit.maintenance.doctor import Finding, ok, problem
from dbio_commit.spark.session.python import ask, python_text
from dbio_commit.spark.versions import SPARK


def look_at_spark(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Checks PySpark, Java, and the Python of Spark's workers, as far as this machine decides about them."""
    return [ok("spark", f"PySpark {SPARK}"), _java(environ), _workers(environ)]


def _java(environ: Mapping[str, str]) -> Finding:
    home = environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environ.get("PATH"))
    advice = "install Java 17, and set JAVA_HOME to it"
    if command is None:
        return problem("java", "there is no Java: JAVA_HOME is not set, and no java is on the path", advice)
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return problem("java", f"{command} does not run: {error}", advice)
    return ok("java", f"{command}: {(said.stderr or said.stdout).partition(chr(10))[0].strip()}")


def _workers(environ: Mapping[str, str]) -> Finding:
    python = environ.get("PYSPARK_PYTHON")
    if not python:
        text = f"local sessions use this Python {python_text()}; a cluster uses the python3 of each machine"
        return ok("spark's python", text)
    found = ask(python, [*filter(None, [environ.get("PYTHONPATH")])])
    advice = f"set PYSPARK_PYTHON={sys.executable}, or install dbio-commit[spark] for the other one"
    if found is None:
        return problem("spark's python", f"PYSPARK_PYTHON={python} does not run", advice)
    version, missing = found
    if version != [*sys.version_info[:2]]:
        text = f"PYSPARK_PYTHON={python} is Python {python_text(version)}, and this is Python {python_text()}"
        return problem("spark's python", text, advice)
    if missing:
        return problem("spark's python", f"PYSPARK_PYTHON={python} has no {', '.join(missing)}", advice)
    return ok("spark's python", f"PYSPARK_PYTHON={python} has the version and the packages of this Python")
