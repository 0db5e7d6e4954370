"""Keeps rows that a statement reads in several jobs: computes them once, and has executors keep them until it ends.

Each job must get the same rows, and their source may give others the next time. So if rows are lost with an executor,
the statement begins again with new rows, and more executors keep a copy of these.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from dbio_commit.base.errors import RowsLostError
from dbio_commit.base.logs import get_logger
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.session.jvm import PACK_ROWS, is_ready
from dbio_commit.spark.versions import local_checkpoint

_T = TypeVar("_T")
_COPIES = (1, 2, 3, 3)
"""By attempt: how many executors keep each row. Memory and disk for more copies are taken only when they are needed."""

_log = get_logger(__name__)

Keep = Callable[[DataFrame], DataFrame]
"""Returns rows that are kept. The first job that reads them must read all of them, and computes them. Later jobs get
the same rows, or raise RowsLostError. Over Spark Connect, and if Spark accepts no class, they are computed at once."""


def keeping(run: Callable[[Keep], _T]) -> _T:
    """Calls `run`, and again if executors lose rows that it keeps. Frees the rows afterwards.

    Raises RowsLostError if they were lost in each attempt.
    """
    for number, copies in enumerate(_COPIES, 1):
        try:
            with ExitStack() as held:
                return run(partial(_keep, held, copies))
        except RowsLostError as error:
            lost = error
            if number < len(_COPIES):
                _log.warning("%s; attempt %d of %d begins", error, number + 1, len(_COPIES))
    raise RowsLostError(
        f"executors died in each of {len(_COPIES)} attempts, and with them rows that Spark kept for this statement; "
        "nothing was committed. The log of Spark's driver says why they died, such as for lack of memory: see to that, "
        "and run the statement again"
    ) from lost


def _keep(held: ExitStack, copies: int, rows: DataFrame) -> DataFrame:
    spark: Any = rows.sparkSession
    if is_ready(spark, PACK_ROWS, without="rows that a statement reads twice take one more job"):
        of: Any = DataFrame
        kept: DataFrame = of(java_class(spark._jvm, _KEPT_ROWS).of(spark._jsparkSession, rows._jdf, copies), spark)
    else:
        kept = local_checkpoint(rows, copies)
    if not is_connect(spark):  # over Connect, garbage collection on the server frees the rows
        held.callback(_let_go, kept)
    return kept


_KEPT_ROWS = "dbio_commit.KeptRows"
"""The class is in the jar of PACK_ROWS."""


def _let_go(kept: Any) -> None:
    with suppress(Py4JError):  # the session may have ended, and its executors with it
        kept._jdf.queryExecution().logical().rdd().unpersist(False)
