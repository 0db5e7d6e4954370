"""Tables are copied from place to place on every store; what another tool copies is told by its times.

Rules: NOTES.md, Copies.
"""

import random
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.incremental_copy import update_copy
from dbio_commit.store.copying import copy_object
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.builders import columns
from tests.contract.places import Place
from tests.servers import Server
from tests.writers import contents, write


def states(table: Table, tids: list[str]) -> list[list[str]]:
    return [sorted(file.path for file in table.snapshot(tid).files) for tid in tids]


@pytest.mark.long_for("azure")
@pytest.mark.parametrize("settings", [{}, {"publish": "delta"}], ids=["", "published"])
def test_a_copy_has_the_rows_and_every_state(shared: Place, settings: dict[str, str]) -> None:
    table = Table.over(shared.open("/table"))
    tids = [
        write(table, "overwrite" if i == 2 else "append", bodies=[b"%d" % i], schema=columns("a")).tid for i in range(4)
    ]
    if settings:
        table.set(settings)
    target = shared.open("/copy")
    report = copy_table(table.store, target, table.clock)
    copy = Table.over(target)
    assert contents(copy) == contents(table) == [b"2", b"3"]
    assert states(copy, tids) == states(table, tids)
    assert (report.files, report.tid) == (4, table.snapshot().tid)
    assert copy.check().ok
    assert any(entry.path.startswith("_delta_log/") for entry in target.list_files()) == bool(settings)
    write(copy, "overwrite", bodies=[b"new"], schema=columns("a"))
    assert contents(copy) == [b"new"]
    assert contents(table) == [b"2", b"3"]


@pytest.mark.long_for("azure", "gcs")
def test_a_copy_by_the_store_s_own_copy_is_noticed(remote: Place) -> None:
    table = Table.over(remote.open("/table"))
    tids = [write(table, "overwrite" if i == 2 else "append", bodies=[b"%d" % i]).tid for i in range(4)]
    table.clock.sleep(2.1)  # services keep whole seconds
    copy = Table.over(remote.open("/copy"))
    for entry in reversed(table.store.list_files()):
        copy.store.put_if_absent(entry.path, table.store.get(entry.path))
    assert contents(copy) == contents(table)
    assert table.snapshot(tids[0]).redated_until is None
    for tid in tids[:-1]:
        with pytest.raises(InvalidInputError, match="it was copied"):
            copy.snapshot(tid)


def test_the_times_that_a_writer_sees_are_those_that_a_reader_sees(shared: Place) -> None:
    """Else a table would be taken for a copy of itself."""
    table = Table.over(shared.open())
    for _ in range(3):
        write(table, schema=columns("a"))
    write(Table.over(shared.open()), "overwrite", schema=columns("b"))
    assert Table.over(shared.open()).snapshot().redated_until is None


# --- within a service -------------------------------------------------------------------------------------------------


def test_an_object_is_copied_within_the_service_if_it_can_do_that(remote: Place) -> None:
    source, target = remote.open("/table"), remote.open("/copy")
    path = "day=a%2Fb c/ü + %41.parquet"
    source.put_if_absent(path, b"rows")
    with patch.object(type(source), "open_read", side_effect=AssertionError("the bytes pass through this process")):
        copy_object(source, path, target, f"x/{path}")
    assert target.get(f"x/{path}") == b"rows"
    assert target.stat(f"x/{path}").size == 4
    assert not target.copy_from(source, "nothing.parquet", "y.parquet")
    with pytest.raises(ObjectNotFoundError):
        copy_object(source, "nothing.parquet", target, "y.parquet")
    assert [it.path for it in target.list_files()] == [f"x/{path}"]
    assert not target.copy_from(MemoryStore(), path, "y.parquet")


@pytest.mark.long_for("gcs-incremental", "s3-incremental")
@pytest.mark.parametrize("how", ["with its history", "incremental"])
def test_no_bytes_of_a_table_s_files_pass_through_the_process(remote: Place, server: Server, how: str) -> None:
    table, target = Table.over(remote.open("/table")), remote.open("/copy")
    body = b"rows" * 25_000
    write(table, bodies=[body, body], schema=columns("a"))
    server.reset()
    (copy_table if how == "with its history" else update_copy)(table.store, target, table.clock)
    of_files = [it for it in server.requests() if ".parquet" in it.path]
    assert sum(int(it.headers.get("content-length", 0)) for it in of_files) < 1000
    read = [it for it in of_files if it.method == "GET" and "/download/" not in it.path and "alt" not in it.query]
    assert len(read) == (2 if remote.kind == "gcs" else 0), "Google's looks at the sizes of the copies"
    assert contents(Table.over(target)) == [body, body]


@pytest.mark.server
def test_a_large_object_is_copied_in_parts(s3: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbio_commit.store.s3.COPY_BYTES", 5 * 1024**2)
    source: Any = s3.open("/table")
    target: Any = s3.open("/copy")
    body = random.Random(1).randbytes(11 * 1024**2)
    with source.open_write("a.parquet") as stream:
        stream.write(body)
    assert target.copy_from(source, "a.parquet", "b.parquet")
    assert target.get("b.parquet") == body
    with patch.object(target.fs, "call_s3", side_effect=failing(target.fs.call_s3, "complete_multipart_upload")):
        assert not target.copy_from(source, "a.parquet", "c.parquet")
    assert not target.list_unfinished()
    assert [it.path for it in target.list_files()] == ["b.parquet"]


def failing(call: Callable[..., Any], operation: str) -> Callable[..., Any]:
    def called(method: str, *given: Any, **options: Any) -> Any:
        if method == operation:
            raise OSError("503")
        return call(method, *given, **options)

    return called


@pytest.mark.server
def test_if_the_service_refuses_a_copy_the_bytes_are_copied(s3: Place) -> None:
    source: Any = s3.open("/table")
    target: Any = s3.open("/copy")
    source.put_if_absent("a.parquet", b"rows")
    refused: list[str] = []
    asked = target.fs.call_s3

    def refuse(method: str, *given: Any, **options: Any) -> Any:
        if method == "copy_object":
            refused.append(method)
            raise PermissionError("AccessDenied")
        return asked(method, *given, **options)

    with patch.object(target.fs, "call_s3", side_effect=refuse):
        for copy in ("b.parquet", "c.parquet"):
            copy_object(source, "a.parquet", target, copy)
            assert target.get(copy) == b"rows"
    assert len(refused) == 1, "it is not asked again"
