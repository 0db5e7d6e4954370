"""A walk finds what is in a store once, each time with the state of the same directories."""

import random

import pytest

from dbio_commit.maintenance import walk as walks
from dbio_commit.maintenance.walk import divide, list_levels, ranges_of, walk
from dbio_commit.protocol import names
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.table import Table
from tests.tiny_parts import in_both_forms
from tests.writers import WakingWorld, stage

pytestmark = in_both_forms


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "SHARE_ROWS", 10)
    monkeypatch.setattr(walks, "_PAGE", 1)


def some_table(seed: int) -> Table:
    """A table by region and day with checkpoints, news, garbage, and objects of others."""
    rng = random.Random(seed)
    table = WakingWorld().table
    regions = rng.sample("abcdefgh", rng.randint(1, 8))
    for _ in range(rng.randint(1, 6)):
        job = table.begin(partition_by=["region", "day"])
        for _ in range(rng.randint(0, 9)):
            stage(table, job, partition={"region": rng.choice(regions), "day": str(rng.randint(1, 9))})
        job.commit()
        if rng.random() < 0.3:
            table.checkpoint()
    for path in ("README.txt", "region=a/x", "region=a-/day=1/y.parquet", "other/z.parquet", "_hidden/x.parquet"):
        table.store.put_if_absent(path, b"")
    return table


@pytest.mark.parametrize("seed", range(30))
def test_the_shares_of_a_table_have_together_all_objects_and_the_whole_state(seed: int) -> None:
    table = some_table(seed)
    snapshot = table.snapshot()
    found = [*walk(table.store, snapshot)]
    entries = [entry for _, some in found for entry in some]
    assert sorted(entries) == sorted(it for it in table.store.list_files() if not it.path.startswith("_hidden"))
    assert [share.has_top for share, _ in found] == [True] + [False] * (len(found) - 1)
    if len(found) == 1:
        assert [*found[0][0].snapshot.files] == [*snapshot.files] or snapshot.checkpoint.is_root
    paths = [file.path for share, _ in found for file in share.snapshot.files]
    assert sorted(paths) == sorted(file.path for file in snapshot.files)
    for share, some in found:
        assert {file.path for file in share.snapshot.files} <= {entry.path for entry in some}
        if not share.has_top:
            assert all(names.split(entry.path)[0] in Subtrees(share.directories) for entry in some)


def test_a_large_table_is_divided_and_a_level_with_too_many_files_is_listed() -> None:
    table = WakingWorld().table
    job = table.begin(partition_by=["region", "day"])
    for number in range(200):
        stage(table, job, partition={"region": str(number % 5), "day": str(number % 20)})
    job.commit()
    table.checkpoint()
    snapshot = table.snapshot()
    shares = [*divide(snapshot, list_levels(table.store, snapshot, enough=5).below)]
    assert sum(len(it.snapshot.files) for it in shares) == 200
    if not snapshot.checkpoint.is_root:
        assert len(shares) == 1
        assert shares[0].snapshot is snapshot
        return
    assert len(shares) > 10
    assert max(len(it.snapshot.files) for it in shares) <= 20
    assert sorted(it for share in shares for it in share.directories) == sorted(
        {f"region={number % 5}/day={number % 20}" for number in range(200)}
    )
    assert all(len(ranges_of(table.store, it, files=200)) >= 1 for it in shares if it.directories)
