"""Creating, reading, listing and deleting objects: the same on every store. Rules: PROTOCOL.md 4."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dbio_commit.base.errors import CorruptMarkerError, ObjectNotFoundError, StoreError
from dbio_commit.store import Store, open_store, parse_location
from tests.contract.places import Place

MIB = 1 << 20

NAMES = [
    "plain",
    "with space",
    " at both ends ",
    "100%",
    "a%20b",
    "a+b",
    "a&b=c",
    "time=12%3A30%3A00/part-0",  # as Spark escapes partition values
    "sharp#mark",
    "what?.parquet",
    "what?x=1",
    "quote'\"",
    "naïve-日本-😀",
    "[a]*{b}",
    "~tilde,comma;semi@at!$()",
]


def write(store: Store, path: str, body: bytes = b"x") -> None:
    with store.open_write(path) as file:
        file.write(body)


def paths(entries: list[Any]) -> list[str]:
    return sorted(entry.path for entry in entries)


# --- creating -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"first", bytes(range(256)) * 100], ids=["empty", "short", "binary"])
def test_only_the_first_put_creates_the_object(store: Store, body: bytes) -> None:
    assert store.put_if_absent("_marker", body) is True
    assert store.put_if_absent("_marker", b"second") is False
    assert store.put_if_absent("_marker", b"") is False
    assert store.get("_marker") == body
    assert store.stat("_marker").size == len(body)


def test_a_body_of_40_mib_is_created_whole(store: Store) -> None:
    body = bytes(range(256)) * (40 * MIB // 256)
    assert store.put_if_absent("_marker", body) is True
    assert store.put_if_absent("_marker", body[:-1]) is False
    assert store.get("_marker") == body


def test_an_object_can_be_created_again_after_its_deletion(store: Store) -> None:
    store.put_if_absent("_marker", b"first")
    assert store.delete_many(["_marker"]) == {}
    assert store.put_if_absent("_marker", b"second") is True
    assert store.get("_marker") == b"second"


def test_an_object_below_new_directories_is_created(store: Store) -> None:
    assert store.put_if_absent("day=1/hour=2/_started_1", b"") is True
    assert paths(store.list_files()) == ["day=1/hour=2/_started_1"]


def test_an_object_is_not_created_over_a_written_one(store: Store) -> None:
    write(store, "part-0", b"data")
    assert store.put_if_absent("part-0", b"") is False
    assert store.get("part-0") == b"data"


@pytest.mark.parametrize("size", [0, 10, 60_000_000])
def test_a_written_object_is_read_back_as_soon_as_it_is_closed(store: Store, size: int) -> None:
    body = (b"0123456789" * (size // 10 + 1))[:size]
    with store.open_write("day=1/part-0") as file:
        for start in range(0, size, 7_000_000):
            file.write(body[start : start + 7_000_000])
        assert file.tell() == size
    assert store.get("day=1/part-0") == body
    assert store.stat("day=1/part-0").size == size
    assert paths(store.list_files()) == ["day=1/part-0"]


@pytest.mark.parametrize("size", [0, 3, 20 * MIB])
def test_an_object_is_replaced_as_a_whole_and_created_where_there_is_none(store: Store, size: int) -> None:
    for path in ("_lists/day=1/list", "_list"):
        for body in (b"x" * size, b"second", b""):
            store.replace(path, body)
            assert store.get(path) == body
    assert paths(store.list_files()) == ["_list", "_lists/day=1/list"]


def test_whoever_reads_while_an_object_is_replaced_finds_all_of_one_body(store: Store) -> None:
    bodies = [bytes([number]) * 100_000 for number in range(10)]
    store.replace("list", bodies[0])

    def replace() -> None:
        for body in bodies:
            store.replace("list", body)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(replace)
        while not writer.done():
            assert store.get("list") in bodies
        writer.result()


def test_a_written_object_can_be_made_durable(store: Store) -> None:
    write(store, "day=1/part-0")
    write(store, "part-1")
    store.make_durable(["day=1/part-0", "part-1"])
    assert store.get("day=1/part-0") == b"x"


def test_any_tool_can_write_to_a_prepared_url(shared: Place) -> None:
    import fsspec

    store = shared.open()
    protocol = {"local": "file", "s3": "s3", "azure": "az", "gcs": "gs"}[shared.kind]
    fsspec.filesystem(protocol, **shared.storage_options).pipe_file(store.prepare("day=1/part-0"), b"theirs")
    assert store.get("day=1/part-0") == b"theirs"


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["missing", "missing/object", "there/object"])
def test_what_is_not_there_is_not_found(store: Store, path: str) -> None:
    store.put_if_absent("there", b"")
    with pytest.raises(ObjectNotFoundError, match=path):
        store.get(path)
    with pytest.raises(ObjectNotFoundError, match=path):
        store.stat(path)
    with pytest.raises(ObjectNotFoundError, match=path):
        store.open_read(path).read()
    assert store.stat_many([path]) == [None]


def test_nothing_is_found_where_there_is_no_root(store: Store) -> None:
    assert store.list_log() == []
    assert store.list_files() == []
    assert store.list_files("day=1") == []
    with pytest.raises(ObjectNotFoundError):
        store.get("_dbio_table")


def test_a_stream_reads_any_range(store: Store) -> None:
    body = bytes(range(256)) * 100_000
    store.put_if_absent("part-0", body)
    with store.open_read("part-0") as file:
        file.seek(-8, 2)
        assert file.read() == body[-8:]
        file.seek(1_000_003)
        assert file.read(300) == body[1_000_003:1_000_303]
        assert file.tell() == 1_000_303
        file.seek(0)
        assert file.read() == body


@pytest.mark.parametrize("size", [100, 60_000_000])
def test_an_object_that_is_deleted_while_it_is_read_is_not_found(remote: Place, size: int) -> None:
    store = remote.open()
    with store.open_write("part-0") as target:
        target.write(bytes(size))
    with store.open_read("part-0") as file:
        assert size < 1000 or file.read(10) == bytes(10)  # which fetches more, but not all
        store.delete_many(["part-0"])
        with pytest.raises(ObjectNotFoundError, match="part-0"):
            file.read()


@pytest.mark.long_for("azure", "gcs")
def test_many_objects_are_read_in_order(store: Store) -> None:
    names = [f"_{number * 7919 % 100:02d}" for number in range(100)]
    for name in names:
        store.put_if_absent(name, name.encode())
    assert store.in_parallel(store.get, names) == [name.encode() for name in names]
    assert store.ask_each(store.get, names) == [name.encode() for name in names]
    found = store.stat_many([*names[:50], "missing", *names[50:]])
    assert found[50] is None
    assert [entry.path for entry in found if entry] == names
    assert store.in_parallel(store.get, []) == store.ask_each(store.get, []) == []
    assert store.stat_many([]) == []


def test_many_objects_of_which_one_is_missing_are_not_found(store: Store) -> None:
    store.put_if_absent("_1", b"")
    with pytest.raises(ObjectNotFoundError, match="_2"):
        store.in_parallel(store.get, ["_1", "_2", "_1"])
    with pytest.raises(ObjectNotFoundError, match="_2"):
        store.ask_each(store.get, ["_1", "_2", "_1"])


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_literally(store: Store, name: str) -> None:
    created, written = f"{name}.created", f"day=1/{name}"
    assert store.put_if_absent(created, b"created") is True
    assert store.put_if_absent(created, b"") is False
    write(store, written, b"written")
    assert store.in_parallel(store.get, [created, written]) == [b"created", b"written"]
    with store.open_read(written) as file:
        assert file.read() == b"written"
    assert [entry and entry.path for entry in store.stat_many([created, written])] == [created, written]
    assert paths(store.list_files()) == sorted([created, written])
    assert sorted(store.each_file()) == sorted(store.list_files())
    assert store.put_if_absent(f"below {name}/_x", b"") is True
    assert paths(store.list_files(f"below {name}")) == [f"below {name}/_x"]
    assert store.delete_many([created]) == {}
    assert paths(store.list_files()) == sorted([written, f"below {name}/_x"])


@pytest.mark.parametrize("suffix", ["/a b/%3A+#", "/日本", "/glob*[a]"])
def test_roots_are_taken_literally(shared: Place, suffix: str) -> None:
    store = shared.open(suffix)
    store.put_if_absent("_marker", b"1")
    write(store, "part-0")
    assert paths(store.list_log()) == ["_marker"]
    assert paths(store.list_files()) == ["_marker", "part-0"]
    assert store.get("_marker") == b"1"
    assert store.delete_many(["_marker", "part-0"]) == {}
    assert store.list_files() == []


@pytest.mark.parametrize("path", ["_marker", "part-0"])
def test_no_more_than_the_limit_is_read(store: Store, path: str) -> None:
    """So that what grew after it was listed takes no memory."""
    body = b"0123456789"
    store.put_if_absent(path, body)
    for limit_bytes in (10, 11, 1 << 30):
        assert store.get(path, limit_bytes=limit_bytes) == body
    for limit_bytes in (0, 9):
        with pytest.raises(CorruptMarkerError, match=f"{path} has more than {limit_bytes} bytes"):
            store.get(path, limit_bytes=limit_bytes)


@pytest.mark.parametrize("limit_bytes", [0, 1, 1 << 30])
def test_an_empty_object_is_within_any_limit(store: Store, limit_bytes: int) -> None:
    store.put_if_absent("_empty", b"")
    assert store.get("_empty", limit_bytes=limit_bytes) == b""


def test_different_objects_are_not_the_same(store: Store) -> None:
    for path in ("a=1/x", "a=2/x", "x"):
        store.put_if_absent(path, b"")
    for other in ("a=2/x", "x", "A=1/x", "missing", "x/below"):
        assert store.is_same("a=1/x", other) is False
    store.check_spelling(["", "a=1", "a=2", "missing"])


# --- listing ------------------------------------------------------------------------------------------------------


def test_the_log_is_what_lies_at_the_root_and_starts_with_an_underscore(store: Store) -> None:
    for path in ["_dbio_table", "_started_1", "_committed_1"]:
        store.put_if_absent(path, path.encode())
    for path in ["_x=1/part-0", "_x=1/_started_1", "day=1/_started_1", "_temporary/0/_x", "part-0", "a_b", ".hidden"]:
        store.put_if_absent(path, b"")
    assert paths(store.list_log()) == ["_committed_1", "_dbio_table", "_started_1"]
    assert {entry.path: entry.size for entry in store.list_log()} == {
        path: len(path) for path in ["_committed_1", "_dbio_table", "_started_1"]
    }


def test_neighbours_whose_names_begin_alike_are_not_seen(shared: Place) -> None:
    table = shared.open("/table")
    table.put_if_absent("day=1/part-0", b"")
    table.put_if_absent("_started_1", b"")
    table.put_if_absent("day=10/part-0", b"")
    for suffix in ["/table2", "/table_", "/table-1", "/table ", "/tabl", "/_table"]:
        shared.open(suffix).put_if_absent("_started_2", b"")
        shared.open(suffix).put_if_absent("day=1/part-9", b"")
    shared.open("").put_if_absent("table_started_3", b"")
    assert paths(table.list_log()) == ["_started_1"]
    assert paths(table.list_files()) == ["_started_1", "day=1/part-0", "day=10/part-0"]
    assert paths(table.list_files("day=1")) == ["day=1/part-0"]


def test_files_are_listed_recursively_below_a_directory(store: Store) -> None:
    everything = ["_started_1", "a=1/b=2/part-0", "a=1/b=2/_x/y", "a=1/part-0", "a=2/part-0", "part-0"]
    for path in everything:
        store.put_if_absent(path, b"")
    assert paths(store.list_files()) == sorted(everything)
    assert paths(store.list_files("a=1")) == ["a=1/b=2/_x/y", "a=1/b=2/part-0", "a=1/part-0"]
    assert paths(store.list_files("a=1/b=2")) == ["a=1/b=2/_x/y", "a=1/b=2/part-0"]
    assert store.list_files("a=3") == []
    assert store.list_files("a") == []


def test_sizes_and_times_are_those_of_the_objects(store: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)  # S3 has whole seconds
    store.put_if_absent("_marker", b"12345")
    write(store, "part-0", b"x" * 1000)
    after = datetime.now(UTC) + timedelta(seconds=2)
    (log,) = store.list_log()
    files = {entry.path: entry for entry in store.list_files()}
    assert log.size == files["_marker"].size == store.stat("_marker").size == 5
    assert files["part-0"].size == store.stat("part-0").size == 1000
    for entry in [log, *files.values(), store.stat("_marker")]:
        assert entry.modified.utcoffset() == timedelta(0)
        assert before <= entry.modified <= after


def test_a_listing_sees_every_write_and_deletion_that_ended_before_it(store: Store) -> None:
    for number in range(5):
        store.put_if_absent(f"_{number}", b"")
        write(store, f"part-{number}")
        assert len(store.list_log()) == number + 1
        assert len(store.list_files()) == 2 * (number + 1)
    store.delete_many(["_0", "part-0"])
    assert len(store.list_log()) == 4
    assert len(store.list_files()) == 8


@pytest.mark.parametrize("kind", ["s3", "azure", "gcs"])
def test_a_whole_bucket_can_be_a_table(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    (server.create_container if kind == "azure" else server.create_bucket)("whole")
    scheme = {"s3": "s3", "azure": "az", "gcs": "gs"}[kind]
    store = open_store(parse_location(f"{scheme}://whole"), server.storage_options)
    store.put_if_absent("_marker", b"1")
    store.put_if_absent("_x=1/part-0", b"2")
    assert paths(store.list_log()) == ["_marker"]
    assert paths(store.list_files()) == ["_marker", "_x=1/part-0"]
    assert store.in_parallel(store.get, ["_marker", "_x=1/part-0"]) == [b"1", b"2"]


# --- deleting -----------------------------------------------------------------------------------------------------


def test_what_is_not_there_counts_as_deleted(store: Store) -> None:
    store.put_if_absent("there", b"")
    store.put_if_absent("day=1/part-0", b"")
    missing = ["missing", "missing/object", "there/object", "day=1/part-1"]
    assert store.delete_many(["there", *missing, "day=1/part-0"]) == {}
    assert store.delete_many(missing) == {}
    assert store.delete_many([]) == {}
    assert store.list_files() == []


def test_deleting_a_name_deletes_nothing_that_begins_with_it(store: Store) -> None:
    for path in ["a", "ab", "a-1/x", "b/x", "c*", "c1"]:
        store.put_if_absent(path, b"")
    assert store.delete_many(["a", "c*"]) == {}
    assert paths(store.list_files()) == ["a-1/x", "ab", "b/x", "c1"]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 1000])
def test_the_end_of_an_object_comes_with_its_size(store: Store, size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    write(store, "part-0", body)
    assert store.get_tail("part-0", 10) == (size, body[-10:])
    with pytest.raises(ObjectNotFoundError):
        store.get_tail("part-1", 10)


def test_a_part_of_an_object_can_be_read(store: Store) -> None:
    write(store, "part-0", b"PAR1 rows PAR2")
    assert [store.get_range("part-0", start, 4) for start in (0, 10, 5)] == [b"PAR1", b"PAR2", b"rows"]
    with pytest.raises(ObjectNotFoundError):
        store.get_range("part-1", 0, 4)


def test_a_part_that_lies_beyond_the_end_is_named_and_not_cut_short(store: Store) -> None:
    write(store, "part-0", b"PAR1 rows PAR2")
    assert store.get_some("part-0", 10, 8) == b"PAR2"
    for start in (10, 20):
        with pytest.raises(StoreError, match=r"part-0"):
            store.get_range("part-0", start, 8)
