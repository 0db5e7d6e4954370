"""What a Parquet file says that its pages hold: as pyarrow counts it, or an error, whatever the bytes are."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.data.pages import Pages, footer_bytes, measure, places
from tests.fuzz import bodies


def written(table: Any, **options: Any) -> bytes:
    body = io.BytesIO()
    pq.write_table(table, body, **options)
    return body.getvalue()


TABLE = pa.table(
    {
        "id": pa.array(range(5000)),
        "text": pa.array([None if i % 7 == 0 else f"text {i % 100}" for i in range(5000)]),
        "nested": pa.array([{"of": [i] * (i % 3)} for i in range(5000)]),
    }
)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("group", [5000, 999])
def test_the_pages_of_each_column_hold_what_pyarrow_says(
    compression: str, dictionary: bool, version: str, group: int
) -> None:
    body = written(
        TABLE, compression=compression, use_dictionary=dictionary, data_page_version=version, row_group_size=group,
        data_page_size=1000, write_page_checksum=True,
    )  # fmt: skip
    metadata = pq.read_metadata(io.BytesIO(body))
    assert footer_bytes(body) == metadata.serialized_size
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    for column in range(metadata.num_columns):
        pages = measure(body, [column])
        chunks = [it.column(column) for it in groups]
        headers = sum(it.total_uncompressed_size for it in chunks) - pages.unpacked_bytes  # which pyarrow counts, too
        assert 0 < headers < 0.5 * len(body)
        values = pages.values - sum(it.num_values for it in chunks)  # those of dictionaries come in addition
        assert (0 < values <= 5000) if any(it.has_dictionary_page for it in chunks) else values == 0
    each = [measure(body, [column]) for column in range(metadata.num_columns)]
    together = Pages(
        sum(it.unpacked_bytes for it in each),
        sum(it.values for it in each),
        frozenset[int]().union(*(it.encodings for it in each)),
    )
    assert measure(body, range(metadata.num_columns)) == together
    chunks = [it.column(column) for it in groups for column in range(metadata.num_columns)]
    assert sum(stop - at for group in places(body) for at, stop in group) == sum(
        it.total_compressed_size for it in chunks
    )


def test_a_footer_that_says_less_than_the_pages_hold_is_not_believed() -> None:
    text = "x" * 1_000_000
    body = written(pa.table({"text": [text]}), compression="zstd")
    size = pq.read_metadata(io.BytesIO(body)).row_group(0).column(0).total_uncompressed_size
    number = bytearray()
    rest = size << 1
    while rest:
        number.append((rest & 127) | (128 if rest > 127 else 0))
        rest >>= 7
    lying = body.replace(b"\x16" + bytes(number), b"\x16" + bytes([number[0] | 128, *[128] * (len(number) - 2), 0]))
    assert lying != body
    assert pq.read_metadata(io.BytesIO(lying)).row_group(0).column(0).total_uncompressed_size < 1000
    assert measure(lying, [0]).unpacked_bytes > 1_000_000


@given(bodies.damaged(st.just(written(TABLE.slice(0, 20), compression="none"))) | st.binary(max_size=100))
def test_whatever_the_bytes_are_there_is_a_count_or_a_value_error(body: bytes) -> None:
    try:
        pages = measure(body, range(3))
    except (ValueError, TypeError):
        return
    assert min(pages.unpacked_bytes, pages.values) >= 0
