"""Field ids in files: pyarrow writes and reads them at any depth, and other ids are known as such."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbio_commit.data.columns import arrow_schema
from dbio_commit.data.field_ids import field_ids_in, with_field_ids
from dbio_commit.protocol.field_ids import FieldIds
from tests.histories import columns

LIST = {"type": "array", "elementType": "long", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": LIST, "valueContainsNull": True}
COLUMNS = columns(id="long", Name="string", l=LIST, m=MAP, s={**columns(X="date", l=LIST)})
PLAIN = arrow_schema(COLUMNS, where="here")


def read(schema: pa.Schema) -> pa.Schema:
    body = io.BytesIO()
    pq.write_table(schema.empty_table(), body, store_schema=False)
    return pq.read_schema(body)


def test_each_column_and_field_of_a_file_has_its_id() -> None:
    assert field_ids_in(read(PLAIN), COLUMNS) is FieldIds.NONE
    found = with_field_ids(PLAIN, COLUMNS)
    assert found.equals(PLAIN)
    assert field_ids_in(read(found), COLUMNS) is FieldIds.OWN


def test_a_file_with_some_of_the_columns_has_their_ids() -> None:
    some = pa.schema([PLAIN.field("s"), PLAIN.field("id")])
    found = with_field_ids(some, COLUMNS)
    assert field_ids_in(read(found), columns(s=columns(X="date", l=LIST), id="long")) is FieldIds.OWN
    assert with_field_ids(pa.schema([("other", pa.int64())]), COLUMNS).field("other").metadata is None


@pytest.mark.parametrize("kind", ["variant", "void"])
def test_a_file_has_no_ids_if_iceberg_lacks_a_type(kind: str) -> None:
    assert (
        with_field_ids(PLAIN, {"fields": [*COLUMNS["fields"], *columns(v=kind)["fields"]], "type": "struct"}) is PLAIN
    )


def numbered(schema: pa.Schema, name: str, text: bytes | None) -> pa.Schema:
    fields: list[Any] = [*schema]
    at = schema.get_field_index(name)
    fields[at] = fields[at].with_metadata({} if text is None else {b"PARQUET:field_id": text})
    return pa.schema(fields)


@pytest.mark.parametrize("text", [None, b"7", b"no number", b"\xff"])
def test_another_id_or_none_for_one_column_is_noticed(text: bytes | None) -> None:
    own = with_field_ids(PLAIN, COLUMNS)
    assert field_ids_in(numbered(own, "id", text), COLUMNS) is FieldIds.OTHER


def test_a_renamed_column_has_another_id() -> None:
    own = with_field_ids(PLAIN, COLUMNS)
    moved = [own.field("id").with_name("key"), *(own.field(i) for i in range(1, len(own)))]
    names = {"type": "struct", "fields": [{**COLUMNS["fields"][0], "name": "key"}, *COLUMNS["fields"][1:]]}
    assert field_ids_in(pa.schema(moved), names) is FieldIds.OTHER
    assert field_ids_in(pa.schema(moved), None) is FieldIds.OTHER
