"""Which files lie in a partition that is replaced, however their directories spell its value.

Rules: PROTOCOL.md 6.2, 9.5.
"""

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.partitions import partition_types, replaced_files
from dbio_commit.protocol.state import DataFile
from dbio_commit.table import Table
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import stage


def schema(kind: str) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": "m", "type": kind, "nullable": True, "metadata": {}}]}


def adopted(*directories: str) -> Table:
    clock = ManualClock()
    store = MemoryStore(clock)
    for directory in directories:
        store.put(f"{directory}/a.parquet", b"old")
    table = Table.over(store, clock)
    table.adopt()
    return table


def replace(table: Table, value: str, kind: str | None) -> list[str]:
    """The directories that are live when that partition has been replaced."""
    transaction = table.begin("overwrite_partitions")
    stage(table, transaction, b"new", {"m": value})
    transaction.commit(schema(kind) if kind else None)
    return sorted(file.path.partition("/")[0] for file in table.snapshot().files)


@pytest.mark.parametrize(
    ("kind", "old", "new", "other"),
    [("integer", "01", "1", "99"), ("long", "+7", "7", "99"), ("long", "-07", "-7", "99"),
     ("decimal(5,2)", "01.50", "1.50", "99.00"), ("boolean", "True", "true", "false"),
     ("date", "2026-1-2", "2026-01-02", "2026-01-03"),
     ("timestamp", "2026-11-20T07:30:00", "2026-11-20 07%3A30%3A00", "2026-11-20")],
)  # fmt: skip
def test_a_replacement_of_a_partition_replaces_it_also_where_an_adopted_directory_spells_it_in_another_way(
    kind: str, old: str, new: str, other: str
) -> None:
    value = new.replace("%3A", ":")
    old = old.replace(":", "%3A")
    assert replace(adopted(f"m={old}", f"m={other}"), value, kind) == sorted([f"m={new}", f"m={other}"])


def test_a_replacement_refuses_what_may_be_meant_as_its_partition_and_takes_it_by_its_own_name() -> None:
    table = adopted("m=1.5", "m=2.00")
    with pytest.raises(
        InvalidInputError, match=r"m=1\.5/a\.parquet.*readers do not agree.*overwrite_partition\(.*'1\.5'"
    ):
        replace(table, "1.50", "decimal(5,2)")
    transaction = table.begin("overwrite_partitions")
    transaction.overwrite_partition({"m": "1.5"})
    transaction.overwrite_partition({"m": "1.50"})
    stage(table, transaction, b"new", {"m": "1.50"})
    transaction.commit(schema("decimal(5,2)"))
    assert sorted(file.path.partition("/")[0] for file in table.snapshot().files) == ["m=1.50", "m=2.00"]


def test_texts_that_are_the_same_number_are_not_the_same_text() -> None:
    assert replace(adopted("m=01", "m=2"), "1", "string") == ["m=01", "m=1", "m=2"]


def test_a_replacement_that_cannot_know_what_to_replace_is_refused_and_says_what_to_do() -> None:
    table = adopted("m=01", "m=2")
    with pytest.raises(InvalidInputError, match=r"m=01/a.parquet.*schema="):
        replace(table, "1", None)
    assert {file.path for file in table.snapshot().files} == {"m=01/a.parquet", "m=2/a.parquet"}
    assert replace(table, "2", None) == ["m=01", "m=2"]


def test_partition_columns_have_the_types_of_the_schema_whatever_their_case() -> None:
    assert partition_types(schema("long"), ["M", "other"]) == {"M": "long", "other": None}
    assert partition_types(None, ["m"]) == {"m": None}


def test_null_is_no_number() -> None:
    files = [DataFile("m=__HIVE_DEFAULT_PARTITION__/a", 1, None, {"m": None}), DataFile("m=0/a", 1, None, {"m": "0"})]
    assert replaced_files(files, [{"m": "0"}], {"m": "integer"}) == files[1:]
    assert replaced_files(files, [{"m": None}], {"m": None}) == files[:1]
