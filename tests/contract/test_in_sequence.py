"""How many requests reads and writes of S3 send in sequence: a user of a far store waits for these. See
`Server.in_rounds`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dbio_commit.log import listing, seen
from dbio_commit.log.frames.scan import Scan
from dbio_commit.log.object_cache import CACHE
from dbio_commit.store import Store
from dbio_commit.table import Table
from tests.contract.places import Place
from tests.servers import Request, S3Server

FILES = 80
LARGE, LARGE_BYTES = 24, 100_000


def in_rounds(server: S3Server, run: Callable[[], object]) -> tuple[int, list[Request]]:
    """How many rounds of requests the function takes, and the requests."""
    server.reset()
    with server.in_rounds():
        run()
    seen = server.requests()
    return max(it.round for it in seen), seen


@pytest.fixture(scope="module")
def written(s3_server: S3Server) -> Table:
    """A table of FILES files, each in a partition of its own."""
    bucket = f"written-{uuid4().hex}"
    s3_server.create_bucket(bucket)
    table = Table(f"s3://{bucket}/table", s3_server.storage_options)
    table.write(pa.table({"id": list(range(2 * FILES)), "p": [it // 2 for it in range(2 * FILES)]}), partition_by="p")
    return table


@pytest.fixture(scope="module")
def large(s3_server: S3Server) -> Table:
    """A table of LARGE files, whose ends do not have all of their bytes."""
    bucket = f"large-{uuid4().hex}"
    s3_server.create_bucket(bucket)
    table, chance = Table(f"s3://{bucket}/table", s3_server.storage_options), Random(1)
    columns = {"p": [*range(LARGE)], "body": [chance.randbytes(LARGE_BYTES) for _ in range(LARGE)]}
    table.write(pa.table(columns), partition_by="p")
    return table


def test_a_round_has_all_requests_that_need_no_answer_first(s3: Place, s3_server: S3Server) -> None:
    store: Store = s3.open()
    store.put_if_absent("_marker", b"x")
    assert in_rounds(s3_server, lambda: [store.get("_marker") for _ in range(3)])[0] == 3
    with ThreadPoolExecutor(5) as pool:
        rounds, seen = in_rounds(s3_server, lambda: [*pool.map(store.get, ["_marker"] * 5)])
    assert (rounds, len(seen)) == (1, 5)


FORMS: dict[str, Callable[[Scan], int]] = {
    "arrow": lambda scan: scan.to_arrow().num_rows,
    "pandas": lambda scan: len(scan.to_pandas()),
    "polars": lambda scan: scan.to_polars().height,
    "batches": lambda scan: scan.to_batches().read_all().num_rows,
    "lazy": lambda scan: scan.to_lazy().collect().height,
    "filtered lazy frame": lambda scan: scan.to_lazy().filter(pl.col("id") >= 0).select("id").collect().height,
    "dataset": lambda scan: scan.to_dataset().to_table().num_rows,
    "filtered dataset": lambda scan: scan.to_dataset().filter(pc.field("id") >= 0).to_table(["id"]).num_rows,
    "duckdb": lambda scan: len(scan.to_duckdb().fetchall()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_read_of_many_files_waits_for_few_answers(written: Table, s3_server: S3Server, form: str) -> None:
    rows: list[int] = []
    rounds, seen = in_rounds(s3_server, lambda: rows.append(FORMS[form](written.scan())))
    assert rows == [2 * FILES]
    assert rounds <= 9
    assert len(seen) <= FILES + 5, "one request for each file, and those of the snapshot"


@pytest.mark.parametrize("form", ["dataset", "duckdb"])
def test_a_file_that_is_no_end_alone_takes_two_requests(large: Table, s3_server: S3Server, form: str) -> None:
    snapshot = large.snapshot()
    rounds, seen = in_rounds(s3_server, lambda: FORMS[form](snapshot.scan()))
    assert len(seen) <= 2 * LARGE
    assert rounds <= 5


@pytest.mark.parametrize(
    ("read", "most"),
    [
        (lambda dataset: dataset.filter(pc.field("p") == 3).to_table(), 1),
        (lambda dataset: dataset.to_table(filter=pc.field("p") == 3), 1),
        (lambda dataset: dataset.count_rows(), 0),
        (lambda dataset: dataset.head(1), LARGE // 2),
    ],
    ids=["filtered", "filter of a scan", "count", "head"],
)
def test_files_that_a_query_does_not_need_are_not_fetched(
    large: Table, s3_server: S3Server, read: Callable[[Any], object], most: int
) -> None:
    dataset = large.snapshot().to_dataset()
    s3_server.reset()
    read(dataset)
    assert len(s3_server.requests()) <= most


def test_duckdb_passes_on_which_partitions_a_query_needs(large: Table, s3_server: S3Server) -> None:
    relation = large.snapshot().to_duckdb()
    s3_server.reset()
    assert relation.filter("p = 3").aggregate("sum(octet_length(body))").fetchall() == [(LARGE_BYTES,)]
    assert len(s3_server.requests()) == 1


@pytest.fixture
def old(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of one file, which is older than a moment, and of which this process remembers nothing."""
    bucket = f"old-{uuid4().hex}"
    s3_server.create_bucket(bucket)
    table = Table(f"s3://{bucket}/table", s3_server.storage_options)
    table.write(ROWS)
    monkeypatch.setattr(listing, "SAME_SECOND", timedelta(0))
    seen._begin_anew()
    CACHE.forget()
    return table


ROWS = pa.table({"id": [1, 2, 3]})
WRITES: dict[str, tuple[int, Callable[[Table], object]]] = {
    "append": (8, lambda table: table.write(ROWS)),
    "append of an application": (10, lambda table: table.write(ROWS, app=("job", 1))),
    "overwrite": (10, lambda table: table.write(ROWS, mode="overwrite")),
    "delete in one file": (11, lambda table: table.delete("id = 2")),
    "first write": (10, lambda table: Table(f"{table.url}-2", table.storage_options).write(ROWS)),
    "snapshot": (2, lambda table: table.snapshot()),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_waits_for_few_answers(old: Table, s3_server: S3Server, write: str) -> None:
    most, run = WRITES[write]
    rounds, seen = in_rounds(s3_server, lambda: run(old))
    assert rounds == most, [f"{it.round} {it.method} {it.path}" for it in seen]


PUBLISHED = {"delta": 9, "spark": 9, "iceberg": 10, "symlink": 13}


@pytest.mark.parametrize("to", PUBLISHED)
def test_an_append_with_a_publication_waits_for_few_answers(old: Table, s3_server: S3Server, to: str) -> None:
    old.set({"publish": to})
    old.write(ROWS)
    old.snapshot()
    rounds, seen = in_rounds(s3_server, lambda: old.write(ROWS))
    assert rounds == PUBLISHED[to], [f"{it.round} {it.method} {it.path}" for it in seen]
