"""`Table.trace`, and `Table.history` of a partition, also of tables in parts."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.protocol import names
from dbio_commit.testing import ManualClock, MemoryStore
from tests.tiny_parts import in_both_forms
from tests.writers import data_files, stage, write_days
from vacuum import VacuumOptions, vacuum_table

pytestmark = in_both_forms


def test_a_file_has_its_commits_and_a_pending_one_has_none(table: Table, clock: ManualClock) -> None:
    first = write_days(table, a=b"a", b=b"b")
    clock.sleep(10)
    second = write_days(table, "overwrite_partitions", b=b"new")
    table.checkpoint()
    old = next(path for path in first.added if path.startswith("day=b"))
    found = table.trace(old)
    assert found.added is not None
    assert found.removed is not None
    assert (found.added.tid, found.removed.tid, found.is_live) == (first.tid, second.tid, False)
    assert table.trace(table.store.url_of(second.added[0])).is_live
    pending = table.begin()
    path = stage(table, pending, partition={"day": "a"})
    with pytest.raises(InvalidInputError, match=f"of transaction {pending.tid}, which is not committed"):
        table.trace(path)
    with pytest.raises(InvalidInputError, match="no commit of"):
        table.trace("day=a/other.parquet")


def test_a_file_that_vacuum_has_deleted_still_has_its_writer_but_no_known_commit(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    first = write_days(table, a=b"a")
    clock.sleep(10)
    write_days(table, "overwrite", a=b"new")
    clock.sleep(3 * 86400)
    for _ in range(2):
        vacuum_table(table, VacuumOptions(checkpoint_after=0))
    assert first.added[0] not in data_files(store)
    found = table.trace(first.added[0])
    assert (found.added, found.removed, found.writer, found.is_live) == (None, None, first.tid, False)
    with pytest.raises(InvalidInputError, match="committed without such a path"):
        table.trace(names.split(first.added[0])[1])


def test_a_name_that_no_commit_added_is_refused(table: Table) -> None:
    path = write_days(table, a=b"a").added[0]
    table.checkpoint()
    for other in (names.split(path)[1], path.replace("part-00000", "part-00077"), f"day=b/{names.split(path)[1]}"):
        with pytest.raises(InvalidInputError, match="committed without such a path: give its path from the root"):
            table.trace(other)


@pytest.mark.parametrize("url", ["file://{}", "file:{}", "FILE:///{}", "{}", "local:{}"])
def test_a_file_is_found_by_each_spelling_of_its_url(tmp_path: Path, url: str) -> None:
    table = Table(tmp_path / "of two words %41")
    old = write_days(table, "append", **{"a b": b"a"}).added[0]
    write_days(table, "overwrite_partitions", **{"a b": b"b"})
    plain = f"{table.url}/{old}"
    for text in (plain, quote(plain, safe="/:=")):
        found = table.trace(url.format(text))
        assert found.removed is not None
        assert found.path == old
    with pytest.raises(InvalidInputError, match=f"does not lie in {table.url}"):
        table.trace(url.format(f"/other{plain}"))


def test_the_history_of_a_partition(table: Table, clock: ManualClock) -> None:
    tids = []
    each: list[Any] = [{"a": b"1", "b": b"2"}, {"b": b"3"}, {"c": b"4"}]
    for days in each:
        tids.append(write_days(table, **days).tid)
        clock.sleep(10)
        table.checkpoint()
    assert [commit.tid for commit in table.history(partition={"day": "b"})] == [tids[1], tids[0]]
    assert table.history(partition={"day": "z"}) == []
    with pytest.raises(InvalidInputError, match="is no partition"):
        table.history(partition={"country": "de"})
