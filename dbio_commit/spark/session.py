"""What we ask of a Spark session: credentials for the store, whether Spark itself reaches it.

Works on classic sessions and over Spark Connect.
"""

import os
import warnings
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbio_commit.store import Location, parse_location
from dbio_commit.table import Table

Settings = Mapping[str, str]
"""Hadoop settings by name, such as "fs.s3a.endpoint"."""

_PREFIXES = ("fs.s3a.", "fs.azure.")


def hadoop_settings(spark: SparkSession) -> Settings:
    """The session's settings for S3 and Azure; over Connect those that were set as Spark configuration, except for
    keys and secrets: the server does not give those out, so they come as storage_options or from the environment.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:
        conf = session.sessionState().newHadoopConf()
        return {prefix + name: value for prefix in _PREFIXES for name, value in conf.getPropsWithPrefix(prefix).items()}
    known = {name.removeprefix("spark.hadoop."): value for name, value in dict(spark.conf.getAll).items()}
    return {name: value for name, value in known.items() if name.startswith(_PREFIXES)}


def open_table(spark: SparkSession, path: str | os.PathLike[str], explicit: Mapping[str, Any] | None) -> Table:
    """The table at the path, with the session's credentials where `explicit` storage_options give none."""
    location = parse_location(path)
    configured = {} if location.scheme == "file" else storage_options(location, hadoop_settings(spark))
    return Table(path, {**configured, **(explicit or {})})


def storage_options(location: Location, settings: Settings) -> dict[str, Any]:
    """fsspec's options for the store, as far as the settings say; the rest is the environment's."""
    match location.scheme:
        case "s3":
            return _s3_options(location, settings)
        case "az":
            return _azure_options(location, settings)
    return {}


def _s3_options(location: Location, settings: Settings) -> dict[str, Any]:
    def get(name: str) -> str | None:
        return settings.get(f"fs.s3a.bucket.{location.container}.{name}") or settings.get(f"fs.s3a.{name}")

    options: dict[str, Any] = {
        option: value
        for option, name in (("key", "access.key"), ("secret", "secret.key"), ("token", "session.token"))
        if (value := get(name))
    }
    if endpoint := get("endpoint"):
        plain = get("connection.ssl.enabled") == "false"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"http{'' if plain else 's'}://{endpoint}"
    if region := get("endpoint.region"):
        options["client_kwargs"] = {"region_name": region}
    if get("path.style.access") == "true":
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options


def _azure_options(location: Location, settings: Settings) -> dict[str, Any]:
    if location.account is None:
        return {}
    host = f"{location.account}.dfs.{location.cloud}"

    def get(name: str) -> str | None:
        return settings.get(f"fs.azure.{name}.{host}") or settings.get(f"fs.azure.{name}")

    options = {
        option: value
        for option, name in (
            ("account_key", "account.key"),
            ("sas_token", "sas.fixed.token"),
            ("client_id", "account.oauth2.client.id"),
            ("client_secret", "account.oauth2.client.secret"),
        )
        if (value := get(name))
    }
    if endpoint := get("account.oauth2.client.endpoint"):
        options["tenant_id"] = endpoint.split("://")[-1].split("/")[1]  # https://host/TENANT/oauth2/token
    return options


# --- does Spark reach it? -----------------------------------------------------------------------------------------

_reached: dict[tuple[int, str], bool] = {}


def native_root(spark: SparkSession, location: Location, *, account: str | None, file: str) -> str | None:
    """The table's root as Hadoop writes it, if this session can read there; None, and a warning once, if it cannot.

    `account` is the storage account of a container whose URL names none; `file` a live file of the table, relative
    to its root: only if Spark sees that very file does it look at the same store as we do.
    """
    if location.scheme == "file":
        return f"file://{location.prefix}"
    account = location.account or account
    host = f"@{account}.dfs.{location.cloud}" if location.scheme == "az" and account else ""
    container = f"s3a://{location.container}" if location.scheme == "s3" else f"abfss://{location.container}{host}"
    root = f"{container}/{location.prefix}".rstrip("/")
    known = (id(spark), container)
    if known not in _reached:
        problem = "its URL names no account" if location.scheme == "az" and not account else None
        problem = problem or _problem_of_reading(spark, f"{root}/{file}")
        _reached[known] = problem is None
        if problem:
            warnings.warn(
                f"Spark cannot read {container} itself ({problem:.300}); dbio_commit reads it through fsspec in Python "
                "workers, which is about 3 times slower. Give the session a connector (hadoop-aws or hadoop-azure) and "
                "credentials",
                stacklevel=5,
            )
    return root if _reached[known] else None


def _problem_of_reading(spark: SparkSession, file: str) -> str | None:
    try:
        spark.read.schema("probe int").parquet(file).schema  # noqa: B018  (over Connect, asking for it is what plans)
    except Py4JJavaError as error:
        return str(error.java_exception.toString())
    except (PySparkException, Py4JError) as error:
        return str(error).strip().splitlines()[0]
    return None


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, as far as the session tells."""
    if hasattr(spark, "_jsparkSession"):
        return spark.sparkContext.defaultParallelism
    known = spark.conf.get("spark.default.parallelism", None) or spark.conf.get("spark.sql.shuffle.partitions", None)
    return int(known or 8)
