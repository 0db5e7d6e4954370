"""`python -m vacuum serve | once | check`: the process around the service, with its signals and exit codes.

Each command imports the modules that only it needs.
"""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from socket import socketpair
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Annotated, cast

import typer

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.base.texts import label, visible

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

    from vacuum.config import ConfigEntry
    from vacuum.discovery import FoundTable
    from vacuum.schedule import Service

app = typer.Typer(
    name="vacuum",
    help="Vacuum tables on a schedule.",
    epilog="Exit codes: 0 success, or ended by a signal; 1 something failed; 2 wrong usage or configuration.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_ECHO_S = 1.0
"""A second signal within this time counts as the same: timeout(1) and some shells signal a process, then its group."""

_DONE = b"\0"
"""The byte that the work sends when it has ended. A signal sends its number."""

_Config = Annotated[Path, typer.Option(show_default=False, help="The configuration file, such as vacuum.toml.")]


@app.command()
def serve(config: _Config) -> None:
    """Vacuum on schedule until SIGTERM or SIGINT, and serve /metrics, /health and /report."""
    service = _service(config)

    def work() -> int:
        from vacuum.listener import listening

        http = service.config.http
        with ExitStack() as stack:
            try:
                url = stack.enter_context(
                    listening(http.host, http.port, service.metrics.registry, service.health, service.report)
                )
            except OSError as error:
                _log().error("cannot listen", host=http.host, port=http.port, message=str(error))
                return 1
            _log().info("listening", url=url)
            service.serve()
        return 0

    raise typer.Exit(_until_done(work, service.stop))


@app.command()
def once(
    config: _Config,
    metrics_file: Annotated[
        Path | None, typer.Option(show_default=False, help="Write the metrics to this file, for the node exporter.")
    ] = None,
) -> None:
    """Vacuum each table once, now, and print a line for each.

    Exits with 1 if one failed, or if a path or pattern has no table.
    """
    service = _service(config)

    def work() -> int:
        from prometheus_client import write_to_textfile

        ok = service.once()
        for name, result in service.results().items():
            typer.echo(f"{name}: {visible(result)}")
        if metrics_file:
            write_to_textfile(str(metrics_file), service.metrics.registry)
        return 0 if ok else 1

    raise typer.Exit(_until_done(work, service.stop))


@app.command()
def check(config: _Config) -> None:
    """Check the configuration, and list the tables that match it now. Exits with 1 if a path or pattern has none."""
    service = _service(config)
    problems = 0
    for entry in service.entries:
        try:
            tables, problem = _tables(entry, service.entries)
        except DbioError as error:
            tables, problem = (), f"{entry.name}: {error}"
        for table in tables:
            typer.echo(label(table.url))
        if problem:
            typer.echo(f"vacuum: {visible(problem)}", err=True)
            problems += 1
    if problems:
        raise typer.Exit(1)


def _tables(entry: "ConfigEntry", entries: "Sequence[ConfigEntry]") -> "tuple[Sequence[FoundTable], str]":
    """The tables of an entry, and what is wrong: "" if nothing is. Raises StoreError."""
    from vacuum.discovery import find_tables, is_there

    found = find_tables(entry, entries)
    if not found.count:
        return (), f"{entry.name}: no table matches this pattern; check its spelling, and what the credentials may list"
    if not entry.is_pattern and not is_there(entry):
        return (), f"{entry.name}: there is no table; check the path, and what the credentials may list"
    return found.tables, ""


def _service(path: Path) -> "Service":
    from vacuum.config import read_config, secrets
    from vacuum.log import log_as_json
    from vacuum.schedule import Service

    try:
        config = read_config(path)
    except InvalidInputError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    log_as_json(secrets(config))
    return Service(config)


def _log() -> "BoundLogger":
    import structlog

    return cast("BoundLogger", structlog.get_logger("vacuum"))


def _until_done(work: Callable[[], int], stop: Event) -> int:
    """Runs the work in a thread. The main thread gets signals: the first sets `stop`, a later one ends the process."""
    # Signals come through a socket: the kernel may deliver one to any thread, which would not wake a lock or queue.
    reader, writer = socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        future.add_done_callback(lambda _: writer.send(_DONE))
        if (first := reader.recv(1)) != _DONE:
            _log().info("stopping", signal=signal.Signals(first[0]).name)
            stop.set()
            since = monotonic()
            while (another := reader.recv(1)) != _DONE:
                if monotonic() - since > _ECHO_S:
                    _log().error("killed", signal=signal.Signals(another[0]).name)
                    os._exit(1)
    return future.result()
