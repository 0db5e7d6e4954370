"""The places that the contract is tested on. `place` is each of them in turn, `remote` only those behind a network."""

import os
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest

from dbio_commit.store import Store
from tests.conftest import Root
from tests.contract.places import Fill, Place, Race, racing_processes
from tests.servers import Server


def _place(kind: str, request: pytest.FixtureRequest) -> Place:
    match kind:
        case "memory":
            return Place("memory", f"memory://{uuid4().hex}")
        case "local" | "s3" | "azure" | "gcs":
            root = request.getfixturevalue(f"{kind}_root")
            return Place(kind, root.url, root.storage_options)
    raise ValueError(kind)


REMOTE = [pytest.param(kind, marks=pytest.mark.server) for kind in ("s3", "azure", "gcs")]


@pytest.fixture(params=["memory", "local", *REMOTE])
def place(request: pytest.FixtureRequest) -> Place:
    return _place(request.param, request)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture(params=["local", *REMOTE])
def shared(request: pytest.FixtureRequest) -> Place:
    """A place that several processes, and several tables, share."""
    return _place(request.param, request)


@pytest.fixture(params=REMOTE)
def remote(request: pytest.FixtureRequest) -> Place:
    return _place(request.param, request)


@pytest.fixture
def s3(s3_root: Root) -> Place:
    return Place("s3", *s3_root)


@pytest.fixture
def azure(azure_root: Root) -> Place:
    return Place("azure", *azure_root)


@pytest.fixture
def gcs(gcs_root: Root) -> Place:
    return Place("gcs", *gcs_root)


@pytest.fixture
def server(remote: Place, request: pytest.FixtureRequest) -> Server:
    """The server of `remote`."""
    found: Server = request.getfixturevalue(f"{remote.kind}_server")
    return found


@pytest.fixture
def fill(request: pytest.FixtureRequest) -> Fill:
    """Creates thousands of empty files; on moto at once, on every other server by a request for each."""

    def fill(store: Store, paths: Sequence[str]) -> None:
        if store.url.startswith("s3:") and "DBIO_TEST_S3_PORT" not in os.environ:
            request.getfixturevalue("s3_server").create_objects(store.url, paths)
        else:
            assert all(store.in_parallel(lambda path: store.put_if_absent(path, b""), paths))

    return fill


@pytest.fixture(scope="session")
def race() -> Iterator[Race]:
    with racing_processes() as race:
        yield race
