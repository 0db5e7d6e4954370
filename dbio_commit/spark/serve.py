"""A server for SQL in a PySpark driver, for `dbio serve`: Spark Connect or Thrift, with the catalog `dbio`."""

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from dbio_commit.base.errors import InvalidInputError, UnsupportedStoreError
from dbio_commit.spark.api import enable
from dbio_commit.spark.catalog.answers import advise_clients, leave_session_catalog
from dbio_commit.spark.catalog.reads import enable_reads
from dbio_commit.spark.catalog.roots import named_roots
from dbio_commit.spark.session.conf import is_connect, java_class
from dbio_commit.spark.versions import SERVES_CONNECT, SPARK, scala_version

_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService"
_THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_TOKEN, _TOKEN_VARIABLE = "spark.connect.authenticate.token", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_HIVE = ("spark.hadoop.hive.server2.", "spark.hive.server2.")
"""Prefixes of the settings of Hive's server. Spark takes the second if both are given."""
_ELSEWHERE = (
    *("HIVE_SERVER2_THRIFT_BIND_HOST", "HIVE_SERVER2_THRIFT_PORT"),
    *("HIVE_SERVER2_TRANSPORT_MODE", "HIVE_SERVER2_THRIFT_HTTP_PORT"),
)
"""Environment variables that override Hive's settings for where the server listens."""
_LOCAL_MASTER = re.compile(r"local(?:\[.*\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where a server listens, and the roots and settings of its session."""

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
        """The session's settings: `conf`, and those that make Spark's server listen at the address."""
        if self.thrift:
            hive = {"transport.mode": "binary", "thrift.bind.host": self.host, "thrift.port": str(self.port)}
            return {**self.conf, **{start + name: text for start in _HIVE for name, text in hive.items()}}
        connect = {"binding.address": self.host, "binding.port": str(self.port), "port.maxRetries": "0"}
        return {**self.conf, **{f"spark.connect.grpc.{name}": text for name, text in connect.items()}}

    @property
    def is_on_loopback(self) -> bool:
        """Whether no other machine can connect."""
        with suppress(ValueError):
            return ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def is_open(self) -> bool:
        """Whether other machines can connect without authentication."""
        if self.thrift:
            asks = self._of_hive("authentication", "NONE").upper() not in ("NONE", "NOSASL")
        else:
            asks = bool(self.conf.get(_TOKEN) or os.environ.get(_TOKEN_VARIABLE))
        return not self.is_on_loopback and not asks

    def _of_hive(self, name: str, default: str) -> str:
        """A setting of Hive's server."""
        return next((self.conf[it + name] for it in reversed(_HIVE) if it + name in self.conf), default)

    def check(self) -> None:
        """Checks the options before Spark starts. Raises InvalidInputError and UnsupportedStoreError."""
        if not (self.thrift or SERVES_CONNECT):
            raise UnsupportedStoreError(
                f"this is Spark {SPARK}, whose server of Spark Connect would listen on all addresses, and ask nobody "
                "who they are; use --thrift, or Spark 4.0 or later"
            )
        named_roots(self.roots)
        if "SPARK_REMOTE" in os.environ or "spark.remote" in self.conf:
            raise InvalidInputError("dbio serve starts a server itself: unset SPARK_REMOTE and spark.remote")
        if self.thrift and (found := [name for name in _ELSEWHERE if name in os.environ]):
            raise InvalidInputError(f"--host and --port say where dbio serve listens: unset {', '.join(found)}")
        if self.thrift and self._of_hive("transport.mode", "binary").lower() != "binary":
            raise InvalidInputError(
                "dbio serve has no Thrift over HTTP, whose server would listen on all addresses: leave out the setting "
                "hive.server2.transport.mode"
            )
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
    """A running server, in the JVM of this process."""

    def __init__(self, options: ServeOptions) -> None:
        """Starts Spark and the server. Raises InvalidInputError, and UnsupportedStoreError if Spark cannot."""
        options.check()
        builder: Any = SparkSession.builder
        settings = {**options.settings, **_own_ports(options)}
        self._spark: SparkSession = builder.appName("dbio serve").config(map=settings).getOrCreate()
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
        leave_session_catalog(self._spark)
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


def _own_ports(options: ServeOptions) -> dict[str, str]:
    """Settings that close the driver's own ports, which need no authentication, to other machines, too.

    Empty unless only this machine may connect and the executors are in the driver.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll([*options.settings.items()]))
    master = options.conf.get("spark.master") or SparkConf().get("spark.master", None) or "local[*]"
    if not (options.is_on_loopback and _LOCAL_MASTER.fullmatch(master)):
        return {}
    names = ("spark.driver.bindAddress", "spark.driver.host")
    return {name: "127.0.0.1" for name in names if name not in options.conf}


def _start(start: Any) -> Any:
    try:
        return start()
    except Py4JJavaError as error:
        raise UnsupportedStoreError(f"Spark cannot start the server: {error.java_exception.toString()}") from error
