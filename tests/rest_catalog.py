"""A REST catalog for tests: the server that Iceberg tests its own clients with, over a database of SQLite.

`make test-readers` fetches its jars from Maven, and `DBIO_TEST_REST_CATALOG` says where they are. It listens on a free
port of the loopback address, in a JVM that ends with this process, however it ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway

_OF_SPARK = ("hadoop-client-*.jar", "jcl-over-slf4j-*.jar", "log4j-*.jar")
"""What the server takes from PySpark: file systems, and logs."""
_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]


@contextmanager
def rest_catalog(database: Path, warehouse: Path) -> Iterator[str]:
    """Its URL. Its tables are rows of `iceberg_tables` in the database, as those of PyIceberg's SqlCatalog."""
    jars = Path(pyspark.__path__[0]) / "jars"
    own = [str(jar) for pattern in _OF_SPARK for jar in jars.glob(pattern)]
    gateway = JavaGateway.launch_gateway(
        classpath=":".join([os.path.join(os.environ["DBIO_TEST_REST_CATALOG"], "*"), *own]),
        jarpath=str(*jars.glob("py4j-*.jar")),
        java_path=os.path.join(os.environ["JAVA_HOME"], "bin/java"),
        javaopts=_OPTIONS,
        die_on_exit=True,
        enable_auth=True,
    )
    try:
        java = gateway.jvm
        settings = java.java.util.HashMap()
        settings["catalog-impl"] = "org.apache.iceberg.jdbc.JdbcCatalog"
        settings["uri"] = f"jdbc:sqlite:{database}"
        settings["warehouse"] = f"file://{warehouse}"
        hadoop = java.org.apache.hadoop.conf.Configuration()
        catalog = java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("lake", settings, hadoop)
        rest, jetty = java.org.apache.iceberg.rest, java.org.eclipse.jetty
        handler = jetty.ee10.servlet.ServletContextHandler()
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
        handler.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(handler)
        server.start()
        yield f"http://127.0.0.1:{server.getConnectors()[0].getLocalPort()}"
        server.stop()
        catalog.close()
    finally:
        gateway.shutdown()
