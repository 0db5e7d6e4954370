"""Commits with Spark record its application and its job; each way to write takes a message and labels."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from dbio_commit import Commit, Table
from dbio_commit.spark.versions import HAS_DATA_SOURCES
from tests import spark35
from tests.spark_tables import configured, numbers

SAID: Any = {"message": "load of the night", "labels": {"team": "sales"}}
SETTINGS: dict[str, str] = {"spark.dbio.message": SAID["message"], "spark.dbio.labels": json.dumps(SAID["labels"])}


def newest(path: Path) -> Commit:
    return Table(path).history()[0]


def check(commit: Commit, spark: SparkSession, *, job: str | None = None) -> None:
    """That this is said of the commit."""
    assert (commit.message, dict(commit.labels)) == (SAID["message"], SAID["labels"])
    by = commit.provenance
    assert by is not None
    assert (by.spark_application, by.spark_job) == (spark.sparkContext.applicationId, job)


def test_a_write_records_the_application_and_the_job_and_the_history_in_sql_has_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "events"
    dbio.enable(spark)
    spark.sparkContext.setJobDescription("nightly\n  load")
    try:
        dbio.write(numbers(spark, 0, 4, tasks=1), path, **SAID)
    finally:
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]
    commit = newest(path)
    check(commit, spark, job="nightly load")
    by = commit.provenance
    assert by is not None
    if not spark35.IS_USED:  # CALL is there since Spark 4.0
        (row,) = spark.sql(f"CALL dbio.system.history('{path}')").collect()
        assert (row["message"], row["labels"], row["kind"]) == (SAID["message"], SAID["labels"], None)
        assert (row["host"], row["user"], row["process"]) == (by.host, by.user, by.process)
        assert (row["spark_application"], row["spark_job"]) == (by.spark_application, "nightly load")


@pytest.mark.long
def test_the_functions_record_what_the_caller_says(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events"
    dbio.write(numbers(spark, 0, 4, tasks=1), path)
    check(dbio.delete(spark, path, "id = 0", **SAID), spark)
    check(dbio.update(spark, path, {"id": "id + 10"}, "id = 1", **SAID), spark)
    check(dbio.merge(spark, path, numbers(spark, 20, 22, tasks=1), ["id"], **SAID), spark)
    check(dbio.constrain(spark, path, {"check.small": "id < 100"}, **SAID), spark)
    dbio.compact(spark, path, **SAID)
    assert newest(path).kind == "compact"
    check(newest(path), spark)
    dbio.batch_writer(path, "stream", **SAID)(numbers(spark, 30, 32, tasks=1), 1)
    check(newest(path), spark)


@pytest.mark.long
def test_sql_and_data_frame_writers_take_settings_and_options(enabled: SparkSession, tmp_path: Path) -> None:
    spark = enabled
    dbio.enable(spark, parquet=True, roots={"told": tmp_path})
    name, path = "dbio.told.events", tmp_path / "events"
    options = {"message": SAID["message"], "labels": json.dumps(SAID["labels"])}
    statements = [
        f"CREATE TABLE {name} (id BIGINT, day STRING) PARTITIONED BY (day)",
        f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')",
        f"DELETE FROM {name} WHERE id = 1",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('change_data' = 'true')",
    ]
    with configured(spark, SETTINGS):
        for statement in statements:
            spark.sql(statement)
            check(newest(path), spark)
        numbers(spark, 0, 4, tasks=1).write.parquet(str(tmp_path / "plain"))
        check(newest(tmp_path / "plain"), spark)
    numbers(spark, 4, 8, tasks=1).write.options(**options).mode("append").parquet(str(tmp_path / "plain"))
    check(newest(tmp_path / "plain"), spark)
    if HAS_DATA_SOURCES:
        numbers(spark, 0, 4, tasks=1).write.format("dbio").options(**options).mode("append").save(str(tmp_path / "own"))
        check(newest(tmp_path / "own"), spark)
    spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
    assert newest(path).message is None
    with configured(spark, {"spark.dbio.labels": "team=sales"}), pytest.raises(Exception, match="not a JSON object"):
        spark.sql(f"INSERT INTO {name} VALUES (4, 'd')")
