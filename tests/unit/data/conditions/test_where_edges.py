"""Conditions and markers that once left out a file that they must not, or ended in an error: `Snapshot.where`.

Rules: PROTOCOL.md 7.3.
"""

import pytest

from dbio_commit.data.conditions.sql import parse_where
from dbio_commit.data.conditions.tree import Facts
from tests.builders import DESCRIPTOR, World, data
from tests.histories import columns
from tests.unit.data.conditions.test_where import SCHEMA, may_hold


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_a_chain_of_many_terms_is_read(word: str) -> None:
    assert may_hold(f" {word} ".join(["id <> 100"] * 600), id=(5, 9))


@pytest.mark.parametrize("where", ["id = " + "0" * 5000 + "5", "id <> " + "1" * 5000])
def test_a_number_of_many_digits(where: str) -> None:
    assert may_hold(where, id=(5, 9))


def test_a_bound_too_large_for_a_double() -> None:
    assert may_hold("share = 1", share=(10**400, 10**400))


@pytest.mark.parametrize("zone", ["Europe", "America", "a" * 300])
def test_a_zone_that_is_a_directory_or_a_long_name(zone: str) -> None:
    assert may_hold("seen = '2026-11-20'", zone=zone, seen=("2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z"))


@pytest.mark.parametrize("kind", ["TIMESTAMP_NTZ", "TIMESTAMP"])
def test_a_zone_in_a_cast_to_local_time_may_be_ignored(kind: str) -> None:
    """Spark's cast to TIMESTAMP_NTZ (TIMESTAMP, by spark.sql.timestampType) drops +05:00."""
    at = "2026-11-20T07:00:00Z"
    assert may_hold(f"seen = CAST('2026-11-20 07:00:00+05:00' AS {kind})", zone="UTC", seen=(at, at))


def test_a_text_that_the_column_cannot_hold_is_null_to_some_sessions() -> None:
    schema = columns(b="byte")
    for where in ("b <= '128'", "b <> '-129'", "NOT (b > '9999999999')"):
        assert not parse_where(where, schema, zone=None).must_hold(lambda column: Facts(1, 1, 0, 1))
    assert parse_where("b <= '127'", schema, zone=None).must_hold(lambda column: Facts(1, 1, 0, 1))


def test_spark_substitutes_variables_in_texts() -> None:
    assert may_hold("kind = '${spark.some.setting}'", kind=("b", "b"))


def test_a_list_has_one_type_to_which_spark_rounds() -> None:
    assert may_hold("id IN (5.000000000000000001, 123456789012345678901234567890)", id=(5, 5))
    five = "5.00"
    assert may_hold("price IN (5.001, 123456789012345678901234567890123456)", price=(five, five))
    near = "5.000000000000000000000000000001"
    assert may_hold("wide IN (5)", wide=(near, near))


def test_zones_before_1970_differ_between_java_and_python() -> None:
    """America/Nassau in July 1955 is -04:00 to Java's tzdb, and -05:00 in Debian's."""
    at = "1955-07-15T16:00:00Z"
    assert may_hold("seen = '1955-07-15 12:00:00'", zone="America/Nassau", seen=(at, at))


def test_a_column_of_the_file_is_not_the_partitions_one() -> None:
    """A file of `new_file` may hold the partition column, too; the directory says what it is."""
    world = World(descriptor=False)
    world.put_json("_dbio_table", {**DESCRIPTOR, "partition_columns": ["hour"]})
    files = {"size": [5], "rows": [10], "partition": {"hour": ["7"]},
             "statistics": {"hour": {"min": [0], "max": [0], "nulls": [0]}}}  # fmt: skip
    world.commit("1", [f"hour=7/{data('1')}"], schema=SCHEMA, schema_turn=1, files=files)
    assert len(world.snapshot().where("hour = 7").files) == 1


@pytest.mark.parametrize(("hour", "day"), [("99999999999", "2026-11-20"), ("7", "20261120"), ("7", "2026-W47-5")])
def test_a_partition_that_spark_cannot_read_is_null_to_it(hour: str, day: str) -> None:
    """With spark.sql.sources.validatePartitionColumns=false."""
    assert may_hold("hour IS NULL OR day IS NULL", hour=hour, day=day)
