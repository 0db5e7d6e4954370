"""Reads of Parquet in unchanged code: in a session with `enable(parquet=True)`, they give committed rows.

`ParquetReads.java` has the rules of Spark's analyzer, which ask `tables` for snapshots.
"""

from pyspark.sql import SparkSession

from dbio_commit.base.logs import get_logger
from dbio_commit.spark.session.conf import java_class
from dbio_commit.spark.session.jvm import CATALOG, is_ready

SWITCH = "spark.dbio.reads"
"""The setting that is "on" in sessions whose reads give committed rows, and "off" for reads of all files."""

_log = get_logger(__name__)


def enable_reads(spark: SparkSession) -> None:
    """Makes reads of Parquet by this session, and by all that the application makes from now on, give committed rows.

    A session or an application that has set the switch keeps it. Call `enable_catalog` first. If Spark lacks what the
    rules need, it logs a WARNING.
    """
    missing = "its JVM accepts no class"
    if is_ready(spark, CATALOG, without="SQL cannot read dbio tables"):
        missing = java_class(spark._jvm, "dbio_commit.ParquetReads").addTo(spark._jsparkSession)
    if missing:
        _log.warning(
            "this Spark does not accept the rules by which spark.read.parquet and SQL leave out files of dead jobs, so "
            "they read all files of a dbio table; use dbio.read: %.500s",
            missing,
        )
    if spark.conf.get(SWITCH, None) is None:
        spark.conf.set(SWITCH, "on")
        spark.sparkContext._jsc.sc().conf().set(SWITCH, "on")  # later sessions begin with it
