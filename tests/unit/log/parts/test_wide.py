"""What valid writers put into a part is read back, however much smaller it is packed.

Rules: PROTOCOL.md 7.7.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from dbio_commit.log.parts import parquet, rows
from dbio_commit.protocol import names

NOW = datetime(2026, 11, 20, tzinfo=UTC)
MIB = 1024**2


def commits(count: int, columns: int) -> pa.Table:
    """Commits of a table with many columns, all of which have statistics."""
    values: dict[str, Any] = {
        "tid": [f"{number:019}" for number in range(count)],
        "columns": [[f"a_column_of_a_wide_table_{number}" for number in range(columns)]] * count,
    }
    return _filled(rows.COMMITS, values, count)


def files(count: int) -> pa.Table:
    """Files with long paths, all of which lie in directories of their own."""
    values: dict[str, Any] = {
        "directory": [
            "/".join(f"p{it}={'v' * 325}" for it in range(12)) + f"/n={number:06}" for number in range(count)
        ],
        "name": [f"part-{number:06}.parquet" for number in range(count)],
    }
    return _filled(rows.FILES, values, count)


def _filled(schema: pa.Schema, values: dict[str, Any], count: int) -> pa.Table:
    def column(field: Any) -> Any:
        if field.name in values:
            plain = pa.array(values[field.name])
            return plain.cast(field.type) if not pa.types.is_dictionary(field.type) else plain.dictionary_encode()
        if field.name == "tid" or not (pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)):
            value: Any = "1" if field.name == "tid" else [] if pa.types.is_list(field.type) else 0
            plain = pa.array([value] * count, pa.int64() if value == 0 else None)
            return plain.dictionary_encode() if pa.types.is_dictionary(field.type) else plain.cast(field.type)
        return pa.nulls(count, field.type)

    return pa.table([column(field) for field in schema], schema=schema)


@pytest.mark.parametrize("table", [commits(9_000, 500), files(30_000)], ids=["commits", "files"])
def test_a_part_of_texts_that_repeat_themselves_is_read_back(table: pa.Table) -> None:
    kind: Any = "files" if table.schema.equals(rows.FILES) else "commits"
    body, part = parquet.encode_part(table, kind=kind, name=names.part(1, "a" * 32), since=1, until=1)
    footer = body[-part.footer :]
    bodies = {i: body[it.at : it.at + it.bytes] for i, it in enumerate(part.groups)}
    assert table.nbytes > parquet._MOST_UNPACKED
    assert parquet.decode_groups(part, footer, bodies, table.schema).num_rows == table.num_rows
    for i, piece in bodies.items():
        assert parquet.decode_groups(part, footer, {i: piece}, table.schema).num_rows == part.groups[i].rows


def test_where_a_mask_is_true_is_found_in_every_one() -> None:
    """An older PyArrow ends the process if a mask has no chunks, as those of filtered tables."""
    none = pa.table({"is": pa.array([True])}).filter(pa.array([False]))["is"]
    assert [rows.places_in(mask).to_pylist() for mask in (none, pa.array([False, True, None]))] == [[], [1]]
