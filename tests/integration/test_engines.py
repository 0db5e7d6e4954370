"""docs/ENGINES.md: what readers without Spark make of tables with odd names, types and files, and whether dbio says so.

`test_publish_delta` compares all rows of random tables. Here, each cell of the table has a case: it works, or it fails
and `find_limits` or the page names it. A case that begins to work with a newer version fails here, so the page is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from dbio_commit import InvalidInputError, Table
from dbio_commit.maintenance.publish.engines import find_limits
from dbio_commit.testing import MemoryStore
from tests.conftest import Root
from tests.histories import columns, old_files

IDS = [1, 2]


def make(table: Table, partition: Mapping[str, Any] | None = None) -> None:
    with table.begin(partition_by=list(partition or {})) as transaction:
        name = transaction.new_file(partition=partition)
        with table.store.open_write(name.removeprefix(f"{table.url}/")) as stream:
            pq.write_table(pa.table({"id": IDS}), stream)


def deltalake(url: str, options: Any = None) -> list[Any]:
    return pa.table(DeltaTable(url, storage_options=options).to_pyarrow_table())["id"].to_pylist()


def polars(url: str, options: Any = None) -> list[Any]:
    return pl.scan_delta(url, storage_options=options).collect()["id"].to_list()


READERS: Mapping[str, Callable[..., list[Any]]] = {"delta-rs": deltalake, "Polars": polars}


def readers_of(url: str, options: Any = None) -> set[str]:
    """The readers that find all rows. The others must fail, and never find other rows."""
    found = set()
    for name, read in READERS.items():
        try:
            ids = read(url, options)
        except Exception:  # each reader has errors of its own
            continue
        assert sorted(ids) == IDS, name
        found.add(name)
    return found


def expected(table: Table) -> set[str]:
    snapshot = table.snapshot()
    directories = [file.path.rpartition("/")[0] for file in snapshot.files]
    limits = find_limits(
        table.url,
        is_disk=table.store.is_disk,
        partition_columns=snapshot.partition_columns,
        directories=directories,
    )
    assert table.check().unread_by == limits
    return {name for name in READERS if not any(name in limit for limit in limits)}


ROOTS = [
    "plain",
    "a b",
    "ä",
    "50%",
    "a%20b",
    "a#b",
    "a?b",
    "{a}",
    "a+b",
    "it's",
    "a&b:c",
    "~x",
    "a[b]",
    "a*b",
    "a,;()@!$",
]


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_paths_on_a_disk(tmp_path: Path, is_partitioned: bool) -> None:
    for root in [*ROOTS, "country=de"]:
        table = Table(tmp_path / root / "t")
        make(table, {"p": "ä b/c%"} if is_partitioned else None)
        table.publish("delta")
        assert readers_of(table.url) == expected(table), root
        # DuckDB's extension is tried by test_published_readers.py
        assert any("DuckDB" in limit for limit in table.check().unread_by) == ("%" in root)


def test_names_of_partition_columns(tmp_path: Path) -> None:
    for number, column in enumerate(["part col%", "a b", "ä", "a.b", "a=b", "a#b", "a+b", "a:b", "a[b]", "P"]):
        table = Table(tmp_path / str(number))
        make(table, {column: "x"})
        table.publish("delta")
        assert readers_of(table.url) == expected(table), column


@pytest.mark.parametrize(
    "cases",
    [
        [("plain", "x"), ("a b", "x"), ("country=de", "x"), ("plain", "ä"), ("plain", "a%b")],
        pytest.param([(root, "x") for root in ("ä", "a%b", "a#b", "a+b", "{a}")], marks=pytest.mark.long),
        pytest.param([("plain", value) for value in ("a b", "a+b", "{a}")], marks=pytest.mark.long),
    ],
)
def test_paths_and_directories_on_s3(s3_root: Root, cases: Sequence[tuple[str, str]]) -> None:
    options = s3_root.storage_options
    client = {
        "aws_access_key_id": options["key"],
        "aws_secret_access_key": options["secret"],
        "aws_endpoint_url": options.get("endpoint_url") or options["client_kwargs"]["endpoint_url"],
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    for number, (root, value) in enumerate(cases):
        table = Table(f"{s3_root.url}/{number}/{root}/t", options)
        make(table, {"p": value})
        table.publish("delta")
        assert readers_of(table.url, client) == expected(table), (root, value)


def test_a_new_table_is_told_with_its_first_publication_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(tmp_path / "with space")
    table.begin().commit(schema=columns(id="long"))
    table.set({"publish": "delta"})
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "Polars does not find the files of a table whose path has ' '" in told[0]
    make(table)
    assert len(caplog.records) == 1
    assert table.check().ok


def test_a_table_that_all_can_read_is_told_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(tmp_path / "table")
    make(table, {"day": "ä b"})
    table.publish("delta")
    assert (caplog.records, table.check().unread_by) == ([], [])


# --- widened columns, and files that spell a column otherwise -----------------------------------------------------


@pytest.fixture(params=["disk", "memory"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    table = Table(tmp_path / "t") if request.param == "disk" else Table.over(MemoryStore())
    old_files(table)
    return table


DIRECT: Mapping[str, Callable[[Table], list[Any]]] = {
    "pandas": lambda table: list(table.to_pandas()["id"]),
    "Polars": lambda table: table.snapshot().to_lazy().collect()["id"].to_list(),
    "DuckDB": lambda table: [row[0] for row in table.snapshot().to_duckdb(duckdb.connect()).select("id").fetchall()],
    "pyarrow": lambda table: table.snapshot().to_batches().read_all()["id"].to_pylist(),
}


@pytest.mark.parametrize("engine", DIRECT)
def test_through_dbio_every_engine_reads_old_files(odd: Table, engine: str) -> None:
    assert sorted(DIRECT[engine](odd)) == IDS


def test_by_the_delta_log_a_respelled_column_is_null(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    old_files(table)
    table.publish("delta")
    assert set(deltalake(table.url)) == {None, 1}
    with pytest.raises(Exception, match=r"(?i)decimal|type|scale"):
        pl.scan_delta(table.url).collect()
    assert table.compact(1, rewrite_types=True).other_types == 2
    table.publish("delta")
    assert readers_of(table.url) == set(READERS)


def test_for_iceberg_decimals_of_another_scale_are_rewritten_first(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    old_files(table)
    with pytest.raises(InvalidInputError, match="decimal"):
        table.publish("iceberg")
    assert table.compact(1, rewrite_types=True).other_types == 2
    (done,) = table.publish("iceberg")
    metadata = f"file://{table.url}/_iceberg/metadata/v{done.number}.metadata.json"
    found: list[Any] = StaticTable.from_metadata(metadata).scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == IDS


def test_by_the_delta_log_polars_reads_wider_numbers_and_takes_a_respelled_column_for_null(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    old_files(table, decimals=False)
    table.publish("delta")
    assert {name: set(read(table.url)) for name, read in READERS.items()} == {name: {None, 1} for name in READERS}


# --- the plain list of files --------------------------------------------------------------------------------------

BY_LIST: Mapping[str, Callable[[Any], list[Any]]] = {
    "DuckDB": lambda urls: [row[0] for row in duckdb.read_parquet(urls).select("id").fetchall()],
    "pandas": lambda urls: list(pd.read_parquet(urls)["id"]),
    "Polars": lambda urls: pl.scan_parquet(urls, glob=False).collect()["id"].to_list(),
}


@pytest.mark.parametrize("engine", BY_LIST)
def test_the_list_of_files_is_read(tmp_path: Path, engine: str) -> None:
    table = Table(tmp_path / "t")
    make(table)
    assert sorted(BY_LIST[engine](table.snapshot().urls())) == IDS
