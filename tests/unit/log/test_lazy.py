"""The history of a large table: counts without a look at the paths, which are read when they are asked for."""

import pickle
from dataclasses import replace

import pytest

from dbio_commit import CommitConflictError
from dbio_commit.commit.isolation import Read
from dbio_commit.log.table_state import table_snapshot
from tests.tiers import long
from tests.unit.large_tables import ByChance, flat, several_slices, unread
from tests.writers import stage


@pytest.mark.parametrize("seed", [0, 5, 7, *long(1, 2, 3, 4, 6)])
def test_the_history_of_a_large_table_is_that_of_the_same_table_in_one_body(seed: int) -> None:
    with several_slices():
        made = ByChance(seed)
        made.run(25)
        settled = made.settled()
        expected = table_snapshot(made.store, flat(settled)).history()
        found = table_snapshot(made.store, settled).history()
        assert [it.tid for it in found] == [it.tid for it in expected]
        for commit, other in zip(found, expected, strict=True):
            assert (commit.added_files, commit.removed_files) == (other.added_files, other.removed_files)
            assert (commit.operation, commit.metrics, commit.app) == (other.operation, other.metrics, other.app)
        for commit, other in zip(found, expected, strict=True):
            assert (commit.added, commit.removed) == (other.added, other.removed)
            assert (commit.change_files, commit.files) == (other.change_files, other.files)
            assert repr(commit) == repr(other)
        assert found == expected
        assert pickle.loads(pickle.dumps(found)) == expected
        skipped = [replace(it, skipped=True) for it in found]
        assert [it.added for it in skipped] == [it.added for it in expected]


@pytest.mark.parametrize("seed", range(4))
def test_a_listing_of_commits_reads_no_transaction_as_a_whole(seed: int) -> None:
    with several_slices():
        made = ByChance(seed)
        made.run(25)
        with unread():
            found = made.table.history()
            assert [(it.added_files, it.removed_files) for it in found]
            assert [made.table.show(it.tid) for it in found if not it.marker.removed_tids]


def test_an_application_is_asked_for_without_the_paths_of_its_commits() -> None:
    with several_slices():
        made = ByChance(1)
        made.table.begin(partition_by=["day"], app=("nightly", 7)).commit()
        made.run(12)
        made.checkpoint()
        with unread():
            assert made.table.begin(app=("nightly", 7)).commit().skipped
            assert not made.table.begin(app=("nightly", 8)).commit().skipped


def test_conflicts_are_looked_for_among_the_commits_that_a_rewrite_has_not_seen() -> None:
    with several_slices():
        made = ByChance(2)
        made.run(12)
        made.checkpoint()
        seen = made.table.snapshot()
        transaction = made.table.begin("rewrite")
        stage(made.table, transaction, partition={"day": "d1"})
        transaction.depends_on(
            Read(
                tids=frozenset(seen.tids),
                may_match=lambda now: now.where("day = 'd1'").files,
                isolation="serializable",
            )
        )
        with made.table.begin() as other:
            path = stage(made.table, other, partition={"day": "d1"})
        made.checkpoint()
        with unread(), pytest.raises(CommitConflictError, match=f"1 files, first {path}"):
            transaction.commit()
        with unread():
            made.table.abort(transaction.tid)
            made.table.begin().abort()
