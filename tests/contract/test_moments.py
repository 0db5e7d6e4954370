"""Several tables at one moment on each store (PROTOCOL.md 8.5): what a reader sees beside a loader, and requests."""

from datetime import timedelta
from threading import Event, Thread
from unittest.mock import patch

import pytest

import dbio_commit as dbio
from dbio_commit.base.errors import InvalidInputError
from dbio_commit.log import listing
from dbio_commit.store import mounts
from dbio_commit.store.mounts import Mount
from dbio_commit.table import Table
from dbio_commit.testing import MemoryStore
from tests.contract.places import Place
from tests.contract.test_in_sequence import in_rounds
from tests.servers import S3Server
from tests.writers import write


def _tables(place: Place, count: int) -> list[Table]:
    """Tables with a commit each."""
    tables = [Table(f"{place.url}/{i}", place.storage_options) for i in range(count)]
    for table in tables:
        write(table)
    return tables


@pytest.mark.long_for("azure", "gcs")
def test_no_reader_sees_the_second_of_two_commits_without_the_first(shared: Place) -> None:
    first, second = _tables(shared, 2)
    ended = Event()

    def load() -> None:
        while not ended.is_set():
            write(first)
            write(second)

    loader = Thread(target=load)
    loader.start()
    try:
        seen = [dbio.snapshots([second, first]) for _ in range(3)]
    finally:
        ended.set()
        loader.join()
    counts = [(len(after.tids), len(before.tids)) for after, before in seen]
    assert all(before - 1 <= after <= before for after, before in counts), counts
    then = first.history()[-1].timestamp  # other commits may have the same time
    counts_then = [sum(it.timestamp <= then for it in table.history()) for table in (first, second)]
    assert [len(it.tids) for it in dbio.snapshots([first, second], then)] == counts_then


def test_tables_together_send_the_requests_that_they_send_alone_and_at_the_same_time(
    s3: Place, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SAME_SECOND", timedelta(0))  # else it depends on the age of each table what is read
    alone, *tables = _tables(s3, 4)
    for is_known in (False, True):  # its descriptor, then its marker
        rounds, requests = in_rounds(s3_server, alone.snapshot)
        rounds_together, together = in_rounds(s3_server, lambda: dbio.snapshots(tables))
        assert (rounds_together, len(together)) == (rounds, 3 * len(requests)), is_known


def test_a_store_says_whether_another_one_has_its_clock(remote: Place) -> None:
    store = remote.open()
    assert store.shares_clock(remote.open("/beside"))
    assert not store.shares_clock(MemoryStore())
    assert not MemoryStore().shares_clock(store)
    option = {"s3": "endpoint_url", "gcs": "endpoint_url"}.get(remote.kind)
    if option:
        assert not store.shares_clock(remote.open("/beside", **{option: "http://localhost:1"}))


def _mounted(path: str) -> Mount:
    return Mount("/" + path.split("/")[1], "ext4")


def test_another_disk_may_have_another_clock_or_round_its_times() -> None:
    here, beside, elsewhere = (Table(path).store for path in ("/one/a", "/one/b", "/two/a"))
    with patch("dbio_commit.store.local.find_mount", _mounted):
        assert here.shares_clock(beside)
        assert not here.shares_clock(elsewhere)
        assert not elsewhere.shares_clock(here)
        with pytest.raises(InvalidInputError, match="/one/a and /two/a lie in stores with separate clocks"):
            dbio.snapshots(["/one/a", "/two/a"])


def test_where_no_mounts_are_listed_all_disks_count_as_one() -> None:
    with patch.object(mounts, "read_mounts", list):
        assert Table("/a").store.shares_clock(Table("/b").store)
