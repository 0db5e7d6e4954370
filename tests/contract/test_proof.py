"""The proof that a store has put-if-absent, on a real client: what it costs, and that it sees who looks first.

Rules: PROTOCOL.md 4.
"""

from itertools import groupby

import pytest

from dbio_commit import Table, UnsupportedStoreError
from dbio_commit.commit import probe as probe_module
from tests.contract.places import Place
from tests.servers import Fault, S3Server, Server
from tests.writers import contents, write


@pytest.fixture(autouse=True)
def not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server is new to this process."""
    monkeypatch.setattr(probe_module, "_PROBED", set())


def test_a_service_that_looks_first_and_writes_then_gets_no_table(s3: Place, s3_server: S3Server) -> None:
    s3_server.inject(Fault(method="PUT", path=".", kind="looks-first", times=1000))
    table = Table(s3.url, s3.storage_options)
    for _ in range(2):
        with pytest.raises(UnsupportedStoreError, match="checks first and then writes"):
            write(table)
    assert table.store.list_files() == []


def test_a_table_on_a_service_that_came_to_look_first_keeps_what_it_has(s3: Place, s3_server: S3Server) -> None:
    table = Table(s3.url, s3.storage_options)
    write(table)
    before = table.store.list_files()
    probe_module._PROBED.clear()
    s3_server.inject(Fault(method="PUT", path=".", kind="looks-first", times=1000))
    with pytest.raises(UnsupportedStoreError, match="checks first and then writes"):
        write(table)
    assert table.store.list_files() == before
    assert contents(table)


def test_four_requests_prove_a_service_and_the_first_write_needs_no_more(remote: Place, server: Server) -> None:
    """Of the process, in the bucket or container: whichever table it goes to."""
    for suffix, times in (("/first", 4), ("/second", 1)):
        server.reset()
        write(Table(remote.url + suffix, remote.storage_options))
        if remote.kind == "gcs":  # which names the object in the query: one of them is the data file
            tries = [request for request in server.requests() if request.method == "POST"]
            assert (len(tries), sum(request.status < 300 for request in tries)) == (times + 3, 4)
            continue
        puts = [request for request in server.requests() if request.method == "PUT" and "/_" in request.path]
        counts = [len(list(same)) for _, same in groupby(puts, key=lambda request: request.path)]
        assert counts == [times, 1, 1]  # the descriptor, the start marker, the commit marker
        assert sum(request.status < 300 for request in puts) == 3
