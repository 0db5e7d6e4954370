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

_RUNS = TypeAdapter(dict[str, RunSummary])


def read_idle(path: str) -> dict[str, RunSummary]:
    """The runs by the labels of their tables. Empty, with a warning in the log, if the file cannot be read."""
    try:
        return _RUNS.validate_json(Path(path).read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        _log.warning("state file not read", path=path, message=str(error))
    except ValidationError as error:
        _log.warning("state file not read", path=path, message=f"it has {error.error_count()} mistakes")
    return {}


def write_idle(path: str, runs: Mapping[str, RunSummary]) -> None:
    """Replaces the file as a whole. An error is only logged: the runs themselves have ended."""
    try:
        with NamedTemporaryFile(dir=Path(path).absolute().parent, prefix=f".{Path(path).name}.", delete=False) as file:
            try:
                file.write(json.dumps(plain(_RUNS.dump_python(dict(runs), mode="json"))).encode())
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        _log.warning("state file not written", path=path, message=str(error))
