"""Settings of a table: which can be set, who changes them, and that nothing but a change of them undoes one.

Those of a table that older software writes to, or makes checkpoints of, are at the end (PROTOCOL.md 9.8).
"""

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit import Table
from dbio_commit.base.errors import (
    AccessDeniedError,
    CommitConflictError,
    CorruptMarkerError,
    InvalidInputError,
    StoreError,
    TableNotFoundError,
    TransactionAbortedError,
)
from dbio_commit.commit.begin import look
from dbio_commit.log import seen as memory
from dbio_commit.protocol import names, settings
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import decode_commit
from dbio_commit.protocol.settings import MAX_NAME, MAX_TEXT, MOST, change, check_changes, cluster_columns
from dbio_commit.protocol.state import Metadata, current_metadata
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import columns, marker
from tests.faults import calls_to, fail_with, heal, once
from tests.writers import contents, stage, write
from vacuum import VacuumOptions, vacuum_table

DELTA = {"publish": "delta"}


@pytest.fixture(autouse=True)
def more_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later versions know more than one."""
    monkeypatch.setitem(settings.KNOWN, "owner", str)


def markers(store: MemoryStore) -> list[dict[str, Any]]:
    """What all commit markers say under `dbio_commit`."""
    bodies = (body for path, (body, _) in store.objects.items() if path.startswith("_committed_"))
    return [json.loads(body)["dbio_commit"] for body in bodies]


def write_first(table: Table) -> None:
    """What is remembered of a table is so from its third second on."""
    write(table, schema=columns("a"))
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(timedelta(seconds=5))


def another_process(table: Table) -> Table:
    """That remembers nothing."""
    memory._SEEN.clear()
    return table


# --- which there are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [("delta", "delta"), (" spark , delta ", "spark,delta"), ("symlink,delta,spark", "symlink,delta,spark"), (" ", "")],
)
def test_what_to_publish_is_a_list_of_forms(said: str, meant: str) -> None:
    assert check_changes({"publish": said}) == {"publish": meant}


@pytest.mark.parametrize("said", ["hudi", "delta,delta", "delta,", ",", "delta spark", "DELTA", "delta,\0"])
def test_a_text_that_a_setting_cannot_have_is_refused_with_those_that_it_can(said: str) -> None:
    with pytest.raises(InvalidInputError, match="publish is one or more of delta, spark, symlink, iceberg, each once"):
        check_changes({"publish": said})


@pytest.mark.parametrize("said", ["day,part", " day , part ", '["day", "part"]', '[ "day","part" ]'])
def test_the_columns_of_a_clustered_table_are_recorded_as_a_list(said: str) -> None:
    settings = check_changes({"cluster_by": said})
    assert settings == {"cluster_by": '["day", "part"]'}
    assert cluster_columns(settings) == ("day", "part")
    assert cluster_columns(None) == ()


@pytest.mark.parametrize("said", ["a,", ",", "a,A", "a,b,c,d,e", "[1]", "[]", '["a", ""]', "[" * 10_000, '["a"'])
def test_columns_by_which_no_table_is_clustered_are_refused(said: str) -> None:
    with pytest.raises(InvalidInputError, match="cluster_by is 1 to 4 columns, each once"):
        check_changes({"cluster_by": said})
    with pytest.raises(InvalidInputError, match="set it again"):
        cluster_columns({"cluster_by": said})


def test_a_setting_that_is_not_known_is_refused_with_those_that_are_and_can_be_removed() -> None:
    with pytest.raises(InvalidInputError, match="no setting 'publsh'; those that can be set are publish"):
        check_changes({"publsh": "delta"})
    assert check_changes({"of_a_later_version": ""}) == {"of_a_later_version": ""}


@pytest.mark.parametrize("said", [{"publish": 1}, {1: "delta"}, "publish=delta", ["publish"], {"publish": None}])
def test_what_is_no_text_by_name_is_refused(said: Any) -> None:
    with pytest.raises(InvalidInputError, match="are not settings; give texts by name"):
        check_changes(said)


KINDS = {"not_null": "true", "default": "1", "generated": "2", "statistics": "off"}


@pytest.mark.parametrize(("kind", "text"), KINDS.items())
def test_a_setting_of_a_column_is_one_setting_in_any_case(table: Table, kind: str, text: str) -> None:
    write(table, schema=columns("id", "note"))
    table.set({f"{kind}.note": text})
    assert table.set({f"{kind}.NOTE": text}).settings == {f"{kind}.NOTE": text}
    assert table.set({f"{kind}.Note": ""}).settings == {}
    with pytest.raises(InvalidInputError, match=rf"'{kind}\.Note' and '{kind}\.note' are one setting"):
        table.set({f"{kind}.Note": text, f"{kind}.note": ""})
    assert table.set({"check.a": "id > 0", "check.A": "id > 1"}).settings == {"check.a": "id > 0", "check.A": "id > 1"}


@pytest.mark.parametrize("text", ["3", ""])
def test_a_change_replaces_all_spellings_of_a_setting_that_an_earlier_version_has_recorded(
    table: Table, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    both = {"default.note": "1", "default.NOTE": "2"}
    write(table, schema=columns("id", "note"))
    with monkeypatch.context() as patch:
        patch.setattr(settings, "_without_case", str)
        table.set(both)
    write(table)
    assert table.set({"default.id": "7"}).settings == {**both, "default.id": "7"}
    assert table.set({"default.note": text, "default.id": ""}).settings == ({"default.note": text} if text else {})


TEXTS = st.sampled_from(["", "a", "b"])
CHANGES = st.dictionaries(st.sampled_from("xyz"), TEXTS, max_size=3)
TOLD = st.none() | st.dictionaries(st.sampled_from("xyz"), st.sampled_from("ab"), max_size=3)


@given(TOLD, CHANGES, CHANGES)
def test_a_change_sets_what_it_names_and_nothing_else(before: Any, first: Any, second: Any) -> None:
    after = change(before, first)
    for name in "xyz":
        assert (after or {}).get(name, "") == first.get(name, (before or {}).get(name, ""))
    assert (after is None) == (before is None and not any(first.values()))
    assert (change(after, second) or {}) == (change(before, {**first, **second}) or {})
    assert change(after, {}) == after


# --- what bodies may say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        {f"{i}": "x" for i in range(MOST)}, {"n" * MAX_NAME: "t" * MAX_TEXT}, {}, {"of_a_later_version": "é\0"}, None,
    ],
)  # fmt: skip
def test_settings_in_a_marker_are_read_back_as_they_were_written(told: Any) -> None:
    written = marker(schema_turn=1, settings=told)
    body = encode(written)
    assert decode_commit(body, where="here") == written
    assert (b"settings" in body) == (told is not None)


@pytest.mark.parametrize(
    "told",
    [
        {f"{i}": "x" for i in range(MOST + 1)}, {"n" * (MAX_NAME + 1): "t"}, {"n": "t" * (MAX_TEXT + 1)}, {"": "t"},
        {"n": ""}, {"n": 1}, {"n": None}, {"n": {}}, ["n"], "n", 1, True,
    ],
)  # fmt: skip
def test_settings_that_no_writer_writes_make_a_marker_corrupt(told: Any) -> None:
    body = json.loads(encode(marker(schema_turn=1)))
    body["dbio_commit"]["settings"] = told
    with pytest.raises(CorruptMarkerError, match="settings"):
        decode_commit(json.dumps(body).encode(), where="here")


def test_the_settings_of_the_highest_turn_that_tells_any_hold_in_whatever_order() -> None:
    told = [
        marker(schema_turn=1, settings={"a": "1"}),
        marker(schema_turn=2, settings={"a": "2"}),
        marker(schema_turn=3, schema=columns("x")),  # of older software
        marker(operation="abort", schema_turn=4, settings={"a": "4"}),
        marker(settings={"a": "5"}),  # as of no turn
    ]
    for order in (told, told[::-1]):
        assert current_metadata(order) == Metadata(columns("x"), 3, {"a": "2"})
    assert current_metadata(told, before=Metadata(None, 2, {})) == Metadata(columns("x"), 3, {"a": "2"})
    assert current_metadata(told, before=Metadata(None, 9, {})) == Metadata(None, 9, {})
    assert current_metadata(told, before=Metadata(None, 9)) == Metadata(None, 9, {"a": "2"})


# --- to set -------------------------------------------------------------------------------------------------------


def test_a_table_has_the_settings_that_were_set_and_its_columns_and_files_stay(table: Table) -> None:
    write_first(table)
    commit = table.set(DELTA)
    assert table.settings() == commit.settings == DELTA
    assert (commit.operation, commit.added, commit.removed) == ("rewrite", [], [])
    assert commit.schema == table.snapshot().schema == columns("a")
    assert table.set({"owner": "me"}).settings == {"publish": "delta", "owner": "me"}
    assert table.set({"publish": ""}).settings == {"owner": "me"}
    assert table.set({"owner": " "}).settings == {}
    assert table.settings() == {}
    assert contents(table) == [b"rows"]


def test_a_table_that_never_had_settings_says_nothing_of_them(table: Table, store: MemoryStore) -> None:
    write_first(table)
    write(table, "overwrite")
    table.set({"publish": ""})
    write(table)
    table.checkpoint()
    assert all("settings" not in info for info in markers(store))
    assert b"settings" not in gzip.decompress(store.get(names.checkpoint(1)))
    assert table.begin().terms.metadata.settings is None


def test_an_empty_table_can_have_settings(table: Table) -> None:
    table.begin().abort()
    table.set(DELTA)
    assert table.settings() == DELTA


def test_to_set_where_no_table_is_creates_none(table: Table, store: MemoryStore) -> None:
    with pytest.raises(TableNotFoundError, match="no table"):
        table.set(DELTA)
    assert not store.objects


def test_a_directory_of_the_directory_scope_has_no_settings(table: Table, store: MemoryStore) -> None:
    store.put("a.parquet", b"PAR1....PAR1")
    before = dict(store.objects)
    with pytest.raises(InvalidInputError, match="dbio adopt"):
        table.set(DELTA)
    assert store.objects == before
    assert table.settings() == {}
    table.adopt()
    assert table.set(DELTA).settings == table.settings() == DELTA


def test_what_cannot_be_set_is_refused_before_anything_is_written(table: Table, store: MemoryStore) -> None:
    write(table)
    before = dict(store.objects)
    with pytest.raises(InvalidInputError):
        table.set({"publish": "csv"})
    assert store.objects == before


def test_settings_of_later_versions_are_kept_and_can_be_removed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.begin().abort()
    table.set({"owner": "me"})
    monkeypatch.delitem(settings.KNOWN, "owner")
    assert table.set(DELTA).settings == {"owner": "me", "publish": "delta"}
    with pytest.raises(InvalidInputError, match="owner"):
        table.set({"owner": "you"})
    assert table.set({"owner": ""}).settings == DELTA


def test_the_past_had_the_settings_of_its_time(table: Table, clock: ManualClock) -> None:
    first = write(table).tid
    clock.advance(timedelta(minutes=1))
    second = table.set(DELTA).tid
    clock.advance(timedelta(minutes=1))
    table.set({"publish": "spark"})
    assert [table.snapshot(as_of=tid).settings for tid in (first, second, None)] == [{}, DELTA, {"publish": "spark"}]


# --- beside others ------------------------------------------------------------------------------------------------


def test_two_changes_of_different_settings_at_once_both_survive(table: Table, store: MemoryStore) -> None:
    write(table)
    store.before = once("put_if_absent", "_serial_*", lambda: table.set({"owner": "me"}))
    table.set(DELTA)
    assert table.settings() == {"publish": "delta", "owner": "me"}


def test_of_two_changes_of_one_setting_at_once_the_later_turn_holds(table: Table, store: MemoryStore) -> None:
    write(table)
    store.before = once("put_if_absent", "_serial_*", lambda: table.set({"publish": "spark"}))
    assert table.set(DELTA).settings == table.settings() == DELTA


def test_a_change_that_is_aborted_changes_nothing(table: Table, store: MemoryStore) -> None:
    write(table)
    table.set(DELTA)

    def abort() -> None:
        for tid in table.snapshot().log.pending:
            table.abort(tid)

    store.after = once("put_if_absent", "_serial_*", abort)
    with pytest.raises(TransactionAbortedError):
        table.set({"publish": "spark"})
    assert table.settings() == another_process(table).begin().terms.metadata.settings == DELTA


def test_a_blind_append_that_began_before_a_change_does_not_undo_it(table: Table) -> None:
    write_first(table)
    table.set({"owner": "me"})
    before = table.begin()
    stage(table, before)
    table.set({"owner": "", "publish": "delta"})
    assert before.commit(columns("a")).settings == {"publish": "delta"}  # as of its look before the marker
    assert table.settings() == another_process(table).begin().terms.metadata.settings == DELTA


OTHERS: dict[str, Callable[[Table], object]] = {
    "append": lambda table: write(table),
    "append of an application": lambda table: write(table, app=("nightly", 1)),
    "overwrite": lambda table: write(table, "overwrite"),
    "overwrite with other columns": lambda table: write(table, "overwrite", schema=columns("z")),
    "change of columns": lambda table: write(table, schema=columns("a", "b")),
    "replacement": lambda table: write(table, "overwrite_partitions"),
    "rewrite": lambda table: write(table, "rewrite"),
    "aborted overwrite": lambda table: table.begin("overwrite").abort(),
    "checkpoint": lambda table: table.checkpoint(),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("told", [DELTA, {}], ids=["set", "none any more"])
def test_every_other_operation_keeps_the_settings(table: Table, other: Callable[[Table], object], told: Any) -> None:
    write_first(table)
    table.set(DELTA)
    if not told:
        table.set({"publish": ""})
    began = table.begin("overwrite")
    other(table)
    assert (table.settings(), table.snapshot().metadata.settings) == (told, told)
    assert table.begin().terms.metadata.settings == told
    assert another_process(table).begin().terms.metadata.settings == told
    assert began.commit().settings == told


def test_an_overwrite_that_began_before_a_change_keeps_the_change(table: Table) -> None:
    write_first(table)
    overwrite = table.begin("overwrite")
    table.set(DELTA)
    assert overwrite.commit(columns("z")).settings == DELTA
    assert (table.settings(), table.snapshot().schema) == (DELTA, columns("z"))


def test_a_change_beside_a_change_of_columns_keeps_both(table: Table, store: MemoryStore) -> None:
    write_first(table)
    store.before = once("put_if_absent", "_serial_*", lambda: write(table, schema=columns("a", "b")))
    table.set(DELTA)
    assert (table.settings(), table.snapshot().schema) == (DELTA, columns("a", "b"))


def test_a_change_whose_answer_was_lost_is_committed_once(table: Table, store: MemoryStore) -> None:
    write(table)
    before = len(table.history())
    store.after = fail_with(StoreError("lost"), "put_if_absent", "_committed_*")
    assert table.set(DELTA).settings == table.settings() == DELTA
    assert len(table.history()) == before + 1


@pytest.mark.parametrize("changes", [{"not_null.a": "true"}, {"default.a": "2"}, {"check.b": ""}])
def test_an_append_beside_a_change_of_constraints_conflicts_unless_it_has_looked_before(
    table: Table, store: MemoryStore, changes: dict[str, str]
) -> None:
    write(table, schema=columns("a"))
    table.set({"check.b": "a > 0", "default.a": "1"})
    append, late = table.begin(), table.begin()
    for one in (append, late):
        stage(table, one)
        one.vouch_for_rows()
    store.before = once("put_if_absent", names.committed(append.tid), lambda: table.set(changes))
    append.commit()
    with pytest.raises(CommitConflictError, match=r"constraints of .* were changed"):
        late.commit()
    assert len(contents(table)) == 2


# --- what it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remembers", [True, False])
def test_to_begin_learns_the_settings_at_the_same_cost_at_any_length_of_the_log(
    table: Table, store: MemoryStore, clock: ManualClock, remembers: bool
) -> None:
    write_first(table)
    table.set(DELTA)
    costs = []
    for _ in range(3):
        for _ in range(10):
            clock.advance(timedelta(seconds=2))
            write_first(table)
            write(table, "overwrite")
        if not remembers:
            another_process(table)
        with calls_to(store) as calls:
            target = look(store, clock)
        assert target.metadata.settings == DELTA
        costs.append(len(calls))
    assert len(set(costs)) == 1
    assert costs[0] <= 4


def test_who_begins_beside_an_undecided_change_has_the_settings_before_it(table: Table, store: MemoryStore) -> None:
    write(table)
    table.set(DELTA)
    for remembered in (True, False):
        seen: list[Any] = []

        def begin() -> None:
            seen.append((table if remembered else another_process(table)).begin().terms.metadata.settings)  # noqa: B023

        store.after = once("put_if_absent", "_serial_*", begin)
        table.set({"publish": "spark"})
        assert seen == [DELTA]
        table.set(DELTA)


# --- checkpoints --------------------------------------------------------------------------------------------------


def purged(table: Table, clock: ManualClock) -> None:
    """Vacuumed until no marker of a commit is left."""
    for _ in range(2):
        vacuum_table(table, VacuumOptions(checkpoint_after=0))
        clock.advance(timedelta(days=40))
    vacuum_table(table, VacuumOptions(checkpoint_after=0))
    assert not table.snapshot().log.committed


@pytest.mark.parametrize("told", [DELTA, {}], ids=["set", "none any more"])
def test_checkpoints_keep_the_settings_when_all_markers_are_purged(table: Table, clock: ManualClock, told: Any) -> None:
    write_first(table)
    table.set(DELTA)
    table.set(told or {"publish": ""})
    purged(table, clock)
    found = another_process(table).snapshot()
    assert found.metadata == Metadata(columns("a"), 3, told)
    assert (found.checkpoint.metadata.settings, table.begin().terms.metadata.settings) == (told, told)
    write(table, "overwrite")
    assert table.snapshot().metadata.settings == told


def test_a_late_append_of_before_the_change_does_not_undo_what_a_checkpoint_remembers(
    table: Table, clock: ManualClock
) -> None:
    write_first(table)
    table.set({"publish": "spark"})
    late = table.begin()
    stage(table, late)
    table.set(DELTA)
    table.checkpoint()
    late.commit()
    assert table.settings() == DELTA
    table.checkpoint()
    assert table.settings() == DELTA


# --- beside older software ----------------------------------------------------------------------------------------


def as_older(store: MemoryStore, *paths: str) -> None:
    """What software that knows no settings would have written in the place of these."""
    for path in paths:
        body, modified = store.objects[path]
        if path.startswith("_checkpoint_"):
            lines = [json.loads(line) for line in gzip.decompress(body).splitlines()]
            for line in lines:
                line.pop("settings", None)
                (line.get("marker", {}).get("dbio_commit") or {}).pop("settings", None)
            body = gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        else:
            told = json.loads(body)
            told["dbio_commit"].pop("settings", None)
            body = json.dumps(told).encode()
        store.put(path, body, modified=modified)


@pytest.fixture
def older(table: Table, store: MemoryStore) -> Callable[[], None]:
    """Overwrites, as older software in another process does."""

    def overwrite() -> None:
        remembered = dict(memory._SEEN)
        tid = write(table, "overwrite", schema=columns("o")).tid
        as_older(store, names.committed(tid))
        memory._SEEN.clear()
        memory._SEEN.update(remembered)

    return overwrite


def test_writers_of_older_software_change_no_settings(table: Table, older: Callable[[], None]) -> None:
    write_first(table)
    table.set(DELTA)
    older()
    assert (table.settings(), table.snapshot().schema) == (DELTA, columns("o"))
    assert table.begin().terms.metadata == Metadata(columns("o"), 3, DELTA)  # it knew them before
    write(table)
    assert table.settings() == DELTA
    assert table.set({"owner": "me"}).settings == {"publish": "delta", "owner": "me"}


def test_who_begins_right_after_older_software_and_knows_nothing_loses_nothing(
    table: Table, older: Callable[[], None]
) -> None:
    write_first(table)
    table.set(DELTA)
    older()
    assert another_process(table).begin().terms.metadata.settings is None  # the known limit
    assert write(table).settings is None
    assert table.settings() == DELTA
    assert write(table, "overwrite").settings == DELTA
    assert another_process(table).begin().terms.metadata.settings == DELTA


def test_who_knows_of_settings_asks_the_table_where_the_turns_between_are_purged(
    table: Table, store: MemoryStore, older: Callable[[], None]
) -> None:
    write_first(table)
    table.set(DELTA)
    table.begin().abort()
    remembered = dict(memory._SEEN)
    another_process(table).set({"publish": "spark"})
    memory._SEEN.update(remembered)
    older()
    store.delete_many([names.turn(number) for number in (1, 2, 3)])
    assert table.begin().terms.metadata == Metadata(columns("o"), 4, {"publish": "spark"})


def test_a_checkpoint_of_older_software_loses_settings_until_a_commit_tells_them_again(
    table: Table, store: MemoryStore
) -> None:
    write_first(table)
    table.set(DELTA)
    remembers = table.begin()
    table.checkpoint()
    as_older(store, names.checkpoint(1))
    assert table.settings() == {}
    stage(table, remembers)
    remembers.commit()
    assert table.settings() == DELTA


def test_an_access_that_is_denied_is_said_and_changes_nothing(table: Table, store: MemoryStore) -> None:
    write(table)
    store.before = fail_with(AccessDeniedError("read-only"), "put_if_absent", "_serial_*")
    with pytest.raises(AccessDeniedError):
        table.set(DELTA)
    heal(store)
    assert table.settings() == {}
    assert not table.check().pending


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"check.a": "idd > 0"}, r"'idd', at character 1, is no column"),
        ({"default.id": "id"}, r"'id', at character 1, is no column"),
        ({"generated.note": "note"}, r"'note', at character 1, is no column"),
        ({"generated.id": "1", "generated.note": "id"}, r"'id', at character 1, is no column"),
        ({"not_null.idd": "true"}, r"not_null\.idd, and no such column"),
        ({"default.idd": "1"}, r"default\.idd, and no such column"),
        ({"generated.idd": "1"}, r"generated\.idd, and no such column"),
        ({"cluster_by": "note,idd"}, r"cannot be clustered by 'idd': the table has no such column"),
        ({"cluster_by": "ID", "statistics.id": "off"}, r"by 'ID': its statistics are off"),
    ],
)
def test_a_setting_that_each_writer_would_refuse_is_refused_when_it_is_set(
    table: Table, store: MemoryStore, setting: dict[str, str], problem: str
) -> None:
    write(table, schema=columns("id", "note"))
    before = dict(store.objects)
    with pytest.raises(InvalidInputError, match=problem):
        table.set({"publish": "delta", **setting})
    assert store.objects == before
    table.set({"check.a": "ID > 0 OR note IS NULL OR true", "default.note": "NULL", "not_null.ID": "true"})


def test_a_table_that_records_changes_has_no_column_of_the_name_that_change_files_use(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, schema=columns("id", "_Change_Type"))
    before = dict(store.objects)
    with pytest.raises(InvalidInputError, match=r"cannot have a column _change_type .*`dbio set \S+ change_data=`"):
        table.set({"change_data": "true"})
    assert store.objects == before
    write(table, "overwrite", schema=columns("id"))
    table.set({"change_data": "true"})
    with pytest.raises(InvalidInputError, match="cannot have a column _change_type"):
        write(table, schema=columns("id", "_change_type"))
    with monkeypatch.context() as patch:
        patch.setattr("dbio_commit.commit.state_after.CHANGE_DATA", "")
        write(table, schema=columns("id", "_change_type"))  # as an earlier version did
    write(table, schema=columns("id", "_change_type", "note"))
    table.set({"provenance": "off", "change_data": "true"})
    assert table.set({"change_data": ""}).settings == {"provenance": "off"}


def test_a_column_and_a_setting_that_exclude_each_other_are_refused_whichever_commits_later(
    table: Table, store: MemoryStore
) -> None:
    write(table, schema=columns("id"))
    store.before = once("put_if_absent", "_serial_*", lambda: write(table, schema=columns("id", "_change_type")))
    with pytest.raises(InvalidInputError, match="cannot have a column _change_type"):
        table.set({"change_data": "true"})
    assert table.settings() == {}


def test_a_setting_of_before_that_no_writer_takes_hinders_no_change_of_another_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, schema=columns("id", "note"))
    with monkeypatch.context() as patch:
        patch.setattr("dbio_commit.maintenance.settings._refuse_unfit", lambda *args, **more: None)
        table.set({"check.a": "idd > 0", "generated.note": "x"})
    table.set({"check.b": "id > 0", "statistics.id": "off"})
    table.set({"check.a": "", "generated.note": ""})
    assert table.settings() == {"check.b": "id > 0", "statistics.id": "off"}
