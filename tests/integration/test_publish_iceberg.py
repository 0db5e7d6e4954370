"""What PyIceberg reads of a table that is published for Iceberg, by itself and through a catalog, beside dbio's reader.

Rules: NOTES.md, Iceberg.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import InvalidInputError, Table
from tests.histories import PARTITIONS, History, in_order, spelled_otherwise, wider_types
from tests.iceberg_catalogs import append, events, last_metadata, move, rest_catalog

pytest.importorskip("pyiceberg", reason="the lowest versions do not go together with it")
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import StaticTable

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # Polars would have a package of its own for it

LAYOUTS = {"flat": (), "by-text": ("kind",), "by-time": ("hour",), "by-all": tuple(PARTITIONS)}


def by_pyiceberg(table: Table, **options: Any) -> pa.Table:
    return StaticTable.from_metadata(last_metadata(table)).scan(**options).to_arrow()


def by_polars(table: Table) -> pa.Table:
    return pl.scan_iceberg(last_metadata(table)).collect().to_arrow()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pyiceberg_and_polars_read_the_rows_of_each_commit(layout: str, tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 21, partition_by=LAYOUTS[layout])
    history.commit("append")
    table.set({"publish": "iceberg"})
    for _ in range(6):
        expected = table.snapshot().to_arrow()
        for found in (by_pyiceberg(table), by_polars(table)):
            assert in_order(found.select(expected.schema.names)) == in_order(expected)
        history.commit()
    assert not table.check().publications


def test_pyiceberg_travels_in_time(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    history = History(table, 22, partition_by=("kind",))
    tids = []
    for _ in range(4):
        tids.append(history.commit("append").tid)
        table.publish("iceberg")
    snapshots = StaticTable.from_metadata(last_metadata(table)).snapshots()
    assert [it.summary["dbio.tid"] for it in snapshots if it.summary] == tids
    for tid, it in zip(tids, snapshots, strict=True):
        expected = in_order(table.snapshot(as_of=tid).to_arrow())
        assert in_order(by_pyiceberg(table, snapshot_id=it.snapshot_id)) == expected


def test_pyiceberg_and_polars_read_wider_types(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for _ in wider_types(table):
        table.publish("iceberg")
        for found in (by_pyiceberg(table), by_polars(table)):
            assert in_order(found) == in_order(table.snapshot().to_arrow())


def test_a_filter_on_a_partition_and_on_a_range_reads_only_such_files(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    for i in range(5):
        with table.begin(partition_by=["kind"]) as transaction:
            for kind in ("a", "b"):
                rows = pa.table({"id": [i * 10, i * 10 + 9]})
                pq.write_table(rows, transaction.new_file(partition={"kind": kind}))
    table.publish("iceberg")
    scan = StaticTable.from_metadata(last_metadata(table)).scan
    assert len([*scan().plan_files()]) == 10
    assert len([*scan(row_filter="kind = 'a'").plan_files()]) == 5
    assert len([*scan(row_filter="kind = 'a' and id = 25").plan_files()]) == 1


def test_a_column_that_files_spell_otherwise_has_its_rows(tmp_path: Path) -> None:
    table = spelled_otherwise(tmp_path / "table")
    table.publish("iceberg")
    for found in (by_pyiceberg(table), by_polars(table)):
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, table.snapshot().to_arrow().to_pylist()))
        assert all(None not in row.values() for row in found.to_pylist())


def test_an_adopted_file_whose_type_iceberg_does_not_read_is_named(tmp_path: Path) -> None:
    for name, digits in {"a": (5, 2), "b": (9, 4)}.items():
        path = tmp_path / "table" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": pa.array([1], pa.decimal128(*digits))}), path)
    table = Table(tmp_path / "table")
    table.adopt()
    with pytest.raises(InvalidInputError, match=r"a\.parquet has x"):
        table.publish("iceberg")


# --- through a catalog --------------------------------------------------------------------------------------------


IN_READERS = pytest.mark.skipif("DBIO_TEST_REST_CATALOG" not in os.environ, reason="make test-readers")


@pytest.fixture(params=["sql", pytest.param("rest", marks=IN_READERS)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog in a database of SQLite, or the service of Iceberg's own tests over such a database."""
    database, warehouse = tmp_path / "catalog.db", tmp_path / "warehouse"
    with ExitStack() as stack:
        if request.param == "rest":
            found: Catalog = RestCatalog("lake", uri=stack.enter_context(rest_catalog(database, warehouse)))
        else:
            found = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=f"file://{warehouse}")
        stack.enter_context(closing(found))
        found.create_namespace("sales")
        yield found


def ids(catalog: Catalog) -> list[int]:
    found: list[Any] = catalog.load_table("sales.events").scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def test_a_catalog_follows_by_compare_and_set(catalog: Catalog, tmp_path: Path) -> None:
    table = events(tmp_path)
    first = last_metadata(table)
    catalog.register_table("sales.events", first)
    assert ids(catalog) == [1]
    append(table, 2)
    assert ids(catalog) == [1], "the catalog has its own pointer"
    assert move(tmp_path / "catalog.db", first, last_metadata(table))
    assert ids(catalog) == [1, 2]
    assert not move(tmp_path / "catalog.db", first, last_metadata(table)), "somebody else moved it before"


def test_an_append_through_a_catalog_is_named_and_never_followed(catalog: Catalog, tmp_path: Path) -> None:
    table = events(tmp_path)
    registered = catalog.register_table("sales.events", last_metadata(table))
    registered.append(pa.table({"id": [99]}))
    assert ids(catalog) == [1, 99]
    problems = table.check().publications
    assert any("through a catalog" in problem for problem in problems)
    assert any("another tool wrote" in problem for problem in problems)
    append(table, 2)
    assert [row["id"] for row in in_order(by_pyiceberg(table))] == [1, 2]
    assert [row["id"] for row in in_order(table.snapshot().to_arrow())] == [1, 2]
    assert {Path(entry.path).name for entry in table.store.list_files("_iceberg/data")}, "what it wrote is kept"
    table.vacuum(retention_hours=0, force=True)
    assert {Path(entry.path).name for entry in table.store.list_files("_iceberg/data")}


def test_expiry_through_a_catalog_deletes_no_file(catalog: Catalog, tmp_path: Path) -> None:
    table = events(tmp_path)
    append(table, 2)
    registered = catalog.register_table("sales.events", last_metadata(table))
    before = {entry.path for entry in table.store.list_files()}
    registered.maintenance.expire_snapshots().by_id(registered.snapshots()[0].snapshot_id).commit()
    assert before <= {entry.path for entry in table.store.list_files()}
    assert [row["id"] for row in in_order(by_pyiceberg(table))] == [1, 2]


def test_a_table_that_is_registered_anew_has_the_newest_rows(catalog: Catalog, tmp_path: Path) -> None:
    table = events(tmp_path)
    catalog.register_table("sales.events", last_metadata(table)).append(pa.table({"id": [99]}))
    append(table, 2)
    before = {entry.path for entry in table.store.list_files()}
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table("sales.events", last_metadata(table))
    catalog.drop_table("sales.events")
    catalog.register_table("sales.events", last_metadata(table))
    assert ids(catalog) == [1, 2]
    assert before == {entry.path for entry in table.store.list_files()}


def test_a_purge_through_a_service_leaves_the_rows_and_through_pyiceberg_alone_does_not(
    catalog: Catalog, tmp_path: Path
) -> None:
    table = events(tmp_path)
    append(table, 2)
    catalog.register_table("sales.events", last_metadata(table))
    before = {file.path for file in table.snapshot().files}
    catalog.purge_table("sales.events")
    left = {entry.path for entry in table.store.list_files()}
    if not isinstance(catalog, RestCatalog):
        assert not before & left, "PyIceberg now looks at gc.enabled: PUBLISH.md warns without need"
        return
    assert before <= left
    assert not any("-m" in path or "snap" in path for path in left), left
    append(table, 3)
    assert [row["id"] for row in in_order(by_pyiceberg(table))] == [1, 2, 3]


def test_readers_leave_out_files_of_a_clustered_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    values = [(n * 7919) % 1000 for n in range(8000)]
    table.write(pa.table({"day": values, "part": [n * 31 % 1000 for n in values]}))
    table.set({"publish": "iceberg,delta", "cluster_by": "day,part"})
    files = table.compact(2_000).files_after
    assert files >= 4
    scan = StaticTable.from_metadata(last_metadata(table)).scan(row_filter="day = 500 and part = 500")
    assert len([*scan.plan_files()]) <= files / 2
    assert scan.to_arrow().num_rows == table.count("day = 500 AND part = 500") > 0
    assert not table.check().publications
