"""Catalogs of Iceberg in tests: where their pointers go, and a service that speaks the REST protocol.

The service is the one that Iceberg tests its own clients with, over a database of SQLite. `make test-readers` fetches
its jars from Maven, and `DBIO_TEST_REST_CATALOG` says where they are. It listens on a free port of the loopback
address, in a JVM that ends with this process, however it ends.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dbio_commit import Table
from tests.histories import columns

_MOVE = """
UPDATE iceberg_tables SET metadata_location = :after, previous_metadata_location = :before
WHERE table_namespace = 'sales' AND table_name = 'events' AND metadata_location = :before
"""


def events(path: Path) -> Table:
    """A table of one row that is published."""
    table = Table(path / "events")
    append(table, 1)
    return table


def append(table: Table, number: int) -> None:
    with table.begin() as transaction:
        pq.write_table(pa.table({"id": [number]}), transaction.new_file())
        transaction.commit(columns(id="long"))
    table.publish("iceberg")


def last_metadata(table: Table) -> str:
    """The URL of the last version."""
    directory = Path(table.url, "_iceberg", "metadata")
    return f"file://{directory}/v{(directory / 'version-hint.text').read_text()}.metadata.json"


def move(database: Path, before: str, after: str) -> bool:
    """Moves the pointer of `sales.events` by compare-and-set, as PUBLISH.md shows. False if it was at another place."""
    with closing(sqlite3.connect(database)) as connection, connection:
        return connection.execute(_MOVE, {"before": before, "after": after}).rowcount == 1


_OF_SPARK = ("hadoop-client-*.jar", "jcl-over-slf4j-*.jar", "log4j-*.jar")
"""What the server takes from PySpark: file systems, and logs."""
_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]


@contextmanager
def rest_catalog(database: Path, warehouse: Path) -> Iterator[str]:
    """Its URL. Its tables are rows of `iceberg_tables` in the database, as those of PyIceberg's SqlCatalog."""
    import pyspark
    from py4j.java_gateway import JavaGateway

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
        settings["jdbc.schema-version"] = "V1"  # with views, which Trino looks for
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
