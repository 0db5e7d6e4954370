"""The public API: what it exports, that `dbio.vacuum` is found there, and that nothing else comes with the import."""

import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import dbio_commit as dbio
import vacuum
from dbio_commit.base import errors
from dbio_commit.cli import commands
from dbio_commit.commit.draft import Terms
from dbio_commit.protocol.scope import Scope
from tests.command_line import dbio as command_line
from vacuum import VacuumOptions, VacuumReport

PUBLIC = [getattr(package, name) for package in (dbio, vacuum) for name in package.__all__]

FOR_TESTS = {"Clock", "Footer", "Store"}
"""What only `Table.over` and the constructors take; `dbio_commit.testing` has them."""

WITHIN = {"Metadata", "Versions"}
"""What `Snapshot` hands to writers."""

OTHERS: dict[str, Any] = {
    "retention_hours": 0.5, "force": True, "untracked": True, "checkpoint_after": 3, "history_days": 40.0,
}  # fmt: skip
"""Of each option of vacuum a value that is not its default."""


def test_every_error_is_exported() -> None:
    assert {name for name, value in vars(errors).items() if isinstance(value, type)} <= {*dbio.__all__}


def test_every_class_that_a_user_meets_in_a_signature_or_a_result_is_exported() -> None:
    seen = [thing for thing in PUBLIC if thing is not Terms]  # is passed on, and not looked into
    met = {found for thing in seen for hint in hints(thing) for found in classes(hint)}
    ours = {found for found in met if found.__module__.split(".")[0] in ("dbio_commit", "vacuum")}
    assert {found.__name__ for found in ours.difference(PUBLIC)} == FOR_TESTS | WITHIN


def hints(thing: Any) -> Iterator[Any]:
    """Of a function, or of a class's fields and methods; a field that its repr leaves out is ours."""
    if not inspect.isclass(thing):
        yield from inspect.get_annotations(thing).values() if inspect.isfunction(thing) else ()
        return
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    within = {field.name for field in fields if not field.repr}
    said = inspect.get_annotations(thing).items()
    yield from (hint for name, hint in said if name not in within and not name.startswith("_"))
    for name, member in vars(thing).items():
        if not name.startswith("_") or (name == "__init__" and not fields):
            yield from hints(getattr(member, "fget", None) or getattr(member, "__func__", None) or member)


def classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


def run_alone(program: str) -> None:
    """In a fresh process, which must end well and say nothing."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_words_of_a_write_are_exported_and_need_no_spark() -> None:
    run_alone(
        "import sys; sys.modules['pyspark'] = None\n"
        "from typing import get_args\n"
        "from dbio_commit import AsOf, Compression, Mode, Operation\n"
        "assert 'overwrite_partitions' in get_args(Mode) and 'overwrite_partitions' in get_args(Operation)\n"
        "assert 'zstd' in get_args(Compression) and str in get_args(AsOf)\n"
    )


def test_a_table_that_cannot_be_read_is_not_the_fault_of_its_store() -> None:
    assert not issubclass(dbio.UnsupportedTableError, dbio.UnsupportedStoreError)


# --- vacuum -------------------------------------------------------------------------------------------------------


def test_dbio_vacuum_is_the_function_of_the_package_vacuum() -> None:
    assert dbio.vacuum is vacuum.vacuum
    assert "vacuum" in dbio.__all__


def test_importing_dbio_commit_loads_nothing_of_vacuum_until_it_is_asked_for() -> None:
    run_alone(
        "import sys, dbio_commit as dbio\n"
        "before = [name for name in sys.modules if name.startswith('dbio_commit.upkeep.vacuum')]\n"
        "assert not before, before\n"
        "assert dbio.vacuum is sys.modules['dbio_commit.spark.vacuum'].vacuum\n"
        "assert 'vacuum' not in sys.modules\n"
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[VacuumOptions]:
    """The options with which a vacuum was called for; it does nothing."""
    seen: list[VacuumOptions] = []

    def nothing(table: dbio.Table, options: VacuumOptions, *, dry_run: bool = False, **others: Any) -> VacuumReport:
        seen.append(options)
        hours = options.retention_hours
        return VacuumReport(url=table.url, scope=Scope.TABLE, dry_run=dry_run, retention_hours=hours)

    monkeypatch.setattr(sys.modules["dbio_commit.spark.vacuum"], "vacuum_table", nothing)
    monkeypatch.setattr(commands, "vacuum_table", nothing)
    return seen


def with_function(path: Path, options: dict[str, Any]) -> None:
    dbio.vacuum(path, **options)


def with_command(path: Path, options: dict[str, Any]) -> None:
    words = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    said = [part for word, value in words for part in ([word] if value is True else [word, str(value)])]
    result = command_line("vacuum", path, *said)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("call", [with_function, with_command])
def test_every_option_of_a_vacuum_can_be_given_to_the_function_and_to_the_command(
    asked: list[VacuumOptions], tmp_path: Path, call: Callable[[Path, dict[str, Any]], None]
) -> None:
    assert OTHERS.keys() == {field.name for field in dataclasses.fields(VacuumOptions)}
    call(tmp_path, {})
    call(tmp_path, OTHERS)
    assert asked == [VacuumOptions(), VacuumOptions(**OTHERS)]
