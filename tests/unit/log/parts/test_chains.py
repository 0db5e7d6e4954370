"""Parts say what one body of version 1 says, however they are merged and read. Rules: PROTOCOL.md 7.4, 9.7."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbio_commit.commit import parts as writers
from dbio_commit.log.parts import windows
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.parts.rows import listed
from dbio_commit.protocol import parts
from dbio_commit.protocol.as_of import in_order
from dbio_commit.protocol.checkpoint import NO_CHECKPOINT, Checkpoint, decode_checkpoint, encode_root
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.bodies import REFERRING
from dbio_commit.protocol.markers.commit import CommitInfo, CommitMarker
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.parts import Key, Limits, Merge, Part
from dbio_commit.testing import MemoryStore
from tests.builders import NOW, data, marker
from tests.tiers import long
from tests.unit.log.parts.chains import WHERE, Chain, Steps, any_merges, merging, said, write_root
from tests.unit.protocol.test_checkpoint import checkpoints


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 2)
    monkeypatch.setattr(writers, "MOST_ROWS_AT_ONCE", 5)


SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(checkpoints())
def test_any_transactions_are_read_back_from_parts_as_they_were(checkpoint: Checkpoint) -> None:
    checkpoint = replace(checkpoint, commits=tuple(in_order(checkpoint.commits)))
    root = write_root(MemoryStore(), NO_CHECKPOINT, checkpoint)
    if root.parts:
        body = encode_root(root, created=NOW)
        header = decode_checkpoint(body, number=checkpoint.number, where=WHERE)
        assert header == replace(root, commits=())
    assert [*map(said, root.commits)] == [*map(said, checkpoint.commits)]


@settings(max_examples=30, suppress_health_check=SLOW_DRAWS)
@given(st.data())
def test_any_chain_of_checkpoints_says_in_parts_what_it_says_in_bodies(choice: st.DataObject) -> None:
    """Any parts are merged, and they are read in any order, after each checkpoint."""
    chain, steps = Chain(MemoryStore()), Steps(choice.draw, [], [], [], [])
    with merging(any_merges(choice.draw)):
        for _ in range(choice.draw(st.integers(1, 6))):
            keep_since = NOW + timedelta(seconds=choice.draw(st.sampled_from([-9, 0, 9])))
            chain.write(steps.news(), gone=steps.gone(), keep_since=keep_since)
            chain.check(lambda found: choice.draw(st.permutations(found)))


@pytest.mark.parametrize("limits", [*long(Limits(split=4, budget=2, most=1)), Limits(split=12, budget=8, most=6)])
def test_a_chain_that_is_merged_as_planned_says_the_same(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "LIMITS", limits)

    @settings(max_examples=12, suppress_health_check=SLOW_DRAWS)
    @given(st.data())
    def check(choice: st.DataObject) -> None:
        chain, steps = Chain(MemoryStore()), Steps(choice.draw, [], [], [], [])
        for _ in range(8):
            keep_since = NOW + timedelta(seconds=choice.draw(st.sampled_from([-9, 0, 9])))
            chain.write(steps.news(), gone=steps.gone(), keep_since=keep_since)
        chain.check()

    check()


# --- what merges leave out ----------------------------------------------------------------------------------------


def commit(tid: str, added: Sequence[str] = (), removed: Sequence[str] = (), *, at: int = 0) -> Decided:
    return Decided(NOW + timedelta(seconds=at), tid, marker([*added], [*removed]))


def three_news() -> Chain:
    """Checkpoint 1 has a file, 2 its removal, 3 says that both are forgotten. Nothing is merged."""
    chain = Chain(MemoryStore())
    with merging(lambda found, cuts: []):
        chain.write([commit("1", ["a"]), commit("2", ["b"], at=1)])
        chain.write([commit("3", removed=["a"], at=2)])
        chain.write([], gone=["a"])
    chain.check()
    return chain


def merge_files(chain: Chain, numbers: Collection[int], is_whole: bool) -> None:
    def choose(found: Sequence[Part], cuts: Sequence[Key]) -> list[Merge]:
        return [Merge([it for it in found if it.kind == "files" and it.since in numbers], is_whole)]

    with merging(choose):
        chain.write([])


def files_in(chain: Chain) -> list[bool]:
    """Of each row of files in the parts, whether it says that a path is forgotten."""
    found = [it for it in chain.root.parts if it.kind == "files"]
    return sorted(is_gone for it in found for is_gone in listed(PartReader(chain.store, 9).table(it)["gone"]))


@pytest.mark.parametrize("numbers", [(1, 3), (2, 3)])
def test_a_merge_without_all_that_its_rows_hide_is_not_whole(numbers: Collection[int]) -> None:
    chain = three_news()
    merged = [it for it in chain.root.parts if it.kind == "files" and it.since in numbers]
    assert not parts._is_whole(merged, chain.root.parts)
    merge_files(chain, numbers, is_whole=False)
    chain.check()


@pytest.mark.parametrize("numbers", [(1, 3), (2, 3)])
def test_what_is_forgotten_comes_back_if_such_a_merge_is_taken_for_whole(numbers: Collection[int]) -> None:
    """So the tests that go by the transactions find it."""
    chain = three_news()
    merge_files(chain, numbers, is_whole=True)
    with pytest.raises(AssertionError):
        chain.check()


def test_a_merge_of_all_parts_leaves_nothing_of_what_is_forgotten() -> None:
    chain = three_news()
    assert files_in(chain) == [False, False, False, True, True]
    merged = [it for it in chain.root.parts if it.kind == "files"]
    assert parts._is_whole(merged, chain.root.parts)
    merge_files(chain, (1, 2, 3), is_whole=True)
    chain.check()
    assert files_in(chain) == [False]


def test_parts_with_later_news_or_other_keys_do_not_keep_a_merge_from_being_whole() -> None:
    chain = three_news()
    with merging(lambda found, cuts: []):
        chain.write([commit("4", ["a2"], at=3)])
        chain.write([commit("5", ["zoo/b"], at=4)])
    merged = [it for it in chain.root.parts if it.kind == "files" and it.since <= 3]
    assert parts._is_whole(merged, chain.root.parts)
    merge_files(chain, (1, 2, 3), is_whole=True)
    chain.check()


def test_a_merge_that_leaves_no_row_writes_no_part() -> None:
    """Also if so many rows were to be cut into ranges."""
    chain = Chain(MemoryStore())
    with merging(lambda found, cuts: []):
        chain.write([commit("1", ["a", "b", "c"]), commit("2", removed=["a", "b", "c"], at=1)])
        chain.write([], gone=["a", "b", "c"])
    with merging(lambda found, cuts: [Merge([it for it in found if it.kind == "files"], is_whole=True, pieces=3)]):
        chain.write([])
    chain.check()
    assert not files_in(chain)


# --- what becomes of a transaction after its first checkpoint -----------------------------------------------------


def referring(tid: str, *, removes: Sequence[str], tids: Sequence[str]) -> Decided:
    info = CommitInfo(recorded="overwrite", commit_id=tid, timestamp=NOW, version=REFERRING, removed_tids=[*tids])
    return Decided(NOW, tid, CommitMarker(added=[], removed=[*removes], dbio_commit=info))


def test_a_reference_that_turns_out_to_remove_nothing_is_no_reference_any_more() -> None:
    """Else the transaction would never be forgotten. The parts had kept it."""
    chain = Chain(MemoryStore())
    chain.write([referring("1", removes=[], tids=["9"])])
    assert [it.marker.removed_tids for it in chain.read()] == [["9"]]
    chain.write([commit("9")])
    chain.check()
    assert [it.marker.removed_tids for it in chain.read() if it.tid == "1"] == [()]


def test_paths_that_a_reference_adds_come_after_those_that_were_left() -> None:
    chain = Chain(MemoryStore())
    chain.write([commit("0", ["a", "b", "c"], at=-5), referring("1", removes=["a", "b", "c"], tids=["9"])])
    chain.write([], gone=["a", "b"])
    chain.write([commit("9", [data("9"), data("9", 1)], at=-3)])
    chain.check()
    [found] = [it for it in chain.read() if it.tid == "1"]
    assert found.marker.removed == ["c", data("9"), data("9", 1)]


def test_a_path_that_a_marker_adds_and_removes_is_counted_as_one_that_it_added() -> None:
    """It is no change file, because its marker records no changes."""
    chain = Chain(MemoryStore())
    chain.write([commit("1", ["a", "b"], ["a"])])
    chain.write([], gone=["a"])
    chain.check()


def test_a_forgotten_transaction_is_forgotten_in_parts() -> None:
    chain = three_news()
    chain.write([], keep_since=NOW + timedelta(days=1))
    chain.check()
    assert [it.tid for it in chain.read()] == ["2", "3"]  # 3 says since when states are known


def test_a_late_commit_takes_its_place_among_covered_ones() -> None:
    """Three covered commits have the same time, so those behind it get new places."""
    chain = Chain(MemoryStore())
    chain.write([commit("1", ["a"]), commit("3", ["b"]), commit("5", ["c"])])
    chain.write([commit("2", ["d"]), commit("4", ["e"], at=-1)])
    chain.check()
    assert [it.tid for it in chain.read()] == ["4", "1", "2", "3", "5"]


# --- a large table at once ----------------------------------------------------------------------------------------


def test_so_many_new_rows_as_make_ranges_are_cut_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first root of a table with millions of files would have one part, which no merge ever touches again."""
    monkeypatch.setattr(writers, "LIMITS", Limits(split=12, budget=8, most=6))
    chain = Chain(MemoryStore())
    paths = [f"day={i}/{data('1', i)}" for i in range(30)]
    files = [FileInfo(path=it, size=1, statistics={"x": Bounds(i, i, 0)}) for i, it in enumerate(paths)]
    chain.write([Decided(NOW, "1", marker(paths, files=pack_files(files)))])
    chain.check()
    found = [it for it in chain.root.parts if it.kind == "files"]
    assert [it.rows for it in found] == [6, 6, 6, 6, 6]
    assert [*chain.root.cuts] == [it.first for it in found[1:]]
    chain.write([commit("2", [f"day={i}/{data('2', i)}" for i in range(20)], at=1)])
    chain.check()
    assert all(parts._range_of(it, chain.root.cuts) is not None for it in chain.root.parts if it.kind == "files")
