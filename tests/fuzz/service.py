"""What people write: vacuum.toml, the command line's arguments, URLs of tables."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from unicodedata import category

from typer.testing import CliRunner, Result

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.cli.commands import app
from dbio_commit.store import Location, open_store, parse_location
from vacuum.config import Config, read_config, secrets

NOW = datetime(2026, 11, 20, tzinfo=UTC)

# --- vacuum.toml --------------------------------------------------------------------------------------------------


GOOD_CONFIG = b"""cron = "0 3 * * *"
timezone = "Europe/Berlin"
jitter_s = 60
concurrency = 4
retention_hours = 48
dry_run = false
checkpoint_after = 20
history_days = 30.0
http = { host = "127.0.0.1", port = 9471 }

[[tables]]
path = "/lake/*/events"
untracked = true

[[tables]]
path = "s3://lake/events"
cron = "*/5 1-3 * * mon-fri"
retention_hours = 1
[tables.storage_options]
endpoint_url = "http://127.0.0.1:9000"
client_kwargs = { region_name = "eu", nested = { env = "HOME" } }
"""


def config(text: bytes) -> Config | None:
    """The configuration, or None where it was refused with an error that names the file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "vacuum.toml")
        path.write_bytes(text)
        try:
            found = read_config(path)
        except InvalidInputError as error:
            assert str(path) in str(error)
            return None
    assert found.concurrency >= 1
    assert len({entry.name for entry in found.entries}) == len(found.entries)
    secrets(found)
    for entry in found.entries:
        assert entry.options.retention_hours >= 1
        times = list(islice(entry.fire_times(NOW), 3))
        assert times == sorted(times)
        assert entry.trigger().get_next_fire_time(None, NOW)
        entry.resolved_options()
        with suppress(DbioError):
            entry.options.check()
    return found


# --- URLs ---------------------------------------------------------------------------------------------------------


def location(text: str) -> Location | None:
    """A URL or path of a table: refused, or with one spelling that means the same."""
    try:
        found = parse_location(text)
    except DbioError:
        return None
    assert "\0" not in found.url
    if found.scheme == "file":
        assert os.path.isabs(found.prefix)
        assert not {".", ".."} & set(found.prefix.split("/"))
    else:
        assert found.container
        assert not {"/", ":", "@"} & set(found.container)
        if found.prefix:
            components = found.prefix.split("/")
            assert all(components)
            assert not {".", ".."} & set(components)
        assert parse_location(found.url) == found
    open_store(found)
    return found


# --- the command line ---------------------------------------------------------------------------------------------

COMMANDS = ["files", "log", "show", "check", "vacuum", "checkpoint", "adopt", "abort"]
TOKENS = [
    *COMMANDS, "t", "./t", "t/", "t/day=1", "nothing", "--json", "--as-of", "--retention-hours", "--dry-run", "--force",
    "--untracked", "--ignore-corrupt-markers", "--help", "--version", "--", "-", "-h", "--json=1", "--as-of=", "", " ",
    "0", "1", "-1", "48", "nan", "inf", "-inf", "1e308", "1e-320", "9" * 400, "0x10", "1_0", "٤٨", "2026-11-20",
    "2026-11-20T10:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-11-20T10:00:00+99:99",
    "1", "2", "3a", "../t", "\udcff", "\ud800", "\n", "\x1b[2J", "\u202e", "é", "x" * 5000, "@t", "file:", "s4://x",
    "*", "%00", "{}", "[red]", "\\",
]  # fmt: skip


def arguments(args: Sequence[str], table: Path) -> None:
    """`dbio` with these arguments, in an empty directory with a copy of the table as "t": a result, no traceback."""
    with _alone(table) as here:
        if all(_stays(here, arg) for arg in args):
            run([*args])


def run(args: list[str]) -> Result:
    result = CliRunner().invoke(app, args)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), args
    return result


def shown(args: list[str]) -> str:
    """What it prints; nothing of it steers a terminal."""
    result = run(args)
    for text in (result.stdout, result.stderr):
        steering = {c for c in text if category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}
        assert not steering, f"{steering} in {text[:500]!r}"
    return result.stdout


@contextmanager
def _alone(table: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        shutil.copytree(table, "t")
        yield Path(directory)


def _stays(here: Path, arg: str) -> bool:
    """Whether nothing outside the directory can be meant: what is tested here deletes files."""
    try:
        found = parse_location(arg)
    except DbioError:
        return True
    return found.scheme == "file" and Path(found.prefix).is_relative_to(here)


# --- a local directory --------------------------------------------------------------------------------------------


def command_lines(root: Path, tids: Sequence[str]) -> Iterator[list[str]]:
    """Every way to look at a table."""
    table = str(root)
    for json in ([], ["--json"]):
        for command in ("files", "log", "check"):
            yield [command, table, *json]
        yield ["files", table, "--ignore-corrupt-markers", *json]
        yield ["vacuum", table, "--dry-run", "--force", "--retention-hours", "0", "--untracked", *json]
        yield from (["show", table, tid, *json] for tid in tids)


def fill(root: Path, objects: Mapping[str, bytes]) -> None:
    """As far as a local disk takes such names."""
    for path, body in objects.items():
        target = root / path
        assert ".." not in target.parts
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
