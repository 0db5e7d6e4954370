"""An earlier version of this package, for tests of fleets in which not all machines have been upgraded.

`OLD` is the last state that was released or handed out. A release sets it anew (docs/CONTRIBUTING.md).
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
OLD = "2c99e35b0a17cfed2bbd71d4a3aeea88ef1bf5c7"
_JOB = ROOT / "tests/fleet_job.py"


def unpack(directory: Path) -> Path:
    """The code of the earlier version, unpacked into a directory. It runs with the libraries of this environment."""
    archive = ["git", "-C", str(ROOT), "archive", "--format=tar", OLD, "dbio_commit", "vacuum"]
    try:
        found = subprocess.run(archive, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip(reason="make test-fleet, for which the machine needs git")
    if found.returncode:
        pytest.skip(reason="make test-fleet, which fetches the history of this repository")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


class Refused(Exception):
    """A version of the package refused an act: the name of its error, and the message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Machine(AbstractContextManager["Machine"]):
    """A process with one version of the package, which does one act of fleet_job.py at a time."""

    def __init__(self, code: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_JOB)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert Path(self.ask("code")) == code / "dbio_commit", "another version was imported"

    def ask(self, act: str, *arguments: Any) -> Any:
        """The result of the act. Raises Refused for an error of the package."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(json.dumps([act, *arguments]) + "\n")
        asked.flush()
        answer = json.loads(answered.readline() or '{"error": ["Ended", "the process has ended"]}')
        if "error" in answer:
            raise Refused(*answer["error"])
        return answer["answer"]

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
