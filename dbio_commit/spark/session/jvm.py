"""Classes of ours in a JVM: compiled by the Janino that Spark ships, into jars for drivers and executors.

`CommitProtocol` is what `committer` lets Spark call, and `AskedBatches` what streams do; both ask Python over `Bridge`,
whose other end is `bridge`. `PackRows` is what `packed` has Spark run (with three more in its jar), `SnapshotFileIndex`
what `file_index` has it read.
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
    """Of what Python and the class ask of each other; the class has the same."""
    sources: tuple[str, ...] = ()
    """The sources of its jar, if these are several: each after those that it needs."""

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
    """As `install`, of a class that is not needed: False over Connect; where Spark does not take it, False as well, and
    one WARNING that tells what is so `without`."""
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
"""It refuses; there is no place for a jar; Py4J calls what is no class of this Spark, such as a compiler elsewhere."""


def install(spark: SparkSession, wanted: JavaClass) -> None:
    """Makes the class known to all threads of the driver and to all executors, where it is not yet.

    Raises UnsupportedStoreError where the JVM takes no class, or has one of another version.
    """
    with _lock:
        found = _installed(spark, wanted)
        if found is None:
            _load(spark, _compiled(spark._jvm, [wanted]), name=wanted.simple_name)
            found = _installed(spark, wanted)
        version = found and str(found.getField("VERSION").get(None))
        if version != wanted.version:
            raise UnsupportedStoreError(
                f"Spark has version {version} of {wanted.name}, and this package needs {wanted.version}; {_HELP}, in "
                "the place of the one that it has"
            )
        where = found.getProtectionDomain().getCodeSource().getLocation().toURI()
        _send(spark, Path(java_class(spark._jvm, "java.io.File")(where).getPath()))


def make_jar(path: Path) -> None:
    """Writes all classes as a jar, for `spark.jars`: compiled by a JVM of its own, against the Spark that is installed.

    Raises InvalidInputError where the file cannot be written.
    """
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        classes = _compiled(gateway.jvm, ALL)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # which ends it
        gateway.proc.wait()
    try:
        _write_jar(classes, path)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror}; name a file in a directory that is there"
        ) from error


def _compiled(jvm: Any, wanted: Iterable[JavaClass]) -> Mapping[str, bytes]:
    """The classes by their paths in a jar."""
    found: dict[str, bytes] = {}
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    for room, source in ((one.room, it) for one in wanted for it in one.sources or [one.simple_name]):
        compiler = java_class(jvm, "org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(loader)
        compiler.cook(files(f"dbio_commit.spark.{room}").joinpath(f"{source}.java").read_text())
        loader = compiler.getClassLoader()  # of those before as well
        classes = compiler.getBytecodes()
        found |= {f"{name.replace('.', '/')}.class": bytes(classes[name]) for name in list(classes)}
    return found


def _write_jar(classes: Mapping[str, bytes], path: Path) -> None:
    """The same bytes for the same classes."""
    with zipfile.ZipFile(path, "w") as jar:
        for name, body in sorted(classes.items()):
            jar.writestr(zipfile.ZipInfo(name), body)


def _installed(spark: SparkSession, wanted: JavaClass) -> Any:
    """The class, as Spark would load it; None where there is none."""
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
    for path in (directory, jar):  # in the other order. Executors fetch it when they start, also after this process:
        file(str(path)).deleteOnExit()  # a JVM may have several, of notebooks that come and go
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        loader.addURL(file(str(jar)).toURI().toURL())  # SparkSubmit's, which all threads share
    except Py4JError as error:
        raise UnsupportedStoreError(f"the class loader of this Spark takes no jar at run time; {_HELP}") from error


def _send(spark: SparkSession, jar: Path) -> None:
    """To the executors of this context, once: from wherever the driver has it, which another process may have made.

    Raises UnsupportedStoreError where Spark takes none; it says so in its log alone.
    """
    context = spark.sparkContext._jsc.sc()
    if f"/{jar.name}" not in str(context.listJars()):
        context.addJar(str(jar))
        if f"/{jar.name}" not in str(context.listJars()):
            raise UnsupportedStoreError(f"Spark does not send {jar} to its executors: see its log; {_HELP}")
