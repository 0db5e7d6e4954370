"""Which files a condition leaves out, by partitions and statistics. What Spark's own filter says of it is elsewhere.

Rules: PROTOCOL.md 7.3.
"""

import json
from typing import Any

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.protocol.markers.files import Bounds
from dbio_commit.table import Table
from tests.builders import DESCRIPTOR, World, data
from tests.writers import stage

TYPES = {
    "id": "long", "price": "decimal(10,2)", "wide": "decimal(38,30)", "kind": "string", "share": "double",
    "seen": "timestamp", "told": "timestamp_ntz", "open": "boolean", "raw": "binary", "day": "date", "hour": "integer",
}  # fmt: skip
SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()],
}


def stored(**facts: Any) -> Snapshot:
    """Of one file of 10 rows; a fact is (min, max) or (min, max, nulls) of a column, or its statistics as they are."""
    partition = {"day": facts.pop("day", "2026-11-20"), "hour": facts.pop("hour", "7")}
    statistics = {
        name: {"min": [fact[0]], "max": [fact[1]], "nulls": [fact[2] if len(fact) > 2 else 0]}
        for name, fact in facts.items()
    }
    world = World(descriptor=False)
    world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": ["day", "hour"]})
    directory = "/".join(f"{k}={v or '__HIVE_DEFAULT_PARTITION__'}".replace(":", "%3A") for k, v in partition.items())
    files = {
        "size": [5], "rows": [10], "partition": {k: [v] for k, v in partition.items()}, "statistics": statistics,
    }  # fmt: skip
    world.commit("1", [f"{directory}/{data('1')}"], schema=SCHEMA, schema_turn=1, files=files)
    return world.snapshot()


def may_hold(where: str, *, zone: str | None = None, **facts: Any) -> bool:
    return bool(stored(**facts).where(where, time_zone=zone).files)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 5", True), ("id = 9", True), ("id = 10", False), ("4 = id", False), ("ID < 5", False), ("id <= 5", True),
        ("id > 9", False), ("id >= 9", True), ("9 < id", False), ("5 <= id", True), ("id <> 5", True),
        ("id BETWEEN 10 AND 20", False), ("id BETWEEN 0 AND 5", True), ("id NOT BETWEEN 0 AND 20", False),
        ("id IN (1, 2, 3)", False), ("id IN (1, 9)", True), ("id NOT IN (1, 2)", True), ("NOT id < 10", False),
        ("id = 1 OR id = 2", False), ("id = 1 OR id = 7", True), ("id = 1 AND id = 7", False),
        ("NOT (id = 7 OR id < 10)", False), ("NOT (id = 7 AND id = 8)", True), ("id = -7", False), ("id > -7", True),
        ("`id` = 1", False), ("id IS NULL", False), ("id IS NOT NULL", True), ("NOT id IS NOT NULL", False),
        ("id = 1.5", False), ("id < 4.99", False), ("id = '1'", False), ("(id) = (1)", False), ("id == 1", False),
    ],
)  # fmt: skip
def test_a_file_is_left_out_where_its_bounds_say_that_no_row_fits(where: str, expected: bool) -> None:
    assert may_hold(where, id=(5, 9)) is expected


@pytest.mark.parametrize(
    "where",
    [
        "id % 2 = 0", "id + 1 = 1", "id = hour", "abs(id) = 1", "id = 1e0", "id = NULL", "id <=> 1",
        "id IN (SELECT 1)", "id IS TRUE", "id LIKE '1'", "id = 1 -- AND", "id = 1 /* */", 'kind = "a"', "kind = 'a\\n'",
        "kind = 'a''b'", "id = CAST('x' AS INT)", "raw = X'00'", "id = 3.00000000000000000001", "id = 300Y",
        "share = 16777217", "wide = 1000000000", "price = '1'", "seen = '2026'", "seen = '1899-01-01'", "id = ' 1'",
        "told = TIMESTAMP '2000-01-01 00:00:00'", "day = TIMESTAMP '2000-01-01 00:00:00'", "kind = 5", "id = true",
        "EXISTS(array(1), x -> x = id)", "id = 1 IS NULL", "current_date() = day", "seen = '2026-02-30'", "open = 'x'",
        "id = - - 1", "id = CAST(1.5 AS INT)", "id = CAST(1.55 AS DECIMAL(3,1))", "id = 1e0D", "id = INT('1')",
        "id IN (1L, 1.5D)", "kind = 5L", "kind = CAST(5 AS STRING)", "id = 16777217F",
        "id = 9007199254740993D", "_metadata.file_path = 'x'", "kind IN ('a', 1)",
        "price = CAST('5' AS STRING)", "open = CAST('no' AS BOOLEAN)", "id = -CAST('1' AS STRING)", "seen = 5L",
    ],
)  # fmt: skip
def test_what_is_not_understood_to_the_letter_leaves_nothing_out(where: str) -> None:
    """Of a file in which none of the values named would be found."""
    facts: dict[str, Any] = {
        "id": (50, 90), "kind": ("m", "n"), "share": (50.5, 60.5), "price": ("50.00", "60.00"), "raw": (None, None),
        "wide": ("5.1", "6.1"), "seen": ("2026-11-20T07:00:00Z",) * 2, "told": ("2026-11-20T07:00:00",) * 2,
        "open": (True, True),
    }  # fmt: skip
    assert may_hold(where, **facts)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 33L", False), ("id = 6L", True), ("id >= 9.5D", False), ("id < 5.5D", True), ("id > -1L", True),
        ("id = -6L", False), ("id IN (33L, 4S, 1Y)", False), ("id IN (33L, 6)", True), ("id = CAST(33 AS INT)", False),
        ("id = CAST('33' AS BIGINT)", False), ("id = 33::int", False), ("id = 33.5BD", False), ("id = 1.5F", False),
        ("id BETWEEN 33L AND 34L", False), ("33L < id", False), ("id IN (CAST(33 AS DECIMAL(9,2)), 34BD)", False),
        ("price = 33.5BD", False), ("price = 7BD", True), ("price = 33.5D", False), ("price = 5.0D", True),
        ("price <= 4.999D", False), ("price IN (33.5BD, 33L)", False),
        ("price = CAST('33.50' AS DECIMAL(10,2))", False),
        ("share = 33.5D", False), ("share = 5.5D", True), ("share > 9.6", False), ("share = 1.5", False),
        ("share = 5.5", True), ("share < 5.5F", False), ("share IN (1.5D, 33L, 33.5BD)", False), ("share = 7L", True),
        ("kind = CAST('z' AS STRING)", False), ("kind = CAST('n' AS STRING)", True),
        ("open = CAST('false' AS BOOLEAN)", False), ("open = CAST('true' AS BOOLEAN)", True),
    ],
)  # fmt: skip
def test_literals_with_a_type_and_casts_of_literals_are_the_values_that_spark_makes_of_them(
    where: str, expected: bool
) -> None:
    facts: dict[str, Any] = {
        "id": (5, 9), "price": ("5.00", "9.00"), "share": (5.5, 9.5), "kind": ("m", "n"), "open": (True, True),
    }  # fmt: skip
    assert may_hold(where, **facts) is expected


def test_where_nothing_is_known_every_file_stays() -> None:
    for where in ("id = 1", "id IS NULL", "id IS NOT NULL", "NOT id = 1"):
        assert may_hold(where)
        assert may_hold(where, id=(None, None, None))
    assert may_hold("id > 10", id=(5, None))
    assert not may_hold("id < 5", id=(5, None))
    assert may_hold("id IS NULL", id=(5, 9, None))


def test_a_column_without_values_fulfils_no_comparison_and_a_bound_is_no_value() -> None:
    for where in ("id = 1", "id <> 1", "NOT id = 1", "id IS NOT NULL", "id IN (1)", "id BETWEEN 0 AND 9"):
        assert not may_hold(where, id=(None, None, 10))
    assert may_hold("id IS NULL", id=(None, None, 10))
    assert not may_hold("id <> 5", id=(5, 5))
    assert may_hold("id <> 5", id=(5, 6))
    assert not may_hold("id <> 5", id=(5, 5, 3))  # null is not unequal either


def test_a_text_that_was_shortened_is_a_bound_and_no_value() -> None:
    shortened = ("x" * 64, "x" * 63 + "y")
    assert may_hold(f"kind = '{'x' * 70}'", kind=shortened)
    assert may_hold(f"kind <> '{'x' * 64}'", kind=shortened)
    assert not may_hold("kind = 'y'", kind=shortened)
    assert not may_hold("kind < 'x'", kind=shortened)
    assert not may_hold("kind IN ('a', 'b')", kind=shortened)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("day = '2026-11-20'", True), ("day = DATE '2026-11-21'", False), ("day >= CAST('2026-11-21' AS DATE)", False),
        ("day IN ('2026-11-19', '2026-11-18')", False), ("day NOT IN ('2026-11-20')", True), ("day IS NULL", False),
        ("hour = 7", True), ("hour <> 7", False), ("hour = '8'", False), ("NOT hour IN (7, 8)", False),
    ],
)  # fmt: skip
def test_the_value_of_a_partition_is_known_without_statistics(where: str, expected: bool) -> None:
    assert may_hold(where) is expected


def test_a_partition_of_null_and_one_that_is_no_value_of_its_type() -> None:
    assert may_hold("day IS NULL", day=None)
    assert not may_hold("day <> '2026-11-20'", day=None)
    for where in ("hour IS NULL", "hour = 1", "hour <> 1"):
        assert may_hold(where, hour="1_0")


@pytest.mark.parametrize(
    ("where", "zone", "expected"),
    [
        ("seen >= '2026-11-20 08:00:00'", "UTC", False),
        ("seen >= '2026-11-20 08:00:00'", "Europe/Berlin", True),
        ("seen >= '2026-11-20 08:00:00'", None, True),  # in some zone that has been
        ("seen >= '2026-11-21 02:00:00'", None, False),  # in none
        ("seen >= '2026-11-20T08:00Z'", None, False),
        ("seen >= '2026-11-20 08:00:00+01:00'", "UTC", True),
        ("seen < DATE '2026-11-20'", "UTC", False),
        ("seen < '2026-11-20'", "Asia/Tokyo", False),
        ("seen < TIMESTAMP '2026-11-20 07:00:00.000001'", "UTC", True),
        ("seen < '2026-11-20'", "Mars/Olympus", True),
        ("told > '2026-11-20 09:00:00'", "Asia/Tokyo", False),
        ("told > TIMESTAMP_NTZ '2026-11-20 09:00:00'", None, False),
    ],
)
def test_times_are_meant_in_the_sessions_zone(where: str, zone: str | None, expected: bool) -> None:
    seen = ("2026-11-20T07:00:00Z", "2026-11-20T07:30:00.5Z")
    assert may_hold(where, zone=zone, seen=seen, told=("2026-11-20T07:00:00", "2026-11-20T08:00:00")) is expected


def test_an_hour_that_comes_twice_may_be_either() -> None:
    """02:30 on the night when the clocks of Berlin are set back is 00:30 and 01:30 in UTC."""
    for instant in ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"):
        assert may_hold("seen = '2026-10-25 02:30:00'", zone="Europe/Berlin", seen=(instant, instant))
        assert may_hold("seen <> '2026-10-25 02:30:00'", zone="Europe/Berlin", seen=(instant, instant))


def test_booleans_decimals_and_doubles() -> None:
    assert not may_hold("open", open=(False, False))
    assert not may_hold("NOT open", open=(True, True))
    assert may_hold("open = true", open=(False, True))
    assert not may_hold("price = 1.50", price=("1.51", "2.00"))
    assert may_hold("price = 1.5", price=("1.50", "2.00"))
    assert not may_hold("share > 5", share=(0.5, 5.0))


@pytest.mark.parametrize("bound", ["x", True, 1.5, [1], {"a": 1}, "2026-11-20", "NaN", "1E+999999999", "", "9" * 500])
def test_a_bound_of_another_type_says_nothing(bound: Any) -> None:
    for column in TYPES:
        if isinstance(bound, str) and TYPES[column] in ("string", "date"):
            continue
        for literal in ("1", "'x'", "true", "'2026-11-21'"):
            where = f"{column} = {literal} OR {column} < {literal}"
            if column not in ("day", "hour", "share"):
                facts: dict[str, Any] = json.loads(json.dumps({column: [bound, bound]}))
                assert may_hold(where, **facts)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nonsense = 5", "names 'nonsense', which is no column of the table; it has id, price"),
        ("id = ", "cannot be read as a condition"),
        ("id = 5 AND", "cannot be read as a condition"),
        ("(" * 3000, "cannot be read as a condition"),
    ],
)
def test_what_is_no_condition_on_the_table_is_refused(where: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message.replace("(", r"\(")):
        may_hold(where)


def test_columns_that_nobody_recorded_leave_nothing_out() -> None:
    world = World()
    world.commit("1", [data("1")])
    assert len(world.snapshot().where("anything = 1").files) == 1


# --- of a table ---------------------------------------------------------------------------------------------------


def test_a_snapshot_with_a_condition_is_the_snapshot_of_that_condition(table: Table) -> None:
    for day in ("2026-11-20", "2026-11-21"):
        transaction = table.begin(partition_by=["day"])
        bounds = Bounds(f"{day}T12:00:00Z", f"{day}T13:00:00Z", 0)
        stage(table, transaction, partition={"day": day}, statistics={"seen": bounds})
        kinds = {"seen": "timestamp", "day": "date"}
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
        transaction.commit({"type": "struct", "fields": fields})
    first, second = (file.path for file in table.snapshot().files)
    for condition, zone, paths in (
        ("day = '2026-11-21'", None, [second]),
        ("day = '2026-11-22'", None, []),
        ("seen <= '2026-11-20 18:00:00'", "Asia/Tokyo", []),
        ("seen <= '2026-11-20 18:00:00'", "UTC", [first]),
    ):
        expected = table.snapshot().where(condition, time_zone=zone)
        found = table.snapshot(where=condition, time_zone=zone)
        assert found == expected
        assert [file.path for file in found.files] == paths
    assert not table.snapshot(table.history()[-1].tid, where="day = '2026-11-21'").files
    assert len(table.snapshot(where=None).files) == 2


def test_a_snapshot_with_what_is_no_condition_is_refused(table: Table) -> None:
    transaction = table.begin()
    stage(table, transaction)
    transaction.commit(SCHEMA)
    with pytest.raises(InvalidInputError, match="nothing"):
        table.snapshot(where="nothing = 1")
    with pytest.raises(InvalidInputError, match="there is no `where`"):
        table.snapshot(time_zone="UTC")
