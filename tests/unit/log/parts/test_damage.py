"""A part that was changed on its way is never read as another one. Rules: PROTOCOL.md 7.7.

Each test tries a sample of all bits; with `DBIO_TEST_RANDOM=1` all of them.
"""

import io
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dbio_commit.base.errors import CheckpointLostError, DbioError
from dbio_commit.log.parts import parquet
from dbio_commit.log.parts.reader import PartReader
from dbio_commit.log.parts.rows import FILES, files_table, gone_row
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Decided
from dbio_commit.protocol.markers.commit import bounds_in
from dbio_commit.protocol.markers.files import Bounds, FileInfo, pack_files
from dbio_commit.protocol.parts import Group, Part
from dbio_commit.testing import MemoryStore
from tests.builders import NOW, data, marker
from tests.tiny_parts import tiny_parts
from tests.unit.log.parts.chains import Chain, merging, said

EACH = 1 if "DBIO_TEST_RANDOM" in os.environ else 211
"""Every so manieth bit; a prime, so that each bit of a byte has its turn."""


def appended(tid: str, count: int, at: int) -> Decided:
    paths = [f"day={i % 2}/{data(tid, i)}" for i in range(count)]
    files = [
        FileInfo(
            path=path,
            size=i * 1000,
            rows=i,
            partition={"day": str(i % 2)},
            statistics={"x": Bounds(i, i + 5, 0), "x.y": Bounds("a" * i, "b", None), "f": Bounds(0.5 * i, 2.5, 1)},
        )
        for i, path in enumerate(paths)
    ]
    return Decided(NOW + timedelta(seconds=at), tid, marker(paths, files=pack_files(files)))


@pytest.fixture(scope="module")
def chain() -> Chain:
    found = Chain(MemoryStore())
    with tiny_parts(), merging(lambda found, cuts: []):
        removal = Decided(NOW + timedelta(seconds=3), "3", marker([], [f"day=0/{data('1')}"]))
        found.write([appended("1", 4, 0), appended("2", 3, 1), removal])
    found.check()
    return found


def damages(body: bytes) -> Iterator[bytes]:
    """Single bits flipped, and ends cut off."""
    for bit in range(0, len(body) * 8, EACH):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)
    yield from (body[:length] for length in range(0, len(body), EACH))


def part_of(chain: Chain, kind: str) -> Part:
    [found] = [part for part in chain.root.parts if part.kind == kind]
    return found


@pytest.mark.parametrize("kind", ["files", "commits"])
def test_a_damaged_part_is_an_error(kind: str, chain: Chain) -> None:
    name = part_of(chain, kind).name
    body, at = chain.store.objects[name]
    want, errors = [*map(said, chain.read())], 0
    for damaged in damages(body):
        chain.store.objects[name] = damaged, at
        try:
            assert [*map(said, chain.read())] == want  # a bit that no reader fetches
        except CheckpointLostError as error:
            errors += name in str(error)
        finally:
            chain.store.objects[name] = body, at
    assert errors > 50


def facts(chain: Chain) -> Mapping[tuple[str, str, str, int], Any]:
    """Each fact that the statistics record, by transaction, column, kind of fact, and place of the file."""
    return {
        (commit.tid, column, fact, i): value
        for commit in chain.read()
        for column, bounds in bounds_in(commit.marker).items()
        for fact in ("min", "max", "nulls")
        for i, value in enumerate(getattr(bounds, fact))
    }


def test_damaged_statistics_are_unknown_or_an_error_and_never_others(chain: Chain) -> None:
    statistics = part_of(chain, "files").statistics
    assert statistics
    body, at = chain.store.objects[statistics.name]
    want, worse = facts(chain), 0
    assert len(want) == 7 * 9
    for damaged in damages(body):
        chain.store.objects[statistics.name] = damaged, at
        try:
            found = facts(chain)
            worse += found != want
            assert {key: value for key, value in found.items() if value is not None}.items() <= want.items()
        except (DbioError, ValueError):
            worse += 1
        finally:
            chain.store.objects[statistics.name] = body, at
    assert worse > 50


def test_without_the_checksums_of_columns_damage_is_read_or_ends_in_other_errors(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test before can fail."""
    monkeypatch.setattr(parquet, "_packed_crc", lambda chunk: _Any())
    with pytest.raises(Exception):  # noqa: B017, PT011
        test_damaged_statistics_are_unknown_or_an_error_and_never_others(chain)


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


# --- hostile parts, with the right checksums ----------------------------------------------------------------------


def decoded(table: pa.Table, **options: Any) -> pa.Table:
    """A part of files with this table, as pyarrow writes it with these options."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"compression": "zstd", "use_dictionary": ["directory", "tid", "writer"], **options})
    body = sink.getvalue()
    footer = pq.read_metadata(io.BytesIO(body)).serialized_size + 8
    end = len(body) - footer
    group = Group(first=["", ""], rows=table.num_rows, at=4, bytes=end - 4, crc=zlib.crc32(body[4:end]))
    part = Part(kind="files", name=names.part(1, "0" * 32), since=1, until=1, bytes=len(body), footer=footer,
                crc=zlib.crc32(body[end:]), groups=[group], last=["", ""])  # fmt: skip
    return parquet.decode_groups(part, body[end:], {0: body[4:end]}, FILES)


def some_files(count: int = 3, name: str = "a") -> pa.Table:
    return files_table(gone_row(f"{name}{i}", "1") for i in range(count))


def test_the_hostile_parts_are_made_of_a_good_one() -> None:
    assert decoded(some_files()).equals(some_files())


@pytest.mark.parametrize("column", FILES.names)
def test_a_part_with_other_columns_is_refused(column: str) -> None:
    table, at = some_files(), FILES.get_field_index(column)
    others = [
        table.drop_columns([column]),
        table.rename_columns([f"{it}2" if it == column else it for it in FILES.names]),
        table.set_column(at, column, pa.array([[1]] * 3)),
    ]
    for other in others:
        with pytest.raises(parquet.DamagedPart):
            decoded(other, use_dictionary=False)


def with_value(table: pa.Table, column: str, value: Any) -> pa.Table:
    rows = table.to_pylist()
    rows[1][column] = value
    return pa.Table.from_pylist(rows, table.schema)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((name, None) for name in ("directory", "name", "tid", "whole", "gone")),
        ("size", -1),
        ("rows", -1),
        ("added", -1),
    ],
)
def test_a_part_with_a_value_that_no_writer_writes_is_refused(column: str, value: Any) -> None:
    with pytest.raises(parquet.DamagedPart, match=r"a value is missing|is below 0"):
        decoded(with_value(some_files(), column, value))


def test_a_part_whose_texts_are_no_utf_8_is_refused() -> None:
    noise: Any = pa.array([b"\xff\xfe"] * 3, pa.binary()).view(pa.string())
    at = FILES.get_field_index("name")
    with pytest.raises(parquet.DamagedPart, match="UTF8"):
        decoded(some_files().set_column(at, FILES.field(at), noise))


COLUMNS_OF_STATISTICS: dict[str, Any] = {
    "min": pa.array([1, 2]),
    "min.int": pa.array([1, 2]),
    "least.int.x": pa.array([1, 2]),
    "min.long.x": pa.array([1, 2]),
    "min.text.x": pa.array([1, 2]),
    "nulls.text.x": pa.array(["1", "2"]),
}


@pytest.mark.parametrize("column", COLUMNS_OF_STATISTICS)
def test_statistics_with_a_column_of_another_form_are_refused(column: str) -> None:
    table = pa.table({column: COLUMNS_OF_STATISTICS[column]})
    with pytest.raises(parquet.DamagedPart, match="not those of statistics"):
        opened(table)


def test_a_large_number_that_is_none_is_refused() -> None:
    assert opened(pa.table({"min.big.x": ["-1" + "0" * 20, None]})).read(["min.big.x"]).num_rows == 2
    for text in ("x", "1" * 5000, "1.5", ""):
        with pytest.raises(parquet.DamagedPart, match="no whole number"):
            opened(pa.table({"min.big.x": [text, None]})).read(["min.big.x"])


def opened(table: pa.Table) -> parquet.OpenStatistics:
    body, told = parquet.encode_statistics(iter([table]), name=names.part(1, "0" * 32))
    return parquet.OpenStatistics(told, body[-told.footer :], lambda at, length: body[at : at + length])


def test_statistics_of_another_number_of_rows_are_unknown(chain: Chain) -> None:
    part = part_of(chain, "files")
    assert part.statistics
    want = facts(chain)
    body, told = parquet.encode_statistics(iter([pa.table({"min.int.id": [1]})]), name=part.statistics.name)
    reader = PartReader(chain.store, 1)
    chain.store.objects[told.name] = body, chain.store.objects[told.name][1]
    with pytest.raises(CheckpointLostError, match="another number of rows than the part"):
        reader.open_statistics(structs.replace(part, statistics=told))
    assert want


def test_columns_may_have_another_order_and_unknown_ones_beside_them() -> None:
    table = some_files()
    assert decoded(table.select(FILES.names[::-1]).append_column("of later", table["name"])).equals(table)


def test_a_short_part_of_long_texts_is_refused_before_it_is_unpacked() -> None:
    table = pa.concat_tables([some_files(1, "x" * (1 << 20))] * 300)
    with pytest.raises(parquet.DamagedPart, match="encoding"):
        decoded(table, use_dictionary=True, dictionary_pagesize_limit=1 << 22)
    with pytest.raises(parquet.DamagedPart, match="encoding"):
        decoded(table, column_encoding={"name": "DELTA_BYTE_ARRAY"}, data_page_size=1 << 30)
    with pytest.raises(parquet.DamagedPart, match="would unpack"):
        decoded(table)


def test_a_row_group_of_too_many_rows_is_refused() -> None:
    table = pa.table({it.name: pa.nulls(parquet.MOST_ROWS + 1, it.type) for it in FILES})
    with pytest.raises(parquet.DamagedPart, match="rows"):
        decoded(table, row_group_size=1 << 30)


@given(st.integers(0, 1 << 20), st.integers(0, 255), st.integers(0, 1 << 20))
def test_whatever_a_footer_says_with_the_right_checksum_the_process_goes_on(place: int, byte: int, length: int) -> None:
    sink = io.BytesIO()
    pq.write_table(some_files(), sink, compression="zstd")
    body = bytearray(sink.getvalue())
    size = pq.read_metadata(io.BytesIO(body)).serialized_size + 8
    body[-1 - place % size] = byte
    footer = bytes(body[-size:])
    part = Part(kind="files", name=names.part(1, "0" * 32), since=1, until=1, bytes=len(body), footer=size,
                crc=zlib.crc32(footer), last=["", ""],
                groups=[Group(first=["", ""], rows=3, at=4, bytes=len(body) - size - 4,
                              crc=zlib.crc32(body[4:-size]))])  # fmt: skip
    with suppress(parquet.DamagedPart):
        parquet.decode_groups(part, footer, {0: bytes(body[4:-size])}, FILES)
