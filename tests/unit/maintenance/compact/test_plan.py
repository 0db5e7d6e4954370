"""Which small files a compaction puts together."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.maintenance.compact.plan import Bin, in_commits, plan_bins
from dbio_commit.protocol import names
from dbio_commit.protocol.state import UNKNOWN_SIZE, DataFile

TARGET = 100


def data_file(number: int, size: int, directory: str = "") -> DataFile:
    path = names.join(directory, f"part-{number:05}-tid-1-job-0-0-c000.parquet")
    return DataFile(path, size, "1", names.parse_partition(directory))


def files_of(*sizes: int, directory: str = "") -> list[DataFile]:
    return [data_file(number, size, directory) for number, size in enumerate(sizes)]


def sizes_of(bins: list[Bin]) -> list[list[int]]:
    return [[file.size for file in bin.files] for bin in bins]


ANY_FILES = st.lists(
    st.tuples(st.one_of(st.integers(0, 150), st.just(UNKNOWN_SIZE)), st.sampled_from(["", "day=1", "day=01"]))
).map(lambda found: [data_file(number, size, directory) for number, (size, directory) in enumerate(found)])


def test_small_files_go_together_up_to_the_target() -> None:
    assert sizes_of(plan_bins(files_of(40, 40, 40, 20), target_size=TARGET)) == [[40, 40, 20]]


def test_a_file_of_three_quarters_of_the_target_stays_as_it_is() -> None:
    assert sizes_of(plan_bins(files_of(75, 10, 74, 10), target_size=TARGET)) == [[10, 74, 10]]


def test_a_file_that_would_come_alone_is_left_unless_its_rows_are_to_be_sorted() -> None:
    assert plan_bins(files_of(10), target_size=TARGET) == []
    assert sizes_of(plan_bins(files_of(10, 75), target_size=TARGET, in_order=True)) == [[10]]


def test_files_of_unknown_size_are_taken_for_small() -> None:
    assert sizes_of(plan_bins(files_of(UNKNOWN_SIZE, 10), target_size=TARGET)) == [[UNKNOWN_SIZE, 10]]


def test_fewer_files_than_are_asked_for_are_left() -> None:
    files = files_of(10, 10, 60, 60, 60)
    assert sizes_of(plan_bins(files, target_size=TARGET)) == [[10, 10, 60]]
    assert sizes_of(plan_bins(files, target_size=TARGET, min_files=3, in_order=True)) == [[10, 10, 60]]
    assert sizes_of(plan_bins(files, target_size=TARGET, min_files=4)) == []
    assert sizes_of(plan_bins(files_of(10), target_size=TARGET, min_files=1)) == []


def test_directories_that_mean_the_same_partition_are_kept_apart() -> None:
    files = [*files_of(1, 1, directory="day=1"), *files_of(1, 1, directory="day=01")]
    assert [bin.directory for bin in plan_bins(files, target_size=TARGET)] == ["day=01", "day=1"]


@given(ANY_FILES, st.booleans())
def test_each_file_is_in_one_bin_or_left_and_no_bin_has_two_directories(files: list[DataFile], in_order: bool) -> None:
    bins = plan_bins(files, target_size=TARGET, in_order=in_order)
    taken = [path for bin in bins for path in bin.paths]
    assert max(Counter(taken).values(), default=1) == 1
    assert set(taken) <= {file.path for file in files}
    for bin in bins:
        assert {names.split(path)[0] for path in bin.paths} == {bin.directory}
        assert bin.size <= TARGET
        assert len(bin.files) >= (1 if in_order else 2)


@given(ANY_FILES)
def test_a_second_plan_finds_nothing_to_do(files: list[DataFile]) -> None:
    bins = plan_bins(files, target_size=TARGET)
    taken = {path for bin in bins for path in bin.paths}
    new = [data_file(1000 + number, bin.size, bin.directory) for number, bin in enumerate(bins)]
    assert plan_bins([*(file for file in files if file.path not in taken), *new], target_size=TARGET) == []


@given(ANY_FILES, st.integers(1, 300), st.integers(1, 10))
def test_commits_take_all_bins_in_order_and_keep_their_bounds(files: list[DataFile], size: int, count: int) -> None:
    bins = plan_bins(files, target_size=TARGET)
    commits = list(in_commits(bins, most_bytes=size, most_files=count))
    assert [bin for commit in commits for bin in commit] == bins
    for commit in commits:
        assert len(commit) == 1 or sum(bin.size for bin in commit) <= size
        assert len(commit) == 1 or sum(len(bin.files) for bin in commit) <= count


@pytest.mark.timeout(60)
def test_a_million_files_are_planned_in_seconds() -> None:
    files = [DataFile(f"part-{number:07}.parquet", 1000 + number % 7, "1", {}) for number in range(1_000_000)]
    assert len(plan_bins(files, target_size=100_000)) > 10_000
