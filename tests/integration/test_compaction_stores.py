"""Compaction and the page of a report on S3 and Azure: by `Table`, and by the command line as users run it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit import Table
from tests.conftest import Root
from tests.integration.test_cli_stores import Place, azure, gcs, place, s3  # noqa: F401  (fixtures)

ROWS = 400
PARTS = 8


def fill(root: Root) -> Table:
    """Small files in two partitions, whose rows are in no order."""
    table = Table(*root)
    for part in range(PARTS):
        ids = [(part + PARTS * i) * 37 % ROWS for i in range(ROWS // PARTS)]
        rows = pa.table(
            {"id": pa.array(ids, pa.int64()), "other": pa.array([id * 11 % ROWS for id in ids], pa.int64())}
        )
        with table.begin(partition_by=["day"]) as transaction:
            path = transaction.new_file(partition={"day": str(part % 2)}).removeprefix(f"{table.url}/")
            with table.store.open_write(path) as stream:
                pq.write_table(rows, stream)
    return table


def ids_in(table: Table, path: str) -> list[int]:
    found: list[Any] = pq.read_table(pa.BufferReader(table.store.get(path))).column("id").to_pylist()
    return found


def all_ids(table: Table) -> list[int]:
    found: list[Any] = table.snapshot().to_arrow().column("id").to_pylist()
    return sorted(found)


@pytest.mark.long_for("azure", "gcs", "none", "sort")
@pytest.mark.parametrize("order", [{"sort_by": "id"}, {"z_order": ["id", "other"]}, {}], ids=["sort", "z", "none"])
def test_small_files_become_one_in_each_partition(place: Place, order: dict[str, list[str]]) -> None:  # noqa: F811
    table = fill(place.root)
    before = all_ids(table)
    report = table.compact(**order)  # type: ignore[arg-type]
    files = table.snapshot().files
    assert {file.partition["day"] for file in files} == {"0", "1"}
    assert (len(files), report.files_before) == (2, PARTS)
    assert all_ids(table) == before
    if "sort_by" in order:
        assert all(ids_in(table, file.path) == sorted(ids_in(table, file.path)) for file in files)
    assert table.check().ok


@pytest.mark.long_for("azure", "gcs")
def test_few_files_and_those_of_other_partitions_stay(place: Place) -> None:  # noqa: F811
    table = fill(place.root)
    assert not table.compact(min_files=PARTS).commits
    table.compact(where="day = '1'", min_files=2)
    found = [file.partition["day"] for file in table.snapshot().files]
    assert (found.count("0"), found.count("1")) == (PARTS // 2, 1)


@pytest.mark.long_for("azure", "gcs")
def test_the_command_line_compacts_and_writes_a_report(place: Place, tmp_path: Path) -> None:  # noqa: F811
    table = fill(place.root)
    planned = place.dbio_json("compact", table.url, "--z-order", "id,other", "--dry-run")
    done = place.dbio_json("compact", table.url, "--z-order", "id,other", "--min-files", "3")
    assert len(table.snapshot().files) == 2
    assert (planned["before"], planned["after"]["files"]) == (done["before"], done["after"]["files"])
    assert (planned["commits"], done["before"]["files"]) == ([], PARTS)
    page = tmp_path / "report.html"
    written = place.dbio("report", table.url, "-o", str(page))
    assert written.returncode == 0, written.stderr
    assert table.url in page.read_text()
    secrets = place.root.storage_options.get("secret"), place.root.storage_options.get("account_key")
    assert not [secret for secret in secrets if secret and secret in page.read_text()]
