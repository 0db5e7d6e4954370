"""`dbio.erase`: Spark deletes the rows, and no byte of them is left on the disk."""

from typing import TYPE_CHECKING

import pytest

import dbio_commit as dbio
from dbio_commit.maintenance.erase import run
from dbio_commit.store import open_store, parse_location
from tests.erasing import NUMBER, PERSON, traces

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.long
def test_rows_that_spark_wrote_changed_and_compacted_are_erased(
    spark: "SparkSession", tmp_path: "Path", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "WAIT_S", 0.0)
    root = f"{tmp_path}/table"
    frame = spark.createDataFrame(
        [(1, "ann", "a"), (NUMBER, PERSON, "a"), (3, "bob", "b")], "id long, who string, day string"
    )
    dbio.write(frame.coalesce(1), root, partition_by=["day"], compression="none")
    dbio.Table(root).set({"change_data": "true", "publish": "delta,spark,symlink"})
    dbio.update(spark, root, {"who": "concat(who, '!')"}, "day = 'a'")
    dbio.write(spark.createDataFrame([(4, "cy", "a")], "id long, who string, day string"), root, compression="none")
    dbio.compact(spark, root)
    store = open_store(parse_location(root), {})
    assert len(traces(store)) > 5
    report = dbio.erase(spark, root, f"id = {NUMBER}")
    assert report.ok, report
    assert report.rows == 1
    assert traces(store) == []
    assert sorted(row.id for row in dbio.read(spark, root).collect()) == [1, 3, 4]
    assert dbio.Table(root).check(files=True).ok
