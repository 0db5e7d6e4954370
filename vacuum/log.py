"""Sets up the service's log: one JSON object a line on stderr, from all libraries, without secrets."""

import logging
import sys
import threading
from collections.abc import Collection, Mapping, MutableMapping
from types import TracebackType
from typing import Any

import structlog

from dbio_commit.base.redaction import redact
from dbio_commit.base.texts import plain, visible


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
                _Clean(secrets),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda it: _uncaught(it.exc_type, it.exc_value, it.exc_traceback)
    for name in ("vacuum", "dbio_commit"):
        logging.getLogger(name).setLevel(logging.INFO)
    # The service itself logs the results and warnings of runs, and runs that are skipped.
    logging.getLogger("dbio_commit.maintenance.vacuum.run").setLevel(logging.ERROR)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is None or issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error or kind(), trace)
    else:
        structlog.get_logger("vacuum").critical("uncaught", error=kind.__name__, exc_info=(kind, error, trace))


def _in_order(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Puts the keys first that people look for."""
    first = {key: event[key] for key in ("time", "level", "event")}
    return first | dict(event)


class _Clean:
    """Removes secrets from all fields of an event.

    Escapes characters that are not UTF-8 or control a terminal. An exception keeps its lines.
    """

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = frozenset(secrets)

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        trace = event.pop("exception", None)
        shown: dict[str, Any] = plain(event, lambda text: visible(self._redacted(text)))
        return shown | ({"exception": visible(self._redacted(str(trace)), keep="\n")} if trace else {})

    def _redacted(self, text: str) -> str:
        return redact(text, self._secrets)
