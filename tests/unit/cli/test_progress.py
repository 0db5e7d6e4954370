"""What a command shows while it runs: nothing if it is quick, or if nobody watches."""

import io
import time

import pytest
from rich.console import Console

from dbio_commit import Table
from dbio_commit.cli import output
from tests.command_line import ESCAPE, append, in_terminal


def shown(monkeypatch: pytest.MonkeyPatch, *, late_s: float, is_watched: bool = True) -> str:
    screen = io.StringIO()
    monkeypatch.setattr(output, "Console", lambda **_: Console(file=screen, force_terminal=is_watched))
    monkeypatch.setattr(output, "in_pipe", lambda: not is_watched)
    monkeypatch.setattr(output, "LATE_S", late_s)
    with output.status("reading the log"):
        time.sleep(0.2)
    time.sleep(0.05)  # what comes too late must show nothing any more
    return screen.getvalue()


def test_a_spinner_comes_only_after_a_while_and_only_where_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reading the log" in shown(monkeypatch, late_s=0.01)
    assert shown(monkeypatch, late_s=0.22) == ""
    assert shown(monkeypatch, late_s=60) == ""
    assert shown(monkeypatch, late_s=0.01, is_watched=False) == ""


def test_it_goes_when_the_command_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "Console", lambda **_: Console(file=screen, force_terminal=True))
    monkeypatch.setattr(output, "in_pipe", lambda: False)
    monkeypatch.setattr(output, "LATE_S", 0.05)
    with pytest.raises(KeyboardInterrupt), output.status("reading the log"):
        raise KeyboardInterrupt
    time.sleep(0.1)
    assert screen.getvalue() == ""


def test_no_color_leaves_colours_out(table: Table) -> None:
    append(table, {"1": 10})
    code, lines = in_terminal(100, "check", table.url)  # sets NO_COLOR, and removes bold and dim
    assert code == 0
    assert ESCAPE not in "\n".join(lines)
