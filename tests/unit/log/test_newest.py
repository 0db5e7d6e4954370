"""The newest commits are the first of the history, and no others are decoded as a whole."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbio_commit import CorruptMarkerError, Table
from dbio_commit.log.newest import newest_commits
from dbio_commit.log.parts import rows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.protocol import checkpoint, names
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import decode_checkpoint, encode_checkpoint, removed_by
from dbio_commit.protocol.commits import Commit, Decided
from dbio_commit.testing import MemoryStore
from tests.builders import NOW, World, data
from tests.tiers import long
from tests.unit.large_tables import ByChance, several_slices
from tests.unit.log.parts.chains import WHERE, Chain, Steps, any_merges, merging


def newest(table: Table, count: int) -> list[Commit]:
    return newest_commits(table.store, table.clock, count)


def check(table: Table) -> None:
    history = table.history()
    for count in (1, 2, 3, 7, len(history) + 1):
        found = newest(table, count)
        assert [it.tid for it in found] == [it.tid for it in history[:count]]
        assert [it.removed_files for it in found] == [it.removed_files for it in history[:count]]
        assert found == history[:count]


@pytest.mark.parametrize("seed", [*range(9), 27, *long(*range(9, 27), *range(28, 90))])
def test_the_newest_commits_are_the_first_of_the_history(seed: int) -> None:
    made = ByChance(seed)
    for _ in range(5):
        made.run(5)
        check(made.table)


@pytest.mark.parametrize("seed", [3, 5, *long(0, 1, 2, 4, *range(6, 20))])
def test_the_newest_commits_of_a_table_in_parts_are_the_first_of_its_history(seed: int) -> None:
    with several_slices():
        made = ByChance(seed)
        for _ in range(3):
            made.run(6)
            check(made.table)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_what_is_known_in_brief_orders_any_transactions_as_all_does(choice: st.DataObject) -> None:
    chain, steps = Chain(MemoryStore()), Steps(choice.draw, [], [], [], [])
    with merging(any_merges(choice.draw)):
        for _ in range(choice.draw(st.integers(1, 4))):
            chain.write(steps.news(), gone=steps.gone())
    news = steps.news()
    body = encode_checkpoint(chain.body, created=NOW)
    briefly = decode_checkpoint(body, number=chain.body.number, where=WHERE, briefly=True)
    whole = decode_checkpoint(body, number=chain.body.number, where=WHERE)
    assert tids([*briefly.commits, *news]) == tids([*whole.commits, *news])
    stored, removed = StoredCommits(PartReader(chain.store, chain.root.number), chain.root.parts), removed_by(news)
    assert tids([*stored.in_brief(removed), *news]) == tids([*stored.outlines(removed), *news])


def tids(commits: list[Decided]) -> list[tuple[str, bool]]:
    return [(it.tid, it.marker.is_abort) for it in in_order(commits)]


@pytest.mark.parametrize("seed", range(10))
def test_the_newest_commits_of_a_directory_are_the_first_of_its_history(seed: int) -> None:
    chance, world, added = Random(seed), World(descriptor=False), list[str]()
    for number in range(9):
        directory, tid = chance.choice(["", "day=1/", "day=2/"]), str(number)
        path = f"{directory}{data(tid)}"
        world.data(path)
        gone = chance.sample(added, min(len(added), chance.randint(0, 1))) if not directory else []
        body = {"added": [names.split(path)[1]], "removed": [it for it in gone if "/" not in it]}
        at = NOW - timedelta(days=9, seconds=chance.randint(0, 4))
        world.start(tid, at=at) if not directory else world.put(f"{directory}_started_{tid}", modified=at)
        world.put_json(f"{directory}_committed_{tid}", body, at=at)
        added.append(path)
    check(world.table())


@contextmanager
def decoded_at_most(most: int) -> Iterator[None]:
    """So many transactions of checkpoints may be decoded as a whole meanwhile."""
    lines, found = checkpoint._decode_line, list[object]()

    def line(*arguments: object, **options: object) -> object:
        found.append(None)
        return lines(*arguments, **options)  # type: ignore[arg-type]

    part, each = rows.commit_rows, list[object]()

    def some(commits: pa.Table) -> list[rows.CommitRow]:
        each.extend(read := part(commits))
        return read

    with patch.object(checkpoint, "_decode_line", line), patch.object(rows, "commit_rows", some):
        yield
    assert len(found) + len(each) <= most


@pytest.mark.parametrize("form", ["one body", "parts"])
def test_no_transaction_is_decoded_as_a_whole_that_is_not_among_the_newest(form: str) -> None:
    with several_slices() if form == "parts" else nullcontext():
        made = ByChance(0)
        for _ in range(40):
            made.append()
        made.checkpoint()
        made.append()
        table = Table.over(made.store, made.clock)
        made.store._identity += "-of-another-process"
        with decoded_at_most(4):
            assert len(newest(table, 5)) == 5


@pytest.mark.parametrize("is_live", [True, False])
def test_a_live_file_outside_of_all_partitions_is_refused(is_live: bool) -> None:
    made = ByChance(0)
    made.append()
    made.store.put_if_absent(names.committed("7"), json.dumps({"added": [data("7")], "removed": []}).encode())
    if not is_live:
        made.store.put_if_absent(names.committed("8"), json.dumps({"added": [], "removed": [data("7")]}).encode())
        check(made.table)
        return
    with pytest.raises(CorruptMarkerError, match="partitioned by"):
        newest(made.table, 1)


def test_a_checkpoint_that_no_writer_makes_is_refused() -> None:
    made = ByChance(0)
    made.append()
    made.checkpoint()
    made.store.put(names.checkpoint(1), b"x", modified=made.clock.now())
    with pytest.raises(CorruptMarkerError):
        newest(Table.over(made.store, made.clock), 1)
