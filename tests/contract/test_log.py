"""Listing parts of the log, and looking for single objects of it: the same on every store."""

from collections.abc import Sequence
from functools import partialmethod
from itertools import combinations
from typing import Any

import pytest
from azure.storage.blob.aio import ContainerClient

from dbio_commit.protocol.names import DESCRIPTOR, DROPPED, Kind, checkpoint, committed, started, turn
from dbio_commit.store import Store, gcs
from dbio_commit.store.s3 import S3Store
from tests.contract.places import Place

TIDS = [str(number) for number in range(1, 13)]  # "1" begins others

LOG = [
    DESCRIPTOR,
    DROPPED,
    *map(turn, range(1, 13)),
    *map(checkpoint, (1, 2)),
    *map(committed, TIDS),
    *map(started, TIDS),
]

BESIDE = [
    "_d/x",
    "_dropped_old/x",  # on Azure, directories come before the objects of a page
    "_dup/_dbio_table",
    "_serial_/00000000000000000001",
    "_serial_00000000000000000009.old/x",
    "_temporary/0/_serial_00000000000000000001",
    "_started_1=1/_started_1",
    "day=1/_dbio_table",
    "day=1/_started_1",
    "serial_1",
    "d",
]


def fill(store: Store, paths: Sequence[str]) -> None:
    assert all(store.in_parallel(lambda path: store.put_if_absent(path, path.encode()), paths))


@pytest.fixture
def log(store: Store) -> Store:
    """A store with a log, and things beside it."""
    fill(store, [*LOG, *BESIDE])
    return store


PREFIXES: list[tuple[str, ...]] = [
    (),
    ("_",),
    ("_d",),
    ("_serial_",),
    ("_started_1",),
    (DROPPED,),
    ("_nothing_",),
    ("_d", "_serial_"),
    ("_serial_", "_d"),
    ("_checkpoint_", "_started_"),
    ("_dbio_table", "_dropped", "_serial_"),
    ("_nothing_", "_serial_"),
    ("_d", "_nothing_"),
    ("_a", "_zzz"),
    (turn(9)[:-1], turn(10)[:-1]),  # to the last character but one, and "0" is it
]


@pytest.mark.parametrize("prefixes", PREFIXES, ids=" ".join)
def test_what_starts_with_one_of_the_prefixes_is_listed(log: Store, prefixes: tuple[str, ...]) -> None:
    expected = [(name, len(name)) for name in sorted(LOG) if name.startswith(prefixes or "_")]
    assert sorted((entry.path, entry.size) for entry in log.list_log(*prefixes)) == expected


NAMES: list[tuple[str, ...]] = [
    (DESCRIPTOR,),
    (DESCRIPTOR, DROPPED),
    (DROPPED, DESCRIPTOR),
    (DESCRIPTOR, "_dbio_table_2"),
    ("_d", DROPPED),
    ("_nothing",),
    ("_nothing", "_nothing_2"),
    (turn(1), turn(2)),
    (turn(9), turn(10)),
    (turn(12), turn(13)),
    (turn(13), turn(14)),
    (started("1"),),
    (started("1"), started("10")),
    (started("1"), started("2")),
    (started("0"), started("1"), started("12"), started("13")),
    (checkpoint(2), started("3")),
    ("_started_", "_serial_"),  # what others begin with is not there
    ("_temporary", "_dup"),  # nor is a directory
    ("_started_1=1",),
]


@pytest.mark.slow("each write and read begins with such a listing: pages and names on five stores")
@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_those_of_the_objects_that_are_there_are_found_by_name(log: Store, names: tuple[str, ...]) -> None:
    listed = {entry.path: entry for entry in log.list_log()}
    assert log.stat_log(*names) == {name: listed[name] for name in names if name in LOG}


@pytest.mark.parametrize("names", [(turn(999), turn(1000)), (turn(1000), turn(1001)), (turn(99), turn(100))])
def test_turns_are_found_beside_others(store: Store, names: tuple[str, ...]) -> None:
    fill(store, [turn(number) for number in (*range(90, 110), *range(990, 1001))])
    assert list(store.stat_log(*names)) == [name for name in names if name != turn(1001)]


def test_nothing_of_a_log_is_found_where_there_is_no_root(store: Store) -> None:
    assert store.list_log("_d") == store.list_log("_d", "_serial_") == []
    assert store.stat_log(DESCRIPTOR) == store.stat_log(DESCRIPTOR, DROPPED) == {}


def test_parts_of_the_log_are_seen_as_they_are_now(store: Store) -> None:
    for number in range(1, 5):
        assert store.put_if_absent(turn(number), b"")
        assert len(store.list_log("_d", "_serial_")) == number
        assert list(store.stat_log(turn(number), turn(number + 1))) == [turn(number)]
    store.delete_many([turn(1), turn(4)])
    assert sorted(entry.path for entry in store.list_log("_d", "_serial_")) == [turn(2), turn(3)]
    assert list(store.stat_log(turn(3), turn(4))) == [turn(3)]


def test_neighbours_of_the_root_are_not_seen(shared: Place) -> None:
    table = shared.open("/table")
    fill(table, [turn(1)])
    for suffix in ("/table2", "/table_", "/tabl", ""):
        fill(shared.open(suffix), [DESCRIPTOR, turn(2)])
    assert [entry.path for entry in table.list_log("_d", "_serial_")] == [turn(1)]
    assert list(table.stat_log(turn(1), turn(2))) == [turn(1)]


@pytest.mark.long_for("1", "azure-10", "gcs-10")
@pytest.mark.parametrize("size", [1, 3, 10])
def test_pages_make_no_difference(remote: Place, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = remote.open()
    fill(store, [*LOG, *BESIDE])
    listed = {entry.path: entry for entry in store.list_log()}
    pages: Any = S3Store._pages

    def small(self: S3Store, operation: str, markers: Any, prefix: str, options: Any) -> Any:
        return pages(self, operation, markers, prefix, {**options, "MaxKeys": size})

    monkeypatch.setattr(S3Store, "_pages", small)
    monkeypatch.setattr(gcs, "PAGE", size)
    monkeypatch.setattr(ContainerClient, "walk_blobs", partialmethod(ContainerClient.walk_blobs, results_per_page=size))
    for prefixes in PREFIXES:
        found = store.list_log(*prefixes)
        assert sorted(entry.path for entry in found) == sorted(x for x in LOG if x.startswith(prefixes or "_"))
    for names in [*NAMES, *combinations([turn(0), turn(9), turn(10), turn(13)], 2)]:
        assert store.stat_log(*names) == {name: listed[name] for name in names if name in LOG}


@pytest.mark.parametrize("first", [1, 2, 9, 10, 12, 13, 999])
def test_turns_from_one_on_are_listed(log: Store, first: int) -> None:
    listed = {entry.path: entry for entry in log.list_log(Kind.TURN)}
    wanted = [listed[turn(number)] for number in range(first, 13)]
    assert sorted(log.list_log_from(turn(first), Kind.TURN)) == wanted


def test_no_turns_are_listed_where_there_is_no_root(store: Store) -> None:
    assert store.list_log_from(turn(1), Kind.TURN) == []
