"""Listing one directory, and removing those that became empty. What only a local disk has is in test_local.py."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.entry import Entry
from dbio_commit.store import Store
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.contract.places import Fill, Place
from tests.contract.test_objects import NAMES
from tests.servers import S3Server


def create(store: Store, *paths: str) -> None:
    assert all(store.in_parallel(lambda path: store.put_if_absent(path, b"x" * path.count("/")), paths))


def walk(store: Store, under: str = "") -> Iterator[Entry]:
    """Everything below the directory, one directory at a time."""
    listing = store.list_directory(under)
    yield from listing.entries
    for directory in listing.directories:
        yield from walk(store, directory)


def names(listing: Any) -> tuple[list[str], list[str]]:
    return sorted(entry.path for entry in listing.entries), sorted(listing.directories)


# --- listing ------------------------------------------------------------------------------------------------------


def test_a_directory_lists_what_lies_directly_in_it(store: Store) -> None:
    create(
        store, "_started_1", "part-0", "a=1/_started_2", "a=1/b=1/part-1", "a=1/b=2/c/part-2", "a=10/part-3", "_x/y/z"
    )
    assert names(store.list_directory()) == (["_started_1", "part-0"], ["_x", "a=1", "a=10"])
    assert names(store.list_directory("a=1")) == (["a=1/_started_2"], ["a=1/b=1", "a=1/b=2"])
    assert names(store.list_directory("a=1/b=1")) == (["a=1/b=1/part-1"], [])
    assert names(store.list_directory("_x")) == ([], ["_x/y"])


def test_its_entries_are_those_of_a_recursive_listing(store: Store) -> None:
    create(store, "part-0", "a=1/part-1", "a=1/b=2/part-2")
    assert sorted(walk(store)) == sorted(store.list_files())


@pytest.mark.parametrize("directory", ["", "missing", "a/missing", "a", "a/file", "a/file/x"])
def test_nothing_lies_where_there_is_no_directory(place: Place, directory: str) -> None:
    store = place.open()
    if directory:
        create(store, "a/file", "ab/file")
    assert names(store.list_directory(directory)) == ((["a/file"], []) if directory == "a" else ([], []))


def test_names_of_directories_are_taken_literally(store: Store) -> None:
    paths = sorted(f"in {name}/{name}/of {name}" for name in NAMES)
    create(store, *paths)
    assert sorted(entry.path for entry in walk(store)) == paths
    for name in NAMES:
        assert sorted(entry.path for entry in walk(store, f"in {name}")) == [f"in {name}/{name}/of {name}"]


@pytest.mark.parametrize("suffix", ["/a b/%3A+#", "/日本", "/glob*[a]"])
def test_roots_are_taken_literally(shared: Place, suffix: str) -> None:
    store = shared.open(suffix)
    create(store, "part-0", "day=1/part-1")
    shared.open(f"{suffix}2").put_if_absent("day=2/part-2", b"")
    assert names(store.list_directory()) == (["part-0"], ["day=1"])
    assert names(store.list_directory("day=1")) == (["day=1/part-1"], [])


@pytest.mark.long_for("azure", "gcs", "s3")
def test_2500_objects_are_listed_by_directory(place: Place, fill: Fill, request: pytest.FixtureRequest) -> None:
    server: S3Server | None = request.getfixturevalue("s3_server") if place.kind == "s3" else None
    store = place.open()
    paths = [f"a={number % 5}/b={number % 25}/part-{number}" for number in range(2500)]
    fill(store, paths)
    if server:
        server.reset()
    assert sorted(entry.path for entry in walk(store)) == sorted(paths)
    if server:  # one for each directory
        assert [request.method for request in server.requests()] == ["GET"] * (1 + 5 + 25)


def test_a_directory_of_more_than_a_page_is_listed_whole(s3: Place, fill: Fill) -> None:
    store = s3.open()
    files, directories = [f"part-{n:04d}" for n in range(1300)], [f"day={n:04d}" for n in range(1200)]
    fill(store, [*files, *(f"{directory}/part-0" for directory in directories)])
    assert names(store.list_directory()) == (files, directories)


@pytest.mark.parametrize("place", ["memory", "s3", "azure", "gcs"], indirect=True)
def test_directories_without_a_name_are_passed_over(store: Store) -> None:
    create(store, "part-0", "/part-1", "a//part-2")
    assert names(store.list_directory()) == (["part-0"], ["a"])
    assert names(store.list_directory("a")) == ([], [])


def test_empty_objects_that_stand_for_directories_are_passed_over(s3: Place, s3_server: S3Server) -> None:
    client = s3_server.client()
    for key in ["", "day=1/", "day=1/hour=2/"]:
        client.put_object(Bucket="tables", Key=f"{s3.url.removeprefix('s3://tables/')}/{key}")
    assert names(s3.open().list_directory()) == ([], ["day=1"])
    assert names(s3.open().list_directory("day=1")) == ([], ["day=1/hour=2"])
    assert names(s3.open().list_directory("day=1/hour=2")) == ([], [])


# --- removing -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "local"])
def with_directories(request: pytest.FixtureRequest) -> Store:
    """A store that removes directories."""
    root = request.getfixturevalue("local_root")
    return Place(request.param, root.url).open()


def test_empty_directories_are_removed_with_the_parents_that_became_empty(with_directories: Store) -> None:
    store = with_directories
    create(store, "a=1/b=1/c=1/x", "a=1/b=2/x", "a=2/b=1/x", "a=2/kept")
    store.delete_many(["a=1/b=1/c=1/x", "a=1/b=2/x", "a=2/b=1/x"])
    removed = store.remove_directories(["a=1/b=2", "a=2/b=1", "a=1/b=1/c=1"])
    assert removed == ["a=1/b=1/c=1", "a=1/b=1", "a=1/b=2", "a=2/b=1", "a=1"]
    assert names(store.list_directory()) == ([], ["a=2"])
    assert names(store.list_directory("a=2")) == (["a=2/kept"], [])


def test_a_directory_that_is_not_empty_is_left_be(with_directories: Store) -> None:
    store = with_directories
    create(store, "a/b/x", "c/x")
    assert store.remove_directories(["a", "a/b", "c", ""]) == []
    assert [entry.path for entry in store.list_files()] == ["a/b/x", "c/x"]


def test_a_table_whose_last_directory_goes_can_be_written_again(with_directories: Store) -> None:
    store = with_directories
    create(store, "a/b/x")
    store.delete_many(["a/b/x"])
    assert store.remove_directories(["a/b", "a", ""]) == ["a/b", "a"]
    assert names(store.list_directory()) == ([], [])
    create(store, "a/b/x", "y")
    assert [entry.path for entry in store.list_files()] == ["a/b/x", "y"]


@pytest.mark.parametrize("path", ["..", "../table2", "a/../..", "/tmp", "a//b", "a/", "."])
def test_what_is_not_below_the_root_is_refused_before_anything_is_removed(with_directories: Store, path: str) -> None:
    store = with_directories
    create(store, "a/b/x")
    store.delete_many(["a/b/x"])
    steps: list[str] = []
    if isinstance(store, MemoryStore):
        store.before = lambda operation, path: steps.append(path)
    with pytest.raises(InvalidInputError, match="below the root"):
        store.remove_directories(["a/b", path])
    assert steps == []
    if not isinstance(store, MemoryStore):
        assert names(store.list_directory("a")) == ([], ["a/b"])


def test_object_stores_have_no_directories_to_remove(remote: Place) -> None:
    store = remote.open()
    create(store, "a/x")
    assert store.remove_directories(["a", "b"]) == []
    assert [entry.path for entry in store.list_files()] == ["a/x"]


# --- many directories at once -------------------------------------------------------------------------------------


def test_what_lies_below_several_directories_is_listed_at_once_and_nothing_else(store: Store) -> None:
    create(
        store, "_started_1", "a=1/_started_2", "a=1/b=1/part-1", "a=1.crc", "a=1-x/part", "a=10/part-3",
        "a=10/c/part-4",
        "a=2/part-5", "a=3/part-6", "a=é/part-7", "part-0",
    )  # fmt: skip
    for directories in (["a=1"], ["a=1", "a=10"], ["a=1", "a=2"], ["a=10", "a=3"], ["a=1", "a=1-x"], ["a=3", "a=é"]):
        wanted = [path for path in [it.path for it in store.list_files()] if path.split("/")[0] in directories]
        assert sorted(entry.path for entry in store.list_below(directories)) == sorted(wanted)
    assert store.list_below(["a=1/b=1", "a=10/c"]) == [
        *store.list_files("a=1/b=1"), *store.list_files("a=10/c")
    ]  # fmt: skip
    assert store.list_below(["a=4", "a=5"]) == store.list_below([]) == []


@pytest.mark.parametrize("inside", ["/a/b", "/_delta_log"])
def test_no_table_is_made_inside_of_a_table(shared: Place, inside: str) -> None:
    """PROTOCOL.md 2.1."""
    outer = shared.open("/outer")
    Table.over(outer).begin().commit()
    with pytest.raises(InvalidInputError, match=re.escape(f"{outer.url}{inside} lies in the table {outer.url}")):
        Table.over(shared.open(f"/outer{inside}")).begin()
    Table.over(shared.open("/outer-beside")).begin().commit()
    assert [it.path.partition("/")[0] for it in outer.list_files() if "/" in it.path] == []
