"""What a listing of the log and few of its objects show."""

from dbio_commit.log.listing import has_commits
from dbio_commit.protocol import names
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import stage
from vacuum import VacuumOptions, vacuum_table


def test_a_table_has_commits_from_its_first_commit_until_it_is_dropped() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    table = Table.over(store, clock)
    assert not has_commits(store)
    first, second = table.begin(), table.begin()
    assert not has_commits(store)
    first.abort()
    assert not has_commits(store)
    stage(table, second)
    second.commit()
    assert has_commits(store)
    clock.sleep(40 * 24 * 3600)
    assert vacuum_table(table, VacuumOptions(checkpoint_after=1)).ok
    clock.sleep(40 * 24 * 3600)
    assert vacuum_table(table, VacuumOptions()).ok
    assert not store.list_log(names.Kind.COMMITTED)  # only the checkpoint shows it
    assert has_commits(store)
    store.put_if_absent(names.DROPPED, b"{}")
    assert not has_commits(store)
