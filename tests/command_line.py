"""Runs `dbio` in a pipe, in a terminal or as a process, on local tables that are quickly made.

On S3 and Azure: `tests/integration/test_cli_stores`.
"""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner, Result

from dbio_commit import FileInfo, Table, Transaction
from dbio_commit.cli import main
from dbio_commit.cli.commands import app
from dbio_commit.protocol import names

TID = "1234567890123456789"
ESCAPE = "\x1b"
HOSTILE = f"[red]x[/red]{ESCAPE}[2J\r\n\t\u202e:smile:\udc80"
"""A name that tries to steer a terminal, to be markup, and to break whatever encodes it."""


def a_file() -> bytes:
    """A small file of Parquet."""
    body = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), body)
    return body.getvalue()


PARQUET = a_file()

COMMANDS = [("files",), ("log",), ("check",), ("show", TID), ("abort", TID)]
"""Each without the path, which `words` puts in."""


def words(command: tuple[str, ...], path: object) -> list[str]:
    return [command[0], str(path), *command[1:]]


def dbio(*args: object) -> Result:
    """In this process, into a pipe."""
    return CliRunner().invoke(app, [str(arg) for arg in args])


def dbio_json(*args: object) -> Any:
    result = dbio(*args, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


def process(*args: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dbio_commit.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | (env or {}))


_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.command_line", "adlfs", "gcsfs", "s3fs"])


def forked(*args: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """In a process of its own with that environment, a fork of one that has imported all: to do that takes a second."""
    words = [str(arg) for arg in args]
    with TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        child = _FORKS.Process(target=_main, args=(words, dict(env), out, err))
        child.start()
        child.join()
        assert child.exitcode is not None
        return subprocess.CompletedProcess(words, child.exitcode, out.read_text(), err.read_text())


def _main(words: list[str], env: dict[str, str], out: Path, err: Path) -> None:
    os.environ.clear()
    os.environ.update(env)
    sys.stdout, sys.stderr = out.open("w"), err.open("w")
    sys.argv = ["dbio", *words]
    main()


def as_nobody(*args: str) -> subprocess.CompletedProcess[str]:
    """As a user whom permissions hold back. Root gives itself up once all is imported, which nobody may read."""
    drop = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else "pass"
    imports = "import os, dbio_commit.cli.commands as commands, dbio_commit.store.local, typer.testing"
    first = "typer.testing.CliRunner().invoke(commands.app, ['files', '/nowhere'])"  # typer imports some when it runs
    code = f"{imports}; {first}; {drop}; commands.app()"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd="/")


def in_terminal(columns: int, *args: object, answer: str = "") -> tuple[int, list[str]]:
    """The exit code, and the lines as a terminal of that width shows them, without colours; `answer` is typed in."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(
        [sys.executable, "-m", "dbio_commit.cli", *map(str, args)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env | {"TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    output = b""
    while chunk := _read(ours):
        output += chunk
    os.close(ours)
    text = output.decode()
    for style in ("1", "2", "1;2", "0"):  # bold and dim are no colours
        text = text.replace(f"{ESCAPE}[{style}m", "")
    return child.wait(), text.splitlines()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def lines(text: str) -> list[list[str]]:
    """What a pipe gets, in its fields."""
    return [line.split("\t") for line in text.splitlines()]


def new_files(transaction: Transaction, sizes: Mapping[str, int], **known: Any) -> list[FileInfo]:
    """Writes a file of each size in the partition day=..., which is no Parquet, and stages it."""
    transaction.inspector = None
    staged = []
    for number, (day, size) in enumerate(sizes.items()):
        partition = {"day": day}
        name = names.format_data_file(
            tid=transaction.tid, job="job", task=number, attempt=0, number=0, suffix=".parquet"
        )
        path = names.join(names.format_partition(partition), name)
        file = Path(transaction._store.url, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
        staged.append(FileInfo(path=path, size=size, partition=partition, **known))
    transaction.add(staged)
    return staged


def append(table: Table, sizes: Mapping[str, int], **known: Any) -> str:
    with table.begin(partition_by=["day"]) as transaction:
        new_files(transaction, sizes, **known)
    return transaction.tid


def data_file(tid: str = TID) -> str:
    return f"part-00000-tid-{tid}-job-0-0-c000.parquet"
