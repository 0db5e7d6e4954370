"""Compiles the package's Java classes with the Janino compiler that Spark ships, and adds jars of them to Spark.

Spark calls `CommitProtocol` for `committer`, and `AskedBatches` for streams. Both ask Python over `Bridge`, whose other
end is `bridge`. `PackRows` packs rows for `transfer.packed`, and its jar has `KeptRows` for `transfer.kept`.
`SnapshotFileIndex` lists files for `read.file_index`.
"""

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dbio_commit.base.errors import InvalidInputError, UnsupportedStoreError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.logs import get_logger
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.versions import java_source, scala_version


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class that Python calls. Its jar has all Java sources of its room, which are compiled together."""

    room: str
    """The directory of `dbio_commit/spark` that has the sources."""
    simple_name: str
    version: str
    """The version of what Python calls and passes. The class's field VERSION has it, with the version of Scala."""

    @property
    def name(self) -> str:
        return f"dbio_commit.{self.simple_name}"


COMMIT_PROTOCOL = JavaClass("committer", "CommitProtocol", "2")
BRIDGE = JavaClass("session", "Bridge", "1")
ASKED_BATCHES = JavaClass("feed", "AskedBatches", "1")
PACK_ROWS = JavaClass("transfer", "PackRows", "5")
SNAPSHOT_FILE_INDEX = JavaClass("read", "SnapshotFileIndex", "2")
CATALOG = JavaClass("catalog", "Catalog", "4")
ALL = (COMMIT_PROTOCOL, BRIDGE, ASKED_BATCHES, PACK_ROWS, SNAPSHOT_FILE_INDEX, CATALOG)

_log = get_logger(__name__)
_HELP = "write a jar with `dbio jar dbio-commit.jar`, and start Spark with it in spark.jars"
_lock = ProcessLock()
_ready: WeakKeyDictionary[SparkContext, dict[JavaClass, bool]] = WeakKeyDictionary()


def is_ready(spark: SparkSession, wanted: JavaClass, *, without: str) -> bool:
    """Installs an optional class. Returns False over Spark Connect, and if Spark does not accept the class.

    In the latter case, logs `without`, which says what is slower or missing, as a WARNING once.
    """
    if is_connect(spark):
        return False
    ready = _ready.setdefault(spark.sparkContext, {})
    if wanted not in ready:
        try:
            install(spark, wanted)
            ready[wanted] = True
        except _NOT_ACCEPTED as error:
            _log.warning("%s: %.500s", without, error)
            ready[wanted] = False
    return ready[wanted]


def was_ready(spark: SparkSession, wanted: JavaClass) -> bool:
    """Whether this process has installed the class in the session's JVM before."""
    return not is_connect(spark) and _ready.get(spark.sparkContext, {}).get(wanted, False)


_NOT_ACCEPTED = (UnsupportedStoreError, Py4JError, PySparkException, OSError, TypeError)
"""OSError: no place for a jar. TypeError: Py4J calls a name that is no class in this Spark, such as the compiler's."""


def install(spark: SparkSession, wanted: JavaClass) -> None:
    """Makes the class available to all threads of the driver and to all executors, unless it is already.

    Raises UnsupportedStoreError if the JVM accepts no class, or has another version of it.
    """
    with _lock:
        found = _installed(spark, wanted)
        if found is None:
            _load(spark, _compiled(spark._jvm, wanted), name=wanted.simple_name)
            found = _installed(spark, wanted)
        version = found and str(found.getField("VERSION").get(None))
        needed = f"{wanted.version} for Scala {scala_version(spark._jvm)}"
        if version != needed:
            raise UnsupportedStoreError(
                f"Spark has version {version} of {wanted.name}, and this package needs version {needed}; "
                f"{_HELP}, which replaces the old jar"
            )
        where = found.getProtectionDomain().getCodeSource().getLocation().toURI()
        _send(spark, Path(java_class(spark._jvm, "java.io.File")(where).getPath()))


def make_jar(path: Path) -> str:
    """Writes a jar with all classes, for `spark.jars`. Starts a JVM, and compiles against the installed Spark.

    Returns the version of Scala that Spark must have to use the jar. Raises InvalidInputError if the file cannot be
    written.
    """
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        classes = {name: body for one in ALL for name, body in _compiled(gateway.jvm, one).items()}
        scala = scala_version(gateway.jvm)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the JVM
        gateway.proc.wait()
    try:
        _write_jar(classes, path)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}; name a file in an existing directory"
        ) from error
    return scala


def _compiled(jvm: Any, wanted: JavaClass) -> Mapping[str, bytes]:
    """Compiles the Java sources of the class's room. Returns the class files, by their paths in a jar."""
    resources = "org.codehaus.commons.compiler.util.resource"
    room = files(f"dbio_commit.spark.{wanted.room}")
    sources = [
        java_class(jvm, f"{resources}.StringResource")(source.name, java_source(jvm, source.read_text()))
        for source in sorted(room.iterdir(), key=lambda it: it.name)
        if source.name.endswith(".java")
    ]
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    found = java_class(jvm, f"{resources}.MapResourceCreator")()
    compiler = java_class(jvm, "org.codehaus.janino.Compiler")()
    compiler.setIClassLoader(java_class(jvm, "org.codehaus.janino.ClassLoaderIClassLoader")(loader))
    compiler.setClassFileFinder(java_class(jvm, f"{resources}.MapResourceFinder")())  # none are compiled yet
    compiler.setClassFileCreator(found)
    compiler.compile(
        _array(jvm, java_class(jvm, "java.lang.Class").forName(f"{resources}.Resource", True, loader), sources)
    )
    return {name: bytes(body) for name, body in dict(found.getMap()).items()}


def _array(jvm: Any, kind: Any, items: Sequence[Any]) -> Any:
    arrays: Any = java_class(jvm, "java.lang.reflect.Array")
    made = arrays.newInstance(kind, len(items))
    for position, item in enumerate(items):
        made[position] = item
    return made


def _write_jar(classes: Mapping[str, bytes], path: Path) -> None:
    """Writes a jar: the same bytes each time for the same classes."""
    with zipfile.ZipFile(path, "w") as jar:
        for name, body in sorted(classes.items()):
            jar.writestr(zipfile.ZipInfo(name), body)


def _installed(spark: SparkSession, wanted: JavaClass) -> Any:
    """The class as Spark loads it; None if Spark has no such class. Raises UnsupportedStoreError for another Scala."""
    loader = java_class(spark._jvm, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    try:
        return java_class(spark._jvm, "java.lang.Class").forName(wanted.name, True, loader)
    except Py4JJavaError as error:
        if str(error.java_exception.getClass().getName()) == "java.lang.ClassNotFoundException":
            return None
        raise UnsupportedStoreError(
            f"Spark cannot load {wanted.name}, which it has from a jar for another Scala or another Spark "
            f"({error.java_exception.toString()}); {_HELP}, which replaces the old jar"
        ) from error


def _load(spark: SparkSession, classes: Mapping[str, bytes], *, name: str) -> None:
    jvm: Any = spark._jvm
    directory = Path(tempfile.mkdtemp(prefix="dbio-jar-"))
    jar = directory / f"dbio-commit-{name}.jar"
    _write_jar(classes, jar)
    file = java_class(jvm, "java.io.File")
    # Deleted (in reverse order) when the JVM ends, not when this process does: the JVM may serve several notebooks, one
    # after the other, and executors fetch the jar when they start.
    for path in (directory, jar):
        file(str(path)).deleteOnExit()
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        loader.addURL(file(str(jar)).toURI().toURL())  # the class loader of SparkSubmit, for all threads
    except Py4JError as error:
        raise UnsupportedStoreError(f"the class loader of this Spark accepts no jar at run time; {_HELP}") from error


def _send(spark: SparkSession, jar: Path) -> None:
    """Sends the jar to the executors of this Spark context, once. Another process may have made the jar.

    Raises UnsupportedStoreError if Spark refuses it: Spark itself only logs that.
    """
    context = spark.sparkContext._jsc.sc()
    if f"/{jar.name}" not in str(context.listJars()):
        context.addJar(str(jar))
        if f"/{jar.name}" not in str(context.listJars()):
            raise UnsupportedStoreError(f"Spark does not send {jar} to its executors, its log has the reason; {_HELP}")
