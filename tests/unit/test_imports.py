"""What the first operation of a process imports: only what it uses."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import dbio_commit as dbio

HEAVY = (
    "adlfs", "aiohttp", "botocore", "duckdb", "fastavro", "fsspec", "gcsfs", "pandas", "polars", "pydantic",
    "pyarrow.dataset", "pyspark", "rich", "s3fs", "typer",
)  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "also"),
    [
        ("table.delete([('day', '=', '2026-11-20')])", ""),
        ("table.delete([('id', 'in', [1, 4])])", ""),
        ("table.delete(\"id < 3 AND text IN ('a', 'b') OR day = '2026-11-20'\")", "sqlglot"),
        ("table.update(values={'text': 'x', 'amount': 2.5}, where=[('id', '<', 3)])", ""),
    ],
)
def test_a_first_change_imports_only_what_it_uses(operation: str, also: str, tmp_path: Path) -> None:
    """pyarrow itself imports pandas to convert values of Python, so `data/constants` makes them."""
    days = ["2026-11-20", "2026-11-21"] * 3
    frame = pa.table({"id": range(6), "text": list("abcabc"), "amount": [1.5] * 6, "day": days})
    table = dbio.Table(tmp_path)
    for partition_by in ("day", None):
        table.write(frame.set_column(3, "day", frame["day"].cast(pa.date32())), partition_by=partition_by)
    code = (
        f"import json, sys, dbio_commit as dbio; table = dbio.Table({str(tmp_path)!r}); {operation}\n"
        f"print(json.dumps(sorted({{'sqlglot', *{HEAVY!r}}} & sys.modules.keys())))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == also.split()
    assert len(table.history()) == 3


def test_a_vacuum_without_a_session_imports_nothing_for_spark(tmp_path: Path) -> None:
    dbio.Table(tmp_path).write(pa.table({"id": [1]}))
    code = (
        f"import sys, dbio_commit as dbio; assert dbio.vacuum({str(tmp_path)!r}).ok\n"
        "print(*(name for name in sys.modules if name.startswith('dbio_commit.spark')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
