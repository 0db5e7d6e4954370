"""Paths without a scheme in a session whose default file system is no disk: refused by name, wherever one is taken."""

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from dbio_commit import InvalidInputError
from dbio_commit.spark.session.conf import DefaultFileSystem, StoreSettings, locate, open_table, refuse_elsewhere
from dbio_commit.store import Location
from vacuum import vacuum

FABRIC = DefaultFileSystem(
    "abfss://ws@onelake.dfs.fabric.microsoft.com", "abfss://ws@onelake.dfs.fabric.microsoft.com/lake"
)


class Connected:
    """A session over Connect, as far as its settings go."""

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf = SimpleNamespace(get=lambda name, default=None: self.settings.get(name, default))


def connected(**settings: str) -> SparkSession:
    return cast(SparkSession, Connected(**settings))


@pytest.mark.parametrize("url", [None, "", " ", "file:///", "file:/", "FILE:///", "local:/", "not a URL"])
def test_a_disk_is_what_both_take_a_path_for(url: str | None) -> None:
    assert DefaultFileSystem.of(url) is None
    refuse_elsewhere("/data/t", DefaultFileSystem.of(url))


@pytest.mark.parametrize(
    ("default", "path", "taken_for"),
    [
        ("hdfs://nn:8020", "/data/t", "hdfs://nn:8020/data/t"),
        ("hdfs://nn/", "/data/t", "hdfs://nn/data/t"),
        ("hdfs://nn/", "//data/t", "hdfs://nn//data/t"),
        ("dbfs:/", "/mnt/lake/t", "dbfs:/mnt/lake/t"),
        ("dbfs:///", "/mnt/lake/t", "dbfs:/mnt/lake/t"),
        ("s3a://lake", "/t", "s3a://lake/t"),
        (
            "abfss://ws@onelake.dfs.fabric.microsoft.com/",
            "/l/Files/t",
            "abfss://ws@onelake.dfs.fabric.microsoft.com/l/Files/t",
        ),
    ],
)
def test_the_message_has_what_spark_takes_the_path_for(default: str, path: str, taken_for: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        refuse_elsewhere(path, DefaultFileSystem.of(default))
    assert f"for Spark it is {taken_for} in the default file system" in str(refusal.value)
    assert f"or 'file://{os.path.abspath(path)}' for a disk that this machine and all executors share" in str(
        refusal.value
    )


@pytest.mark.parametrize(
    ("default", "path", "give"),
    [
        (DefaultFileSystem("s3a://lake"), "/a/t", "Give 's3a://lake/a/t';"),
        (DefaultFileSystem("s3a://lake"), "a/t", "Give a URL, s3a://lake/…;"),
        (FABRIC, "Files/t", "Give 'abfss://ws@onelake.dfs.fabric.microsoft.com/lake/Files/t';"),
        (DefaultFileSystem("dbfs:/"), "/mnt/lake/t", "Give the URL of a store: the URL of what is mounted there"),
        (DefaultFileSystem("hdfs://nn"), "t", "Give the URL of a store: s3://… or abfss://…"),
        (DefaultFileSystem("wasbs://c@acc.blob.core.windows.net"), "/t", "abfss://c@acc.dfs.core.windows.net/t"),
        (DefaultFileSystem("unheard://of"), "/t", "Give the URL of a store: s3://…, abfss://…;"),
    ],
)
def test_the_message_has_the_url_to_give(default: DefaultFileSystem, path: str, give: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        refuse_elsewhere(path, default)
    assert give in str(refusal.value)


@pytest.mark.parametrize(
    "path", ["file:/data/t", "file:///data/t", "s3://lake/t", "abfss://c@acc.dfs.core.windows.net/t"]
)
def test_a_path_with_a_scheme_means_the_same_to_both(path: str) -> None:
    refuse_elsewhere(path, DefaultFileSystem("hdfs://nn"))


def test_what_stands_before_the_host_is_not_shown() -> None:
    with pytest.raises(InvalidInputError) as refusal:
        refuse_elsewhere("/t", DefaultFileSystem.of("s3a://AKIA:sEc/sEcReT@lake"))
    assert "sEc" not in str(refusal.value)
    assert "s3a://lake/t" in str(refusal.value)


@pytest.mark.parametrize("name", ["fs_defaultFS", "spark_hadoop_fs_defaultFS"])
@pytest.mark.parametrize("path", ["/data/t", "t"])
def test_over_connect_the_setting_that_the_session_shows_decides(name: str, path: str) -> None:
    spark = connected(**{name: "hdfs://nn"})
    for take in (lambda: locate(spark, path), lambda: open_table(spark, path, None), lambda: vacuum(path, spark=spark)):
        with pytest.raises(InvalidInputError, match="has no scheme"):
            cast(Any, take)()
    assert locate(spark, "file:/data/t") == Location("file", "", "/data/t")


def test_over_connect_a_session_that_shows_none_is_taken_for_one_on_a_disk() -> None:
    assert locate(connected(), "/data/t") == Location("file", "", "/data/t")


def test_what_is_registered_in_a_session_goes_by_its_default_file_system() -> None:
    settings = StoreSettings(default=DefaultFileSystem("hdfs://nn"))
    with pytest.raises(InvalidInputError, match="has no scheme"):
        settings.open_table("/data/t")
    assert settings.open_table("file:/data/t")[0].url == "/data/t"
