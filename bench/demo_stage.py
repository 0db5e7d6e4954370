"""What `make demo` stands on: the screen, the place where the tables are, the Spark session, the job to be killed.

No claim about dbio_commit is made or checked in here.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tests.servers import azurite_server, fake_gcs_server, moto_server

DIRECTORY = Path("build/demo")
SPARK_LOG = DIRECTORY / "spark.log"

# --- the screen ---------------------------------------------------------------------------------------------------

_console = Console(width=None if sys.stdout.isatty() else 110)
_began: list[tuple[str, float]] = []
"""The steps so far, and when each began, by the monotonic clock."""


class DemoError(Exception):
    """Something that the demo says is not so."""


def step(title: str) -> None:
    _began.append((f"{len(_began) + 1}. {title}", time.monotonic()))
    headline(_began[-1][0])


def show_times(*, set_up_s: int | None, began_s: float) -> None:
    """How long each step took, which ends when the next one begins. `set_up_s` is what `make` took before."""
    ends_s = [*(at_s for _, at_s in _began), time.monotonic()]
    steps = [("Spark starts", began_s), *_began]
    took = [(title, round(end_s - at_s)) for (title, at_s), end_s in zip(steps, ends_s, strict=True)]
    if set_up_s is not None:
        took.insert(0, ("set-up", set_up_s))
    show_table(["step", "seconds"], [*took, ("in all", sum(seconds for _, seconds in took))])


def headline(title: str) -> None:
    _console.print()
    _console.rule(Text(title, style="bold"), align="left")


def say(text: str) -> None:
    _print(Text(text))


def busy(what: str) -> AbstractContextManager[object]:
    """In a terminal, shows that the demo is not stuck."""
    return _console.status(f"{what} ...")


def claim(text: str, found: object, expected: object = True) -> None:
    """Says so if it is so. `{}` in the text stands for what was found. Raises DemoError."""
    if found != expected:
        raise DemoError(f"{text.format(found)} (found {found}, expected {expected})")
    _print(Text.assemble(("✓ ", "bold green"), text.format(found)))


def show_failure(message: str) -> None:
    _print(Text.assemble(("✗ Not so: ", "bold red"), message))


def show_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers stand right, all else left."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for name, value in zip(header, rows[0], strict=True):
        table.add_column(name, justify="right" if isinstance(value, int) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    _print(table)


def _print(what: RenderableType, *, above: int = 0, below: int = 0, indent: int = 2) -> None:
    _console.print(Padding(what, (above, 0, below, indent), expand=False))


def dbio(*arguments: str) -> str:
    """Runs the command line as in a terminal; shows, and returns, what it printed. Raises DemoError where it fails."""
    command = ["dbio", *arguments]
    _print(Text(f"$ {' '.join(command)}", style="bold cyan"), above=1)
    ours, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dbio_commit.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"COLUMNS": str(_console.width - 4)},
    )
    os.close(terminal)
    printed = b""
    with suppress(OSError):  # how a terminal ends on Linux
        while part := os.read(ours, 1 << 16):
            printed += part
    os.close(ours)
    text = Text.from_ansi(printed.decode().replace("\r\n", "\n").rstrip())
    _print(text, below=1, indent=4)
    if process.wait() != 0:
        raise DemoError(f"`{' '.join(command)}` ended with exit code {process.returncode}")
    return text.plain


# --- the place ----------------------------------------------------------------------------------------------------


@contextmanager
def open_lake(store: str) -> Iterator[str]:
    """An empty place for tables. The credentials for it are in the environment, where every tool looks for them."""
    if DIRECTORY.exists():
        shutil.rmtree(DIRECTORY)
    DIRECTORY.mkdir(parents=True)
    with ExitStack() as stack:
        match store:
            case "s3":
                s3 = stack.enter_context(moto_server())
                os.environ.update(s3.env)
                s3.create_bucket("demo")
                lake, name = "s3://demo", "S3 (moto, on this machine)"
            case "azure":
                azure = stack.enter_context(azurite_server())
                os.environ.update(azure.env)
                azure.create_container("demo")
                lake, name = "az://demo", "Azure (Azurite, on this machine)"
            case "gcs":
                gcs = stack.enter_context(fake_gcs_server())
                os.environ.update(gcs.env)
                gcs.create_bucket("demo")
                lake, name = "gs://demo", "Google Cloud Storage (fake-gcs-server, on this machine)"
            case _:
                lake, name = str(DIRECTORY), "a local disk"
        headline(f"dbio_commit on {name}: transactions on plain Parquet, step by step")
        say(f"The tables are in {lake}, and what Spark logs is in {SPARK_LOG}.")
        if store != "local":
            say("This Spark has no connector for it, so dbio.read takes the slower way, through Python workers.")
        yield lake


# --- Spark --------------------------------------------------------------------------------------------------------


def start_spark() -> SparkSession:
    """A small session that is soon at work."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    # Of a JVM that lives for a minute, better compilation would take more time than it saves.
    return builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Like any session, but what Spark logs goes to a file."""
    warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
    with busy("Spark starts"), _stderr_to(SPARK_LOG):  # which its JVM and Python workers inherit
        spark = start_spark()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    terminal = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


@contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A Python script as a process that is dead when the block ends, with all that it started."""
    with SPARK_LOG.open("ab") as log:
        job = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, start_new_session=True)
    try:
        yield job
    finally:
        kill(job)


def kill(job: "subprocess.Popen[bytes]") -> None:
    """SIGKILL to its whole session: Spark's Python workers are in a process group of their own."""
    if job.poll() is None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError):
                if os.getsid(int(process.name)) == job.pid:
                    os.kill(int(process.name), signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # without /proc; the workers then end with their JVM
        job.wait()
