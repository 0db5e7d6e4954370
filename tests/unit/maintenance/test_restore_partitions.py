"""`Table.restore` of some partitions: by their values, or by a condition on partition columns."""

from datetime import date
from typing import Any

import pytest

from dbio_commit import CommitConflictError, InvalidInputError, SchemaMismatchError, Table
from dbio_commit.data.footers import Footer
from dbio_commit.protocol.names import format_partition
from dbio_commit.testing import ManualClock, MemoryStore
from tests.tiny_parts import in_both_forms
from tests.writers import contents, live, stage, write_days

pytestmark = in_both_forms


def columns(**kinds: str) -> dict[str, Any]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


SCHEMA = columns(id="long", day="date", country="string")
PLACES = [("2026-11-19", "de"), ("2026-11-19", "fr"), ("2026-11-20", "de"), ("2026-11-20", None)]


@pytest.fixture
def state(table: Table, clock: ManualClock) -> str:
    """The tid of a good state, after which every partition was overwritten; with a checkpoint."""
    tid = put(table, "append", "good")
    clock.sleep(10)
    put(table, "overwrite_partitions", "bad")
    table.checkpoint()
    clock.sleep(10)
    return tid


def put(table: Table, operation: Any, body: str, places: Any = PLACES) -> str:
    with table.begin(operation, partition_by=["day", "country"]) as transaction:
        for day, country in places:
            stage(table, transaction, f"{body} {day} {country}".encode(), {"day": day, "country": country})
        transaction.commit(SCHEMA)
    return transaction.tid


def restored(table: Table) -> set[str]:
    """The partitions with the good rows."""
    found = {file.path: format_partition(file.partition) for file in table.snapshot().files}
    return {place for path, place in found.items() if table.store.get(path).startswith(b"good")}


OF_19 = {"day=2026-11-19/country=de", "day=2026-11-19/country=fr"}
NULL = "day=2026-11-20/country=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ({"partition": {"day": "2026-11-19"}}, OF_19),
        ({"partition": {"day": date(2026, 11, 19), "country": "fr"}}, {"day=2026-11-19/country=fr"}),
        ({"partition": {"DAY": "2026-11-19"}}, OF_19),
        ({"partition": {"country": None}}, {NULL}),
        ({"where": "day < '2026-11-20'"}, OF_19),
        ({"where": "country = 'fr' or country is null"}, {"day=2026-11-19/country=fr", NULL}),
        ({"where": "not (country = 'de')"}, {"day=2026-11-19/country=fr"}),
    ],
)
def test_only_the_partitions_that_are_chosen_come_back(
    chosen: dict[str, Any], wanted: set[str], table: Table, state: str
) -> None:
    before = live(table)
    commit = table.restore(state, **chosen, message="undo")
    assert restored(table) == wanted
    assert (len(commit.added), len(commit.removed)) == (len(wanted), len(wanted))
    assert len(before & live(table)) == len(before) - len(wanted)
    assert (commit.kind, commit.message) == ("restore", "undo")
    assert table.snapshot().schema == SCHEMA


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"partition": {"day": "2026-11-18"}}, "no files in such a partition"),
        ({"where": "day = '2026-11-18'"}, "no files in such a partition"),
        ({"partition": {"id": 1}}, "is no partition"),
        ({"partition": {}}, "is no partition"),
        ({"partition": {"day": 5}}, "partition column 'day'"),
        ({"where": "id = 1"}, "may use only the partition columns"),
        ({"where": "day = '2026-11-19' and id > 0"}, "may use only the partition columns"),
        ({"where": "length(country) = 2"}, "cannot tell whether"),
        ({"where": "nothing = 1"}, "no column of the table"),
        ({"where": "day", "partition": {"day": "2026-11-19"}}, "do not go together"),
    ],
)
def test_what_cannot_be_told_is_refused_and_changes_nothing(
    chosen: dict[str, Any], why: str, table: Table, state: str
) -> None:
    before = live(table)
    with pytest.raises(InvalidInputError, match=why):
        table.restore(state, **chosen)
    assert live(table) == before


def test_a_partition_that_was_dropped_comes_back_and_one_that_is_new_goes(table: Table, clock: ManualClock) -> None:
    write_days(table, a=b"a", b=b"b")
    (first,) = table.snapshot().tids
    clock.sleep(10)
    with table.begin("overwrite_partitions") as transaction:
        transaction.overwrite_partition({"day": "a"})
    write_days(table, c=b"c")
    table.restore(first, partition={"day": "a"})
    assert contents(table) == [b"a", b"b", b"c"]
    table.restore(first, partition={"day": "c"})
    assert contents(table) == [b"a", b"b"]


def test_a_commit_that_comes_meanwhile_is_a_conflict(table: Table, state: str) -> None:
    plan = table.plan_restore(state, partition={"day": "2026-11-19"})
    put(table, "append", "new", [("2026-11-21", "de")])
    with pytest.raises(CommitConflictError):
        table.restore(plan)
    with pytest.raises(InvalidInputError, match="plan_restore"):
        table.restore(plan, where="day = '2026-11-19'")


def test_only_files_of_the_chosen_partitions_are_read_of_a_large_table(
    table: Table, store: MemoryStore, state: str
) -> None:
    plan = table.plan_restore(state, partition={"day": "2026-11-20", "country": "de"})
    assert {file.partition["country"] for file in (*plan.back, *plan.goes)} == {"de"}
    assert (len(plan.back), len(plan.goes)) == (1, 1)


def overwrite_with(table: Table, clock: ManualClock, schema: dict[str, Any]) -> str:
    """Overwrites a table by day with one of other columns; the tid of the state before."""
    with table.begin(partition_by=["day"]) as transaction:
        stage(table, transaction, b"old", {"day": "a"})
        transaction.commit(columns(id="long", day="string"))
    clock.sleep(10)
    with table.begin("overwrite") as other:
        stage(table, other, b"new", {"day": "a"})
        other.commit(schema)
    clock.sleep(10)
    return transaction.tid


def test_files_of_other_columns_come_back_if_they_fit_the_columns_of_now(table: Table, clock: ManualClock) -> None:
    tid = overwrite_with(table, clock, columns(id="long", more="string", day="string"))
    read: list[str] = []

    def look(kind: str) -> Any:
        def inspector(store: object, paths: Any) -> list[Footer]:
            read.extend(paths)
            known = columns(id=kind)
            return [Footer(path=path, size=3, rows=1, columns=known) for path in paths]

        return inspector

    table.inspector = look("long")
    table.restore(tid, partition={"day": "a"})
    assert contents(table) == [b"old"]
    assert read
    assert [field["name"] for field in table.schema()["fields"]] == ["id", "more", "day"]


def test_files_that_do_not_fit_and_columns_that_are_gone_are_refused(table: Table, clock: ManualClock) -> None:
    tid = overwrite_with(table, clock, columns(other="long", day="string"))
    with pytest.raises(InvalidInputError, match="had the column 'id' then"):
        table.restore(tid, partition={"day": "a"})
    assert contents(table) == [b"new"]
    table.restore(tid)
    assert contents(table) == [b"old"]


def test_a_table_that_was_partitioned_otherwise_is_restored_whole_only(table: Table, clock: ManualClock) -> None:
    tid = overwrite_with(table, clock, columns(id="string", day="string"))
    table.inspector = lambda store, paths: [
        Footer(path=path, size=3, rows=1, columns=columns(id="long")) for path in paths
    ]
    with pytest.raises(SchemaMismatchError):
        table.restore(tid, partition={"day": "a"})
    clock.sleep(100)
    with table.begin("overwrite", partition_by=[]) as transaction:
        stage(table, transaction, b"flat")
        transaction.commit(columns(id="long", day="string"))
    with pytest.raises(InvalidInputError, match="restore the whole table"):
        table.restore(tid, partition={"day": "a"})


def month(table: Table, operation: Any, kind: str, *texts: str) -> str:
    with table.begin(operation, partition_by=["month"]) as transaction:
        for text in texts:
            stage(table, transaction, f"{operation} {text}".encode(), {"month": text})
        if kind == "integer":
            transaction.keep_partitions()
        transaction.commit(columns(id="long", month=kind))
    return transaction.tid


@pytest.mark.parametrize("given", [1, "1", "01"])
def test_directories_whose_texts_stand_for_one_value_are_one_partition(table: Table, given: object) -> None:
    good = month(table, "append", "integer", "01", "02")
    month(table, "overwrite_partitions", "integer", "1")
    plan = table.plan_restore(good, partition={"month": given})
    assert [[it.partition["month"] for it in files] for files in (plan.back, plan.goes)] == [["01"], ["1"]]
    assert [it.tid for it in table.history(partition={"month": given})][-1] == good


def test_a_partition_whose_text_is_no_value_of_the_column_s_type_of_now_does_not_come_back(table: Table) -> None:
    good = month(table, "append", "string", "1", "x")
    month(table, "overwrite", "integer", "1")
    with pytest.raises(InvalidInputError, match=r"'month=x' of .* is integer now, and 'x' is no such value"):
        table.restore(good, partition={"month": "x"})
    table.restore(good, partition={"month": "1"})
    assert contents(table) == [b"append 1"]
