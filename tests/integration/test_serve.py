"""`dbio serve`: plain clients of Spark Connect and of JDBC run SQL on tables, in a server that a signal ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from textwrap import dedent

import pyspark
import pytest

from tests import spark35
from tests.beside import free_ports

CONF = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": os.environ.get("DBIO_JAVA_OPTIONS", "-Xss4m"),
}


@contextmanager
def served(directory: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A server in a process of its own, with the root `lake`, and its port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "dbio_commit.cli", "serve", "--root", f"lake={directory / 'lake'}"]
    env = {name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "SPARK_LOCAL_IP")}
    process = subprocess.Popen(
        [*command, "--port", str(port), *(f"--conf={name}={value}" for name, value in CONF.items()), *options],
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=(directory / "stderr").open("w"),
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == (
            f"listening on {'jdbc:hive2' if '--thrift' in options else 'sc'}://127.0.0.1:{port}, with the roots lake; "
            "Ctrl-C ends it\n"
        ), (directory / "stderr").read_text()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", port))  # it listens on the one address only
        assert {address for pid in family(process.pid) for address in listening(pid)} == {"127.0.0.1"}
        yield process, port
    finally:
        process.kill()
        process.wait()


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(it for child in children for it in family(int(child)))]


def listening(pid: int) -> Iterator[str]:
    """The addresses on which a process accepts connections over TCP."""
    sockets = {os.readlink(it) for it in Path(f"/proc/{pid}/fd").iterdir() if it.is_symlink()}
    for version in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{version}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                words = bytes.fromhex(local.partition(":")[0])
                body = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                address = ip_address(body)
                yield str(getattr(address, "ipv4_mapped", None) or address)


def ends(process: "subprocess.Popen[str]", number: signal.Signals) -> tuple[int, str]:
    """Ends the server by a signal: its exit code, and what it printed then."""
    assert process.stdout
    process.send_signal(number)
    return process.wait(60), process.stdout.read()


CLIENT = """
    import json, sys
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    found = []
    for text in json.loads(sys.argv[2]):
        try:
            found.append([list(row) for row in spark.sql(text).collect()])
        except Exception as error:
            found.append(f"{type(error).__name__} {error}")
    query = spark.readStream.table("dbio.lake.events").writeStream.option("checkpointLocation", sys.argv[3])
    query = query.trigger(availableNow=True).toTable("dbio.lake.streamed")
    query.awaitTermination()
    spark.range(20, 22).writeTo("dbio.lake.events").append()
    found.append([spark.table("dbio.lake.events").count(), spark.table("dbio.lake.streamed").count()])
    found.append([row.id for row in spark.read.parquet(sys.argv[4]).sort("id").collect()])
    spark.conf.set("spark.dbio.reads", "off")
    found.append(spark.read.parquet(sys.argv[4]).count())
    print(json.dumps(found), "dbio_commit" in sys.modules)
"""


@pytest.mark.slow(
    "dbio serve, its start and its end: a client of Spark Connect without dbio runs all kinds of statements"
)
@pytest.mark.skipif(spark35.IS_USED, reason="Spark 3.5 would serve Connect on all addresses")
def test_a_plain_client_of_spark_connect_runs_sql_until_a_signal_ends_the_server(tmp_path: Path) -> None:
    statements = [
        "CREATE TABLE dbio.lake.events AS SELECT id FROM range(10)",
        "DELETE FROM dbio.lake.events WHERE id < 3",
        "INSERT INTO dbio.lake.events VALUES (10)",
        "MERGE INTO dbio.lake.events t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"SELECT count(*), max(id) FROM dbio.`{tmp_path / 'lake' / 'events'}`",
        "SHOW TABLES IN dbio.lake",
        "CALL dbio.system.compact('dbio.lake.events', dry_run => true)",
        "DELETE FROM dbio.lake.missing WHERE id = 1",
        "ALTER TABLE dbio.lake.events SET TBLPROPERTIES ('check.small' = 'id < 0')",
        "OPTIMIZE dbio.lake.events",
        "DESCRIBE HISTORY dbio.lake.events",
        "SELEC id FROM dbio.lake.events",
    ]
    with served(tmp_path) as (process, port):
        places = [str(tmp_path / "checkpoint"), str(tmp_path / "lake" / "events")]
        arguments = [f"sc://127.0.0.1:{port}", json.dumps(statements), *places]
        client = subprocess.run(
            [sys.executable, "-c", dedent(CLIENT), *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert client.returncode == 0, client.stderr[-3000:]
        ended = ends(process, signal.SIGTERM)
    text, loaded = client.stdout.rsplit(maxsplit=1)
    *done, counted, shown, compacted, missing, refused, optimized, described, misspelt, left, read, listed = json.loads(
        text
    )
    assert loaded == "False"
    assert done == [[]] * 4
    assert (counted, shown, left) == ([[7, 10]], [["lake", "events", False]], [9, 7])
    assert read == [4, 5, 6, 7, 8, 9, 10, 20, 21], "spark.read.parquet gives committed rows"
    assert listed > len(read)
    assert len(compacted) == 1
    assert "TABLE_OR_VIEW_NOT_FOUND" in missing
    assert "dbio_commit.InvalidInputError: 7 rows violate check.small" in refused
    assert "PARSE_SYNTAX_ERROR" in optimized
    assert "For a dbio table, type: CALL dbio.system.compact('dbio.lake.events')" in optimized
    assert "For a dbio table, type: CALL dbio.system.history('dbio.lake.events')" in described
    assert "PARSE_SYNTAX_ERROR" in misspelt
    assert "type: " not in misspelt
    assert ended == (0, f"stopped listening on sc://127.0.0.1:{port}\n")


@pytest.mark.long
def test_a_client_of_jdbc_runs_sql_until_ctrl_c_ends_the_server(tmp_path: Path) -> None:
    statements = [
        "CREATE TABLE dbio.lake.events AS SELECT id FROM range(10)",
        "DELETE FROM dbio.lake.events WHERE id < 3",
        "INSERT INTO dbio.lake.events VALUES (10)",
        "SELECT concat('found ', count(*), ' to ', max(id)) AS it FROM dbio.lake.events",
        "UPDATE dbio.lake.missing SET id = 1",
    ]
    with served(tmp_path, "--thrift") as (process, port):
        beeline = Path(pyspark.__path__[0], "bin/beeline")
        client = subprocess.run(
            [beeline, "-u", f"jdbc:hive2://127.0.0.1:{port}", "-e", ";".join(statements)],
            cwd=tmp_path,
            env={**os.environ, "SPARK_HOME": pyspark.__path__[0]},
            capture_output=True,
            text=True,
        )
        other = [sys.executable, "-m", "dbio_commit.cli", "serve", "--thrift", "--port", str(port)]
        taken = subprocess.run(other, capture_output=True, text=True)
        ended = ends(process, signal.SIGINT)
    assert "found 8 to 10" in client.stdout, client.stderr
    assert "TABLE_OR_VIEW_NOT_FOUND" in client.stderr
    assert (taken.returncode, taken.stderr.partition(";")[0]) == (
        2,
        f"dbio: cannot listen on '127.0.0.1', port {port}: Address already in use",
    )
    assert ended == (130, f"stopped listening on jdbc:hive2://127.0.0.1:{port}\n")
    assert not (tmp_path / "derby.log").exists()
