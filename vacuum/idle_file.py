"""The file `state_file`: for each table, the last whole run that found nothing to do, so that a new process knows it.

The file decides nothing by itself: a vacuum is left out only if the log of the table is the same as then. If the file
is lost, each table gets a whole vacuum.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

import structlog
from pydantic import TypeAdapter, ValidationError

from dbio_commit.base.texts import plain
from dbio_commit.upkeep.vacuum.report import RunSummary

_log: structlog.stdlib.BoundLogger = structlog.get_logger("vacuum")

_LINE = TypeAdapter(tuple[str, RunSummary])
"""A line of the file, as JSON: the label of a table, and the run."""


def read_idle(path: str) -> dict[str, RunSummary]:
    """The runs by the labels of their tables, without the lines that cannot be read. A warning in the log has these."""
    found: dict[str, RunSummary] = {}
    wrong = 0
    try:
        with Path(path).open("rb") as file:
            for line in file:
                try:
                    name, run = _LINE.validate_json(line)
                    found[name] = run
                except ValidationError:
                    wrong += 1
    except FileNotFoundError:
        return {}
    except OSError as error:
        _log.warning("state file not read", path=path, message=str(error))
    if wrong:
        _log.warning("state file not read", path=path, message=f"{wrong:,} lines have mistakes")
    return found


def write_idle(path: str, runs: Mapping[str, RunSummary]) -> None:
    """Replaces the file as a whole. An error is only logged: the runs themselves have ended."""
    try:
        with NamedTemporaryFile(dir=Path(path).absolute().parent, prefix=f".{Path(path).name}.", delete=False) as file:
            try:
                for line in runs.items():
                    file.write(json.dumps(plain(_LINE.dump_python(line, mode="json"))).encode() + b"\n")
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        _log.warning("state file not written", path=path, message=str(error))
