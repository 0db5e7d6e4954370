"""Hides the differences between versions of Spark, Scala and PyArrow: names capabilities, and has replacements.

The rest of the package is written for the newest Spark, and calls this module for what older versions lack or name
otherwise. No other module compares versions. A name that an older PySpark lacks is imported only when it is needed.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import UnsupportedStoreError

SPARK: str = pyspark.__version__
"""The version of PySpark, for messages."""

_SPARK = tuple(int(part) for part in SPARK.split(".")[:2])
_IS_4 = _SPARK >= (4, 0)

HAS_DATA_SOURCES = _IS_4
"""Whether Spark takes data sources in Python, such as `format("dbio")`."""
HAS_STREAM_SINKS = _SPARK >= (4, 1)
"""Whether Spark passes Arrow batches to a stream sink in Python."""
HAS_STREAM_SOURCES = _SPARK >= (4, 2)
"""Whether a stream source in Python can limit the size of a batch."""
HAS_CONSTRAINTS = _SPARK >= (4, 1)
"""Whether CREATE TABLE and ALTER TABLE have CONSTRAINT … CHECK."""
SERVES_CONNECT = _IS_4
"""Whether the server of Spark Connect can listen on one address only, and ask for a token."""
READS_WIDENED = _IS_4
"""Whether Spark reads a file as a wider type than its own, such as int as bigint. If not, it raises an error."""
SHORT_DECIMALS = int(pa.__version__.partition(".")[0]) >= 22
"""Whether this PyArrow writes decimals of 64 bits to Parquet. If not, they are widened to 128 bits."""

# --- DataFrames, columns and errors -------------------------------------------------------------------------------


def is_frame(value: object) -> TypeGuard[DataFrame]:
    """Whether the value is a DataFrame of a classic session or of Spark Connect, whose classes 3.5 does not relate."""
    connect = sys.modules.get("pyspark.sql.connect.dataframe")
    return isinstance(value, DataFrame) or (connect is not None and isinstance(value, connect.DataFrame))


def error_condition(error: PySparkException) -> str | None:
    """Spark's name for the kind of error, such as "PATH_NOT_FOUND"."""
    if _IS_4:
        return error.getCondition()
    in_text = re.match(r"\[([\w.]+)\]", str(error))  # over Connect, only the text has it
    return error.getErrorClass() or (in_text[1] if in_text else None)


def all_settings(spark: SparkSession) -> Mapping[str, str]:
    """The settings of a session of Spark Connect."""
    if _IS_4:
        return dict(spark.conf.getAll)
    from pyspark.sql.connect.proto import ConfigRequest

    client: Any = spark.client
    everything = ConfigRequest.Operation(get_all=ConfigRequest.GetAll())
    return {name: value or "" for name, value in client.config(everything).pairs}


def read_texts_as(spark: SparkSession) -> None:
    """From now on, Spark parses texts in SQL in this thread with the settings of the session.

    Spark 4.0 and later do so anyway. Before 4.0, `functions.expr` uses the settings of the thread's active session,
    which may be another one. In a new thread no session is active, and Spark's defaults apply.
    """
    if not _IS_4 and hasattr(spark, "_jsparkSession"):
        sessions: Any = getattr(spark._jvm, "org.apache.spark.sql.SparkSession")
        sessions.setActiveSession(spark._jsparkSession)


def local_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """A DataFrame of rows that are in memory. Since 4.0 it is a local relation, for which no job runs."""
    if _IS_4:
        return spark.createDataFrame(rows)
    columns = ", ".join(f"{field.name} {_DDL[str(field.type)]}" for field in rows.schema)
    return spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], columns)


_DDL = {"int64": "bigint", "string": "string"}


def try_cast(value: Column, kind: t.DataType) -> Column:
    """The value as this type; null if it does not fit."""
    if _IS_4:
        return value.try_cast(kind)
    if isinstance(value, Column):
        return _try_cast_classic(value, kind)
    text: Any = getattr(value._expr, "_expr", None)  # of f.expr, over Connect
    if not isinstance(text, str):
        raise UnsupportedStoreError(
            f"over Spark Connect, a value that may not fit {kind.simpleString()} needs Spark 4.0 or later, and this is "
            f"{SPARK}; cast it in the expression, or use a classic session"
        )
    return f.expr(f"try_cast(({text}\n) AS {kind.simpleString()})")


def rebalanced(df: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows with the hint REBALANCE by these columns, whose names are quoted."""
    if _IS_4 or not isinstance(df, DataFrame):
        return df.hint("rebalance", *columns)
    classic: Any = df  # before 4.0, its `hint` turns a name into a text
    expressions = [expression_of(df.sparkSession, f.col(column)) for column in columns]
    made: Any = DataFrame
    found: DataFrame = made(classic._jdf.hint("rebalance", classic._jseq(expressions)), df.sparkSession)
    return found


def require_merge(source: DataFrame) -> None:
    """Raises UnsupportedStoreError if this Spark cannot keep the rows of a merge's source: over Connect before 4.0."""
    if not _IS_4 and not isinstance(source, DataFrame):
        raise UnsupportedStoreError(
            f"a merge over Spark Connect needs Spark 4.0 or later, and this is {SPARK}; merge in a classic session"
        )


def local_checkpoint(rows: DataFrame, copies: int) -> DataFrame:
    """The rows, computed now, each kept by so many executors. Before 4.0, one executor keeps each row."""
    return (
        rows.localCheckpoint(storageLevel=StorageLevel(True, True, False, True, copies))
        if _IS_4
        else rows.localCheckpoint()
    )


# --- expressions of the JVM, on classic sessions ------------------------------------------------------------------


def column_of(spark: SparkSession, expression: Any) -> Column:
    """A column of PySpark with an expression of the JVM."""
    jvm: Any = spark._jvm
    if not _IS_4:
        of_java: Any = Column
        made: Column = of_java(getattr(jvm, "org.apache.spark.sql.Column")(expression))
        return made
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(getattr(jvm, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def expression_of(spark: SparkSession, column: Any) -> Any:
    """The JVM's expression of a column."""
    jvm: Any = spark._jvm
    if not _IS_4:
        return column._jc.expr()
    return getattr(jvm, "org.apache.spark.sql.classic.ExpressionUtils").expression(column._jc)


def _try_cast_classic(value: Any, kind: t.DataType) -> Column:
    spark = SparkSession.active()
    jvm: Any = spark._jvm
    catalyst = "org.apache.spark.sql.catalyst.expressions"
    own = spark._jsparkSession.parseDataType(kind.json())
    nothing = getattr(jvm, "scala.Option").empty()
    mode = getattr(getattr(jvm, f"{catalyst}.EvalMode$"), "MODULE$").TRY()
    return column_of(spark, getattr(jvm, f"{catalyst}.Cast")(value._jc.expr(), own, nothing, mode))


# --- Scala --------------------------------------------------------------------------------------------------------


def scala_version(jvm: Any) -> str:
    """The version of Scala in the JVM, such as "2.13"."""
    return str(getattr(jvm, "scala.util.Properties").versionNumberString()).rpartition(".")[0]


def as_java(jvm: Any, collection: Any) -> Any:
    """A sequence or a map of Scala as one of Java."""
    if scala_version(jvm) != "2.12":
        return getattr(jvm, "scala.jdk.javaapi.CollectionConverters").asJava(collection)
    converters = getattr(jvm, "scala.collection.JavaConverters")
    is_map = getattr(jvm, "java.lang.Class").forName("scala.collection.Map").isInstance(collection)
    return (converters.mapAsJavaMap if is_map else converters.seqAsJavaList)(collection)


def java_source(jvm: Any, text: str) -> str:
    """A Java source of this package, which is written for Scala 2.13 and Spark 4, adapted to those of the JVM."""
    if scala_version(jvm) == "2.12":
        for there, here in _IN_SCALA_2_12:
            text = re.sub(there, here, text)
    if not _IS_4 and f"{_PROCEDURES}." in text:
        named = re.search(r"class (\w+)", text)
        return f"package dbio_commit; class {named and named[1]} {{}}" + _lines(text)
    if not _IS_4:
        text = text.replace("org.apache.spark.sql.classic.", "org.apache.spark.sql.")
    text = _SINCE.sub(lambda found: found[0] if _has_class(jvm, found[1]) else _lines(found[0]), text)
    if _FREE in text and not _has_method(jvm, "org.apache.spark.sql.vectorized.ColumnarBatch", "closeIfFreeable"):
        text = text.replace(_FREE, "")
    return text


def _lines(text: str) -> str:
    """As many empty lines as the text has, so that errors of the compiler name the right line."""
    return "\n" * text.count("\n")


_IN_SCALA_2_12: Sequence[tuple[str, str]] = (
    (r"import scala\.collection\.immutable\.(Seq|IndexedSeq);", r"import scala.collection.\1;"),
    (r"import scala\.collection\.immutable\.ArraySeq\$;", "import scala.collection.mutable.WrappedArray$;"),
    (r"\bArraySeq\$\.MODULE\$\.unsafeWrapArray\(", "WrappedArray$.MODULE$.make("),
    (r"\bIterableOnce\b", "TraversableOnce"),
    (r"for Scala 2\.13\b", "for Scala 2.12"),
)
"""Scala 2.12 has other names for the collections that Spark's methods take and return."""

_SINCE = re.compile(r"^ *// since ([\w.]+):\n(.*?)^ *// end\n", re.DOTALL | re.MULTILINE)
"""A part of a source that is compiled only if Spark has the named class."""
_PROCEDURES = "org.apache.spark.sql.connector.catalog.procedures"
"""Spark's package for CALL, since 4.0. Before, classes of dbio that use it are compiled empty."""

_FREE = "rows.batch.closeIfFreeable();"
"""Left out before Spark 3.5.4, which frees no batches and has no such method."""


def _has_method(jvm: Any, name: str, method: str) -> bool:
    return any(it.getName() == method for it in _class(jvm, name).getMethods())


def _has_class(jvm: Any, name: str) -> bool:
    try:
        _class(jvm, name)
    except Py4JJavaError:
        return False
    return True


def _class(jvm: Any, name: str) -> Any:
    loader = getattr(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    return getattr(jvm, "java.lang.Class").forName(name, False, loader)
