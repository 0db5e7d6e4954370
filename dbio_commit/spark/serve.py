"""A server for SQL in a PySpark driver, for `dbio serve`: Spark Connect or Thrift, with the catalog `dbio`."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from dbio_commit.base.errors import InvalidInputError, UnsupportedStoreError
from dbio_commit.spark.api import enable
from dbio_commit.spark.catalog.answers import advise_clients
from dbio_commit.spark.catalog.reads import enable_reads
from dbio_commit.spark.catalog.roots import named_roots
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.versions import SERVES_CONNECT, SPARK, scala_version

_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService"
_THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_TOKEN, _TOKEN_VARIABLE = "spark.connect.authenticate.token", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_AUTHENTICATION = "spark.hadoop.hive.server2.authentication"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where a server listens, and what its session has."""

    host: str
    port: int
    thrift: bool
    roots: Mapping[str, str]
    conf: Mapping[str, str] = field(repr=False)
    """Settings of Spark."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'jdbc:hive2' if self.thrift else 'sc'}://{host}:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """Those of Spark, by which its servers know where to listen, and those that were given."""
        names = (
            ("spark.hadoop.hive.server2.thrift.bind.host", "spark.hadoop.hive.server2.thrift.port")
            if self.thrift
            else ("spark.connect.grpc.binding.address", "spark.connect.grpc.binding.port")
        )
        return {**self.conf, names[0]: self.host, names[1]: str(self.port)}

    @property
    def is_open(self) -> bool:
        """Whether other machines can connect, and nothing asks who they are."""
        with suppress(ValueError):
            if ip_address(self.host).is_loopback:
                return False
        if self.thrift:
            asks = self.conf.get(_AUTHENTICATION, "NONE").upper() not in ("NONE", "NOSASL")
        else:
            asks = bool(self.conf.get(_TOKEN) or os.environ.get(_TOKEN_VARIABLE))
        return self.host != "localhost" and not asks

    def check(self) -> None:
        """Raises InvalidInputError and UnsupportedStoreError, before Spark is started."""
        if not (self.thrift or SERVES_CONNECT):
            raise UnsupportedStoreError(
                f"this is Spark {SPARK}, whose server of Spark Connect would listen on all addresses, and ask nobody "
                "who they are; use --thrift, or Spark 4.0 or later"
            )
        named_roots(self.roots)
        if "SPARK_REMOTE" in os.environ or "spark.remote" in self.conf:
            raise InvalidInputError("dbio serve starts a server itself: unset SPARK_REMOTE and spark.remote")
        try:
            (family, kind, _, _, place), *_ = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            raise InvalidInputError(
                f"cannot listen on {self.host!r:.200}, port {self.port}: {error.strerror}; give another --host or "
                "--port"
            ) from error


class Server:
    """A server that runs, in the JVM of this process."""

    def __init__(self, options: ServeOptions) -> None:
        """Starts Spark and the server. Raises InvalidInputError, and UnsupportedStoreError if Spark cannot."""
        options.check()
        builder: Any = SparkSession.builder
        self._spark: SparkSession = builder.appName("dbio serve").config(map=options.settings).getOrCreate()
        try:
            if is_connect(self._spark):
                raise InvalidInputError("dbio serve needs a classic session of Spark: unset spark.api.mode")
            enable(self._spark, roots=options.roots)
            enable_reads(self._spark)
            advise_clients(self._spark)
            self._started = self._start_thrift() if options.thrift else self._start_connect()
        except BaseException:
            self._spark.stop()
            raise

    def is_running(self) -> bool:
        context: Any = self._spark.sparkContext
        try:
            return not context._jsc.sc().isStopped()
        except (Py4JError, OSError):  # the JVM has ended
            return False

    def stop(self) -> None:
        with suppress(Py4JError, OSError):  # the JVM has ended
            self._started()
            self._spark.stop()

    def _start_connect(self) -> Any:
        context: Any = self._spark.sparkContext
        service = self._class(_CONNECT, "spark-connect")
        _start(lambda: service.start(context._jsc.sc()))
        nothing = java_class(self._spark._jvm, "scala.Option").empty()
        return lambda: service.stop(nothing, nothing)

    def _start_thrift(self) -> Any:
        session: Any = self._spark._jsparkSession
        # Hive's client starts a Derby database in memory, which would write derby.log to the working directory.
        java_class(self._spark._jvm, "java.lang.System").setProperty("derby.stream.error.file", os.devnull)
        started = _start(lambda: self._class(_THRIFT, "spark-hive-thriftserver").startWithContext(session.sqlContext()))
        return started.stop

    def _class(self, name: str, jar: str) -> Any:
        found = java_class(self._spark._jvm, name)
        if not isinstance(found, JavaClass):
            raise UnsupportedStoreError(
                f"this Spark {SPARK} comes without the server; add its jar, for example with --conf "
                f"spark.jars.packages=org.apache.spark:{jar}_{scala_version(self._spark._jvm)}:{SPARK}"
            )
        return found


def _start(start: Any) -> Any:
    try:
        return start()
    except Py4JJavaError as error:
        raise UnsupportedStoreError(f"Spark cannot start the server: {error.java_exception.toString()}") from error
