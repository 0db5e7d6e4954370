"""Joint appends of a hundred rows to two tables on a disk by one way, in a fresh process: prints the seconds of each as
JSON.

    python -m bench.joint_job WAY TARGET TIMES

Part of cases_joint.py. DuckLake's ways run in its environment, which `make bench-peers` installs.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.frames_job import SMALL as ROWS

TABLES = ("orders", "customers")

Append = Callable[[], object]


@contextmanager
def dbio(target: Path) -> Iterator[Append]:
    from dbio_commit import Table, transaction

    tables = [Table(target / name) for name in TABLES]
    for table in tables:
        table.write(ROWS)

    def append() -> None:
        with transaction() as tx:
            for table in tables:
                tx.write(ROWS, table)

    yield append


@contextmanager
def dbio_alone(target: Path) -> Iterator[Append]:
    """Two appends, one after the other."""
    from dbio_commit import Table

    tables = [Table(target / name) for name in TABLES]
    yield lambda: [table.write(ROWS) for table in tables]


@contextmanager
def ducklake_on_sqlite(target: Path) -> Iterator[Append]:
    with _ducklake(f"sqlite:{target}/catalog.sqlite", target, "sqlite_scanner") as append:
        yield append


@contextmanager
def ducklake_on_postgres(target: Path) -> Iterator[Append]:
    server = import_module("pgserver").get_server(target / "postgres")
    try:
        host = parse_qs(urlsplit(server.get_uri()).query)["host"][0]
        with _ducklake(f"postgres:dbname=postgres host={host} user=postgres", target, "postgres_scanner") as append:
            yield append
    finally:
        server.cleanup()


@contextmanager
def _ducklake(catalog: str, target: Path, scanner: str) -> Iterator[Append]:
    connection: Any = import_module("duckdb").connect()
    for extension in ("ducklake", scanner):
        package = Path(str(import_module(f"duckdb_extension_{extension}").__file__)).parent
        (library,) = package.rglob("*.duckdb_extension")
        connection.load_extension(str(library))
    connection.execute(f"ATTACH 'ducklake:{catalog}' AS lake (DATA_PATH '{target}/data/')")
    connection.execute("USE lake")
    connection.register("rows", ROWS)
    for name in TABLES:
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")

    def append() -> None:
        connection.execute("BEGIN")
        for name in TABLES:
            connection.execute(f"INSERT INTO {name} SELECT * FROM rows")
        connection.execute("COMMIT")

    try:
        yield append
    finally:
        connection.close()


WAYS = {it.__name__: it for it in (dbio, dbio_alone, ducklake_on_sqlite, ducklake_on_postgres)}


def main(way: str, target: str, times: str) -> None:
    path = Path(target)
    path.mkdir(parents=True)
    taken: list[float] = []
    with WAYS[way](path) as append:
        for _ in range(3):  # not counted: all that a process does once
            append()
        for _ in range(int(times)):
            began_s = perf_counter()
            append()
            taken.append(perf_counter() - began_s)
    print(json.dumps(taken))


if __name__ == "__main__":
    main(*sys.argv[1:])
