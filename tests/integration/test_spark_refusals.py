"""What `write` and `read` cannot take: a clear error, and nothing is left behind."""

from pathlib import Path
from typing import Any, cast

import pandas
import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.conftest import Root
from tests.spark_tables import data_files, objects


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_what_is_no_frame_is_refused_by_name(path: str) -> None:
    with pytest.raises(dbio.InvalidInputError, match=r"takes the rows first: dbio\.write\(frame, path\)"):
        dbio.write(path, path)
    with pytest.raises(dbio.InvalidInputError, match=r"a dict is no frame of rows: give a DataFrame of pandas"):
        dbio.write({"a": [1]}, path)
    with pytest.raises(dbio.InvalidInputError, match="is not evaluated row by row without Spark"):
        dbio.write(pandas.DataFrame({"a": [1]}), path, "overwrite", replace_where="abs(a) > 1")
    assert not Path(path).exists()


def test_a_stream_is_no_batch_and_a_batch_is_no_stream(spark: SparkSession, path: str, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(dbio.InvalidInputError, match=r"this DataFrame is a stream: use dbio\.write_stream\("):
        dbio.write(stream, path)
    with pytest.raises(dbio.InvalidInputError, match=r"takes a DataFrame of spark\.readStream; .*dbio\.write"):
        dbio.write_stream(spark.range(1), path, tmp_path / "checkpoint")
    with pytest.raises(dbio.InvalidInputError, match="mode 'update' is neither"):
        dbio.write_stream(stream, path, tmp_path / "checkpoint", mode=cast(Any, "update"))
    assert not Path(path).exists()
    assert not (tmp_path / "checkpoint").exists()


def test_the_session_comes_first(spark: SparkSession, path: str) -> None:
    api: Any = dbio
    for name in ("read", "delete", "update", "merge", "constrain", "changes", "compact", "erase", "register"):
        for given in ((path, spark, "id = 1"), (None, path, "id = 1")):  # such as `getActiveSession()` where none is
            with pytest.raises(dbio.InvalidInputError, match=rf"dbio\.{name}\(spark, (path|name), …\)"):
                getattr(api, name)(*given)
    with pytest.raises(dbio.InvalidInputError, match=r"takes the Spark session first: dbio\.enable\(spark\)"):
        api.enable(None)


def test_a_stream_calls_a_function(spark: SparkSession, path: str, tmp_path: Path) -> None:
    dbio.write(spark.range(1), path)
    with pytest.raises(dbio.InvalidInputError, match="None is no function"):
        dbio.for_each_batch(spark, path, cast(Any, None), tmp_path / "checkpoint")


@pytest.mark.parametrize("url", ["oss://bucket/table", "hdfs://host/table", "dbfs:/table"])
def test_an_unknown_scheme_is_named(spark: SparkSession, url: str) -> None:
    scheme = url.partition(":")[0]
    with pytest.raises(dbio.InvalidInputError, match=f"no store is known for {scheme}: URLs; use "):
        dbio.write(spark.range(1), url)
    with pytest.raises(dbio.InvalidInputError, match=f"no store is known for {scheme}: URLs; use "):
        dbio.read(spark, url)


def test_a_partition_column_whose_name_is_too_long_is_refused_before_anything_is_there(
    spark: SparkSession, path: str
) -> None:
    name = "ä" * 127
    with pytest.raises(dbio.InvalidInputError, match="takes 255 bytes in a name"):
        dbio.write(spark.sql(f"SELECT 1 AS id, 'x' AS `{name}`"), path, partition_by=name)
    assert not Path(path).exists()


@pytest.mark.parametrize("text", ["repeat('é', 125)", "repeat('/', 83)"])
def test_a_partition_value_that_is_too_long_for_a_disk_is_refused_by_its_column(
    spark: SparkSession, path: str, text: str
) -> None:
    """A slash takes three bytes, as %2F."""
    fits = spark.sql(f"SELECT 1 AS id, {text} AS day")
    dbio.write(fits, path, partition_by="day")
    before = objects(path)
    with pytest.raises(dbio.InvalidInputError, match=r"partition column 'day' with the value .* 255 bytes in a name"):
        dbio.write(spark.sql(f"SELECT 1 AS id, {text} || 'abc' AS day"), path)
    assert data_files(path) == {name for name in before if not Path(name).name.startswith("_")}
    assert [commit.operation for commit in dbio.Table(path).history()] == ["append"]
    assert not dbio.Table(path).check().pending
    assert dbio.read(spark, path).collect() == fits.collect()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Spark cannot read:UserWarning")
def test_on_an_object_store_a_key_has_a_limit_and_a_name_has_none(spark: SparkSession, s3_root: Root) -> None:
    options = s3_root.storage_options
    fits = spark.sql("SELECT 1 AS id, repeat('x', 500) AS day")
    dbio.write(fits, s3_root.url, partition_by="day", storage_options=options)
    with pytest.raises(dbio.InvalidInputError, match=r"partition column 'day'.* bytes in all directory names"):
        dbio.write(spark.sql("SELECT 1 AS id, repeat('x', 1000) AS day"), s3_root.url, storage_options=options)
    assert dbio.read(spark, s3_root.url, storage_options=options).collect() == fits.collect()
    with pytest.raises(dbio.InvalidInputError, match=r"partition column 'day'.* bytes in all directory names"):
        dbio.write(fits, f"{s3_root.url}/{'d' * 850}", partition_by="day", storage_options=options)
