"""Brings Java classes of dbio into the JVMs of driver and executors: compiles them with Spark's Janino, into jars.

Spark calls `CommitProtocol` for `committer`, and `AskedBatches` for streams; both ask Python over `Bridge`, whose other
end is `bridge`. Spark runs `PackRows` for `ship/packed` (with three more classes in its jar), and reads the files of
`SnapshotFileIndex` for `read/file_index`.
"""

import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dbio_commit.base.errors import InvalidInputError, UnsupportedStoreError
from dbio_commit.base.forks import ProcessLock
from dbio_commit.base.logs import get_logger
from dbio_commit.spark.session.conf import is_connect, java_class


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class whose Java source is in a room of `dbio_commit/spark`."""

    room: str
    simple_name: str
    version: str
    """The version of the interface between Python and the class; the class has the same."""
    sources: tuple[str, ...] = ()
    """The sources of its jar, if there are several: each after those that it needs."""

    @property
    def name(self) -> str:
        return f"dbio_commit.{self.simple_name}"


COMMIT_PROTOCOL = JavaClass("committer", "CommitProtocol", "2")
BRIDGE = JavaClass("session", "Bridge", "1")
ASKED_BATCHES = JavaClass("feed", "AskedBatches", "1")
PACK_ROWS = JavaClass("ship", "PackRows", "4", sources=("StagedRows", "Packer", "PackRows", "PackColumns"))
SNAPSHOT_FILE_INDEX = JavaClass("read", "SnapshotFileIndex", "1")
ALL = (COMMIT_PROTOCOL, BRIDGE, ASKED_BATCHES, PACK_ROWS, SNAPSHOT_FILE_INDEX)

_log = get_logger(__name__)
_HELP = "write a jar with `dbio jar dbio-commit.jar`, and start Spark with it in spark.jars"
_lock = ProcessLock()
_ready: WeakKeyDictionary[SparkContext, dict[JavaClass, bool]] = WeakKeyDictionary()


def is_ready(spark: SparkSession, wanted: JavaClass, *, without: str) -> bool:
    """As `install`, for an optional class: False over Connect, and if Spark does not take the class.

    In the second case it logs once, as a WARNING, what is slower or missing `without` it.
    """
    if is_connect(spark):
        return False
    ready = _ready.setdefault(spark.sparkContext, {})
    if wanted not in ready:
        try:
            install(spark, wanted)
            ready[wanted] = True
        except _TAKES_NONE as error:
            _log.warning("%s: %.500s", without, error)
            ready[wanted] = False
    return ready[wanted]


_TAKES_NONE = (UnsupportedStoreError, Py4JError, PySparkException, OSError, TypeError)
"""The errors of `install` if the JVM refuses, if a jar cannot be written, and if this Spark lacks a class to call."""


def install(spark: SparkSession, wanted: JavaClass) -> None:
    """Makes the class available to all threads of the driver and to all executors, unless it is available already.

    Raises UnsupportedStoreError if the JVM takes no class, or has the class in another version.
    """
    with _lock:
        found = _installed(spark, wanted)
        if found is None:
            _load(spark, _compiled(spark._jvm, [wanted]), name=wanted.simple_name)
            found = _installed(spark, wanted)
        version = found and str(found.getField("VERSION").get(None))
        if version != wanted.version:
            raise UnsupportedStoreError(
                f"Spark has version {version} of {wanted.name}, and this package needs {wanted.version}; {_HELP}, "
                "instead of the jar that it has now"
            )
        where = found.getProtectionDomain().getCodeSource().getLocation().toURI()
        _send(spark, Path(java_class(spark._jvm, "java.io.File")(where).getPath()))


def make_jar(path: Path) -> None:
    """Writes a jar with all classes, for `spark.jars`. It starts a JVM, to compile against the installed Spark.

    Raises InvalidInputError if the file cannot be written.
    """
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        classes = _compiled(gateway.jvm, ALL)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # this ends the JVM
        gateway.proc.wait()
    try:
        _write_jar(classes, path)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}; name a file in an existing directory"
        ) from error


def _compiled(jvm: Any, wanted: Iterable[JavaClass]) -> Mapping[str, bytes]:
    """The compiled classes, by their paths in a jar."""
    found: dict[str, bytes] = {}
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    for room, source in ((one.room, it) for one in wanted for it in one.sources or [one.simple_name]):
        compiler = java_class(jvm, "org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(loader)
        compiler.cook(files(f"dbio_commit.spark.{room}").joinpath(f"{source}.java").read_text())
        loader = compiler.getClassLoader()  # it also has the classes before
        classes = compiler.getBytecodes()
        found |= {f"{name.replace('.', '/')}.class": bytes(classes[name]) for name in list(classes)}
    return found


def _write_jar(classes: Mapping[str, bytes], path: Path) -> None:
    """Writes the jar: always the same bytes for the same classes."""
    with zipfile.ZipFile(path, "w") as jar:
        for name, body in sorted(classes.items()):
            jar.writestr(zipfile.ZipInfo(name), body)


def _installed(spark: SparkSession, wanted: JavaClass) -> Any:
    """The class as Spark would load it; None if there is none."""
    loader = java_class(spark._jvm, "org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    try:
        return java_class(spark._jvm, "java.lang.Class").forName(wanted.name, True, loader)
    except Py4JError as error:
        if "ClassNotFoundException" in str(error):
            return None
        raise


def _load(spark: SparkSession, classes: Mapping[str, bytes], *, name: str) -> None:
    jvm: Any = spark._jvm
    directory = Path(tempfile.mkdtemp(prefix="dbio-jar-"))
    jar = directory / f"dbio-commit-{name}.jar"
    _write_jar(classes, jar)
    file = java_class(jvm, "java.io.File")
    # The JVM deletes them when it exits, in reverse order. This process must not: executors that start later fetch the
    # jar, too, and the JVM may outlive this process, such as that of a notebook.
    for path in (directory, jar):
        file(str(path)).deleteOnExit()
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        loader.addURL(file(str(jar)).toURI().toURL())  # all threads share this loader of SparkSubmit
    except Py4JError as error:
        raise UnsupportedStoreError(f"the class loader of this Spark takes no jar at run time; {_HELP}") from error


def _send(spark: SparkSession, jar: Path) -> None:
    """Sends the driver's jar, which another process may have made, to the executors of this context, once.

    Raises UnsupportedStoreError if Spark does not take it, which Spark itself only logs.
    """
    context = spark.sparkContext._jsc.sc()
    if f"/{jar.name}" not in str(context.listJars()):
        context.addJar(str(jar))
        if f"/{jar.name}" not in str(context.listJars()):
            raise UnsupportedStoreError(f"Spark does not send {jar} to its executors: see its log; {_HELP}")
