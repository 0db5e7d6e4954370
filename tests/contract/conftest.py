"""The places that the contract is tested on. `place` is each of them in turn, `remote` only those behind a network."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from dbio_commit.store import Store
from tests.contract.places import Place, Race, racing_processes
from tests.servers import Server


def _place(kind: str, request: pytest.FixtureRequest) -> Place:
    match kind:
        case "memory":
            return Place("memory", f"memory://{uuid4().hex}")
        case "local" | "s3" | "azure":
            root = request.getfixturevalue(f"{kind}_root")
            return Place(kind, root.url, root.storage_options)
    raise ValueError(kind)


@pytest.fixture(params=["memory", "local", "s3", "azure"])
def place(request: pytest.FixtureRequest) -> Place:
    return _place(request.param, request)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture(params=["local", "s3", "azure"])
def shared(request: pytest.FixtureRequest) -> Place:
    """A place that several processes, and several tables, share."""
    return _place(request.param, request)


@pytest.fixture(params=["s3", "azure"])
def remote(request: pytest.FixtureRequest) -> Place:
    return _place(request.param, request)


@pytest.fixture
def s3(request: pytest.FixtureRequest) -> Place:
    return _place("s3", request)


@pytest.fixture
def azure(request: pytest.FixtureRequest) -> Place:
    return _place("azure", request)


@pytest.fixture
def server(remote: Place, request: pytest.FixtureRequest) -> Server:
    """The server of `remote`."""
    found: Server = request.getfixturevalue(f"{remote.kind}_server")
    return found


@pytest.fixture(scope="session")
def race() -> Iterator[Race]:
    with racing_processes() as race:
        yield race
