"""Whatever a name is, on all the ways to people and programs: one line of valid UTF-8 that steers nothing.

Each check stands on its own: none asks the package's own functions what is right.
"""

import json
import logging
import shlex
from datetime import UTC, datetime
from typing import Any, cast
from unicodedata import category

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dbio_commit.base import logs, texts
from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.maintenance.report.page import Subject, render_page
from dbio_commit.maintenance.vacuum.report import Failure, RunSummary
from vacuum import log, metrics, process

AT = datetime(2026, 11, 20, tzinfo=UTC)
NAMES = [
    "/lake/good", "/lake/bad\udcff\udcfe", "/lake/new\nline", r"/lake/new\nline", "\x1b]0;owned\x07\x1b[2J", "\x9b2J",
    "\u2028\u2029\x85", "\u202ertl\u2066", "{{7*7}}", "quote\"'><script>alert(1)</script>", "; touch x #", "$(x)", "`x`",
    "'; x '\n", "\\'; x\n", "x" * 255, "\t", " ", "é\u0301", "\U0001f600", "\U000e0001", "a\\", "a\\\\", "=1,\"}", "%s%d",
]  # fmt: skip


def written(name: str) -> str | None:
    """The label; None for what no store has as a name."""
    if not name or "\0" in name:
        return None
    shown, label = texts.visible(name), texts.label(name)
    for text in (shown, label):
        assert_shown(text)
    assert _read_label(label) == name, "two names have one label"
    _paste(name)
    assert_shown(str(CorruptMarkerError(f"{name} is no marker")))
    _log(name)
    _log_of_the_service(name)
    _metrics(name, label)
    _answer(name)
    page = render_page([Subject(name=label, note=name, failed=True)], at=AT)
    assert not {it for it in page if category(it) in ("Cc", "Cf", "Cs", "Zl", "Zp") and it != "\n"}
    assert "<script" not in page
    return label


def assert_shown(text: str) -> None:
    assert text.encode().decode() == text
    steering = {it for it in text if category(it)[0] in "CZ" and it != " "}
    assert not steering, f"{steering} in {text[:200]!r}"


def _read_label(label: str) -> str:
    """The name that a label is of."""
    found, at = [], 0
    while at < len(label):
        length = {"x": 4, "u": 6, "U": 10}.get(label[at + 1 : at + 2], 2) if label[at] == "\\" else 1
        part = label[at : at + length]
        found.append(part.encode().decode("unicode_escape") if length > 1 else part)
        at += length
    return "".join(found)


def _paste(name: str) -> None:
    line = texts.command("dbio", "set", name, f"{name}=")
    assert_shown(line)
    assert "`" not in line
    words = shlex.split(line)
    assert len(words) == 4, words
    if "$'" not in line:
        assert words[2:] == [name, f"{name}="]


def _log(name: str) -> None:
    logger, arguments = logs.get_logger("dbio_commit.fuzzed"), (name, 1, ValueError(name))
    record = logger.makeRecord(logger.name, logging.WARNING, "", 1, "%s: %d of %s", arguments, None)
    assert logger.filter(record)  # and to no handler, which a test's report has: it holds no text that is no UTF-8
    assert_shown(logging.Formatter().format(record))


def _log_of_the_service(name: str) -> None:
    clean = log._Clean(set())
    event: Any = {"event": name, "table": name, name: [{name: (name,)}], "exception": f"Traceback\n{name}"}
    event = clean(None, "info", event)
    for line in cast(str, event.pop("exception")).split("\n"):
        assert_shown(line)
    assert_shown(json.dumps(event, ensure_ascii=False))


def _metrics(name: str, label: str) -> None:
    of_both = metrics.Metrics()
    for table in (name, "another"):
        of_both.ended(table, 1.0, failed=False)
    text = generate_latest(of_both.registry).decode()
    found = {it.labels["table"] for family in text_string_to_metric_families(text) for it in family.samples}
    assert found == {label, "another"}


def _answer(name: str) -> None:
    failure = Failure(path=name, message=name)
    answer = process._read(process.written(process.Answer(summary=RunSummary(failures=(failure,), failed=1))))
    assert answer.summary is not None
    for it in answer.summary.failures:
        assert_shown(it.path)
        assert_shown(it.message)
