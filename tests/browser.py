"""Chromium, as Debian packages it, by its DevTools protocol: what a page asks for, says and looks like."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROGRAM = "chromium"
_FLAGS = (
    "--headless",
    "--no-sandbox",  # which root cannot have; the pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


class Tab:
    """One tab, and all that has happened in it."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self._numbers = count(1)
        self._buffer = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, event: str) -> None:
        while not any(it.get("method") == event for it in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = self._answers.read1(1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    # --- what a test does with a page ---------------------------------------------------------------------------------

    def open(self, url: str, *, scheme: str = "light", width: int = 1100) -> None:
        """Returns when all of it is there. `scheme` is the colour scheme that its reader prefers."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.ask("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, file: Path, *, below: str | None = None) -> None:
        """Of the whole page, or of what is above the bottom of an element."""
        clip = {}
        if below is not None:
            width = self.evaluate("document.documentElement.clientWidth")
            height = self.evaluate(f"document.querySelector('{below}').getBoundingClientRect().bottom")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True, **clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    @property
    def requested(self) -> list[str]:
        """The URLs that the page asked for since it was opened, its own first."""
        asked = (it["params"]["request"] for it in self.events if it.get("method") == "Network.requestWillBeSent")
        return [request["url"] for request in asked]

    @property
    def complaints(self) -> list[dict[str, Any]]:
        """What a console would show: messages, errors, and what the page's policy forbade it."""
        said = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [it["params"] for it in self.events if it.get("method") in said]


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser of its own, which ends with the block."""
    program = shutil.which(PROGRAM)
    assert program, f"no {PROGRAM}: sudo apt-get install --no-install-recommends {PROGRAM}"
    commands_out, commands = os.pipe()
    answers, answers_in = os.pipe()
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as home:
        # The protocol is on the descriptors 3 and 4. A shell puts them there, whatever theirs are here.
        script = f'exec "$@" 3<&{commands_out} 4>&{answers_in} </dev/null'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *_FLAGS, f"--user-data-dir={home}"],
            pass_fds=[commands_out, answers_in],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_out)
        os.close(answers_in)
        try:
            yield Tab(commands, answers)
        finally:
            process.kill()
            process.wait()
