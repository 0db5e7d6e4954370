"""The public API: what it exports, where it works, and that its page has all of it."""

import ast
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

import dbio_commit as dbio
import vacuum
from dbio_commit.base import errors
from dbio_commit.cli import commands
from dbio_commit.protocol.scope import Scope
from dbio_commit.testing import MemoryStore
from tests import api_page
from tests.command_line import dbio as command_line
from tests.writers import write, write_days
from vacuum import VacuumOptions, VacuumReport

DOCUMENTED = {
    getattr(import_module(module), name)
    for homes in (api_page.RESULTS, api_page.OPTIONS, api_page.TESTING)
    for module, names in homes.items()
    for name in names
} | {getattr(dbio, name) for name in dbio.__all__}

INTERNAL = {"Clock", "Footer", "Request", "Store"}
"""Classes in the signatures of `Table.over`, of which `dbio_commit.testing` has some kinds, and in that of `Scan`."""

OTHERS: dict[str, Any] = {
    "retention_hours": 0.5, "force": True, "untracked": True, "checkpoint_after": 3, "history_days": 40.0,
}  # fmt: skip
"""Of each option of vacuum a value that is not its default."""

WITH_SPARK = ["read", "delete", "update", "merge"]
"""Functions that `Table` has as methods."""


# --- names at the top ---------------------------------------------------------------------------------------------


def test_every_error_is_exported() -> None:
    kinds = (value for value in vars(errors).values() if isinstance(value, type))
    assert {kind.__name__ for kind in kinds if issubclass(kind, dbio.DbioError)} <= {*dbio.__all__}


def test_type_checkers_see_the_names_that_can_be_imported() -> None:
    tree = ast.parse(Path(str(dbio.__file__)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname: node.module for node in imports for alias in node.names} == dbio._HOMES


def test_completion_offers_the_public_names_and_no_others() -> None:
    assert set(dir(dbio)) == {*dbio.__all__, "__version__"}
    table = dbio.Table.over(MemoryStore())
    assert {"read", "vacuum", "to_pandas"} <= set(dir(table))
    assert not {"store", "clock", "refuse_partition"} & set(dir(table))
    write(table)
    assert {"files", "tid", "etag"} <= set(dir(table.snapshot()))
    assert not {"decided", "metadata", "refuse_patterns"} & set(dir(table.snapshot()))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dbio_commit' has no attribute 'writes'"):
        dbio.writes  # type: ignore[attr-defined]  # noqa: B018


# --- without PySpark ----------------------------------------------------------------------------------------------


def run_alone(program: str) -> None:
    """In a fresh process, which must end well and say nothing."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_function_has_its_signature_and_its_help_without_pyspark_and_names_the_package_on_a_call() -> None:
    run_alone(
        "import sys; sys.modules['pyspark'] = None\n"
        "import inspect, dbio_commit as dbio\n"
        "functions = [it for name in dbio.__all__ if inspect.isfunction(it := getattr(dbio, name))]\n"
        "assert functions\n"
        "pure = {'batch_writer', 'snapshots', 'transact', 'transaction', 'vacuum', 'write'}\n"
        "pure |= {'when_matched', 'when_not_matched', 'when_not_matched_by_source'}\n"
        "for function in functions:\n"
        "    assert len(inspect.getdoc(function)) > 100, function\n"
        "    required = [it for it in inspect.signature(function).parameters.values() if it.default is it.empty]\n"
        "    if function.__name__ in pure: continue\n"
        "    try:\n"
        "        function(*[None for _ in required])\n"
        "    except dbio.MissingPackageError as error:\n"
        "        said = str(error)\n"
        "        assert said.startswith(f'dbio.{function.__name__} needs the package pyspark'), said\n"
        "        assert said.endswith('run `pip install \"dbio-commit[local]\"`'), said\n"
        "    else:\n"
        "        raise AssertionError(function)\n"
        "assert dbio.when_matched('a').delete().action == 'delete'\n"
    )


def test_the_types_of_a_write_need_no_spark() -> None:
    run_alone(
        "import sys; sys.modules['pyspark'] = None\n"
        "from typing import get_args\n"
        "from dbio_commit.base.options import Compression, Mode\n"
        "from dbio_commit.protocol.commits import AsOf\n"
        "from dbio_commit.protocol.markers.commit import Operation\n"
        "assert 'overwrite_partitions' in get_args(Mode) and 'overwrite_partitions' in get_args(Operation)\n"
        "assert 'zstd' in get_args(Compression) and str in get_args(AsOf)\n"
    )


@pytest.mark.parametrize("name", WITH_SPARK)
def test_a_method_with_spark_takes_what_the_function_takes_but_the_path(name: str) -> None:
    function = dict(inspect.signature(getattr(dbio, name)).parameters)
    method = dict(inspect.signature(getattr(dbio.Table, name)).parameters)
    without = {"spark", "path", "storage_options", "self", "time_zone"}  # a session has a time zone of its own
    first, second = (
        [(it.name, it.kind, it.default) for it in each.values() if it.name not in without]
        for each in (function, method)
    )
    assert first == second


def test_the_method_write_takes_what_the_function_takes_but_the_path() -> None:
    function, method = (dict(inspect.signature(it).parameters) for it in (dbio.write, dbio.Table.write))
    assert {*method} - {"self", "frame"} == {*function} - {"df", "path", "storage_options"}
    shared = [name for name in method if name in function]
    assert [(method[it].kind, method[it].default) for it in shared] == [
        (function[it].kind, function[it].default) for it in shared
    ]


@pytest.mark.parametrize("option", [{"isolation": "none"}, {"replace_where": "true"}])
def test_an_option_that_a_frame_cannot_have_is_refused(option: dict[str, Any], tmp_path: Path) -> None:
    for write_frame in (
        dbio.Table(tmp_path / "t").write,
        lambda frame, **given: dbio.write(frame, tmp_path / "t", **given),
    ):
        with pytest.raises(dbio.InvalidInputError, match=next(iter(option))):
            write_frame({"not": "a frame"}, **option)


@pytest.mark.parametrize("name", WITH_SPARK)
def test_a_method_with_spark_hands_on_all_that_it_is_given(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dbio_commit.spark import api

    class Source:
        sparkSession = "the spark"

    Source.__module__ = "pyspark.sql"
    given: dict[str, Any] = {}
    signature = inspect.signature(getattr(api, name))

    def called(*args: Any, **kwargs: Any) -> None:
        given.update(signature.bind(*args, **kwargs).arguments)

    monkeypatch.setattr(api, name, called)
    expected: dict[str, Any] = {it: f"the {it}" for it in signature.parameters if it not in ("path", "storage_options")}
    expected |= {"source": Source()} if name == "merge" else {}
    method = getattr(dbio.Table("s3://bucket/lake", {"key": "k"}), name)
    method(**{it: value for it, value in expected.items() if it in inspect.signature(method).parameters})
    assert given == {**expected, "path": "s3://bucket/lake", "storage_options": {"key": "k"}}


def test_a_table_on_a_store_of_a_test_says_that_spark_cannot_reach_it() -> None:
    with pytest.raises(dbio.InvalidInputError, match="Spark cannot reach"):
        dbio.Table.over(MemoryStore()).read(None)  # type: ignore[arg-type]


# --- the page -----------------------------------------------------------------------------------------------------


def test_everything_public_has_a_docstring() -> None:
    missing = []
    for thing in DOCUMENTED:
        if inspect.isclass(thing) and thing is not Any:
            doc = inspect.getdoc(thing) or ""
            missing += [] if doc else [thing.__name__]
            if thing.__name__ not in api_page.OPAQUE and not issubclass(thing, dbio.DbioError | Enum):
                members = api_page.public_members(thing) if thing.__module__ != "dbio_commit.testing" else ()
                missing += [f"{thing.__name__}.{it.name}" for it in members if not it.doc]
        elif inspect.isfunction(thing) and not inspect.getdoc(thing):
            missing.append(thing.__name__)
    assert missing == []
    assert [it.definition for it in api_page.aliases() if not it.doc] == []


def test_every_class_in_a_public_signature_or_field_is_on_the_page() -> None:
    seen = [thing for thing in DOCUMENTED if getattr(thing, "__name__", "") not in api_page.OPAQUE]
    met = {found for thing in seen for hint in hints(thing) for found in classes(hint)}
    ours = {found for found in met if found.__module__.split(".")[0] in ("dbio_commit", "vacuum")}
    assert {found.__name__ for found in ours - DOCUMENTED} == INTERNAL


def hints(thing: Any) -> Iterator[Any]:
    """The annotations of a function, or of the public fields and methods of a class."""
    if not inspect.isclass(thing):
        yield from inspect.get_annotations(thing).values() if inspect.isfunction(thing) else ()
        return
    if thing.__module__ == "dbio_commit.testing":
        return
    within: frozenset[str] = getattr(thing, "__internal__", frozenset())
    within |= {"__init__"} if dataclasses.is_dataclass(thing) else set()
    annotated = inspect.get_annotations(thing).items()
    yield from (hint for name, hint in annotated if name not in within and not name.startswith("_"))
    for name, member in vars(thing).items():
        if name not in within and (not name.startswith("_") or name == "__init__"):
            yield from hints(getattr(member, "fget", None) or getattr(member, "__func__", None) or member)


def classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from classes(part)


# --- words of the protocol -------------------------------------------------------------------------------------------


def test_a_marker_keeps_the_word_that_the_protocol_has(table: dbio.Table) -> None:
    commit = write_days(table, "overwrite_partitions", a=b"a")
    assert b'"operation":"replace_partitions"' in table.store.get(f"_committed_{commit.tid}")
    assert table.history()[0].operation == "overwrite_partitions"


def test_a_table_that_cannot_be_read_is_not_the_fault_of_its_store() -> None:
    assert not issubclass(dbio.UnsupportedTableError, dbio.UnsupportedStoreError)


# --- vacuum -------------------------------------------------------------------------------------------------------


def test_dbio_vacuum_is_the_function_of_the_package_vacuum() -> None:
    assert dbio.vacuum is vacuum.vacuum
    assert "vacuum" in dbio.__all__


def test_importing_dbio_commit_loads_nothing_of_vacuum_until_it_is_asked_for() -> None:
    run_alone(
        "import sys, dbio_commit as dbio\n"
        "before = [name for name in sys.modules if name.startswith('dbio_commit.')]\n"
        "assert not before, before\n"
        "dbio.Table, dbio.write\n"
        "before = [name for name in sys.modules if name.startswith('dbio_commit.maintenance.vacuum')]\n"
        "assert not before, before\n"
        "assert dbio.vacuum is sys.modules['dbio_commit.table'].vacuum\n"
        "assert not {'vacuum', 'pyspark'} & sys.modules.keys()\n"
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[VacuumOptions]:
    """The options with which a vacuum was called for; it does nothing."""
    seen: list[VacuumOptions] = []

    def nothing(table: dbio.Table, options: VacuumOptions, *, dry_run: bool = False, **others: Any) -> VacuumReport:
        seen.append(options)
        hours = options.retention_hours
        return VacuumReport(url=table.url, scope=Scope.TABLE, dry_run=dry_run, retention_hours=hours)

    monkeypatch.setattr(sys.modules["dbio_commit.table"], "vacuum_table", nothing)
    monkeypatch.setattr(commands, "vacuum_table", nothing)
    return seen


def with_function(path: Path, options: dict[str, Any]) -> None:
    dbio.vacuum(path, **options)


def with_method(path: Path, options: dict[str, Any]) -> None:
    dbio.Table(path).vacuum(**options)


def with_command(path: Path, options: dict[str, Any]) -> None:
    words = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    said = [part for word, value in words for part in ([word] if value is True else [word, str(value)])]
    result = command_line("vacuum", path, *said)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("call", [with_function, with_method, with_command])
def test_every_option_of_a_vacuum_can_be_given_to_the_function_the_method_and_the_command(
    asked: list[VacuumOptions], tmp_path: Path, call: Callable[[Path, dict[str, Any]], None]
) -> None:
    assert OTHERS.keys() == {field.name for field in dataclasses.fields(VacuumOptions)}
    call(tmp_path, {})
    call(tmp_path, OTHERS)
    assert asked == [VacuumOptions(), VacuumOptions(**OTHERS)]


def test_the_method_vacuum_takes_what_the_function_takes_but_the_path() -> None:
    function = dict(inspect.signature(dbio.vacuum).parameters)
    method = dict(inspect.signature(dbio.Table.vacuum).parameters)
    del function["path"], function["storage_options"], method["self"]
    assert {name: it.default for name, it in method.items()} == {name: it.default for name, it in function.items()}
