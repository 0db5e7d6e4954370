"""Slices of a state have, together, what the state has as a whole, and each path is in one of them."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from unittest.mock import patch
from uuid import NAMESPACE_OID, uuid5

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbio_commit.log.parts import parquet, rows, windows
from dbio_commit.log.parts.commits import StoredCommits
from dbio_commit.log.parts.files import PartFiles
from dbio_commit.log.parts.reader import Fetched, PartReader
from dbio_commit.protocol import names
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import columns_in, unpack_files
from dbio_commit.protocol.parts import Group, Part
from dbio_commit.protocol.references import resolve
from dbio_commit.protocol.state import live_files
from dbio_commit.protocol.subtrees import Subtrees
from dbio_commit.testing import MemoryStore
from tests.builders import NOW, data, marker
from tests.unit.log.parts.chains import Chain, Steps, any_merges, merging, said

SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]
TOPS = ["a", "day=0", "day=1", "day=é", "zoo"]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 2)


def some_table(choice: st.DataObject) -> tuple[Chain, list[Decided]]:
    """A table after some checkpoints, and the transactions since the last of them."""
    chain, steps = Chain(MemoryStore()), Steps(choice.draw, [], [], [], [])
    with merging(any_merges(choice.draw)):
        for _ in range(choice.draw(st.integers(1, 4))):
            keep_since = NOW + timedelta(seconds=choice.draw(st.sampled_from([-9, 0, 9])))
            chain.write(steps.news(), gone=steps.gone(), keep_since=keep_since)
    return chain, in_order(steps.news())


def commits_of(chain: Chain) -> StoredCommits:
    return StoredCommits(PartReader(chain.store, chain.root.number), chain.root.parts)


def paths_of(commits: Iterable[Decided]) -> Counter[tuple[str, str, str]]:
    found = Counter[tuple[str, str, str]]()
    for commit in commits:
        found.update((commit.tid, "added", path) for path in commit.marker.added)
        found.update((commit.tid, "removed", path) for path in {*commit.marker.removed})
    return found


def check_slices(slices: Sequence[Sequence[Decided]], whole: Sequence[Decided]) -> None:
    resolved = [resolve(some) for some in slices]
    assert sum(map(paths_of, resolved), Counter[tuple[str, str, str]]()) == paths_of(whole)
    paths = [{path for _, _, path in paths_of(some)} for some in resolved]
    assert sum(map(len, paths)) == len(set().union(*paths))
    assert sorted(file.path for some in resolved for file in live_files(some)) == sorted(
        file.path for file in live_files(whole)
    )
    told = {info.path: info for some in resolved for it in some for info in unpack_files(it.marker)}
    for info in (info for it in whole for info in unpack_files(it.marker)):
        assert repr(told[info.path].statistics) == repr(info.statistics)
        assert (told[info.path].size, told[info.path].rows) == (info.size, info.rows)
    for some in resolved:
        assert {(it.tid, it.modified, it.marker.is_abort) for it in some} == {
            (it.tid, it.modified, it.marker.is_abort) for it in whole
        }


@settings(max_examples=30, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_slices_have_together_all_paths_of_all_transactions(choice: st.DataObject) -> None:
    chain, news = some_table(choice)
    found = commits_of(chain)
    whole = in_order(resolve([*found, *news]))
    check_slices([*found.slices(news)], whole)


@settings(max_examples=30, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_what_is_below_some_directories_and_below_the_others_and_the_rest_is_all(choice: st.DataObject) -> None:
    chain, news = some_table(choice)
    found = commits_of(chain)
    whole = in_order(resolve([*found, *news]))
    some = choice.draw(st.sets(st.sampled_from(TOPS)))
    others = choice.draw(st.sets(st.sampled_from([top for top in TOPS if top not in some] or TOPS))) - some
    within = [Subtrees(some), Subtrees(others), Subtrees(some | others, is_rest=True)]
    slices = [*found.below(news, within)]
    check_slices(slices, whole)
    for it, each in zip(within, slices, strict=True):
        assert all(names.split(path)[0] in it for _, _, path in paths_of(resolve(each)))


@settings(max_examples=30, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_chosen_transactions_are_read_as_they_are_among_all(choice: st.DataObject) -> None:
    chain, _ = some_table(choice)
    found = commits_of(chain)
    tids = [it.tid for it in found]
    some = choice.draw(st.sets(st.sampled_from(tids))) if tids else set()
    assert [*map(said, commits_of(chain).whole([*some, "unknown"]))] == [said(it) for it in found if it.tid in some]


@settings(max_examples=60, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_chosen_paths_are_in_the_same_transactions_as_among_all(choice: st.DataObject) -> None:
    chain, news = some_table(choice)
    found = commits_of(chain)
    whole = in_order(resolve([*found, *news]))
    paths = sorted({path for _, _, path in paths_of(whole)})
    some = choice.draw(st.sets(st.sampled_from(paths))) if paths else set()
    state = chain.root.state
    told = resolve(found.among(news, [*some, "day=1/unknown"], hides=state is None or state.hides))
    assert {(it.tid, it.modified, it.marker.is_abort) for it in told} == {
        (it.tid, it.modified, it.marker.is_abort) for it in whole
    }
    assert paths_of(told) == Counter({it: count for it, count in paths_of(whole).items() if it[2] in some})
    assert {*live_files(told).paths()} == {path for path in live_files(whole).paths() if path in some}
    for it in found:
        assert not it.marker.added or found.columns[it.tid] == [*columns_in(it.marker)]


def test_parts_that_are_older_than_a_transaction_are_not_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(MemoryStore())
    with merging(lambda found, cuts: []):
        for i in range(4):
            chain.write([Decided(NOW + timedelta(seconds=i), str(i), marker([f"day=1/{data(str(i))}"]))])
    read: list[Part] = []
    fetch = PartReader.fetch

    def counted(self: PartReader, part: Part, groups: object = None) -> object:
        read.append(part)
        return fetch(self, part, groups)  # type: ignore[arg-type]

    monkeypatch.setattr(PartReader, "fetch", counted)
    assert [it.tid for it in commits_of(chain).whole(["2"])] == ["2"]
    assert [it.since for it in read if it.kind == "files"] == [3, 4]


def test_transactions_are_decoded_once_for_all_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large table has most of its transactions in each slice."""
    chain = Chain(MemoryStore())
    with patch.object(parquet, "GROUP_ROWS", 2), merging(lambda found, cuts: []):
        for i in range(4):
            paths = [f"day={day}/{data(str(i))}" for day in range(4)]
            chain.write([Decided(NOW + timedelta(seconds=i), str(i), marker(paths))])
    decode, decoded = rows.commit_rows, list[int]()

    def counted(table: pa.Table) -> list[rows.CommitRow]:
        decoded.append(table.num_rows)
        return decode(table)

    monkeypatch.setattr(rows, "commit_rows", counted)
    slices = [*commits_of(chain).slices([])]
    assert len(slices) > 2
    assert decoded == [4]


@given(st.lists(st.sampled_from(["a", "a/b", "a-", "a-/b", "a0", "a0/x", "a/b/c", "b", "", "a.", "á/x"]), max_size=6))
def test_a_range_of_directories_is_left_out_only_if_no_directory_below_is_in_it(directories: list[str]) -> None:
    for tops in (["a"], ["a-"], ["a", "b"], ["a/b"], []):
        within = Subtrees(tops)
        for first, last in ((first, last) for first in directories for last in directories if first <= last):
            inside = [it for it in directories if first <= it <= last and it in within]
            assert within.may_have(first, last) or not inside
    assert not Subtrees(["a"]).may_have("a-", "a.")
    assert not Subtrees(["a"]).may_have("a0", "b")


@settings(max_examples=30, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_one_pass_over_all_rows_reads_each_row_group_once(choice: st.DataObject) -> None:
    with patch.object(parquet, "GROUP_ROWS", 2):
        chain, _ = some_table(choice)
    read: Counter[tuple[str, int]] = Counter()

    class Counting(PartReader):
        def fetch(self, part: Part, groups: Collection[int] | None = None) -> Fetched:
            read.update((part.name, i) for i in groups or ())
            return super().fetch(part, groups)

    parts = [part for part in chain.root.parts if part.kind == "files"]
    count = sum(it.num_rows for it in windows.FileRows(Counting(chain.store, chain.root.number), parts).tables())
    assert read == Counter((part.name, i) for part in parts for i in range(len(part.groups)))
    assert count <= sum(part.rows for part in parts)


def a_part(name: str, firsts: Sequence[list[str]], *, last: list[str], rows: int) -> Part:
    groups = [Group(first=first, rows=rows, at=i, bytes=1, crc=0) for i, first in enumerate(firsts)]
    name, size = names.part(1, uuid5(NAMESPACE_OID, name).hex), len(groups) + 8
    return Part(
        kind="files",
        name=name,
        since=1,
        until=1,
        bytes=size,
        footer=8,
        crc=0,
        groups=groups,
        last=last,
        statistics=None,
    )


def test_windows_are_as_large_as_the_row_groups_of_the_largest_part() -> None:
    """Whatever the smaller parts beside it, which begin and end where it does."""
    window = windows.WINDOW_ROWS
    large = a_part("large", [[f"day={i:02}", "1"] for i in range(20)], last=["day=99", "1"], rows=window)
    small = [a_part(f"small{i}", [["day=00", str(i + 2)]], last=["day=98", "1"], rows=window) for i in range(4)]
    bounds = windows._bounds([(part, i) for part in [*small, large] for i in range(len(part.groups))])
    assert bounds == [group.first for group in large.groups[1:]]


def test_slices_share_the_transactions_of_which_they_have_no_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the time of all slices would be that of the slices times the transactions."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    chain = Chain(MemoryStore())
    chain.write([Decided(NOW + timedelta(seconds=i), str(i), marker([f"day={i}/{data(str(i))}"])) for i in range(9)])
    slices = [*commits_of(chain).slices(())]
    assert len(slices) > 3
    without_paths = [it for some in slices for it in some if not it.marker.added]
    assert len(without_paths) > len({*map(id, without_paths)}) <= 9


def test_a_slice_looks_for_the_removed_paths_of_its_own_directories_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the time of all slices would be that of the slices times the removed paths."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    chain = Chain(MemoryStore())
    paths = [f"day={i}/{data(str(i))}" for i in range(9)]
    chain.write([Decided(NOW + timedelta(seconds=i), str(i), marker([path])) for i, path in enumerate(paths)])
    news = [Decided(NOW + timedelta(seconds=99), "99", marker([], removed=paths[:8]))]
    looked_for: list[int] = []
    texts = rows.texts

    def counted(values: Iterable[str]) -> object:
        some = [*values]
        looked_for.append(len(some))
        return texts(some)

    monkeypatch.setattr(rows, "texts", counted)
    found = PartFiles(chain.store, chain.root, news, ("day",))
    assert [file.path for file in found] == [paths[8]]
    assert max(looked_for) <= 3
