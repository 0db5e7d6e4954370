"""What each call costs on S3, where requests are paid for; and that a conditional body is never split on Azure."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.base.errors import TransactionStateError
from dbio_commit.protocol.names import DESCRIPTOR, DROPPED, checkpoint, committed, started, turn
from dbio_commit.store import Store
from dbio_commit.table import Table
from tests.contract.places import CREATE, Fill, Place
from tests.servers import GcsServer, S3Server, Server

MIB = 1 << 20


def sent(server: Server) -> list[str]:
    """The methods of the requests since the last call."""
    methods = [request.method for request in server.requests()]
    server.reset()
    return methods


@pytest.fixture
def store(s3: Place, s3_server: S3Server) -> Store:
    store = s3.open()
    store.put_if_absent("_marker", b"x")
    s3_server.reset()
    return store


@pytest.mark.parametrize(
    ("call", "methods"),
    [
        (lambda store: store.get("_marker"), ["GET"]),
        (lambda store: store.list_log(), ["GET"]),
        (lambda store: store.list_log("_d", "_serial_"), ["GET"]),
        (lambda store: store.stat_log("_marker"), ["GET"]),
        (lambda store: store.stat_log("_marker", "_missing"), ["GET"]),
        (lambda store: store.list_files(), ["GET"]),
        (lambda store: store.stat("_marker"), ["HEAD"]),
        (lambda store: store.get_tail("_marker", 10), ["GET"]),
        (lambda store: store.put_if_absent("_new", b"x"), ["PUT"]),
        (lambda store: store.put_if_absent("_new", b""), ["PUT"]),
        (lambda store: store.put_if_absent("_marker", b"x"), ["PUT"]),
        (lambda store: store.delete_many(["_marker", "_missing"]), ["POST"]),
        (lambda store: store.in_parallel(store.get, ["_marker"] * 5), ["GET"] * 5),
        (lambda store: store.stat_many(["_marker"] * 5), ["HEAD"] * 5),
        (lambda store: store.prepare("day=1/part-0"), []),
        (lambda store: store.make_durable(["day=1/part-0"]), []),
        (lambda store: store.delete_many([]), []),
    ],
)
def test_each_call_is_one_request(
    store: Store, s3_server: S3Server, call: Callable[[Store], Any], methods: list[str]
) -> None:
    call(store)
    assert sent(s3_server) == methods


@pytest.mark.parametrize("size", [0, 10])
def test_a_small_file_is_one_request(store: Store, s3_server: S3Server, size: int) -> None:
    with store.open_write("part-0") as file:
        file.write(b"x" * size)
    assert sent(s3_server) == ["PUT"]


def test_opening_a_store_is_no_request(s3: Place, s3_server: S3Server) -> None:
    s3.open()
    assert sent(s3_server) == []


@pytest.mark.parametrize(
    ("call", "methods"),
    [
        (lambda store: store.get("_marker"), ["GET"]),
        (lambda store: store.get("_empty"), ["GET"]),
        (lambda store: store.get_range("_marker", 0, 1), ["GET"]),
        (lambda store: store.get_tail("_marker", 10), ["GET"]),
        (lambda store: store.get_tail("_empty", 10), ["GET"]),
        (lambda store: store.open_read("_marker").read(), ["GET"] * 2),
        (lambda store: store.list_log(), ["GET"]),
        (lambda store: store.list_log("_d", "_serial_"), ["GET"]),
        (lambda store: store.stat_log("_marker", "_missing"), ["GET"]),
        (lambda store: store.list_files(), ["GET"]),
        (lambda store: store.list_below(["a", "b", "c"]), ["GET"]),
        (lambda store: store.stat("_marker"), ["GET"]),
        (lambda store: store.put_if_absent("_new", b"x"), ["POST"]),
        (lambda store: store.put_if_absent("_marker", b"x"), ["POST"]),
        (lambda store: store.replace("_marker", b"x"), ["POST"]),
        (lambda store: store.delete_many(["_marker", "_missing"]), ["POST"]),
        (lambda store: store.delete_many(["_marker"]), ["DELETE"]),
        (lambda store: store.list_unfinished(), []),
        (lambda store: store.delete_many([]), []),
    ],
)
def test_each_call_is_one_request_on_google(
    gcs: Place, gcs_server: GcsServer, call: Callable[[Store], Any], methods: list[str]
) -> None:
    store = gcs.open()
    store.put_if_absent("_marker", b"x")
    store.put_if_absent("_empty", b"")
    gcs_server.reset()
    call(store)
    assert sent(gcs_server) == methods


def test_a_commit_looks_at_each_new_file_with_one_request(remote: Place, server: Server) -> None:
    """Azure's blobs have no ranges from the end: two there, of what is larger than a first request."""
    table = Table(remote.url, remote.storage_options)
    put(table, 3)
    server.reset()
    transaction = table.begin()
    urls = [transaction.new_file().removeprefix(f"{table.url}/") for _ in range(3)]
    for path, rows in zip(urls, (1, 3, 200_000), strict=True):
        write_rows(table, path, pa.table({"id": pa.array(range(rows), pa.int64())}))
    server.reset()
    transaction.commit()
    asked = [request.method for request in server.requests() if request.path.endswith(".parquet")]
    assert asked == ["GET"] * (4 if remote.kind == "azure" else 3)


def test_a_footer_that_is_larger_takes_a_second_request(remote: Place, server: Server) -> None:
    table = Table(remote.url, remote.storage_options)
    transaction = table.begin()
    path = transaction.new_file().removeprefix(f"{table.url}/")
    write_rows(table, path, pa.table({f"column {number}": [number] * 1000 for number in range(2000)}))
    server.reset()
    (file,) = transaction.commit().files
    asked = [request.method for request in server.requests() if request.path.endswith(".parquet")]
    assert asked == ["GET"] * (3 if remote.kind == "azure" else 2)
    assert file.rows == 1000


def test_a_file_that_was_not_written_is_named(remote: Place) -> None:
    table = Table(remote.url, remote.storage_options)
    transaction = table.begin()
    url = transaction.new_file()
    with pytest.raises(TransactionStateError, match=url.rpartition("/")[2]):
        transaction.commit()


def test_an_adoption_looks_at_each_file_with_one_request(remote: Place, server: Server) -> None:
    table = Table(remote.url, remote.storage_options)
    for number in range(3):
        write_rows(table, f"{number}.parquet", pa.table({"id": [number]}))
    server.reset()
    table.adopt()
    asked = [request.path.rpartition("/")[2] for request in server.requests() if request.path.endswith(".parquet")]
    assert sorted(asked) == ["0.parquet", "1.parquet", "2.parquet"]


def put(table: Table, rows: int) -> None:
    with table.begin() as transaction:
        path = transaction.new_file().removeprefix(f"{table.url}/")
        write_rows(table, path, pa.table({"id": pa.array(range(rows), pa.int64())}))


def write_rows(table: Table, path: str, rows: pa.Table) -> None:
    with table.store.open_write(path) as stream:
        pq.write_table(rows, stream)


def test_a_large_body_is_created_by_exactly_one_request(remote: Place, server: Server) -> None:
    assert remote.open().put_if_absent("_marker", bytes(40 * MIB)) is True
    assert sent(server) == [CREATE[remote.kind]]


@pytest.mark.long_for("azure", "gcs", "s3")
def test_2500_objects_are_listed_and_deleted(place: Place, request: pytest.FixtureRequest) -> None:
    server: Server | None = request.getfixturevalue("s3_server") if place.kind == "s3" else None

    def cost(methods: list[str]) -> None:
        assert server is None or sent(server) == methods

    store, names = place.open(), [f"_committed_{number:04d}" for number in range(2500)]
    assert all(store.in_parallel(lambda name: store.put_if_absent(name, b""), names))
    cost(["PUT"] * 2500)
    assert sorted(entry.path for entry in store.list_log()) == names
    cost(["GET"] * 3)
    assert sorted(entry.path for entry in store.list_files()) == names
    cost(["GET"] * 3)
    assert store.delete_many(names) == {}
    cost(["POST"] * 3)
    assert store.list_files() == []


@pytest.mark.long_for("azure", "gcs")
def test_the_descriptor_and_the_turns_cost_the_same_beside_pages_of_other_markers(
    remote: Place, server: Server, fill: Fill
) -> None:
    store, front = remote.open(), [DESCRIPTOR, *map(turn, range(1, 4))]
    tids = [f"{number:04d}" for number in range(1100)]
    fill(store, [*front, *map(checkpoint, range(1, 1101)), *map(committed, tids), *map(started, tids)])
    server.reset()
    assert sorted(entry.path for entry in store.list_log("_d", "_serial_")) == front
    assert (
        sent(server) == ["GET"] * {"s3": 1, "azure": 2, "gcs": 1}[remote.kind]
    )  # Azure's listings begin with a prefix
    assert [entry.path for entry in store.list_log("_d")] == [DESCRIPTOR]
    assert sent(server) == ["GET"]
    assert list(store.stat_log(DESCRIPTOR, DROPPED)) == [DESCRIPTOR]
    assert sent(server) == ["GET"]
    assert list(store.stat_log(started("0000"), started("0001"))) == [started("0000"), started("0001")]
    assert sent(server) == ["GET"]


@pytest.mark.long_for("azure", "gcs")
def test_two_neighbours_are_looked_for_by_one_request_beside_1100_turns(
    remote: Place, server: Server, fill: Fill
) -> None:
    store = remote.open()
    fill(store, [DESCRIPTOR, *map(turn, range(1, 1101)), started("1")])
    server.reset()
    for number in (0, 1, 9, 10, 99, 999, 1000, 1098, 1099, 1100, 1101):
        found = store.stat_log(turn(number), turn(number + 1))
        assert list(found) == [turn(it) for it in (number, number + 1) if 1 <= it <= 1100]
        assert sent(server) == ["GET"]
    assert list(store.stat_log(DESCRIPTOR, DROPPED)) == [DESCRIPTOR]
    assert sent(server) == ["GET"]
    assert len(store.list_log("_d", "_serial_")) == 1101
    assert sent(server) == ["GET"] * 2
