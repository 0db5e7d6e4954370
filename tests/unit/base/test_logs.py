"""Loggers of the package: one event is one line, whatever its names hold; and each module has one of these."""

import ast
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from dbio_commit.base.logs import get_logger

ROOT = Path(__file__).parents[3]
HOSTILE = "x\n2026-11-26 ERROR root: forged \x1b[2J\x9b\u2028\u202e\udcff"


@pytest.fixture
def written() -> Iterator[StringIO]:
    """What a handler of a user's writes, of all that is below the package's logger."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package = logging.getLogger("dbio_commit")
    package.addHandler(handler)
    yield stream
    package.removeHandler(handler)


def lines(stream: StringIO) -> list[str]:
    text = stream.getvalue()
    text.encode()
    return text.splitlines()


@pytest.mark.parametrize("name", [HOSTILE, ValueError(HOSTILE), Path(HOSTILE)], ids=["text", "error", "path"])
def test_what_is_logged_of_a_table_is_one_line(written: StringIO, name: object) -> None:
    get_logger("dbio_commit.a.b").warning("%s: %d files of %s", name, 7, name)
    (line,) = lines(written)
    assert line.isprintable()
    assert r"x\n2026" in line
    assert ": 7 files of x" in line


def test_names_in_a_mapping_are_escaped_too(written: StringIO) -> None:
    get_logger("dbio_commit.a").warning("%(name)s has %(count)d", {"name": HOSTILE, "count": 7})
    (line,) = lines(written)
    assert line.isprintable()


def test_no_line_of_an_exception_looks_like_an_event(written: StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        get_logger("dbio_commit.a").exception("%s failed", "t")
    first, *others = lines(written)
    assert first.endswith("t failed")
    assert any("forged" in line for line in others)
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_a_logger_escapes_once_however_often_it_is_asked_for(written: StringIO) -> None:
    for _ in range(3):
        get_logger("dbio_commit.a").warning("%s", "\\\n")
    assert {line.rpartition(": ")[2] for line in lines(written)} == {r"\\n"}


def test_every_module_has_its_logger_from_here() -> None:
    """`logging.getLogger`, and what it returns, would log names as they are."""
    others = []
    for path in sorted([*ROOT.glob("dbio_commit/**/*.py"), *ROOT.glob("vacuum/**/*.py")]):
        if path.relative_to(ROOT).as_posix() in ("dbio_commit/base/logs.py", "vacuum/log.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("getLogger", "basicConfig", "lastResort"):
                others.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert others == []
