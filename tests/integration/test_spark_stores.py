"""Spark and the stores through fsspec, with credentials from all the usual places: moto, Azurite, fake-gcs-server.

PySpark as installed has no connector for any, so that reads go through Python workers.
"""

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

import dbio_commit as dbio
from tests.conftest import Root
from tests.servers import AzureServer, Fault, GcsServer, S3Server, Server
from tests.spark_tables import SPARK_ERRORS, configured, ids, numbers
from tests.tiers import long

pytestmark = pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")


@pytest.fixture(params=["s3", "azure", "gcs"])
def root(request: pytest.FixtureRequest) -> Root:
    found: Root = request.getfixturevalue(f"{request.param}_root")
    return found


def methods(server: Server) -> Counter[str]:
    """What was asked for since the last reset: PUTs of data apart from those of markers, lists from reads."""
    found: Counter[str] = Counter()
    for request in server.requests():
        name = request.path.rpartition("/")[2]
        kind = "data" if name.endswith(".parquet") else "list" if "list-type" in request.query else "marker"
        found[f"{request.method} {kind}"] += 1
    server.reset()
    return found


# --- what a write and a read do -----------------------------------------------------------------------------------


@pytest.mark.long_for("azure", "gcs")
def test_all_modes_work_on_the_store(spark: SparkSession, root: Root) -> None:
    url, options = root

    def write(start: int, end: int, mode: Any) -> dbio.Commit:
        frame = numbers(spark, start, end)
        return dbio.write(frame, url, mode=mode, partition_by="day", storage_options=options)

    def read() -> list[int]:
        return ids(dbio.read(spark, url, storage_options=options))

    write(0, 4, "error")
    with pytest.raises(dbio.TableExistsError):
        write(0, 4, "error")
    assert write(0, 4, "ignore").skipped
    commit = write(4, 6, "append")
    assert read() == list(range(6))
    assert commit.metrics["numOutputBytes"] == sum(file.size for file in commit.files) > 0
    write(11, 12, "overwrite_partitions")
    assert read() == [0, 2, 4, 11]
    pinned = dbio.read(spark, url, storage_options=options)
    write(20, 22, "overwrite")
    assert read() == [20, 21]
    assert ids(pinned) == [0, 2, 4, 11]
    assert dbio.Table(url, options).check().ok


@pytest.mark.long
def test_rows_change_on_the_store(spark: SparkSession, root: Root) -> None:
    url, options = root
    for start in (0, 10):
        dbio.write(numbers(spark, start, start + 10), url, partition_by="day", storage_options=options)
    deleted = dbio.delete(spark, url, "id > 15 OR day IS NULL", storage_options=options)
    assert deleted.metrics["numDeletedRows"] == 4
    assert dbio.update(spark, url, {"id": "-id"}, "id < 2", storage_options=options).metrics["numUpdatedRows"] == 2
    source = spark.createDataFrame([(5, "d0"), (-1, "d1"), (50, "d1")], "id long, day string")
    merged = dbio.merge(spark, url, source, ["id"], storage_options=options)
    assert (merged.metrics["numTargetRowsUpdated"], merged.metrics["numTargetRowsInserted"]) == (2, 1)
    found = dbio.read(spark, url, storage_options=options)
    assert ids(found) == [-1, 0, *range(2, 16), 50]
    assert found.where("id = 5").collect()[0].day == "d0"


@pytest.mark.long
def test_few_files_are_written_and_small_ones_put_together_on_the_store(spark: SparkSession, root: Root) -> None:
    url, options = root
    rows = numbers(spark, 0, 40, tasks=8)
    dbio.write(rows, url, partition_by="day", target_file_size=10_000_000, storage_options=options)
    table = dbio.Table(url, options)
    partitions = {file.partition["day"] for file in table.snapshot().files}
    assert len(table.snapshot().files) == len(partitions) > 1
    dbio.write(numbers(spark, 40, 60, tasks=4), url, storage_options=options)
    dbio.compact(spark, url, z_order=["id"], min_files=2, storage_options=options)
    assert len(table.snapshot().files) == len(partitions)
    assert ids(dbio.read(spark, url, storage_options=options)) == list(range(60))


@pytest.mark.long_for("azure", "gcs")
def test_the_data_source_works_on_the_store(spark: SparkSession, root: Root) -> None:
    dbio.enable(spark)
    secret = {"secretStorageOptions": json.dumps(root.storage_options)}
    for mode, start in (("append", 0), ("append", 4)):
        frame = numbers(spark, start, start + 4)
        frame.write.format("dbio").mode(mode).options(**secret, partitionBy="day").save(root.url)
    frame = spark.read.format("dbio").options(**secret).load(root.url)
    assert ids(frame) == list(range(8))
    assert frame.dtypes == [("id", "bigint"), ("day", "string")]


def test_a_read_through_workers_says_so_once(spark: SparkSession, s3_root: Root) -> None:
    url, options = s3_root
    dbio.write(numbers(spark, 0, 2), url, storage_options=options)
    dbio.read(spark, url, storage_options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert ids(dbio.read(spark, url, storage_options=options)) == [0, 1]


# --- credentials --------------------------------------------------------------------------------------------------


def test_credentials_come_from_the_environment(
    spark: SparkSession, s3_root: Root, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of this session have begun with another environment, and must do without it."""
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(dbio.DbioError):
        dbio.write(numbers(spark, 0, 4), s3_root.url)
    assert dbio.Table(s3_root.url, s3_root.storage_options).snapshot().tids == ()


JOB = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pyspark.sql import SparkSession
import dbio_commit as dbio
from tests import spark35
from tests.servers import S3Server
from tests.spark_tables import configured, ids, numbers
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
server, s3_url, azure_url = S3Server(sys.argv[2], {}, {}), *sys.argv[3:]
server.reset()
dbio.write(numbers(spark, 0, 4), s3_url)
requests = [(request.method, request.path) for request in server.requests()]
dbio.write(numbers(spark, 0, 4), azure_url)
dbio.enable(spark)
def append(frame, url, version=None):
    if spark35.IS_USED:
        return dbio.write(frame, url, app=version and ("nightly", version))
    options = {"txnAppId": "nightly", "txnVersion": version} if version else {}
    frame.write.format("dbio").mode("append").options(**options).save(url)
def load(url):
    return dbio.read(spark, url) if spark35.IS_USED else spark.read.format("dbio").load(url)
read = []
for url in (s3_url, azure_url):
    append(numbers(spark, 4, 6), url)
    read += [ids(dbio.read(spark, url)), ids(load(url))]
for version in (2, 2):
    append(numbers(spark, 6, 7), s3_url, version)
read.append(ids(dbio.read(spark, s3_url)))
print(json.dumps({"requests": requests, "read": read}))
"""


@pytest.fixture(scope="module")
def job(s3_server: S3Server, azure_server: AzureServer) -> dict[str, Any]:
    """What a job saw that had credentials in its environment, and had never asked the stores before."""
    url = f"s3://tables/{uuid4().hex}"
    field = {"nullable": True, "metadata": {}}
    fields = [{"name": "id", "type": "long", **field}, {"name": "day", "type": "string", **field}]
    dbio.Table(url, s3_server.storage_options).begin().commit(schema={"type": "struct", "fields": fields})
    arguments = [str(Path(__file__).parents[2]), s3_server.endpoint_url, url, f"az://tables/{uuid4().hex}"]
    process = subprocess.run(
        [sys.executable, "-c", JOB, *arguments],
        env=os.environ | s3_server.env | azure_server.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    found: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return {**found, "stderr": process.stderr}


@pytest.mark.long
def test_a_job_finds_credentials_in_its_environment(job: dict[str, Any]) -> None:
    assert job["read"][:4] == [list(range(6))] * 4


@pytest.mark.long
def test_a_version_that_the_data_source_skips_is_a_warning(job: dict[str, Any]) -> None:
    assert job["read"][4] == list(range(7))
    assert "version 2 of application 'nightly' is skipped: it is committed, by transaction " in job["stderr"]


def test_credentials_come_from_the_sessions_settings_for_s3(
    spark: SparkSession, s3_root: Root, s3_server: S3Server
) -> None:
    options = s3_server.storage_options
    own = {
        "fs.s3a.endpoint": options["endpoint_url"],
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": "wrong",
        "fs.s3a.secret.key": options["secret"],
        "fs.s3a.bucket.tables.access.key": options["key"],
        "fs.s3a.path.style.access": "true",
    }
    with configured(spark, own):
        dbio.enable(spark)
        dbio.write(numbers(spark, 0, 2), s3_root.url)
        numbers(spark, 2, 4).write.format("dbio").mode("append").save(s3_root.url.replace("s3:", "s3a:"))
        assert ids(dbio.read(spark, s3_root.url)) == [0, 1, 2, 3]
        assert ids(spark.read.format("dbio").load(s3_root.url)) == [0, 1, 2, 3]
        assert spark.sql("SELECT * FROM dbio_files(:path)", {"path": s3_root.url}).count() == 4
    dbio.enable(spark)


@pytest.mark.long
def test_credentials_come_from_the_sessions_settings_for_google(
    spark: SparkSession, gcs_root: Root, gcs_server: GcsServer
) -> None:
    own = {
        "fs.gs.storage.root.url": f"{gcs_server.endpoint_url}/",
        "fs.gs.auth.type": "UNAUTHENTICATED",
        "fs.gs.requester.pays.mode": "ENABLED",
        "google.cloud.project.id": "our-project",
    }
    with configured(spark, own):
        dbio.enable(spark)
        dbio.write(numbers(spark, 0, 2), gcs_root.url)
        numbers(spark, 2, 4).write.format("dbio").mode("append").save(gcs_root.url.replace("gs:", "gcs:"))
        assert ids(dbio.read(spark, gcs_root.url)) == [0, 1, 2, 3]
        assert ids(spark.read.format("dbio").load(gcs_root.url)) == [0, 1, 2, 3]
        with configured(spark, {"fs.gs.encryption.key": "eHh4eHh4"}):
            with pytest.raises(dbio.InvalidInputError, match=r"fs\.gs\.encryption\.key") as caught:
                dbio.write(numbers(spark, 0, 2), gcs_root.url)
            assert "eHh4eHh4" not in str(caught.value)
    dbio.enable(spark)
    payers = {it.query.get("userProject") for it in gcs_server.requests()}
    assert payers == {"our-project"}


@pytest.mark.long
def test_options_of_the_call_go_before_the_sessions_settings(
    spark: SparkSession, s3_root: Root, azure_root: Root, azure_server: AzureServer
) -> None:
    """Settings for Azure name its own host, not this one; what they become: tests/unit/spark/session/test_conf.py."""
    host = f"{azure_server.account_name}.dfs.core.windows.net"
    named = azure_root._replace(url=azure_root.url.replace("az://tables/", f"abfss://tables@{host}/"))
    wrong = {
        "fs.s3a.access.key": "wrong",
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        f"fs.azure.account.key.{host}": "eA==",
    }
    with configured(spark, wrong):
        for url, options in (s3_root, named):
            dbio.write(numbers(spark, 0, 2), url, storage_options=options)
            assert ids(dbio.read(spark, url, storage_options=options)) == [0, 1]


# --- what it costs ------------------------------------------------------------------------------------------------


def test_an_append_costs_a_put_for_each_file_and_six_requests(
    spark: SparkSession, s3_root: Root, s3_server: S3Server
) -> None:
    url, options = s3_root
    for _ in range(2):
        dbio.write(numbers(spark, 0, 2), url, storage_options=options)
        sleep(2)  # who saw the table when it was younger sees it anew
    s3_server.reset()
    dbio.write(numbers(spark, 0, 9, tasks=3), url, storage_options=options)
    found = methods(s3_server)
    assert found.pop("PUT data") == 3
    assert sum(found.values()) == 6, found


@pytest.mark.long
def test_an_append_through_the_data_source_costs_what_the_first_of_a_process_does(
    spark: SparkSession, s3_root: Root, s3_server: S3Server
) -> None:
    url, options = s3_root
    dbio.enable(spark)
    for _ in range(2):
        dbio.write(numbers(spark, 0, 2), url, storage_options=options)
        sleep(2)  # who saw the table when it was younger sees it anew
    s3_server.reset()
    secret = json.dumps(options)
    numbers(spark, 0, 9, tasks=3).write.format("dbio").mode("append").option("secretStorageOptions", secret).save(url)
    found = methods(s3_server)
    assert found.pop("PUT data") == 3
    assert sum(found.values()) <= 4 + 2 + 1, found  # Spark may begin it in a new one each time


@pytest.mark.long
def test_the_first_append_of_a_process_costs_two_more_and_three_that_prove_the_store(job: dict[str, Any]) -> None:
    data = [method for method, path in job["requests"] if path.endswith(".parquet")]
    assert data == ["PUT"] * 2
    assert len(job["requests"]) - len(data) == 5 + 2 + 3, job["requests"]


@pytest.mark.parametrize("commits", [1, 5])
def test_a_read_costs_one_request_for_each_commit_and_four_at_most_besides(
    spark: SparkSession, s3_root: Root, s3_server: S3Server, commits: int
) -> None:
    url, options = s3_root
    for number in range(commits):
        dbio.write(numbers(spark, number, number + 1, tasks=1), url, storage_options=options)
    dbio.read(spark, url, storage_options=options)
    s3_server.reset()
    frame = dbio.read(spark, url, storage_options=options)
    assert sum(methods(s3_server).values()) <= 4 + commits
    assert ids(frame) == list(range(commits))
    assert methods(s3_server) == {"GET data": commits}  # each file once, and nothing is listed


# --- failures of the store ----------------------------------------------------------------------------------------


def write(frame: DataFrame, url: str, options: Mapping[str, Any]) -> None:
    dbio.write(frame, url, storage_options=options)


def save(frame: DataFrame, url: str, options: Mapping[str, Any], **more: str) -> None:
    dbio.enable(frame.sparkSession)
    more["secretStorageOptions"] = json.dumps(options)
    frame.write.format("dbio").mode("append").options(**more).save(url)


@pytest.mark.parametrize("action", [*long(write), save])
def test_a_commit_that_the_store_refuses_commits_nothing(
    spark: SparkSession, s3_root: Root, s3_server: S3Server, action: Callable[..., None]
) -> None:
    url, options = s3_root
    write(numbers(spark, 0, 2), url, options)
    s3_server.inject(Fault(method="PUT", path="_committed_", kind="403", times=1))
    frame = numbers(spark, 2, 4)
    with pytest.raises((*SPARK_ERRORS, dbio.AccessDeniedError), match="_committed_"):
        action(frame, url, options)
    s3_server.inject()
    assert ids(dbio.read(spark, url, storage_options=options)) == [0, 1]
    report = dbio.Table(url, options).check()
    assert not report.pending
    assert not report.garbage
    action(frame, url, options)
    assert ids(dbio.read(spark, url, storage_options=options)) == [0, 1, 2, 3]


@pytest.mark.parametrize("action", [write, *long(save)])
def test_a_commit_whose_answer_is_lost_is_committed_once(
    spark: SparkSession, s3_root: Root, s3_server: S3Server, action: Callable[..., None]
) -> None:
    url, options = s3_root
    write(numbers(spark, 0, 2), url, options)
    s3_server.inject(Fault(method="PUT", path="_committed_", kind="lost-answer", times=1))
    action(numbers(spark, 2, 4), url, options)
    assert ids(dbio.read(spark, url, storage_options=options)) == [0, 1, 2, 3]
    assert len(dbio.Table(url, options).snapshot().tids) == 2


def test_a_secret_is_in_no_plan_and_no_error(
    spark: SparkSession, s3_root: Root, s3_server: S3Server, capfd: pytest.CaptureFixture[str]
) -> None:
    url, secret = s3_root.url, "HushHushHush/0123456789"
    options = {**s3_root.storage_options, "secret": secret}
    dbio.enable(spark)
    source = {"secretStorageOptions": json.dumps(options)}
    dbio.write(numbers(spark, 0, 2), url, storage_options=options)
    said = []
    for frame in (
        dbio.read(spark, url, storage_options=options),
        spark.read.format("dbio").options(**source).load(url),
    ):
        frame.explain(True)
        said += [repr(frame), str(frame.schema), *frame.inputFiles()]
    s3_server.inject(Fault(method="PUT", path=r"part-\d+-tid", kind="403", times=100))
    attempts: list[Callable[[DataFrame, str, Mapping[str, Any]], None]] = [write, save, partial(save, unknown="x")]
    for attempt in attempts:
        with pytest.raises((*SPARK_ERRORS, dbio.DbioError)) as caught:
            attempt(numbers(spark, 2, 4), url, options)
        error: BaseException | None = caught.value
        while error is not None:
            said += [str(error), repr(error), *getattr(error, "__notes__", [])]
            error = error.__cause__ or error.__context__
    s3_server.inject()
    statuses = spark._jsparkSession.sharedState().statusStore().executionsList()
    said += [statuses.apply(i).physicalPlanDescription() for i in range(statuses.size())]
    output = capfd.readouterr()
    assert any("s3://" in text for text in said)
    assert not [text for text in (*said, output.out, output.err) if secret in text]
