"""An earlier version of this package in an environment of its own, for tests of fleets that are not all upgraded.

`OLD` is the last state that was released or handed out. A release sets it anew (docs/CONTRIBUTING.md).
"""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest

ROOT = Path(__file__).parents[1]
OLD = "2c99e35b0a17cfed2bbd71d4a3aeea88ef1bf5c7"
_JOB = ROOT / "tests/fleet_job.py"
_TO_BUILD = ("pyproject.toml", "README.md", "LICENSE", "dbio_commit", "vacuum")

Libraries = Literal["of this environment", "newest", "lowest"]
"""What an installed version runs with: what the tests run with, or what pip finds in the index."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A Python with one version of the package."""

    command: Sequence[str]
    """Runs this Python."""
    packages: Path
    """The directory in which the package lies."""
    archive: Path | None = None
    """The archive from which pip installed it. None for this checkout."""

    def differences(self) -> list[str]:
        """The files of the package that are not those of the archive, in either direction."""
        assert self.archive
        with tarfile.open(self.archive) as files:
            wanted = {
                it.name: files.extractfile(it).read()  # type: ignore[union-attr]
                for it in files
                if it.isfile() and it.name.startswith("dbio_commit/")
            }
        found = {
            str(path.relative_to(self.packages)): path.read_bytes()
            for path in (self.packages / "dbio_commit").rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        return sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))


THIS = Installation((sys.executable, "-P"), ROOT)
"""This checkout, with the libraries of this environment. `Machine` puts it first on the path."""


def install(directory: Path, libraries: Libraries) -> Installation:
    """Installs the earlier version into a new environment, by pip, from an archive of its commit."""
    archive = directory / f"dbio-commit-{uuid4().hex}.tar.gz"  # pip caches wheels by URL
    _archive(archive, *_TO_BUILD)
    environment = directory / "environment"
    venv.create(environment, with_pip=False)
    variables = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", "venv", variables))
    python = environment / "bin/python"
    options, extras = list[str](), "[cli]"
    if libraries == "of this environment":
        # Only their directories: in them, no .pth file is read, which would bring this checkout. And they come last.
        rest = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (packages / "rest.pth").write_text("\n".join(rest))
        options, extras = ["--no-deps", "--no-build-isolation", "--no-index"], ""
    elif libraries == "lowest":
        _archive(directory / "lowest.tar.gz", ".ci/lowest.txt")
        with tarfile.open(directory / "lowest.tar.gz") as files:
            files.extractall(directory, filter="data")
        options = ["--constraint", str(directory / ".ci/lowest.txt")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, *options, f"dbio-commit{extras} @ {archive.as_uri()}"], check=True, env=environ)
    return Installation((str(python), "-I"), packages, archive)


def _archive(path: Path, *contents: str) -> None:
    command = ["git", "-C", str(ROOT), "archive", f"--output={path}", OLD, *contents]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip(reason="make test-fleet, for which the machine needs git")
    if done.returncode:
        pytest.skip(reason="make test-fleet, which fetches the history of this repository")


class Refused(Exception):
    """A version of the package refused an act: the name of its error, and the message."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Machine(AbstractContextManager["Machine"]):
    """A process with one version of the package, which does one act of fleet_job.py at a time."""

    def __init__(self, installation: Installation) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        if installation is THIS:
            environment["PYTHONPATH"] = str(ROOT)
        self._process = subprocess.Popen(
            [*installation.command, str(_JOB)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert Path(self.ask("code")["package"]) == installation.packages / "dbio_commit", (
            "another version was imported"
        )

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
