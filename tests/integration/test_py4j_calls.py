"""How many calls from Python to the JVM a statement makes: each takes time, so they must not grow with the columns."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import GatewayClient

import dbio_commit as dbio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW, MANY = 3, 43
STATEMENTS = {
    "UPDATE": ("UPDATE dbio.calls.t{} SET c0 = c0 + 1 WHERE id % 10 = 3", 330),
    "MERGE": ("MERGE INTO dbio.calls.t{} AS t USING (SELECT id * 5 AS id FROM range(9)) AS s ON t.id = s.id "
              "WHEN MATCHED THEN UPDATE SET c0 = 7", 600),
}  # fmt: skip


def calls(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> int:
    """Those that wait for an answer of the JVM; Python's garbage collector makes others."""
    count, own = 0, GatewayClient.send_command

    def send(self: Any, command: str, *arguments: Any, **more: Any) -> Any:
        nonlocal count
        count += not command.startswith("m\n")
        return own(self, command, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(GatewayClient, "send_command", send)
        # PySpark's own calls to note call sites: the process's first call decides for good whether it makes them.
        patch.setattr("pyspark.errors.utils._enable_debugging_cache", False, raising=False)
        run()
    return count


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_makes_as_many_calls_for_any_number_of_columns(
    spark: "SparkSession", tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dbio.enable(spark, roots={"calls": tmp_path})
    text, most = STATEMENTS[statement]
    found = {}
    for columns in (FEW, MANY):
        names = ", ".join(f"id AS c{i}" for i in range(columns))
        spark.sql(f"CREATE TABLE dbio.calls.t{columns} AS SELECT id, {names} FROM range(50)")
        spark.sql(text.format(columns)).collect()  # the first one starts workers
        found[columns] = calls(monkeypatch, lambda: spark.sql(text.format(columns)).collect())  # noqa: B023
    assert abs(found[MANY] - found[FEW]) <= 20, found
    assert max(found.values()) <= most, found
