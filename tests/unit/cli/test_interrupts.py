"""Ctrl-C, wherever it comes, is one line and exit code 130. Processes stop where they are told to, and wait for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dbio_commit import Table

ROOT = Path(__file__).parents[3]

STOPS = """
import atexit, os, signal, sys, threading, time
from importlib.abc import MetaPathFinder

WHERE = os.environ.get("TEST_STOP", "")


def stop():
    with open(os.environ["TEST_HERE"], "w") as pipe:
        pipe.write("here")
    time.sleep(100)


class Stops(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if "import " + name == WHERE:
            sys.meta_path.remove(self)
            stop()


class Swallows(MetaPathFinder):
    '''As code does that takes whatever comes of an import for a package that is not there.'''

    def find_spec(self, name, path, target=None):
        if "optional " + name == WHERE:
            sys.meta_path.remove(self)
            try:
                stop()
            except BaseException:
                raise ImportError("no such package") from None


sys.meta_path[:0] = [Stops(), Swallows()]


def in_a_pool():
    threading.Thread(target=time.sleep, args=(100,)).start()  # the interpreter's own end would wait for it
    stop()


def with_clean_up():
    try:
        stop()
    finally:
        with open(os.environ["TEST_CLEANED"], "w") as file:
            file.write("cleaned")


def with_slow_clean_up():
    try:
        stop()
    finally:
        time.sleep(1.5)  # what comes sooner counts as the same wish
        stop()


IN_A_STORE = {"store": stop, "pool": in_a_pool, "clean-up": with_clean_up, "slow clean-up": with_slow_clean_up}
if WHERE in IN_A_STORE:
    from dbio_commit.store.local import LocalStore

    LocalStore.list_log = lambda self, *prefixes: IN_A_STORE[WHERE]()
if WHERE == "sent":
    from dbio_commit.store.local import LocalStore

    real = LocalStore.list_log
    LocalStore.list_log = lambda self, *prefixes: os.kill(os.getpid(), signal.SIGINT) or real(self, *prefixes)
if WHERE == "end":
    atexit.register(stop)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch/sitecustomize.py").write_text(STOPS)
    os.mkfifo(tmp_path / "here")
    Table(tmp_path / "lake").begin().commit()
    (tmp_path / "vacuum.toml").write_text(f'cron = "0 3 * * *"\n[[tables]]\npath = "{tmp_path}/lake"\n')
    return tmp_path


def interrupted(folder: Path, where: str, command: Sequence[str], *, times: int = 1) -> tuple[int, str]:
    """Exit code and stderr of a command that was interrupted where it stopped."""
    env = os.environ | {
        "PYTHONPATH": f"{folder}/patch:{ROOT}",
        "TEST_STOP": where,
        "TEST_HERE": f"{folder}/here",
        "TEST_CLEANED": f"{folder}/cleaned",
    }
    arguments, quiet = [sys.executable, "-m", *command], subprocess.DEVNULL
    with subprocess.Popen(arguments, env=env, cwd=folder, stdout=quiet, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(times):
            assert (folder / "here").read_text() == "here"  # waits for it
            process.send_signal(signal.SIGINT)
        return process.wait(), process.stderr.read() if process.stderr else ""


DBIO = ("dbio_commit.cli", "check", "lake")
PLACES = [
    "import typer",
    "import rich.console",
    "import dbio_commit.table",
    "import dbio_commit.cli.commands",
    "import dbio_commit.store.local",
    "optional dbio_commit.store.local",
    "optional jinja2",
    "store",
    "pool",
    "end",
    "clean-up",
]


@pytest.mark.parametrize("where", PLACES)
def test_a_command_that_is_interrupted_says_so_in_a_line(where: str, folder: Path) -> None:
    assert interrupted(folder, where, DBIO) == (130, "dbio: interrupted\n")
    assert (folder / "cleaned").exists() == (where == "clean-up")


@pytest.mark.parametrize("command", ["files", "vacuum --dry-run", "report -o page.html"])
def test_so_does_every_command_that_waits_for_a_store(command: str, folder: Path) -> None:
    name, *options = command.split()
    assert interrupted(folder, "store", ("dbio_commit.cli", name, "lake", *options)) == (130, "dbio: interrupted\n")


def test_who_interrupts_again_need_not_wait_for_what_it_tidies_up(folder: Path) -> None:
    assert interrupted(folder, "slow clean-up", DBIO, times=2) == (130, "dbio: interrupted\n")


@pytest.mark.parametrize(
    "where",
    [
        "import typer",
        "import vacuum.commands",
        "import vacuum.config",
        "import apscheduler",
        "import dbio_commit.table",
        "end",
    ],
)
def test_the_service_says_so_too_before_it_is_at_work_and_after(where: str, folder: Path) -> None:
    command = ("vacuum", "check", "--config", "vacuum.toml")
    assert interrupted(folder, where, command) == (130, "vacuum: interrupted\n")


def test_what_ignores_interrupts_from_the_start_goes_on_ignoring_them(folder: Path) -> None:
    """As under nohup, or in the background of a script."""
    env = os.environ | {"PYTHONPATH": f"{folder}/patch:{ROOT}", "TEST_STOP": "sent"}
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", *DBIO]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_package_takes_no_module_of_its_own_but_the_guard() -> None:
    """What comes before the guard cannot be interrupted in a line: it is little."""
    program = "import sys, dbio_commit.cli; print(*(it for it in sys.modules if it.startswith(('dbio', 'msgspec'))))"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    guard = {"dbio_commit", "dbio_commit.base", "dbio_commit.base.interrupts", "dbio_commit.cli"}
    assert {*done.stdout.split()} == guard
