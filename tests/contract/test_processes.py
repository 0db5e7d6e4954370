"""Stores travel to other processes: by pickle, as Spark sends them, and over a fork, as its Python workers start."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from dbio_commit.store import Store
from tests.contract.places import Place


def work(store: Store) -> None:
    """Uses every kind of call, threads included."""
    assert store.get("_marker") == b"from the parent"
    assert store.put_if_absent("_marker", b"") is False
    assert store.put_if_absent("_child", b"from the child") is True
    with store.open_write("day=1/part-0") as file:
        file.write(b"data")
    bodies = store.in_parallel(store.get, ["_marker", "_child", "day=1/part-0"])
    assert bodies == [b"from the parent", b"from the child", b"data"]
    assert sorted(entry.path for entry in store.list_log()) == ["_child", "_marker"]


def used(place: Place) -> Store:
    store = place.open()
    store.put_if_absent("_marker", b"from the parent")
    bodies = store.in_parallel(store.get, ["_marker"] * 3)  # so that threads have used it, too
    assert bodies == [b"from the parent"] * 3
    return store


def run_in_child(method: str, target: Callable[[Store], None], store: Store) -> None:
    child = get_context(method).Process(target=target, args=(store,))  # type: ignore[attr-defined]
    child.start()
    child.join(60)
    hangs = child.is_alive()
    child.kill()
    assert not hangs, "the child hangs"
    assert child.exitcode == 0, "the child failed; see its output"


def test_a_store_works_in_a_new_process_after_a_pickle(shared: Place) -> None:
    store = used(shared)
    run_in_child("spawn", work, store)
    assert store.get("_child") == b"from the child"


def test_a_store_works_in_both_processes_after_a_fork(shared: Place) -> None:
    store = used(shared)
    run_in_child("fork", work, store)
    assert store.get("_child") == b"from the child"
    assert store.put_if_absent("_parent", b"") is True


def test_a_store_works_when_unpickled_after_a_fork(shared: Place) -> None:
    store = used(shared)
    run_in_child("fork", work_unpickled, store)
    assert store.get("_child") == b"from the child"


def work_unpickled(store: Store) -> None:
    work(pickle.loads(pickle.dumps(store)))


def test_a_store_works_twice_over_forks(s3: Place) -> None:
    store = used(s3)
    run_in_child("fork", work_in_grandchild, store)
    assert store.get("_child") == b"from the child"


def work_in_grandchild(store: Store) -> None:
    assert store.get("_marker") == b"from the parent"
    run_in_child("fork", work, store)


def test_a_pickled_store_is_the_same_store(shared: Place) -> None:
    store = used(shared)
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.url, copy.identity, repr(copy)) == (store.url, store.identity, repr(store))
    assert copy.get("_marker") == b"from the parent"


def test_credentials_come_from_the_environment(remote: Place, request: pytest.FixtureRequest) -> None:
    store, server = used(remote), request.getfixturevalue(f"{remote.kind}_server")
    program = (
        "import sys; from dbio_commit.store import open_store, parse_location\n"
        "print(open_store(parse_location(sys.argv[1])).get('_marker').decode())"
    )
    clients = ("AWS_", "AZURE_", "GOOGLE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(clients)}
    child = subprocess.run(
        [sys.executable, "-c", program, store.url],
        env=environment | server.env,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (child.stdout, child.returncode) == ("from the parent\n", 0), child.stderr
