"""`dbio serve`: runs a server for SQL until a signal ends it."""

import signal
import sys
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING

from dbio_commit.base.errors import InvalidInputError, StoreError
from dbio_commit.cli.output import say, say_error

if TYPE_CHECKING:
    from dbio_commit.spark.serve import ServeOptions, Server

_LOOK_S = 2.0


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=TEXT, as a dict. Raises InvalidInputError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in found:
            raise InvalidInputError(f"{option} {name!r:.200} is not NAME=VALUE, or has a name that came before")
        found[name] = value
    return found


def run_server(server: "Server", options: "ServeOptions") -> bool:
    """Serves until SIGTERM or Ctrl-C. Returns whether it was Ctrl-C. Raises StoreError if Spark ends before."""
    ended, signals = Event(), list[int]()

    def end(number: int, frame: object) -> None:
        signals.append(number)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):  # PySpark has set a handler of its own
        signal.signal(number, end)
    if options.is_open:
        say_error(
            f"warning: anyone who can connect to {options.address} may do what this process may, since nothing asks "
            f"who they are; {_ASK[options.thrift]}, or listen on 127.0.0.1"
        )
    named = f", with the roots {', '.join(options.roots)}" if options.roots else ""
    say(f"listening on {options.address}{named}; Ctrl-C ends it")
    sys.stdout.flush()
    try:
        while not ended.wait(_LOOK_S):
            if not server.is_running():
                raise StoreError("Spark has ended, and the server with it; its log has the reason: start it again")
    finally:
        server.stop()
    say(f"stopped listening on {options.address}")
    return signal.SIGINT in signals


_ASK = {
    False: "set the environment variable SPARK_CONNECT_AUTHENTICATE_TOKEN",
    True: "set --conf spark.hadoop.hive.server2.authentication",
}
