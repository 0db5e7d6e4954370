"""Everything over Spark Connect. It and a classic session share no process, so that one job of its own does it all."""

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests import spark35
from tests.spark_tables import SPARK

JOB = """
    import json, sys, warnings
    from pathlib import Path

    sys.path.insert(0, sys.argv[1])
    from pyspark.errors import PySparkException

    import dbio_commit as dbio
    from tests import spark35
    from tests.spark_tables import over_connect

    spark = over_connect()
    assert not hasattr(spark, "_jsparkSession")
    root, s3_url, s3_options = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
    found = {}

    def numbers(start, end):
        return spark.range(start, end, 1, 2).selectExpr("id", "concat('d', cast(id % 2 as string)) AS day")

    def ids(frame):
        return sorted(row.id for row in frame.select("id").collect())

    def error_of(action):
        try:
            return f"no error, but {action()!r}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def said(commit):
        by = commit.provenance
        here = by.spark_application == spark.conf.get("spark.app.id") and bool(by.host and by.user and by.process)
        return [commit.message, dict(commit.labels), by.spark_job, here]

    note = {"message": "load of the night", "labels": {"team": "sales"}}

    # write and read, in all modes
    path = f"{root}/modes"
    commit = dbio.write(numbers(0, 4), path, partition_by="day")
    found["metrics"] = dict(commit.metrics)
    found["nulls"] = [file.statistics["id"].nulls for file in commit.files]
    pinned = dbio.read(spark, path)
    spark.addTag("nightly")
    found["provenance"] = [said(dbio.write(numbers(4, 6), path, **note))]
    spark.removeTag("nightly")
    found["append"] = ids(dbio.read(spark, path))
    dbio.write(numbers(11, 12), path, mode="overwrite_partitions")
    found["overwrite_partitions"] = ids(dbio.read(spark, path))
    found["exists"] = error_of(lambda: dbio.write(numbers(0, 1), path, mode="error"))
    found["ignored"] = dbio.write(numbers(0, 1), path, mode="ignore").skipped
    dbio.write(numbers(20, 22), path, mode="overwrite")
    found["overwrite"] = ids(dbio.read(spark, path))
    found["pinned"] = [ids(pinned), ids(pinned.where("day = 'd0'")), pinned.count()]
    found["as of"] = ids(dbio.read(spark, path, as_of=commit.tid))
    found["together"] = [ids(frame) for frame in dbio.read_together(spark, [path, path])]
    found["where"] = ids(dbio.read(spark, path, as_of=commit.tid, where="day = 'd0' AND id BETWEEN 1 AND 2"))

    dbio.enable(spark, roots={"lake": root})
    found["sql"] = error_of(lambda: spark.sql("SELECT * FROM dbio.lake.modes").collect())

    # rows that change
    path = f"{root}/rows"
    dbio.write(numbers(0, 10), path)
    kept = dbio.write(numbers(30, 40), path).added
    deletion = dbio.delete(spark, path, "id = 3", **note)
    deleted = deletion.metrics["numDeletedRows"]
    found["provenance"].append(said(deletion))
    updated = dbio.update(spark, path, {"day": "concat(day, '!')"}, "id IN (4, 5)").metrics["numUpdatedRows"]
    dbio.write(numbers(20, 21), path, mode="overwrite", replace_where="id IN (0, 20)")
    found["rows"] = {
        "counts": [deleted, updated],
        "ids": ids(dbio.read(spark, path).where("id < 30")),
        "marked": ids(dbio.read(spark, path).where("day LIKE '%!'")),
        "kept": {file.path for file in dbio.Table(path).snapshot().files} >= {*kept},
        "odd": error_of(lambda: dbio.delete(spark, path, "rand() < id")),
        "too large": error_of(lambda: dbio.update(spark, path, {"id": "decimal(id) * 10000000000000000000"}, "id = 4")),
    }
    dbio.update(spark, path, {"id": "decimal(id) * 100"}, "id = 4")
    found["fitted"] = ids(dbio.read(spark, path).where("id > 100"))

    # a merge
    if spark35.IS_USED:
        found["merge"] = error_of(lambda: dbio.merge(spark, path, numbers(6, 12), ["id"]))
    else:
        drop = dbio.when_matched("source.id = 6").delete()
        clauses = [drop, dbio.when_matched().update(), dbio.when_not_matched().insert()]
        metrics = dbio.merge(spark, path, numbers(6, 12).selectExpr("id", "'new' AS day"), ["id"], clauses).metrics
        found["merge"] = {
            "counts": [metrics[f"numTargetRows{kind}"] for kind in ("Inserted", "Updated", "Deleted")],
            "ids": ids(dbio.read(spark, path).where("id < 30")),
            "new": ids(dbio.read(spark, path).where("day = 'new'")),
            "twice": error_of(lambda: dbio.merge(spark, path, numbers(7, 9).union(numbers(7, 9)), ["id"])),
        }
        keys = ["day", "id"]
        metrics = dbio.merge(spark, path, dbio.read(spark, path).where("id < 8").selectExpr("id", "day"), keys).metrics
        found["merge"]["by a text"] = metrics["numTargetRowsUpdated"]

    # texts beside columns that nobody sees
    path = f"{root}/texts"
    dbio.write(numbers(0, 3), path)
    spark.range(3).createOrReplaceTempView("ids")
    if not spark35.IS_USED:
        update = dbio.when_matched().update({"day": "to_json(struct(source.*))"})
        found["empty source"] = dbio.merge(spark, path, numbers(0, 0), ["ID"], [update]).skipped
        dbio.merge(spark, path, numbers(2, 3), ["ID"], [update])
        found["texts"] = [row.day for row in dbio.read(spark, path).where("id = 2").collect()]
    found["refused texts"] = [
        error_of(lambda: dbio.update(spark, path, {"day": "to_json(struct(*))"})),
        error_of(lambda: dbio.delete(spark, path, "hash(*) <> 0")),
        error_of(lambda: dbio.delete(spark, path, "id IN (TABLE ids)")),
        error_of(lambda: dbio.update(spark, path, {"day": "(SELECT 'x')"})),
    ]

    path = f"{root}/modes"
    dbio.write(numbers(0, 0), path, mode="overwrite")
    found["empty"] = [dbio.read(spark, path).collect(), dbio.read(spark, path).dtypes]

    # nothing is listed
    Path(path, "day=d0", "part-0.snappy.parquet").write_text("garbage")
    found["nothing listed"] = ids(dbio.read(spark, path, as_of=commit.tid))

    # types and names
    path = f"{root}/types x=1 %41"
    frame = spark.sql(
        "SELECT id AS `a.b c`, "
        "IF(id = 0, NULL, array(named_struct('x', timestamp'2026-01-01 01:00:00', 'y', map('k', id)))) AS nested, "
        "decimal(id) / 4 AS amount, '01' AS text, timestamp'2026-03-29 01:30:00' AS at FROM range(3)"
    )
    dbio.write(frame, path, partition_by=["text", "at"])
    read = dbio.read(spark, path)
    equal = sorted(map(str, read.collect())) == sorted(map(str, frame.collect()))
    found["types"] = [read.dtypes == frame.dtypes, equal]

    # compaction
    path = f"{root}/small"
    dbio.write(numbers(0, 8), path, partition_by="day")
    compacted = dbio.compact(spark, path)
    found["compact"] = [compacted.files_before, compacted.files_after, ids(dbio.read(spark, path))]

    # refusals
    path = f"{root}/refused"
    found["refused type"] = error_of(lambda: dbio.write(spark.sql("SELECT 1 AS id, INTERVAL '1' DAY AS odd"), path))
    found["refused path"] = Path(path).exists()
    dbio.write(numbers(0, 2), path, partition_by="day")
    found["mismatch"] = error_of(lambda: dbio.write(spark.range(2), path))
    found["bad value"] = error_of(lambda: dbio.write(spark.sql("SELECT 1L AS id, '' AS day"), path))
    failing = spark.sql("SELECT bigint(raise_error('no')) AS id, 'x' AS day")
    found["failed task"] = error_of(lambda: dbio.write(failing, path))
    found["after failures"] = [ids(dbio.read(spark, path)), len(dbio.Table(path).check().pending)]
    found["missing"] = error_of(lambda: dbio.read(spark, f"{root}/missing"))

    # the session's settings come back
    names = ["spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"]
    before = [spark.conf.get(name, None) for name in names]
    spark.conf.set(names[1], "777")
    dbio.write(numbers(0, 2), f"{root}/settings")
    dbio.write(numbers(0, 40).repartition(8), f"{root}/sizes", partition_by="day", target_file_size=10**8)
    found["settings"] = [spark.conf.get(names[0], None) == before[0], spark.conf.get(names[1])]
    advisory = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    found["sizes"] = [len(dbio.Table(f"{root}/sizes").snapshot().files), "300000000" in spark.conf.get(advisory)]

    # the data source and the functions
    dbio.enable(spark)
    path = f"{root}/source"
    if spark35.IS_USED:
        dbio.write(numbers(0, 4), path, partition_by="day")
        dbio.write(numbers(7, 9), path, mode="overwrite")
    else:
        numbers(0, 4).write.format("dbio").mode("append").option("partitionBy", "day").save(path)
        frame = spark.read.format("dbio").load(path)
        found["source"] = [ids(frame), frame.where("id < 2").count(), frame.count(), frame.dtypes]
        options = {"message": note["message"], "labels": json.dumps(note["labels"])}
        numbers(7, 9).write.format("dbio").mode("overwrite").options(**options).save(path)
        found["provenance"].append(said(dbio.Table(path).history()[0]))
        found["source overwrite"] = [ids(frame), ids(spark.read.format("dbio").load(path))]
        found["source missing"] = error_of(lambda: spark.read.format("dbio").load(f"{root}/none").schema)
        found["later"] = error_of(lambda: spark.newSession().read.format("dbio").load(path).count())
    found["functions"] = [
        spark.sql("SELECT * FROM dbio_files(:path)", {"path": path}).count(),
        [row.operation for row in spark.sql("SELECT * FROM dbio_history(:path)", {"path": path}).collect()],
    ]
    history = spark.sql("SELECT message, spark_job FROM dbio_history(:path)", {"path": f"{root}/modes"}).collect()
    found["told"] = [[row.message, row.spark_job] for row in history if row.message]

    # what it cannot do is refused, and the rest works
    found["parquet"] = error_of(lambda: dbio.enable(spark, parquet=True))
    dbio.constrain(spark, path, {"check.positive": "id >= 0"})
    found["constraint"] = error_of(lambda: dbio.write(spark.sql("SELECT -1L AS id, 'd0' AS day"), path))
    found["changes"] = dbio.changes(spark, path, dbio.Table(path).history()[-1].tid, net=True).count()

    # a version that is skipped
    found["skipped"] = [dbio.write(numbers(0, 1), path, app=("nightly", version)).skipped for version in (2, 2)]

    # S3, with options and with the session's settings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dbio.write(numbers(0, 2), s3_url, storage_options=s3_options)
        found["s3 options"] = ids(dbio.read(spark, s3_url, storage_options=s3_options))
        spark.conf.set("spark.hadoop.fs.s3a.endpoint", s3_options.pop("endpoint_url"))
        dbio.write(numbers(2, 4), s3_url, storage_options=s3_options)
        found["s3 settings"] = ids(dbio.read(spark, s3_url, storage_options=s3_options))
        spark.conf.set("spark.hadoop.fs.s3a.access.key", s3_options["key"])
        spark.conf.set("spark.hadoop.fs.s3a.secret.key", s3_options["secret"])
        found["s3 secrets"] = [error_of(lambda: dbio.read(spark, s3_url))]
        found["s3 secrets"].append(error_of(lambda: dbio.write(numbers(0, 1), s3_url)))
        if not spark35.IS_USED:
            dbio.enable(spark)
            found["s3 secrets"].append(error_of(lambda: spark.read.format("dbio").load(s3_url).schema))
            save = numbers(0, 1).write.format("dbio").mode("append").save
            found["s3 secrets"].append(error_of(lambda: save(s3_url)))
        found["warned"] = sum("Spark cannot read" in str(warning.message) for warning in caught)
    print(json.dumps(found, default=int))  # numbers of NumPy, from Spark 3.5
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, s3_server: Any) -> dict[str, Any]:
    arguments = [
        str(Path(__file__).parents[2]),
        str(tmp_path_factory.mktemp("connect")),
        "s3://tables/connect",
        json.dumps(s3_server.storage_options),
    ]
    job = subprocess.run([sys.executable, "-c", dedent(JOB), *arguments], capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr[-3000:]
    result: dict[str, Any] = json.loads(job.stdout.splitlines()[-1])
    return {**result, "stderr": job.stderr}


@pytest.mark.slow("one job, which the whole file shares, does over Connect what classic sessions do")
def test_modes_work_over_connect(found: dict[str, Any]) -> None:
    assert found["append"] == [0, 1, 2, 3, 4, 5]
    assert found["overwrite_partitions"] == [0, 2, 4, 11]
    assert found["overwrite"] == [20, 21]
    assert found["together"] == [[20, 21]] * 2
    assert found["exists"].startswith("TableExistsError: ")
    assert found["ignored"] is True
    assert found["empty"] == [[], [["id", "bigint"], ["day", "string"]]]


def test_rows_change_over_connect(found: dict[str, Any]) -> None:
    rows = found["rows"]
    assert rows["counts"] == [1, 2]
    assert rows["ids"] == [1, 2, 4, 5, 6, 7, 8, 9, 20]
    assert (rows["marked"], rows["kept"]) == ([4, 5], True)
    assert "InvalidInputError: where='rand() < id' is not deterministic" in rows["odd"]
    assert "InvalidInputError: " in rows["too large"]
    assert found["fitted"] == [400]


def test_rows_are_merged_over_connect(found: dict[str, Any]) -> None:
    merged = found["merge"]
    assert merged["counts"] == [2, 3, 1]
    assert merged["ids"] == [1, 2, 5, 7, 8, 9, 10, 11, 20]
    assert merged["new"] == [7, 8, 9, 10, 11]
    assert "InvalidInputError: rows of the table match more than one row" in merged["twice"]
    assert merged["by a text"] == 4


@pytest.mark.skipif(not spark35.IS_USED, reason="Spark 4.0 merges over Connect")
def test_before_spark_4_a_merge_over_connect_is_refused(found: dict[str, Any]) -> None:
    assert re.match(r"UnsupportedStoreError: a merge over Spark Connect needs Spark 4\.0 or later", found["merge"])


def test_constraints_and_changes_work_over_connect(found: dict[str, Any]) -> None:
    assert found["parquet"].startswith("UnsupportedStoreError: over Spark Connect, Parquet is written by a server")
    assert found["constraint"].startswith("InvalidInputError: 1 row violates check.positive")
    assert found["changes"] == 10


def test_the_result_of_a_write_is_there_over_connect(found: dict[str, Any]) -> None:
    assert found["metrics"].items() >= {"numFiles": 4, "numOutputRows": 4, "numParts": 2}.items()
    assert found["nulls"] == [0] * 4


def test_reads_are_pinned_over_connect(found: dict[str, Any]) -> None:
    assert found["pinned"] == [[0, 1, 2, 3], [0, 2], 4]
    assert found["as of"] == found["nothing listed"] == [0, 1, 2, 3]
    assert found["where"] == [2]
    assert "SQL cannot name dbio tables here, so use dbio.read" in found["sql"]


def test_a_star_means_the_columns_of_its_side_over_connect(found: dict[str, Any]) -> None:
    assert found["texts"] == ['{"id":2,"day":"d0"}']
    assert found["empty source"] is True


def test_texts_mean_over_connect_what_they_say_or_are_refused(found: dict[str, Any]) -> None:
    stars = ["InvalidInputError: .*would mean .*_dbio_place", r"InvalidInputError: .*\* stands for no columns"]
    if spark35.IS_USED:
        stars = [r"InvalidInputError: .*has a \*", r"AnalysisException: .*Invalid usage of '\*'"]
    queries = ["InvalidInputError: .*reads other tables"] * 2
    for error, why in zip(found["refused texts"], [*stars, *queries], strict=True):
        assert re.match(why, error), error


def test_types_and_odd_names_come_back_over_connect(found: dict[str, Any]) -> None:
    assert found["types"] == [True, True]
    assert found["compact"] == [4, 2, list(range(8))]


def test_errors_are_the_same_over_connect(found: dict[str, Any]) -> None:
    assert found["refused type"].startswith("InvalidInputError: column 'odd'")
    assert found["refused path"] is False
    assert found["mismatch"].startswith("SchemaMismatchError: ")
    assert found["bad value"].startswith("InvalidInputError: partition column 'day' holds ''")
    assert ("java.lang.RuntimeException: no" if spark35.IS_USED else "USER_RAISED_EXCEPTION") in found["failed task"]
    assert found["after failures"] == [[0, 1], 0]
    assert found["missing"].startswith("TableNotFoundError: ")


def test_the_sessions_settings_come_back_over_connect(found: dict[str, Any]) -> None:
    assert found["settings"] == [True, "777"]
    assert found["sizes"] == [2, False]


def test_the_data_source_works_over_connect(found: dict[str, Any]) -> None:
    assert found["source"] == [[0, 1, 2, 3], 2, 4, [["id", "bigint"], ["day", "string"]]]
    assert found["source overwrite"][1] == [7, 8]
    named = r"AnalysisException: dbio_commit\.TableNotFoundError: there is no table at .*"
    assert re.fullmatch(named, found["source missing"])
    assert SPARK < (4, 3) or found["later"] == "no error, but 2"


def test_the_functions_work_over_connect(found: dict[str, Any]) -> None:
    assert found["functions"] == [2, ["overwrite", "append"]]


def test_commits_over_connect_record_the_application_the_tags_and_what_the_caller_says(found: dict[str, Any]) -> None:
    """A Connect session has no descriptions of jobs: its tags stand for the job."""
    message, labels = "load of the night", {"team": "sales"}
    written, *others = found["provenance"]
    assert written == [message, labels, "nightly", True]
    assert others == [[message, labels, None, True]] * (1 if spark35.IS_USED else 2)
    assert found["told"] == [[message, "nightly"]]


def test_s3_works_over_connect_with_options_and_settings(found: dict[str, Any]) -> None:
    assert found["s3 options"] == [0, 1]
    assert found["s3 settings"] == [0, 1, 2, 3]
    assert found["warned"] == 1


def test_secrets_that_connect_does_not_give_out_are_asked_for(found: dict[str, Any]) -> None:
    """Should a server begin to give them out, `store_settings` finds them, and this test has had its day."""
    for error in found["s3 secrets"]:
        assert "AccessDeniedError: cannot " in error
        assert "Spark Connect does not give out secrets" in error
        assert "Pass storage_options" in error
    assert len(found["s3 secrets"]) == 4


def test_a_version_that_is_skipped_is_a_warning_over_connect(found: dict[str, Any]) -> None:
    assert found["skipped"] == [False, True]
    assert "version 2 of application 'nightly' is skipped: it is committed, by transaction " in found["stderr"]
