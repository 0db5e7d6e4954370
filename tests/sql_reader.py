"""DuckDB or Trino, which answers SQL about what a table publishes, without dbio_commit.

Runs in an environment of its own, started by tests/integration/test_published_readers.py: `python sql_reader.py duckdb`
or `python sql_reader.py trino PORT`. Each line of stdin is JSON: a statement, and a file for its rows, which are
pickled with the names of their columns. Each line is answered by one, with the number of rows or the engine's error.
"""

import json
import pickle
import sys
from importlib.resources import files
from typing import Any

EXTENSIONS = ("avro", "iceberg", "delta")  # iceberg needs avro


def duckdb_connection() -> tuple[Any, str]:
    """Its extensions come from packages: it would fetch them from a server of its own."""
    import duckdb

    connection = duckdb.connect()
    for name in EXTENSIONS:
        directory = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{directory}/{name}.duckdb_extension'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection, duckdb.__version__


def trino_connection(port: str) -> tuple[Any, str]:
    from trino.dbapi import connect  # type: ignore[import-not-found]

    connection = connect(host="127.0.0.1", port=int(port), user="test", timezone="UTC")
    cursor = connection.cursor()
    cursor.execute("SELECT node_version FROM system.runtime.nodes")
    return connection, cursor.fetchall()[0][0]


def plain(value: Any) -> Any:
    """Rows inside values as dictionaries, which Trino has as tuples with names."""
    match value:
        case tuple():
            names: Any = value
            return {name: plain(it) for name, it in zip(names._names, value, strict=True)}
        case list():
            return [plain(it) for it in value]
        case dict():
            return {key: plain(it) for key, it in value.items()}
    return value


def ask(cursor: Any, statement: str) -> list[dict[str, Any]]:
    cursor.execute(statement)
    names = [column[0] for column in cursor.description or ()]
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in cursor.fetchall()]


def main(engine: str, port: str = "") -> None:
    connection, version = trino_connection(port) if engine == "trino" else duckdb_connection()
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        statement, target = json.loads(line)
        try:
            rows = ask(connection.cursor(), statement)
        except Exception as error:  # each engine has errors of its own
            print(json.dumps({"error": str(error)}), flush=True)
            continue
        with open(target, "wb") as file:
            pickle.dump(rows, file)
        print(json.dumps({"rows": len(rows)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
