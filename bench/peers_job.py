"""What cases_peers.py measures, done in a peer's environment: by the peer, and by dbio_commit on the same Spark.

Started with the name of the peer, a directory for logs, and a path or URL for tables. Jobs come on stdin and answers go
to stdout, a line of JSON each. The Makefile makes the environments; the jars come from Maven, by Spark's own Ivy.
Appends without Spark are in peers_appends.py.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import dbio_commit as dbio
from bench import data, large_tables
from bench.cases_busy import forget
from bench.measure import parquet_size, start_spark
from bench.peers_appends import Appends

ICEBERG = "1.11.0"
_CATALOG = "iceberg.bench"
_CLOUD = "org.apache.spark.internal.io.cloud"
_ON = " AND ".join(f"target.{column} = source.{column}" for column in data.KEY)


class Way:
    """How one contender writes and reads its tables, which have names and lie below a path or URL."""

    def __init__(self, root: str) -> None:
        self.root = root

    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        """A new table."""
        raise NotImplementedError

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        raise NotImplementedError

    def rows_where(self, spark: SparkSession, table: str, where: str) -> DataFrame:
        return self.read(spark, table).where(where)

    def files(self, spark: SparkSession, table: str) -> list[str]:
        """The paths of the live files."""
        return [unquote(urlsplit(it).path) for it in self.read(spark, table).inputFiles()]

    def path(self, table: str) -> str:
        return f"{self.root}/{table}"

    def name(self, spark: SparkSession, table: str) -> str:
        """The table in SQL."""
        raise NotImplementedError

    def delete(self, spark: SparkSession, table: str, where: str) -> None:
        raise NotImplementedError

    def update(self, spark: SparkSession, table: str, values: Mapping[str, str], where: str) -> None:
        raise NotImplementedError

    def merge(self, spark: SparkSession, table: str, source: DataFrame) -> None:
        """Updates the rows of the source that are there, by the KEY, and inserts the others."""
        raise NotImplementedError

    def compact(self, spark: SparkSession, table: str, target_bytes: int) -> None:
        """Into files of about so many bytes, in no order."""
        raise NotImplementedError

    def cluster_append(self, spark: SparkSession, table: str, order: str, source: str, columns: Sequence[str]) -> None:
        """`order` is "liquid", "zorder" or "sort". The first append makes the table."""
        raise NotImplementedError

    def cluster_run(
        self, spark: SparkSession, table: str, order: str, columns: Sequence[str], target_bytes: int, full: bool
    ) -> None:
        """Orders the rows, or all of them if `full`."""
        raise NotImplementedError

    def drop(self, spark: SparkSession, table: str) -> None:
        """Also if there is none."""
        shutil.rmtree(self.path(table), ignore_errors=True)

    def forget(self, spark: SparkSession) -> None:
        """As if this process had read nothing."""

    def make_tiny(self, spark: SparkSession, table: str, files: int) -> int:
        """What data.make_tiny_files makes: the same files, in as many commits. Returns how many a read finds."""
        raise NotImplementedError

    def make_large(self, table: str, files: int, commits: int) -> None:
        """A table of so many files, of which there is only the log: see large_tables.py."""
        raise NotImplementedError

    def take(self, spark: SparkSession, table: str, files: Sequence[Path]) -> None:
        """A new table of Parquet files that are there already, which are linked to."""
        raise NotImplementedError


# --- on a local disk ----------------------------------------------------------------------------------------------


class Ours(Way):
    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        dbio.write(df, self.path(table), partition_by=partition_by)

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        return dbio.read(spark, self.path(table))

    def rows_where(self, spark: SparkSession, table: str, where: str) -> DataFrame:
        return dbio.read(spark, self.path(table), where=where)

    def delete(self, spark: SparkSession, table: str, where: str) -> None:
        dbio.delete(spark, self.path(table), where)

    def update(self, spark: SparkSession, table: str, values: Mapping[str, str], where: str) -> None:
        dbio.update(spark, self.path(table), values, where)

    def merge(self, spark: SparkSession, table: str, source: DataFrame) -> None:
        dbio.merge(spark, self.path(table), source, on=data.KEY)

    def compact(self, spark: SparkSession, table: str, target_bytes: int) -> None:
        assert not dbio.compact(spark, self.path(table), target_bytes).left

    def take(self, spark: SparkSession, table: str, files: Sequence[Path]) -> None:
        with dbio.Table(self.path(table)).begin() as transaction:
            for file in files:
                os.link(file, transaction.new_file(suffix=".snappy.parquet"))

    def forget(self, spark: SparkSession) -> None:
        forget()

    def make_tiny(self, spark: SparkSession, table: str, files: int) -> int:
        data.make_tiny_files(Path(self.path(table)), files)
        return len(self.read(spark, table).inputFiles())

    def make_large(self, table: str, files: int, commits: int) -> None:
        large_tables.make_ours(Path(self.path(table)), files, commits)

    def name(self, spark: SparkSession, table: str) -> str:
        """A view of `dbio.read`, to compare SQL on tables with."""
        self.read(spark, table).createOrReplaceTempView("rows_of_dbio")
        return "rows_of_dbio"


class BySql(Way):
    """Changes rows by SQL."""

    def delete(self, spark: SparkSession, table: str, where: str) -> None:
        spark.sql(f"DELETE FROM {self.name(spark, table)} WHERE {where}")

    def update(self, spark: SparkSession, table: str, values: Mapping[str, str], where: str) -> None:
        sets = ", ".join(f"{column} = {value}" for column, value in values.items())
        spark.sql(f"UPDATE {self.name(spark, table)} SET {sets} WHERE {where}")

    def merge(self, spark: SparkSession, table: str, source: DataFrame) -> None:
        source.createOrReplaceTempView("source")
        spark.sql(
            f"MERGE INTO {self.name(spark, table)} target USING source ON {_ON} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


class OursBySql(BySql, Ours):
    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        dbio.enable(df.sparkSession)
        super().write(df, table, partition_by)

    def name(self, spark: SparkSession, table: str) -> str:
        return f"dbio.`{self.path(table)}`"


class Delta(Way):
    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        df.write.format("delta").partitionBy(*partition_by).save(self.path(table))

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.format("delta").load(self.path(table))

    def delete(self, spark: SparkSession, table: str, where: str) -> None:
        self._table(spark, table).delete(where)

    def update(self, spark: SparkSession, table: str, values: Mapping[str, str], where: str) -> None:
        self._table(spark, table).update(where, dict(values))

    def merge(self, spark: SparkSession, table: str, source: DataFrame) -> None:
        merge = self._table(spark, table).alias("target").merge(source.alias("source"), _ON)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def compact(self, spark: SparkSession, table: str, target_bytes: int) -> None:
        for bound in ("maxFileSize", "minFileSize"):
            spark.conf.set(f"spark.databricks.delta.optimize.{bound}", str(target_bytes))
        self._table(spark, table).optimize().executeCompaction()

    def take(self, spark: SparkSession, table: str, files: Sequence[Path]) -> None:
        path = Path(self.path(table))
        path.mkdir(parents=True)
        for file in files:
            os.link(file, path / file.name)
        spark.sql(f"CONVERT TO DELTA parquet.`{path}`")

    def cluster_append(self, spark: SparkSession, table: str, order: str, source: str, columns: Sequence[str]) -> None:
        rows, path = spark.read.parquet(source), self.path(table)
        if not Path(path).exists():
            by = f"CLUSTER BY ({', '.join(columns)})" if order == "liquid" else ""
            fields = ", ".join(f"{it.name} {it.dataType.simpleString()}" for it in rows.schema)
            spark.sql(f"CREATE TABLE delta.`{path}` ({fields}) USING delta {by}")
        rows.write.format("delta").mode("append").save(path)

    def cluster_run(
        self, spark: SparkSession, table: str, order: str, columns: Sequence[str], target_bytes: int, full: bool
    ) -> None:
        for bound in ("maxFileSize", "minFileSize"):
            spark.conf.set(f"spark.databricks.delta.optimize.{bound}", str(target_bytes))
        spark.conf.set("parquet.block.size", str(_row_group_bytes(target_bytes)))
        by = f"ZORDER BY ({', '.join(columns)})" if order == "zorder" else "FULL" if full else ""
        spark.sql(f"OPTIMIZE delta.`{self.path(table)}` {by}")

    def _table(self, spark: SparkSession, table: str) -> Any:
        tables: Any = import_module("delta.tables")  # is in the peer's environment only
        return tables.DeltaTable.forPath(spark, self.path(table))

    def drop(self, spark: SparkSession, table: str) -> None:
        super().drop(spark, table)
        self.forget(spark)

    def forget(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        gateway.jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def make_tiny(self, spark: SparkSession, table: str, files: int) -> int:
        """By deltalake, with the same statistics."""
        from deltalake import DeltaTable, Schema
        from deltalake.transaction import AddAction, RemoveAction

        root = Path(self.path(table))
        data.make_tiny_files(root, files)
        schema = Schema.from_json(data.TINY_COLUMNS.json())
        delta = DeltaTable.create(str(root), schema, partition_by=["day"])
        bounds = {"minValues": {"id": 1, "x": 1.0, "s": "a"}, "maxValues": {"id": 2, "x": 2.0, "s": "b"}}
        statistics = json.dumps({"numRecords": 2, **bounds, "nullCount": {"id": 0, "x": 0, "s": 0}})
        for day in sorted(root.glob("day=*")):
            partition = {"day": day.name.removeprefix("day=")}
            added: list[AddAction | RemoveAction] = [
                AddAction(f"{day.name}/{file.name}", file.stat().st_size, partition, 0, True, statistics)
                for file in day.glob("*.parquet")
            ]
            delta.create_write_transaction(added, "append", schema, partition_by=["day"])
        return len(self.read(spark, table).inputFiles())

    def make_large(self, table: str, files: int, commits: int) -> None:
        large_tables.make_delta(Path(self.path(table)), files, commits)


class DeltaBySql(BySql, Delta):
    """With deletion vectors, or without."""

    def __init__(self, root: str, *, vectors: bool) -> None:
        super().__init__(root)
        self._vectors = vectors

    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        writer = df.write.format("delta").option("delta.enableDeletionVectors", str(self._vectors).lower())
        writer.partitionBy(*partition_by).save(self.path(table))

    def name(self, spark: SparkSession, table: str) -> str:
        return f"delta.`{self.path(table)}`"


class Iceberg(BySql):
    """Iceberg copies on write by default. Its catalog is set to remember nothing."""

    def path(self, table: str) -> str:
        return f"{self.root}/bench/{table}"

    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        writer = df.writeTo(f"{_CATALOG}.{table}")
        if partition_by:
            writer = writer.partitionedBy(*map(F.col, partition_by))
        writer.create()

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.table(f"{_CATALOG}.{table}")

    def name(self, spark: SparkSession, table: str) -> str:
        return f"{_CATALOG}.{table}"

    def files(self, spark: SparkSession, table: str) -> list[str]:
        """`inputFiles` finds none of a table of Iceberg."""
        found = spark.sql(f"SELECT file_path FROM {_CATALOG}.{table}.files").collect()
        return [urlsplit(it.file_path).path for it in found]

    def drop(self, spark: SparkSession, table: str) -> None:
        spark.sql(f"DROP TABLE IF EXISTS {_CATALOG}.{table} PURGE")

    def cluster_append(self, spark: SparkSession, table: str, order: str, source: str, columns: Sequence[str]) -> None:
        rows, name = spark.read.parquet(source), f"{_CATALOG}.{table}"
        if spark.catalog.tableExists(name):
            rows.writeTo(name).append()
        else:
            rows.writeTo(name).create()

    def cluster_run(
        self, spark: SparkSession, table: str, order: str, columns: Sequence[str], target_bytes: int, full: bool
    ) -> None:
        """Iceberg has no rule for which files it orders, so this names all of them, each time."""
        names = ", ".join(columns)
        properties = f"'write.parquet.row-group-size-bytes' = '{_row_group_bytes(target_bytes)}'"
        spark.sql(f"ALTER TABLE {_CATALOG}.{table} SET TBLPROPERTIES ({properties})")
        spark.sql(
            f"CALL iceberg.system.rewrite_data_files(table => 'bench.{table}', strategy => 'sort', "
            f"sort_order => '{f'zorder({names})' if order == 'zorder' else names}', "
            f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{target_bytes}'))"
        )

    def make_tiny(self, spark: SparkSession, table: str, files: int) -> int:
        """By Iceberg's own procedure for files that are there already."""
        source, name = Path(self.root, "tiny_files"), f"{_CATALOG}.{table}"
        data.make_tiny_files(source, files)
        spark.sql(f"CREATE TABLE {name} (id BIGINT, x DOUBLE, s STRING, day DATE) USING iceberg PARTITIONED BY (day)")
        for day in sorted(path.name.removeprefix("day=") for path in source.glob("day=*")):
            spark.sql(
                f"CALL iceberg.system.add_files(table => 'bench.{table}', source_table => '`parquet`.`{source}`', "
                f"partition_filter => map('day', '{day}'))"
            )
        return spark.table(f"{name}.files").count()

    def make_large(self, table: str, files: int, commits: int) -> None:
        large_tables.make_iceberg(Path(self.path(table)), files, commits)


# --- on S3 --------------------------------------------------------------------------------------------------------


class Magic(Way):
    """Spark's own writer, with S3A's magic committer."""

    def path(self, table: str) -> str:
        return super().path(table).replace("s3://", "s3a://")

    def write(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        df.write.partitionBy(*partition_by).parquet(self.path(table))

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.parquet(self.path(table))


# --- the environments ---------------------------------------------------------------------------------------------


def _row_group_bytes(target_bytes: int) -> int:
    """As many times less than parquet-java's default as the files are smaller than 128 MB."""
    return 128 * 1024 * 1024 * target_bytes // 128_000_000


def _delta(root: str) -> dict[str, str]:
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{_spark_series()}_2.13:{version('delta-spark')}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _iceberg(root: str) -> dict[str, str]:
    return {
        "spark.jars.packages": f"org.apache.iceberg:iceberg-spark-runtime-{_spark_series()}_2.13:{ICEBERG}",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": f"{root}/iceberg",
        "spark.sql.catalog.iceberg.cache-enabled": "false",
        "spark.sql.catalog.iceberg.table-default.write.parquet.compression-codec": "snappy",
        # Iceberg plans large tables by jobs, whose results are larger than what Spark allows by default.
        "spark.driver.maxResultSize": "0",
    }


def _s3a(root: str) -> dict[str, str]:
    cloud = f"org.apache.spark:spark-hadoop-cloud_2.13:{pyspark.__version__}"
    factory = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    return {
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{_hadoop()},{cloud}",
        "spark.jars.excludes": _OTHER_CLOUDS,
        "spark.hadoop.fs.s3a.endpoint": os.environ.get("AWS_ENDPOINT_URL", ""),
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.committer.name": "magic",
        "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
        "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": factory,
    }


# spark-hadoop-cloud is wanted for two classes, and brings Google, Azure and Huawei along.
_OTHER_CLOUDS = ",".join(
    [
        "com.fasterxml.jackson.*:*",
        "com.google.cloud.bigdataoss:*",
        "com.squareup.*:*",
        "org.apache.hadoop:hadoop-azure*",
        "org.apache.hadoop:hadoop-client-*",
        "org.apache.hadoop:hadoop-cloud-storage",
        "org.apache.hadoop:hadoop-huaweicloud",
        "org.eclipse.jetty:*",
    ]
)


def _spark_series() -> str:
    return pyspark.__version__.rpartition(".")[0]


def _hadoop() -> str:
    """The version that PySpark brings."""
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return client.stem.removeprefix("hadoop-client-api-")


_WAYS: Mapping[str, Callable[[str], Way]] = {
    "dbio": lambda root: Ours(f"{root}/dbio"),
    "dbio_sql": lambda root: OursBySql(f"{root}/dbio_sql"),
    "delta": lambda root: Delta(f"{root}/delta"),
    "delta_sql": lambda root: DeltaBySql(f"{root}/delta_sql", vectors=False),
    "delta_vectors": lambda root: DeltaBySql(f"{root}/delta_vectors", vectors=True),
    "iceberg": lambda root: Iceberg(f"{root}/iceberg"),
    "magic": lambda root: Magic(f"{root}/magic"),
}
_SETTINGS: Mapping[str, Callable[[str], dict[str, str]]] = {"delta": _delta, "iceberg": _iceberg, "s3a": _s3a}


# --- jobs ---------------------------------------------------------------------------------------------------------


class Jobs:
    """By the names of its public methods."""

    def __init__(self, peer: str, directory: str, root: str) -> None:
        self._peer, self._directory, self._root = peer, Path(directory), root
        self._ways = {name: make(root) for name, make in _WAYS.items()}
        appends = Appends(self._directory / "appends")
        self.renew, self.append, self.check_appends = appends.renew, appends.append, appends.check

    @cached_property
    def _spark(self) -> SparkSession:
        return _start(self._peer, self._directory, self._root)

    def versions(self) -> dict[str, str]:
        """Of what is installed for this peer alone."""
        found = {"Spark": pyspark.__version__}
        if self._peer == "delta":
            found["Delta"] = version("delta-spark")
        elif self._peer == "iceberg":
            found |= {"Iceberg": ICEBERG, "PyIceberg": version("pyiceberg"), "deltalake": version("deltalake")}
        else:
            found["Hadoop"] = _hadoop()
        return found

    def drop(self, way: str, table: str) -> None:
        self._ways[way].drop(self._spark, table)

    def write(self, way: str, table: str, source: str, by_month: bool) -> None:
        lineitem = self._spark.read.parquet(source)
        df, partition_by = (data.with_month(lineitem), [data.MONTH]) if by_month else (lineitem, [])
        self._ways[way].write(df, table, partition_by)

    def write_in_files(self, way: str, table: str, source: str, files: int) -> None:
        """Each has another range of the orders."""
        df = self._spark.read.parquet(source).repartitionByRange(files, data.KEY[0])
        self._ways[way].write(df, table, [])

    def take(self, way: str, table: str, directory: str) -> None:
        """A table of the files in the directory."""
        self._ways[way].take(self._spark, table, sorted(Path(directory).glob("*.parquet")))

    def keep(self, way: str, table: str) -> None:
        """The table as it is now, for `bring_back`; by links, since nobody changes a file that is there."""
        path = Path(self._ways[way].path(table))
        shutil.copytree(path, path.with_name(f"{table}-kept"), copy_function=os.link)

    def bring_back(self, way: str, table: str) -> None:
        path = Path(self._ways[way].path(table))
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(path.with_name(f"{table}-kept"), path, copy_function=os.link)
        self._ways[way].forget(self._spark)

    def delete(self, way: str, table: str, where: str) -> None:
        self._ways[way].delete(self._spark, table, where)

    def update(self, way: str, table: str, values: Mapping[str, str], where: str) -> None:
        self._ways[way].update(self._spark, table, values, where)

    def merge(self, way: str, table: str, source: str) -> None:
        self._ways[way].merge(self._spark, table, self._spark.read.parquet(source))

    def compact(self, way: str, table: str, target_bytes: int) -> None:
        self._ways[way].compact(self._spark, table, target_bytes)

    def cluster_append(self, way: str, table: str, order: str, source: str, columns: Sequence[str]) -> None:
        """The rows of a file, to a table that is made for them in this order."""
        self._ways[way].cluster_append(self._spark, table, order, source, columns)

    def cluster_run(
        self, way: str, table: str, order: str, columns: Sequence[str], target_bytes: int, full: bool
    ) -> None:
        self._ways[way].cluster_run(self._spark, table, order, columns, target_bytes, full)

    def cluster_files(self, way: str, table: str, order: str) -> list[str]:
        """The paths of the live files."""
        return self._ways[way].files(self._spark, table)

    def live_files(self, way: str, table: str) -> int:
        return len(self._ways[way].files(self._spark, table))

    def checksum(self, way: str, table: str) -> list[str]:
        """By which two tables have the same rows, as far as a rewrite can tell them apart."""
        sums = (F.count("*"), F.sum("l_extendedprice"), F.sum("l_orderkey"))
        return [str(value) for value in self._ways[way].read(self._spark, table).agg(*sums).collect()[0]]

    def size(self, way: str, table: str) -> tuple[int, float]:
        return parquet_size(Path(self._ways[way].path(table)))

    def count(self, way: str, table: str) -> int:
        return self._ways[way].read(self._spark, table).count()

    def read_one_column(self, way: str, table: str) -> None:
        self._ways[way].read(self._spark, table).select(F.sum("l_extendedprice")).collect()

    def read_all_columns(self, way: str, table: str) -> None:
        self._ways[way].read(self._spark, table).write.format("noop").mode("overwrite").save()

    def select(self, way: str, table: str, query: str) -> None:
        """A query in SQL, in which {} is the table. Its rows are read, and only counted.

        A write to `noop` would not do: Delta refuses it for tables with deletion vectors.
        """
        found: Any = self._spark.sql(query.format(self._ways[way].name(self._spark, table)))
        found._jdf.queryExecution().toRdd().count()

    def make_tiny(self, way: str, table: str, files: int) -> int:
        return self._ways[way].make_tiny(self._spark, table, files)

    def make_large(self, way: str, table: str, files: int, commits: int) -> None:
        self._ways[way].make_large(table, files, commits)

    def checkpoint(self, way: str, table: str) -> None:
        """Of a table of dbio_commit."""
        dbio.Table(self._ways[way].path(table)).checkpoint()

    def forget(self, way: str) -> None:
        self._ways[way].forget(self._spark)

    def open(self, way: str, table: str) -> None:
        """Makes the DataFrame, and no more."""
        self._ways[way].read(self._spark, table)

    def plan(self, way: str, table: str, where: str = "") -> None:
        """Makes the DataFrame, and plans a query of all rows, or of those of a condition, down to the tasks."""
        ways, spark = self._ways[way], self._spark
        df: Any = ways.rows_where(spark, table, where) if where else ways.read(spark, table)
        assert df._jdf.queryExecution().toRdd().getNumPartitions()


def fetch(peer: str) -> None:
    """The jars, which stay beside the peer's Python."""
    _start(peer, Path(sys.prefix), sys.prefix).stop()


def _start(peer: str, directory: Path, root: str) -> SparkSession:
    settings = {**_SETTINGS[peer](root), "spark.jars.ivy": f"{sys.prefix}/ivy"}
    try:
        return start_spark(directory, settings)
    except PySparkRuntimeError as error:
        said = (directory / "spark.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"Spark did not start with {settings['spark.jars.packages']}; it said: {said}") from error


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Java and Python workers print is no answer
    jobs = Jobs(*sys.argv[1:])
    for line in sys.stdin:
        job, *arguments = json.loads(line)
        try:
            answer = {"answer": getattr(jobs, job)(*arguments)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
