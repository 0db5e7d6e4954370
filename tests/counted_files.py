"""Counts what Spark asks of the local disk: a file system of Hadoop, which the running JVM compiles."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from dbio_commit.spark.session.jvm import _array, _load
from tests.spark_tables import configured

_SOURCE = """
package dbio_tests;

import java.io.IOException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

public class CountedFiles extends LocalFileSystem {
  public static final java.util.List ASKED = java.util.Collections.synchronizedList(new java.util.ArrayList());

  public static void reset() { ASKED.clear(); }
  public static String asked() { return String.join("\\n", (java.util.List) ASKED); }

  public boolean isFile(Path path) throws IOException {
    ASKED.add("isFile " + path.toUri().getPath());
    return super.isFile(path);
  }

  public FileStatus[] listStatus(Path path) throws IOException {
    ASKED.add("list " + path.toUri().getPath());
    return super.listStatus(path);
  }
}
"""
_NAME = "dbio_tests.CountedFiles"


class Asked:
    """What was asked since `reset`."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def reset(self) -> None:
        self._kind.reset()

    def of(self, verb: str) -> Counter[str]:
        """The paths of these questions: "isFile" or "list"."""
        asked = (it.partition(" ") for it in str(self._kind.asked()).splitlines())
        return Counter(path for what, _, path in asked if what == verb)


@contextmanager
def counted_files(spark: SparkSession) -> Iterator[Asked]:
    """Within, the session reads the disk with a file system that counts."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(_NAME, True, loader)
    except Exception:
        resources = "org.codehaus.commons.compiler.util.resource"
        found = getattr(jvm, f"{resources}.MapResourceCreator")()
        compiler = getattr(jvm, "org.codehaus.janino.Compiler")()
        compiler.setIClassLoader(getattr(jvm, "org.codehaus.janino.ClassLoaderIClassLoader")(loader))
        compiler.setClassFileFinder(getattr(jvm, f"{resources}.MapResourceFinder")())
        compiler.setClassFileCreator(found)
        kind = jvm.java.lang.Class.forName(f"{resources}.Resource", True, loader)
        source = getattr(jvm, f"{resources}.StringResource")("CountedFiles.java", _SOURCE)
        compiler.compile(_array(jvm, kind, [source]))
        _load(spark, {name: bytes(body) for name, body in dict(found.getMap()).items()}, name="CountedFiles")
    with configured(spark, {"fs.file.impl": _NAME, "fs.file.impl.disable.cache": "true"}):
        yield Asked(getattr(jvm, _NAME))
