"""Whole hostile directories, read, checked, vacuumed and written to: a result, or an error of the package."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbio_commit import DbioError, Table
from tests.fuzz.bodies import STAMP, TIDS
from tests.fuzz.directories import Hostile, directories, live
from tests.fuzz.directories import settings as told_settings
from tests.test_golden import GoldenCase, golden_cases
from vacuum import VacuumOptions

NOW = datetime(2026, 11, 20, tzinfo=UTC)
many = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

OPTIONS = st.builds(
    VacuumOptions,
    retention_hours=st.sampled_from([0.0, 1.0, 48.0]),
    force=st.just(True),
    untracked=st.booleans(),
    checkpoint_after=st.sampled_from([0, 20]),
)
READS: list[Callable[[Table], object]] = [
    Table.history,
    Table.check,
    lambda table: [table.show(tid) for tid in TIDS],
    lambda table: table.snapshot(ignore_corrupt_markers=True),
    lambda table: table.snapshot(as_of=STAMP),
    lambda table: table.snapshot(as_of=TIDS[0]),
]


def write(table: Table) -> None:
    with suppress(DbioError), table.begin() as transaction:
        transaction.new_file(partition=dict.fromkeys(transaction.terms.partition_columns, "1"))
        transaction.abort()


WRITES: list[Callable[[Table], object]] = [
    lambda table: table.begin().commit(),
    lambda table: table.begin("overwrite").commit(),
    lambda table: table.begin(app=("nightly", 8)).commit({"type": "struct", "fields": []}),
    lambda table: table.abort(TIDS[1]),
    Table.checkpoint,
    Table.adopt,
    write,
]


@many
@given(directories().map(Hostile))
def test_a_reader_sees_what_an_independent_reading_says_or_gets_an_error(hostile: Hostile) -> None:  # I1, I6
    hostile.check_read()


@many
@given(directories().map(Hostile), OPTIONS)
def test_vacuum_deletes_nothing_live_nothing_strange_and_nothing_that_it_cannot_judge(  # I4
    hostile: Hostile, options: VacuumOptions
) -> None:
    hostile.check_vacuum(options)


@given(directories().map(Hostile), OPTIONS, st.lists(st.sampled_from([0, 1, 31]), min_size=2, max_size=4))
@settings(many, max_examples=60)
def test_vacuums_in_a_row_show_readers_the_same_table(  # I4
    hostile: Hostile, options: VacuumOptions, days: list[int]
) -> None:
    for pause in days:
        hostile.check_vacuum(options)
        hostile.clock.advance(timedelta(days=pause))


@many
@given(directories().map(Hostile))
def test_every_way_to_read_a_directory_ends_in_a_result_or_our_error(hostile: Hostile) -> None:
    for read in READS:
        with suppress(DbioError):
            read(hostile.table)
    assert hostile.store.objects == hostile.before


@given(directories().map(Hostile), st.lists(st.sampled_from(WRITES), min_size=1, max_size=4))
@settings(many, max_examples=100)
def test_every_way_to_write_to_a_directory_ends_in_a_result_or_our_error(
    hostile: Hostile, writes: list[Callable[[Table], object]]
) -> None:
    for work in writes:
        with suppress(DbioError):
            work(hostile.table)
    lost = {path for path, content in hostile.before.items() if hostile.store.objects.get(path) != content}
    assert not lost, "a writer deleted or changed what somebody else had written"


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_the_independent_reading_is_right_about_the_golden_directories(case: GoldenCase, tmp_path: Path) -> None:
    for i, read in enumerate(case.reads):
        root = Path(case.build(tmp_path / str(i), read))
        files = [path for path in root.rglob("*") if path.is_file()]
        objects = {path.relative_to(root).as_posix(): (path.read_bytes(), NOW) for path in files}
        if not (read.error or read.as_of or read.ignore_corrupt_markers):
            assert live(objects) == set(read.files)
            assert read.settings is None or told_settings(objects) == [read.settings]
