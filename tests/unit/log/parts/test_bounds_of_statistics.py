"""What a writer makes of statistics is within the bounds of readers, however well it is packed (PROTOCOL.md 7.7)."""

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from dbio_commit.log.parts import merging, parquet
from dbio_commit.log.parts.parquet import DamagedPart, OpenStatistics, encode_statistics

NAME = f"_part_{1:020}-{0:032x}"

LONGEST = "\U0001f40d" * 64
"""64 characters of 4 bytes: the longest text that a marker records as a bound."""


def opened(*tables: pa.Table) -> OpenStatistics:
    body, told = encode_statistics(iter(tables), name=NAME)
    return OpenStatistics(told, body[-told.footer :], lambda at, size: body[at : at + size])


def constants(rows: int, columns: int, value: object = LONGEST) -> pa.Table:
    kind = "text" if isinstance(value, str) else "int"
    array: Any = pa.array([value] * rows, pa.string() if kind == "text" else pa.int64())
    return pa.table({f"{fact}.{kind}.c{i:03}": array for fact in ("min", "max") for i in range(columns)})


def as_before() -> object:
    """Writers of before did not divide a row group."""
    return patch.object(parquet, "_statistics_groups", lambda table: iter([table]))


@pytest.mark.parametrize(
    "table",
    [
        constants(parquet.STATISTICS_ROWS, 10),  # 168 MB that are packed to a few kB
        constants(2_000, 300),  # 307 MB in 600 columns
        constants(1, 1_000),
        constants(parquet.STATISTICS_ROWS, 100, 2**62),
        constants(20_000, 1, "x" * 4_000),  # another writer's texts may be longer
        constants(3, 1, "x" * 20 * 1024**2),
    ],
    ids=["long texts", "hundreds of columns", "one row", "numbers", "too long texts", "very long texts"],
)
def test_readers_take_what_a_writer_makes(table: pa.Table) -> None:
    found = opened(table)
    assert sum(found.group_rows) == table.num_rows
    for group, rows in enumerate(found.group_rows):
        assert rows == 1 or found.unpacked_bytes(group) <= 1.1 * parquet.STATISTICS_BYTES
        if group in (0, len(found.group_rows) - 1):
            read = found.read(found.columns, group)
            assert read.equals(table.slice(0, rows).combine_chunks())


def test_row_groups_of_writers_of_before_are_read() -> None:
    """100 columns with the same long texts: 840 MB, of which each column chunk has 8 MB."""
    table = constants(parquet.STATISTICS_ROWS // 4, 200)
    with as_before():  # type: ignore[attr-defined]
        found = opened(table)
    assert found.group_rows == [table.num_rows]
    assert found.unpacked_bytes(0) > 3 * parquet.STATISTICS_BYTES
    for some in found.batches(found.columns, 0):
        assert found.read(some, 0).num_rows == table.num_rows


@pytest.mark.parametrize("old", [False, True], ids=["new", "of before"])
def test_a_merge_keeps_all_statistics(
    old: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parquet, "STATISTICS_BYTES", 2 * 1024**2)
    monkeypatch.setattr(merging, "_MOST_KEPT_BYTES", 2 * 1024**2)
    table = pa.table({f"min.text.c{i}": [f"{j:05}" + LONGEST[5:] for j in range(3_000)] for i in range(8)})
    if old:
        with as_before():  # type: ignore[attr-defined]
            source = opened(table)
        assert source.unpacked_bytes(0) > 2 * parquet.STATISTICS_BYTES
    else:
        source = opened(table)
    inputs = merging._Inputs([source, None])
    places = merging._Places()
    places.parts.extend([0] * 3_000 + [1] * 10)
    places.places.extend([*range(3_000), *range(10)])
    read = inputs.of(places)
    assert read
    tables = [*read()]
    assert max(it.num_rows for it in tables) < 1_500
    merged = pa.concat_tables(tables)
    assert merged.slice(0, 3_000).combine_chunks().equals(table)
    assert merged.slice(3_000)["min.text.c0"].null_count == 10
    assert not caplog.records


def test_a_merge_loses_only_the_column_that_is_damaged_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({f"min.int.c{i}": pa.array(range(100), pa.int64()) for i in range(5)})
    body, told = encode_statistics(iter([table]), name=NAME)
    whole = OpenStatistics(told, body[-told.footer :], lambda at, size: body[at : at + size])
    at = whole._places[0][3][0] + 30
    broken = body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :]
    source = OpenStatistics(told, body[-told.footer :], lambda at, size: broken[at : at + size])
    places = merging._Places()
    places.parts.extend([0] * 100)
    places.places.extend(range(100))
    read = merging._Inputs([source]).of(places)
    assert read
    merged = pa.concat_tables([*read()])
    assert merged["min.int.c3"].null_count == 100
    assert merged.drop_columns("min.int.c3").equals(table.drop_columns("min.int.c3"))
    [record] = caplog.records
    assert "min.int.c3 of 100 files is not known any more" in record.getMessage()


def test_few_bytes_that_unpack_to_more_than_any_writer_packs_are_refused() -> None:
    with as_before():  # type: ignore[attr-defined]
        found = opened(constants(1_000, 1, "x" * 100_000))  # 100 MB in one column chunk
    with pytest.raises(DamagedPart, match="more than any writer packs"):
        found.read(found.columns[:1], 0)


def test_many_columns_that_unpack_to_more_than_any_writer_packs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with as_before():  # type: ignore[attr-defined]
        found = opened(constants(1_000, 50, "x" * 1_000))  # 100 MB
    monkeypatch.setattr(parquet, "STATISTICS_BYTES", 8 * 1024**2)
    with pytest.raises(DamagedPart, match="more than any writer packs"):
        found.read(found.columns, 0)
