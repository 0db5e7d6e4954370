"""The service's log: one JSON object a line on stderr, whoever speaks, without secrets."""

import json
import logging
import sys
from collections.abc import Collection, MutableMapping
from typing import Any

import structlog


def log_as_json(secrets: Collection[str]) -> None:
    """Sets up logging for the whole process. The secrets are shown as ***."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", key="time"),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _in_order,
                structlog.processors.JSONRenderer(default=str),
                _Redact(secrets),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    for name in ("vacuum", "dbio_commit"):
        logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger("vacuum.run").setLevel(logging.ERROR)  # what a run did, and warns of, the service says
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # that a run is skipped, we say ourselves


def _in_order(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For the people who read it raw."""
    first = {key: event[key] for key in ("time", "level", "event")}
    return first | dict(event)


class _Redact:
    """Works on the finished line, so that no field of it is forgotten."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = [json.dumps(secret)[1:-1] for secret in sorted(secrets, key=len, reverse=True)]

    def __call__(self, logger: Any, method: str, line: MutableMapping[str, Any] | str) -> str:
        text = str(line)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text
