"""Spark with S3A, Hadoop's connector for S3, on moto: it reads our manifests itself, with credentials from each place.

`make test-s3a` fetches the connector and its SDK from Maven (600 MB), and runs this in a process of its own, because a
session has the jars from its start or never. `make test` skips it.
"""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dbio_commit as dbio
from tests.servers import S3Server
from tests.spark_tables import configured, ids, numbers

IVY = Path(sys.prefix) / "ivy"

pytestmark = [pytest.mark.server, pytest.mark.skipif("DBIO_TEST_S3A" not in os.environ, reason="make test-s3a")]


def with_s3a() -> SparkSession.Builder:
    """The hadoop-aws of the very Hadoop that comes with PySpark, from Maven or from where the first run has put it."""
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.ivy", str(IVY))
        .config("spark.jars.packages", f"org.apache.hadoop:hadoop-aws:{version}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
        .config("spark.hadoop.fs.s3a.impl.disable.cache", "true")  # each test has credentials of its own
        .config("spark.hadoop.fs.s3a.attempts.maximum", "1")
        .config("spark.hadoop.fs.s3a.retry.limit", "1")
    )


def fetch() -> None:
    with_s3a().getOrCreate().stop()


@pytest.fixture(scope="module")
def spark(s3_server: S3Server) -> Iterator[SparkSession]:
    """In the place of the session that other tests share. It knows where the server is, and no keys."""
    session = with_s3a().config("spark.hadoop.fs.s3a.endpoint", s3_server.endpoint_url).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """A new one, since whether Spark reaches a bucket is found out once."""
    name = f"s3a-{uuid4().hex}"
    s3_server.create_bucket(name)
    s3_server.reset()
    return name


@pytest.fixture
def keys(spark: SparkSession, s3_server: S3Server) -> Iterator[None]:
    """In the session."""
    options = s3_server.storage_options
    with configured(spark, {"fs.s3a.access.key": options["key"], "fs.s3a.secret.key": options["secret"]}):
        yield


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_native(frame: DataFrame, url: str) -> bool:
    read_by_spark = "FileScan parquet" in plan(frame) and "Python" not in plan(frame)
    return read_by_spark and all(file.startswith(url.replace("s3://", "s3a://")) for file in frame.inputFiles())


def data_read(server: S3Server) -> set[str]:
    """The data files of which any byte was asked for since the last reset."""
    return {it.path for it in server.requests() if it.method == "GET" and it.path.endswith(".parquet")}


# --- native reads -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("day", ["d", "50% + 1&2=é"])
def test_rows_are_changed_and_changes_told_by_their_files(spark: SparkSession, bucket: str, day: str) -> None:
    url = f"s3://{bucket}/table"
    dbio.write(numbers(spark, 0, 20).withColumn("day", f.lit(day)), url, partition_by=["day"])
    deleted = dbio.delete(spark, url, "id = 3")
    told = dbio.changes(spark, url, deleted.tid, deleted.tid, net=True).collect()
    assert [(row.id, row._change_type) for row in told] == [(3, "delete")]
    dbio.update(spark, url, {"id": "id + 100"}, "id = 4")
    dbio.merge(spark, url, numbers(spark, 18, 22).withColumn("day", f.lit(day)), ["id"])
    assert ids(dbio.read(spark, url)) == [0, 1, 2, *range(5, 22), 104]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("partition_by", [(), "day"])
def test_spark_reads_the_live_files_itself(spark: SparkSession, bucket: str, partition_by: str | tuple[()]) -> None:
    url = f"s3://{bucket}/table"
    dbio.write(numbers(spark, 0, 4), url, partition_by=partition_by)
    dbio.write(numbers(spark, 10, 14), url, mode="overwrite", partition_by=partition_by)
    dbio.write(numbers(spark, 14, 16), url, partition_by=partition_by)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = dbio.read(spark, url)
    assert is_native(frame, url)
    assert ids(frame) == list(range(10, 16))
    assert frame.dtypes == [("id", "bigint"), ("day", "string")]
    assert sorted({row.day for row in frame.collect()}) == ["d0", "d1"]


@pytest.mark.usefixtures("keys")
def test_a_read_stays_what_it_was_while_others_write(spark: SparkSession, bucket: str) -> None:
    url = f"s3://{bucket}/table"
    dbio.write(numbers(spark, 0, 4), url)
    frame = dbio.read(spark, url)
    dbio.write(numbers(spark, 10, 14), url, mode="overwrite")
    assert ids(frame) == [0, 1, 2, 3]
    assert is_native(dbio.read(spark, url), url)
    assert ids(dbio.read(spark, url)) == [10, 11, 12, 13]


@pytest.mark.usefixtures("keys")
def test_odd_names_of_partitions_are_read(spark: SparkSession, bucket: str) -> None:
    url = f"s3://{bucket}/a b/é+%"
    frame = numbers(spark, 0, 4).selectExpr("id", "concat(day, ' é/=%+') AS day")
    dbio.write(frame, url, partition_by="day")
    found = dbio.read(spark, url)
    assert is_native(found, "s3://")
    assert sorted((row.id, row.day) for row in found.collect()) == [(n, f"d{n % 2} é/=%+") for n in range(4)]


@pytest.mark.usefixtures("keys")
def test_partitions_are_pruned_and_filters_pushed_down(spark: SparkSession, bucket: str, s3_server: S3Server) -> None:
    url = f"s3://{bucket}/table"
    dbio.write(numbers(spark, 0, 8), url, partition_by="day")
    frame = dbio.read(spark, url).where("day = 'd1' AND id > 4")
    (scan,) = (line for line in plan(frame).splitlines() if "FileScan parquet" in line)
    partition_filters, pushed_filters = scan.partition("PartitionFilters: ")[2].split("PushedFilters: ")
    assert "(day" in partition_filters
    assert "= d1)" in partition_filters
    assert "GreaterThan(id,4)" in pushed_filters
    s3_server.reset()
    assert ids(frame) == [5, 7]
    assert data_read(s3_server)
    assert all("/day=d1/" in path for path in data_read(s3_server))


@pytest.mark.usefixtures("keys")
def test_a_read_lists_nothing(spark: SparkSession, bucket: str, s3_server: S3Server) -> None:
    url = f"s3://{bucket}/table"
    dbio.write(numbers(spark, 0, 8), url, partition_by="day")
    frame = dbio.read(spark, url)
    s3_server.reset()
    assert frame.count() == 8
    assert not [it for it in s3_server.requests() if "list-type" in it.query]


# --- credentials --------------------------------------------------------------------------------------------------


def check_that_it_is_read_natively(spark: SparkSession, bucket: str) -> None:
    url = f"s3://{bucket}/table"
    dbio.write(numbers(spark, 0, 4), url)
    frame = dbio.read(spark, url)
    assert is_native(frame, url)
    assert ids(frame) == [0, 1, 2, 3]


@pytest.mark.usefixtures("keys")
def test_credentials_come_from_the_session(spark: SparkSession, bucket: str) -> None:
    check_that_it_is_read_natively(spark, bucket)


def test_credentials_of_a_bucket_go_before_those_of_the_session(
    spark: SparkSession, bucket: str, s3_server: S3Server
) -> None:
    options = s3_server.storage_options
    own = {
        "fs.s3a.access.key": "wrong",
        "fs.s3a.secret.key": "wrong",
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        f"fs.s3a.bucket.{bucket}.access.key": options["key"],
        f"fs.s3a.bucket.{bucket}.secret.key": options["secret"],
        f"fs.s3a.bucket.{bucket}.endpoint": options["endpoint_url"],
    }
    with configured(spark, own):
        check_that_it_is_read_natively(spark, bucket)


def test_credentials_come_from_a_credential_store(
    spark: SparkSession, bucket: str, s3_server: S3Server, tmp_path: Path
) -> None:
    provider = f"localjceks://file{tmp_path}/keys.jceks"
    for name, option in (("access", "key"), ("secret", "secret")):
        value = s3_server.storage_options[option]
        run_hadoop_credential(spark, "create", f"fs.s3a.{name}.key", "-value", value, "-provider", provider)
    with configured(spark, {"hadoop.security.credential.provider.path": provider}):
        check_that_it_is_read_natively(spark, bucket)


def run_hadoop_credential(spark: SparkSession, *arguments: str) -> None:
    """As `hadoop credential` does, which PySpark lacks."""
    gateway: Any = spark.sparkContext._gateway
    shell = gateway.jvm.org.apache.hadoop.security.alias.CredentialShell()
    shell.setConf(gateway.jvm.org.apache.hadoop.conf.Configuration())
    given = gateway.new_array(gateway.jvm.java.lang.String, len(arguments))
    for index, argument in enumerate(arguments):
        given[index] = argument
    assert shell.run(given) == 0


JOB = """
import json, sys
sys.path.insert(0, sys.argv[1])
import dbio_commit as dbio
from tests.integration.test_s3a import is_native, with_s3a
from tests.spark_tables import configured, ids, numbers
spark, url = with_s3a().config("spark.hadoop.fs.s3a.endpoint", sys.argv[2]).getOrCreate(), sys.argv[3]
dbio.write(numbers(spark, 0, 4), url)
frame = dbio.read(spark, url)
print(json.dumps([is_native(frame, url), ids(frame)]))
"""


def test_credentials_come_from_the_environment(bucket: str, s3_server: S3Server) -> None:
    arguments = [str(Path(__file__).parents[2]), s3_server.endpoint_url, f"s3://{bucket}/table"]
    job = subprocess.run(
        [sys.executable, "-c", JOB, *arguments], env=os.environ | s3_server.env, capture_output=True, text=True
    )
    assert job.returncode == 0, job.stderr[-3000:]
    assert json.loads(job.stdout.splitlines()[-1]) == [True, [0, 1, 2, 3]]


def test_keys_that_are_given_to_a_call_alone_are_used_by_workers_and_said_so(
    spark: SparkSession, bucket: str, s3_server: S3Server
) -> None:
    url, options = f"s3://{bucket}/table", s3_server.storage_options
    wrong = {"fs.s3a.access.key": "AKIAWRONG", "fs.s3a.secret.key": "wrong"}
    off = {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"}
    with configured(spark, {**wrong, **off, "fs.s3a.endpoint": "http://127.0.0.1:1"}):
        dbio.write(numbers(spark, 0, 4), url, storage_options=options)
        with pytest.warns(UserWarning, match=f"Spark cannot read s3a://{bucket} itself"):
            frame = dbio.read(spark, url, storage_options=options)
        assert ids(frame) == [0, 1, 2, 3]
        assert not is_native(frame, url)


# --- writes of unchanged code -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("keys")
def test_what_spark_writes_itself_is_a_transaction_at_the_cost_of_its_files_and_a_few_requests(
    spark: SparkSession, bucket: str, s3_server: S3Server
) -> None:
    dbio.enable(spark, parquet=True, roots=f"s3://{bucket}/")
    url = f"s3a://{bucket}/table"
    numbers(spark, 0, 4).write.partitionBy("day").parquet(url)
    numbers(spark, 4, 8).write.mode("append").partitionBy("day").parquet(url)
    s3_server.reset()
    numbers(spark, 8, 12).write.mode("append").partitionBy("day").parquet(url)
    requests = s3_server.requests()
    asked = [(it.method, it.path, str(it.query.get("prefix"))) for it in requests]
    of_files = [it for it in asked if "part-" in it[1] or "part-" in it[2]]  # S3A looks for each before it writes it
    assert sum(method == "PUT" for method, *_ in of_files) == 4
    assert len(of_files) <= 4 * 7
    assert len(asked) - len(of_files) <= 8, asked
    assert ids(dbio.read(spark, url)) == list(range(12))
