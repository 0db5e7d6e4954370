"""Versions of an application: each is committed once; numbers count up, days and times come in any order.

Rules: PROTOCOL.md 9.5.
"""

import gzip
import json
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from unittest.mock import patch

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from dbio_commit.base.errors import AppVersionError, CorruptMarkerError, InvalidInputError
from dbio_commit.commit.begin import check_app
from dbio_commit.commit.checkpoints import write_checkpoint
from dbio_commit.protocol import versions
from dbio_commit.protocol.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from dbio_commit.protocol.markers.start import App
from dbio_commit.protocol.versions import (
    AppVersion,
    Versions,
    add_up,
    only_highest,
    outcome_of,
    parse_version,
    refuse_new_id,
)
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import marker, versions_of
from tests.writers import data_files, stage, write

DAY = date(2026, 11, 20)
NUMBERS = st.integers(0, 30) | st.integers(0, (1 << 63) - 1)


def app_of(given: AppVersion) -> App:
    found = check_app(given)
    assert found is not None
    return found


# --- which are committed ------------------------------------------------------------------------------------------


@given(st.sets(NUMBERS, min_size=1), st.sets(NUMBERS, min_size=1), NUMBERS)
def test_ranges_hold_what_was_committed_and_nothing_else(first: set[int], then: set[int], other: int) -> None:
    before = versions_of(*first)
    found = add_up([marker(app=App(id="a", version=it)) for it in then], before={"a": before})["a"]
    for number in {*first, *then, other, *(it + 1 for it in first), *(it - 1 for it in then if it)}:
        assert (number in found) == (number in first | then)
    assert found.highest == max(first | then)
    assert found == versions_of(*first, *then)
    assert all(last + 1 < after for (_, last), (after, _) in zip(found.ranges, found.ranges[1:], strict=False))


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 40), st.booleans())
def test_a_version_is_committed_once_and_a_number_only_above_the_highest(
    known: set[int], number: int, any_order: bool
) -> None:
    outcome = outcome_of(
        App(id="a", version=number, any_order=any_order), {"a": versions_of(*known), "b": versions_of(99)}
    )
    assert (outcome == "committed") == (number in known)
    assert (outcome == "new") == (number not in known and (any_order or number > max(known)))
    assert outcome != "unknown"


def test_the_versions_of_each_application_are_its_own_and_go_on_from_those_of_a_checkpoint() -> None:
    found = [marker(app=App(id=id, version=it)) for id, it in (("a", 3), ("a", 5), ("a", 4), ("b", 0))]
    told = add_up([*found, marker(), marker(operation="append")], before={"a": versions_of(7), "c": versions_of(1)})
    assert told == {"a": versions_of(3, 4, 5, 7), "b": versions_of(0), "c": versions_of(1)}


def test_of_an_earlier_checkpoint_lower_versions_are_unknown_in_any_order() -> None:
    known = {"a": add_up([marker(app=App(id="a", version=7))], before={"a": only_highest(9)})["a"]}
    for any_order in (False, True):
        outcomes = [outcome_of(App(id="a", version=it, any_order=any_order), known) for it in (6, 7, 8, 9, 10)]
        assert outcomes == ["unknown", "committed", "unknown", "committed", "new"]


def test_of_too_many_ranges_the_lowest_are_unknown() -> None:
    with patch.object(versions, "MOST_RANGES", 3):
        found = versions_of(1, 3, 5, 7, 8)
    assert (found.ranges, found.known_from) == (((3, 3), (5, 5), (7, 8)), 3)
    assert outcome_of(App(id="a", version=1, any_order=True), {"a": found}) == "unknown"
    assert outcome_of(App(id="a", version=4, any_order=True), {"a": found}) == "new"


RANGES_BY_ID = st.dictionaries(st.sampled_from("abcde"), st.sets(st.integers(0, 60), min_size=1), min_size=1)


@given(RANGES_BY_ID, RANGES_BY_ID, st.integers(5, 40), st.integers(0, 61))
def test_of_too_many_ranges_of_all_applications_the_lowest_of_the_longest_are_forgotten(
    before: dict[str, set[int]], then: dict[str, set[int]], most: int, other: int
) -> None:
    told = {id: before.get(id, set()) | then.get(id, set()) for id in before.keys() | then.keys()}
    whole = {id: versions_of(*it) for id, it in told.items()}
    with patch.object(versions, "MOST_RANGES_IN_ALL", most):
        committed = {id: versions_of(*it) for id, it in before.items()}
        found = add_up([marker(app=App(id=id, version=it)) for id in then for it in then[id]], before=committed)
    lengths = {id: len(it.ranges) for id, it in found.items()}
    assert sum(lengths.values()) <= most
    for id, it in found.items():
        assert it.ranges == whole[id].ranges[-lengths[id] :]
        assert it.known_from == (it.ranges[0][0] if it.ranges != whole[id].ranges else 0)
        if it.ranges != whole[id].ranges:  # no other has more, but for what does not come out even
            assert lengths[id] == max(lengths.values())
        outcome = outcome_of(App(id=id, version=other, any_order=True), found)
        assert outcome == "unknown" or (outcome == "committed") == (other in told[id])


IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.lists(IDS, unique=True), IDS, st.integers(0, 3000))
def test_application_ids_take_no_more_bytes_in_a_checkpoint_than_a_table_keeps_of_them(
    ids: list[str], last: str, most: int
) -> None:
    committed: dict[str, Versions] = {}
    longest = Versions(ranges=((0, (1 << 63) - 1),), known_from=(1 << 63) - 1)
    with patch.object(versions, "MOST_ID_BYTES", most):
        for id in ids:
            with suppress(InvalidInputError):
                refuse_new_id(App(id=id, version=1), committed, where="here")
                committed[id] = longest
        for id in committed:
            refuse_new_id(App(id=id, version=2), committed, where="here")  # those that are there go on
    apps = {id: it.highest for id, it in committed.items()}
    room = most + len("{}") + len("{}") + len(committed) * len(encode(longest.ranges))
    assert len(encode(apps)) + len(encode(committed)) <= room


def test_a_new_id_for_which_there_is_no_room_is_refused_before_a_file_is_written(table: Table) -> None:
    write(table, app=("nightly", 1))
    with patch.object(versions, "MOST_ID_BYTES", 200):
        with pytest.raises(InvalidInputError, match=r"has 1 application ids.*'hourly'.*one id for each job"):
            write(table, app=("hourly", 1))
        write(table, app=("nightly", 2))
    assert len(table.snapshot().files) == 2
    write(table, app=("hourly", 1))


def test_years_of_days_and_of_batches_take_few_bytes() -> None:
    days = [int(f"{date(2016, 1, 1) + timedelta(days=it):%Y%m%d}") for it in range(3650)]
    assert len(versions_of(*days).ranges) == 120  # months
    assert len(versions_of(*range(100_000)).ranges) == 1


# --- in a checkpoint ----------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.sets(NUMBERS, min_size=1), max_size=3), st.integers(0, 50))
def test_a_checkpoint_tells_all_of_them(told: dict[str, set[int]], alone: int) -> None:
    apps = {**{id: versions_of(*it) for id, it in told.items()}, "of before": only_highest(alone)}
    body = encode_checkpoint(Checkpoint(number=1, apps=apps), created=datetime(2026, 11, 20, tzinfo=UTC))
    assert decode_checkpoint(body, number=1, where="here").apps == apps


@pytest.mark.parametrize(
    ("wrong", "apps"),
    {
        "none": ({"ranges": []}, 5),
        "backwards": ({"ranges": [[5, 4]]}, 4),
        "touching": ({"ranges": [[1, 4], [5, 5]]}, 5),
        "descending": ({"ranges": [[7, 8], [1, 5]]}, 5),
        "below zero": ({"ranges": [[-1, 5]]}, 5),
        "three": ({"ranges": [[1, 2, 5]]}, 5),
        "another highest": ({"ranges": [[1, 4]]}, 5),
    }.values(),
)
def test_a_checkpoint_with_impossible_ranges_is_corrupt(wrong: object, apps: int) -> None:
    header = {"version": 1, "number": 1, "created": "2026-11-20T11:20:04Z", "commits": 0, "apps": {"a": apps},
              "app_versions": {"a": wrong}, "schemas": [], "schema_turn": 0}  # fmt: skip
    with pytest.raises(CorruptMarkerError):
        decode_checkpoint(gzip.compress(json.dumps(header).encode()), number=1, where="here")


# --- as callers write them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "number", "any_order"),
    [
        (17, 17, False),
        (20261120, 20261120, False),
        (DAY, 20261120, True),
        (date(987, 1, 2), 9870102, True),
        (datetime(2026, 11, 20, 13), 20261120130000, True),
        (datetime(2026, 11, 20, 13, tzinfo=timezone(timedelta(hours=2))), 20261120110000, True),
    ],
)
def test_a_day_or_a_time_may_come_in_any_order(given: int | date, number: int, any_order: bool) -> None:
    assert app_of(("nightly", given)) == App(id="nightly", version=number, any_order=any_order)


@pytest.mark.parametrize(
    "version", [-1, 1 << 63, True, 1.0, "7", None, datetime(2026, 11, 20, 13, 0, 0, 1), pd.Timestamp(7), timedelta(1)]
)
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(InvalidInputError, match="give a text, and a whole number from 0"):
        check_app(("nightly", version))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0", 0),
        ("20261120", 20261120),
        ("2026-11-20", DAY),
        ("2026-11-20T13:00:00", datetime(2026, 11, 20, 13)),
        ("2026-11-20 13:00", datetime(2026, 11, 20, 13)),
        ("2026-11-20T13:00:00Z", datetime(2026, 11, 20, 13, tzinfo=UTC)),
    ],
)
def test_a_text_gives_a_number_a_day_or_a_time(text: str, version: int | date) -> None:
    assert parse_version(text) == version
    assert type(parse_version(text)) is type(version)


@pytest.mark.parametrize(
    "text", ["", "-1", "1.0", "٣", "2026-13-01", "2026-W01-1", "2026-11", "tomorrow", "2026-11-20T99"]
)
def test_another_text_gives_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_version(text)


# --- in a table ---------------------------------------------------------------------------------------------------


def test_a_day_that_was_missed_is_committed_after_later_ones_and_once(table: Table) -> None:
    for day in (18, 20, 19, 17):
        assert not write(table, app=("nightly", date(2026, 11, day))).skipped
    for day in (17, 18, 19, 20):
        assert write(table, app=("nightly", date(2026, 11, day))).skipped
    assert len(table.snapshot().files) == 4
    assert [it.odd for it in table.check().applications] == [""]


def test_a_day_is_known_by_the_number_of_its_digits(table: Table) -> None:
    write(table, app=("nightly", 20261118))
    write(table, app=("nightly", 20261120))
    assert write(table, app=("nightly", date(2026, 11, 18))).skipped
    assert not write(table, app=("nightly", date(2026, 11, 19))).skipped


def test_a_number_that_was_passed_over_is_refused_and_says_how_to_write_it(table: Table, store: MemoryStore) -> None:
    write(table, app=("nightly", 20261118))
    write(table, app=("nightly", 20261120))
    before = dict(store.objects)
    with pytest.raises(AppVersionError) as raised:
        write(table, app=("nightly", 20261119))
    assert store.objects == before
    for part in ("version 20261119", "'nightly'", "never committed", "20261120", "datetime.date(2026, 11, 19)",
                 "txnVersion: 2026-11-19", "'nightly-20261119'"):  # fmt: skip
        assert part in str(raised.value)
    assert write(table, app=("nightly", 20261118)).skipped  # it is known
    assert not write(table, app=("nightly-20261119", 0)).skipped


def test_a_number_is_refused_in_its_turn_where_a_higher_one_was_faster(table: Table, store: MemoryStore) -> None:
    slow = table.begin(app=("orders", 5))
    stage(table, slow)
    write(table, app=("orders", 6))
    with pytest.raises(AppVersionError, match="ones, write it as an application of its own, such as 'orders-5'"):
        slow.commit()
    assert not table.snapshot().log.pending
    assert len(data_files(store)) == 1
    assert [commit.app for commit in table.history()] == [("orders", 6)]


def test_days_that_are_written_side_by_side_do_not_abort_each_other(table: Table) -> None:
    days = [table.begin(app=("nightly", date(2026, 11, day))) for day in (18, 19, 20)]
    again = table.begin(app=("nightly", date(2026, 11, 20)))
    for transaction in reversed(days):
        assert not transaction.commit().skipped
    assert again.commit().skipped
    assert len(table.history()) == 3


def test_versions_of_forgotten_commits_are_known(table: Table, clock: ManualClock) -> None:
    for day in (18, 20):
        write(table, app=("nightly", date(2026, 11, day)))
        write(table, app=("orders", day))
    write(table, "overwrite", bodies=[])
    clock.advance(timedelta(days=40))
    snapshot = table.snapshot()
    gone = [path for commit in snapshot.decided for path in commit.marker.removed]
    assert write_checkpoint(table.store, clock, snapshot, gone=gone, history=timedelta(0))
    assert write(table, app=("nightly", date(2026, 11, 18))).skipped
    assert write(table, app=("orders", 18)).skipped
    assert not write(table, app=("nightly", date(2026, 11, 19))).skipped
    with pytest.raises(AppVersionError):
        write(table, app=("orders", 19))


def test_what_an_earlier_checkpoint_does_not_tell_is_refused_as_unknown(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    write(table)
    snapshot = table.snapshot()
    old = Checkpoint(number=1, commits=snapshot.decided, apps={"nightly": only_highest(20261120)},
                     metadata=snapshot.metadata, table_id=snapshot.table_id)  # fmt: skip
    store.put("_checkpoint_00000000000000000001", encode_checkpoint(old, created=clock.now()))
    with pytest.raises(AppVersionError, match="is not known: versions are remembered from 20261120 on") as raised:
        write(table, app=("nightly", date(2026, 11, 19)))
    assert "delete" not in str(raised.value)
    assert write(table, app=("nightly", DAY)).skipped
    assert not write(table, app=("nightly", date(2026, 11, 21))).skipped
