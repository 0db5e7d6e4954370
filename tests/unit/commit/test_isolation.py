"""What a rewrite must know of that came since it looked, also where a checkpoint has forgotten what was removed.

Rules: PROTOCOL.md 9.9.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from dbio_commit import CommitConflictError, Table
from dbio_commit.base.options import Isolation
from dbio_commit.commit.begin import Intent, begin
from dbio_commit.commit.isolation import Read, only_appends
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish import context_of
from dbio_commit.protocol.commits import Decided, Forgotten
from dbio_commit.protocol.etag import refuse_changed
from dbio_commit.protocol.markers.commit import CommitMarker
from dbio_commit.testing import ManualClock
from tests.tiny_parts import in_both_forms
from tests.writers import live, stage, write
from vacuum import VacuumOptions, vacuum_table

pytestmark = in_both_forms


def of_all_rows(seen: Snapshot, isolation: Isolation) -> Read:
    return Read(tids=frozenset(seen.tids), may_match=lambda now: list(now.files), isolation=isolation)


def compact(table: Table) -> None:
    """All files into one of the same rows."""
    with begin(context_of(table.store, table.clock), Intent(operation="rewrite", changes_rows=False)) as compaction:
        compaction.remove(live(table))
        stage(table, compaction, b"compacted")
        compaction.commit()


@pytest.mark.parametrize("isolation", ["write_serializable", "serializable"])
@pytest.mark.parametrize("vacuums", [False, True], ids=["", "after a vacuum"])
def test_rows_that_a_compaction_carried_on_are_news_whatever_is_forgotten(
    table: Table, clock: ManualClock, isolation: Isolation, vacuums: bool
) -> None:
    write(table)
    clock.advance(timedelta(minutes=10))
    seen = table.snapshot()  # by a merge whose planning takes long
    clock.advance(timedelta(minutes=1))
    other = table.begin("rewrite")
    stage(table, other, b"the same key")
    other.depends_on(of_all_rows(seen, isolation))
    other.commit()
    clock.advance(timedelta(minutes=1))
    compact(table)
    clock.advance(timedelta(minutes=8))
    merge = table.begin("rewrite")
    stage(table, merge, b"a key")
    merge.depends_on(of_all_rows(seen, isolation))
    clock.advance(timedelta(minutes=58))
    if vacuums:
        assert vacuum_table(table, VacuumOptions(retention_hours=1, checkpoint_after=0)).checkpoint
    with pytest.raises(CommitConflictError, match="might have changed their rows"):
        merge.commit()


def test_a_commit_of_dbio_that_is_known_to_have_removed_files_is_no_blind_append(clock: ManualClock) -> None:
    marker = CommitMarker(added=["a"], removed=[])
    assert only_appends(Decided(clock.now(), "1", marker))
    assert not only_appends(Decided(clock.now(), "1", marker, Forgotten(removed=1)))


def test_a_rewrite_may_allow_only_some_of_the_commits_since_it_has_read_the_table(
    table: Table, clock: ManualClock
) -> None:
    """As one does whose new rows follow from rows of the table: others may append, and remove nothing."""
    write(table)

    def rewrite(meanwhile: Callable[[], object]) -> None:
        clock.advance(timedelta(minutes=1))
        seen = table.snapshot()

        def check(now: Snapshot) -> None:
            refuse_changed(now.transactions, seen.etag, moment_s=2, known_since=None, where=now.url, but=only_appends)

        with table.begin("rewrite") as transaction:
            stage(table, transaction, b"new")
            transaction.depends_on(replace(of_all_rows(seen, "write_serializable"), check=check))
            meanwhile()
            transaction.commit()

    def remove() -> None:
        with table.begin("rewrite") as removal:
            removal.remove(sorted(live(table))[:1])

    rewrite(lambda: write(table, bodies=[b"appended"]))
    assert len(live(table)) == 3
    with pytest.raises(CommitConflictError, match="the state that this write is based on"):
        rewrite(remove)
    assert len(live(table)) == 2
