"""The table functions `dbio_files` and `dbio_history`, and classes that carry a session's settings to workers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from pyspark.sql import SparkSession

from dbio_commit.base.errors import AccessDeniedError
from dbio_commit.base.logs import get_logger
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.markers.provenance import Provenance
from dbio_commit.spark.session.conf import StoreSettings, raise_explained, settle_workers, store_settings
from dbio_commit.table import Table

_log = get_logger(__name__)

_Kind = TypeVar("_Kind")


def register_functions(spark: SparkSession) -> None:
    """Registers the table functions, with the session's store settings as they are now."""
    from pyspark.sql.functions import udtf

    settle_workers(spark)
    settings = store_settings(spark)
    for name, function in (("dbio_files", _Files), ("dbio_history", _History)):
        with_columns: Any = udtf(with_settings(function, settings), returnType=function.COLUMNS)
        spark.udtf.register(name, with_columns)


def with_settings(kind: type[_Kind], settings: StoreSettings) -> type[_Kind]:
    """A subclass to register, which has these settings. Spark pickles the class itself, and so the settings."""
    return type(kind.__name__, (kind,), {"settings": settings, "plain": kind})


def open_in_worker(path: str, settings: StoreSettings, explicit: Mapping[str, Any] | None = None) -> Table:
    table, ignored = settings.open_table(path, explicit)
    for sentence in ignored:
        _log.warning("%s: %s", table.url, sentence)
    return table


@contextmanager
def explained(table: Table, settings: StoreSettings) -> Iterator[None]:
    try:
        yield
    except AccessDeniedError as error:
        raise_explained(error, table, withheld=settings.withheld)


class _Files:
    """`SELECT * FROM dbio_files('s3://…')`: the live files of a table."""

    COLUMNS = "path string, size bigint, tid string, partition map<string,string>"
    settings: ClassVar[StoreSettings] = StoreSettings()

    def eval(self, path: str) -> Iterator[tuple[Any, ...]]:
        table = open_in_worker(path, self.settings)
        with explained(table, self.settings):
            files = table.snapshot().files
        for file in files:
            yield file.path, file.size, file.tid, dict(file.partition)


HISTORY_COLUMNS = (
    "tid string, timestamp timestamp, operation string, added bigint, removed bigint, metrics map<string,bigint>, "
    "app_id string, app_version bigint, kind string, message string, labels map<string,string>, host string, "
    "user string, process bigint, software string, spark_application string, spark_job string"
)


def history_row(commit: Commit) -> tuple[Any, ...]:
    """The commit as a row of `dbio_history`."""
    app_id, version = commit.app or (None, None)
    counts = commit.added_files, commit.removed_files
    by = commit.provenance or Provenance()
    who = by.host, by.user, by.process, by.software, by.spark_application, by.spark_job
    what = commit.tid, commit.timestamp, commit.operation, *counts, dict(commit.metrics), app_id, version
    return *what, commit.kind, commit.message, dict(commit.labels), *who


class _History:
    """`SELECT * FROM dbio_history('s3://…')`: the commits of a table, newest first."""

    COLUMNS = HISTORY_COLUMNS
    settings: ClassVar[StoreSettings] = StoreSettings()

    def eval(self, path: str) -> Iterator[tuple[Any, ...]]:
        table = open_in_worker(path, self.settings)
        with explained(table, self.settings):
            commits = table.history()
        yield from map(history_row, commits)
